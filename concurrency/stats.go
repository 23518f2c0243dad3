package concurrency

import (
	"math"
	"time"
)

// Mode says what a limiter does with its limit.
type Mode uint8

const (
	Enforce Mode = iota // refuse work beyond the limit
	Observe             // admit all, count what would have been refused, give the limit room but no trials
	Off                 // admit all, count and measure nothing
)

// Reason says why work was refused.
type Reason uint8

const (
	Admitted     Reason = iota // not refused
	OverLimit                  // the limit is reached and nothing may wait
	QueueFull                  // the limit is reached, and as many wait as may
	QueueTimeout               // it waited as long as it may
	TooLate                    // its deadline would have passed before its turn
	Canceled                   // its context ended first: the caller left
	reasons      = iota
)

// String returns the reason as a metric's label: lower case, underscores.
func (r Reason) String() string {
	names := [reasons]string{"admitted", "over_limit", "queue_full", "queue_timeout", "too_late", "canceled"}
	if int(r) < len(names) {
		return names[r]
	}
	return "unknown"
}

// Stats is a limiter's state at one moment, for metrics.
type Stats struct {
	Limit      int     // in force now, trials included
	InFlight   int     // admitted and not released
	Queued     int     // waiting for a place
	Throughput float64 // successes a second, in the last window measured
	LastChange Change  // of the limit

	Successes, Drops, Ignored int64         // released so far
	QueueWait                 time.Duration // spent waiting so far, by all who waited
	Classes                   []ClassStats  // as in Options, then the work without a class
}

// ClassStats is a class's part of [Stats].
type ClassStats struct {
	Name     string // empty for work without a class
	InFlight int
	Admitted int64
	Shed     map[Reason]int64 // refused so far; in Observe mode, what would have been
}

// Change is one move of the limit.
type Change struct {
	After    time.Duration // since the limiter was made
	From, To int
	Why      string // trial, follows, settled, drops, restored, room (all of Auto, see auto.go) or latency
}

// Stats returns the present state. It takes the lock that closing a window takes,
// so call it as often as metrics are read, not once a request.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.absorb()
	s := Stats{
		Limit:      int(l.limit.Load()),
		InFlight:   int(l.inFlight.Load()),
		Throughput: math.Float64frombits(l.throughput.Load()),
		LastChange: l.lastChange,
		Successes:  l.total.successes,
		Drops:      l.total.drops,
		Ignored:    l.total.ignored,
	}
	if l.queue != nil {
		s.Queued = int(l.queue.waiting.Load())
		s.QueueWait = time.Duration(l.queue.waited.Load())
	}
	for _, c := range l.classes {
		shed := map[Reason]int64{}
		for r := range c.shed {
			if n := c.shed[r].Load(); n > 0 {
				shed[Reason(r)] = n
			}
		}
		s.Classes = append(s.Classes, ClassStats{c.name, int(c.inFlight()), c.admitted.Load(), shed})
	}
	return s
}
