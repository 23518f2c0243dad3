// Compare measures weir beside other limiters and prints a table: each figure's goal,
// what was measured, and whether that meets it.
//
// The contenders of a figure take turns, round by round, in one process and beside one
// Redis server of this program's own; of each the best round counts. What one machine
// needs for a decision means little on another, so figures are ratios. CPU time is the
// process's own, from getrusage and /proc, which only Linux has. Figures that
// fall short are results, not failures: the exit code says only whether all was measured.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is what every figure needs to know.
type bench struct {
	ctx    context.Context
	rounds int
	slice  time.Duration // how long a contender's turn lasts, where it is timed
	redis  *redisServer
	dir    string // for files
}

// scale returns n, or a tenth of it in a short run.
func (b *bench) scale(n int) int {
	if b.slice < fullSlice {
		return max(n/10, 1)
	}
	return n
}

const fullSlice = time.Second

// figures in the order of the table. Those that share their runs are one entry.
var figures = []struct {
	names []string
	run   func(*bench) ([]row, error)
}{
	{[]string{"P1"}, scriptCPU},
	{[]string{"P2"}, refusalCPU},
	{[]string{"P3", "P4", "P5"}, clients},
	{[]string{"P6"}, oneGoroutine},
	{[]string{"P7"}, hotKey},
	{[]string{"P8"}, combining},
	{[]string{"P9", "P10"}, leases},
	{[]string{"P11"}, keyBytes},
	{[]string{"P12"}, logs},
	{[]string{"P13"}, memoryTime},
	{[]string{"P14"}, memoryBytes},
	{[]string{"P15"}, serviceCPU},
	{[]string{"P17"}, serviceRedisCPU},
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == servePeer {
		exit(runPeer(os.Args[2], os.Args[3]))
	}
	rounds := flag.Int("rounds", 5, "how often each contender runs")
	short := flag.Bool("short", false, "a tenth of the time, to see that all works")
	only := flag.String("only", "", "measure these figures only, such as P1,P13")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{ctx: ctx, rounds: *rounds, slice: fullSlice}
	if *short {
		b.slice = fullSlice / 10
	}
	rows, err := b.measure(selected(*only))
	if len(rows) > 0 {
		err = errors.Join(err, b.print(os.Stdout, rows, *asJSON))
	}
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// selected returns the names in a list with commas, or nil for all.
func selected(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// measure runs the figures that are named in only, or all. The error says which could not
// be measured; the rows are the others.
func (b *bench) measure(only []string) ([]row, error) {
	var err error
	if b.dir, err = os.MkdirTemp("", "weir-bench"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.dir)
	if b.redis, err = startRedis(b.ctx); err != nil {
		return nil, err
	}
	defer b.redis.process.Process.Kill()
	var rows []row
	var faults []error
	begin := time.Now()
	for _, f := range figures {
		if only != nil && !slices.ContainsFunc(f.names, func(n string) bool { return slices.Contains(only, n) }) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%4.0f s  %s\n", time.Since(begin).Seconds(), strings.Join(f.names, ", "))
		if _, err := b.redis.do("FLUSHALL"); err != nil {
			return nil, err
		}
		more, err := f.run(b)
		if b.ctx.Err() != nil {
			return nil, b.ctx.Err()
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", strings.Join(f.names, ", "), err))
		}
		rows = append(rows, more...)
		runtime.GC()
	}
	if only != nil {
		rows = slices.DeleteFunc(rows, func(w row) bool { return !slices.Contains(only, w.Figure) })
	}
	fmt.Fprintf(os.Stderr, "%4.0f s  done\n", time.Since(begin).Seconds())
	return rows, errors.Join(faults...)
}

// print writes the rows and the machine that they come from.
func (b *bench) print(to io.Writer, rows []row, asJSON bool) error {
	machine := map[string]string{
		"date": time.Now().UTC().Format(time.DateOnly), "go": runtime.Version(), "system": runtime.GOOS + "/" + runtime.GOARCH,
		"cores": fmt.Sprint(runtime.NumCPU()), "cpu": cpuModel(), "redis": b.redis.version, "rounds": fmt.Sprint(b.rounds),
		"load": loadAverage(),
	}
	if b.slice < fullSlice {
		machine["rounds"] += " short"
	}
	if asJSON {
		e := json.NewEncoder(to)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"machine": machine, "rows": rows})
	}
	fmt.Fprintf(to, "# weir beside other limiters\n\nPrinted by `make bench`: %s, %s %s, %s cores of %s, Redis %s, %s rounds;\nload average %s at the end, where 1 or 2 are the table's own.\n",
		machine["date"], machine["go"], machine["system"], machine["cores"], machine["cpu"], machine["redis"], machine["rounds"], machine["load"])
	fmt.Fprint(to, explanation)
	printTable(to, rows)
	return nil
}

const explanation = `
Contenders take turns in each round; the best round of each counts, and the spread says how much worse its worst
was. A value with an x is a ratio to the peer named in the goal, to the best of them where there are several. Unless
the figure says otherwise a limit is 1000 a second with a burst of 1000, keys in Redis are equally long, and clients
are at their defaults.

`

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(text) {
		if name, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "an unknown CPU"
}

// loadAverage returns how many threads wanted a core in the last minute.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return load
}
