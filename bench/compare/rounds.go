package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// metric is one thing that a run measures.
type metric struct {
	name, unit string
	more       bool // more is better
}

var (
	rate      = metric{"rate", "/s", true}
	goCPU     = metric{"Go CPU", "µs", false}
	redisCPU  = metric{"Redis CPU", "µs", false}
	serverCPU = metric{"service CPU", "µs", false}
	allocs    = metric{"allocations", "", false}
	p50       = metric{"p50", "µs", false}
	p99       = metric{"p99", "µs", false}
	took      = metric{"time", "ns", false}

	calls = metric{"calls", "", false}
)

// sample is what one run of a contender measured.
type sample map[metric]float64

// contender is one of those that are compared. run does the same work each time, in
// about a second.
type contender struct {
	name string
	run  func() (sample, error)
}

// results are the samples of each contender, in the order of the rounds.
type results map[string][]sample

// interleave runs each contender once a round, so that what else the machine does falls
// on all of them alike.
func interleave(rounds int, contenders ...contender) (results, error) {
	r := results{}
	for range rounds {
		for _, c := range contenders {
			s, err := c.run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			r[c.name] = append(r[c.name], s)
		}
	}
	return r, nil
}

// measured is the best of a contender's runs, and how much worse the worst was.
type measured struct {
	Contender string  `json:"contender"`
	Best      float64 `json:"best"`
	Unit      string  `json:"unit"`
	Spread    float64 `json:"spread"` // worst over best, or best over worst, less 1
}

func (r results) best(name string, m metric) measured {
	least, most := math.Inf(1), math.Inf(-1)
	for _, s := range r[name] {
		least, most = min(least, s[m]), max(most, s[m])
	}
	d := measured{Contender: name, Best: least, Unit: m.unit}
	if m.more {
		d.Best = most
	}
	if least > 0 {
		d.Spread = most/least - 1
	}
	return d
}

// compare returns a row: ours over the best of the peers by one metric.
func (r results) compare(figure, what string, m metric, g goal, ours string, peers ...string) row {
	own := r.best(ours, m)
	w := row{Figure: figure, What: what, Measured: []measured{own}}
	var rivals []float64
	for _, name := range peers {
		p := r.best(name, m)
		w.Measured = append(w.Measured, p)
		rivals = append(rivals, p.Best)
	}
	if m.more {
		return w.judge(g, own.Best/slices.Max(rivals))
	}
	return w.judge(g, own.Best/slices.Min(rivals))
}

// value returns a row of one contender's own figure.
func (r results) value(figure, what string, m metric, g goal, name string) row {
	own := r.best(name, m)
	return row{Figure: figure, What: what, Measured: []measured{own}}.judge(g, own.Best)
}

// beside adds what others measured, for information.
func (w row) beside(r results, m metric, names ...string) row {
	for _, name := range names {
		w.Measured = append(w.Measured, r.best(name, m))
	}
	return w
}

// cpuOf returns the CPU time of a process's threads since they started. It is exact while
// they rest, in nanoseconds, where /proc/PID/stat counts ticks of 10 ms.
func cpuOf(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("no /proc/%d/task/*/schedstat: this needs Linux, and the process to run", pid)
	}
	var sum time.Duration
	for _, file := range files {
		var running int64
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		if _, err := fmt.Sscan(string(text), &running); err != nil {
			return 0, fmt.Errorf("%s has %q: %w", file, text, err)
		}
		sum += time.Duration(running)
	}
	return sum, nil
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perOp returns microseconds for each of n operations.
func perOp(d time.Duration, n int) float64 {
	return float64(d) / float64(time.Microsecond) / float64(n)
}
