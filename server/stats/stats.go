// Package stats counts under the names that dashboards of envoyproxy/ratelimit know, and
// hands the counts to statsd, dogstatsd or Prometheus.
//
// A Registry holds the counts. Open joins it to a sink. Nothing that counts waits for a
// sink, and a sink that is away costs no memory: what it has not been told stays in the
// counters.
package stats

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxNames is how many names a Registry keeps, besides those that Configured made.
	// Some names hold what clients sent, so that there is no end to them: what comes after
	// counts under Overflow.
	MaxNames = 100_000
	// MaxNameBytes is the longest name. What has a longer one counts under Overflow.
	MaxNameBytes = 1024
	// Overflow is the name of the counter for all that has no name of its own.
	Overflow = "ratelimit.stats.overflow"
)

// Registry holds counters, gauges and timers by their names. All its methods may be called
// at once from anywhere. A nil *Registry counts nothing and can be used like any other, and
// so can the nil counters, gauges and timers that it returns.
type Registry struct {
	overflow *Counter
	hasSink  atomic.Bool

	mu       sync.RWMutex
	counters table[Counter]
	gauges   table[Gauge]
	timers   table[Timer]
	free     int // names that may still be made
	before   []func()
	timing   func(name string) durations // where a sink wants those of a timer
}

// table finds values by name, and lists them in the order in which they were made.
type table[T any] struct {
	byName map[string]*T
	list   []named[T] // only ever appended to
}

type named[T any] struct {
	name  string
	value *T
}

// New returns a Registry that has counted nothing yet.
func New() *Registry {
	r := &Registry{free: MaxNames}
	r.overflow = find(r, &r.counters, Overflow, math.MaxInt)
	return r
}

// Counter returns the counter of that name: the same one for the same name. What a sink
// could not carry, such as a line break, becomes an underscore first. The counter is
// Overflow's if the name is longer than MaxNameBytes, or is new when there are MaxNames.
func (r *Registry) Counter(name string) *Counter { return r.counter(name, 0) }

// Configured returns the counter of a name that is made of the configuration alone. It has
// its own counter also when clients have used up MaxNames.
func (r *Registry) Configured(name string) *Counter { return r.counter(name, math.MaxInt) }

func (r *Registry) counter(name string, beyond int) *Counter {
	if r == nil {
		return nil
	}
	if c := find(r, &r.counters, name, beyond); c != nil {
		return c
	}
	return r.overflow
}

// Gauge returns the gauge of that name, as Counter does. One that cannot have its name is
// nil and shows nothing; Overflow counts one more.
func (r *Registry) Gauge(name string) *Gauge {
	if r == nil {
		return nil
	}
	g := find(r, &r.gauges, name, 0)
	if g == nil {
		r.overflow.Add(1)
	}
	return g
}

// Timer returns the timer of that name, as Counter does. One that cannot have its name is
// nil and keeps nothing; Overflow counts one more.
func (r *Registry) Timer(name string) *Timer {
	if r == nil {
		return nil
	}
	t := find(r, &r.timers, name, 0)
	if t == nil {
		r.overflow.Add(1)
	}
	return t
}

// BeforeRead has set called each time that somebody is about to read all values, so that it
// can set gauges which cost something to find out. It must not block, nor call BeforeRead.
func (r *Registry) BeforeRead(set func()) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = append(r.before, set)
}

// find returns what has the name in one of the Registry's tables, and makes it while that
// many names beyond MaxNames are not yet used. Else it returns nil.
func find[T any](r *Registry, t *table[T], name string, beyond int) *T {
	name = sanitize(name)
	r.mu.RLock()
	v := t.byName[name]
	r.mu.RUnlock()
	if v != nil || len(name) > MaxNameBytes {
		return v
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := t.byName[name]; v != nil {
		return v
	}
	if beyond == 0 {
		if r.free == 0 {
			return nil
		}
		r.free--
	}
	v = new(T)
	if t.byName == nil {
		t.byName = make(map[string]*T)
	}
	t.byName[name] = v
	t.list = append(t.list, named[T]{name, v})
	if timer, ok := any(v).(*Timer); ok && r.timing != nil {
		timer.to = r.timing(name)
	}
	return v
}

// onTiming has the durations of each timer handed on to what start returns for its name.
func (r *Registry) onTiming(start func(name string) durations) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timing = start
	for _, t := range r.timers.list {
		to := start(t.name)
		t.value.mu.Lock()
		t.value.to = to
		t.value.mu.Unlock()
	}
}

// values are all that a Registry has, in the order in which it was made.
type values struct {
	counters []named[Counter]
	gauges   []named[Gauge]
	timers   []named[Timer]
}

// read returns all values, after those who asked for it have set theirs.
func (r *Registry) read() values {
	r.mu.RLock()
	before := r.before
	r.mu.RUnlock()
	for _, set := range before {
		set()
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return values{r.counters.list, r.gauges.list, r.timers.list}
}

// Counter is a sum that only grows.
type Counter struct{ n atomic.Uint64 }

// Add counts n more.
func (c *Counter) Add(n uint64) {
	if c != nil {
		c.n.Add(n)
	}
}

// Value returns what was counted since the start.
func (c *Counter) Value() uint64 {
	if c == nil {
		return 0
	}
	return c.n.Load()
}

// Gauge is a number that goes up and down.
type Gauge struct{ n atomic.Int64 }

// Set makes n the gauge's number.
func (g *Gauge) Set(n int64) {
	if g != nil {
		g.n.Store(n)
	}
}

// Add adds n, which may be below zero.
func (g *Gauge) Add(n int64) {
	if g != nil {
		g.n.Add(n)
	}
}

// Value returns the number, 0 if none was set.
func (g *Gauge) Value() int64 {
	if g == nil {
		return 0
	}
	return g.n.Load()
}

// Timer keeps how long things took.
type Timer struct {
	mu    sync.Mutex
	count uint64
	sum   time.Duration
	to    durations // of the sink, if it has use for them
}

// durations is where a sink keeps those of one timer, until it needs them.
type durations interface{ add(time.Duration) }

// Observe keeps that something took d. Less than nothing is nothing.
func (t *Timer) Observe(d time.Duration) {
	if t == nil {
		return
	}
	d = max(d, 0)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	t.sum += d
	if t.to != nil {
		t.to.add(d)
	}
}

// Total returns how many durations were observed since the start, and their sum.
func (t *Timer) Total() (count uint64, sum time.Duration) {
	if t == nil {
		return 0, 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count, t.sum
}
