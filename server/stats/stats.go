// Package stats counts under the names that dashboards of envoyproxy/ratelimit know, and
// hands the counts to statsd, dogstatsd or Prometheus.
//
// The number of names is bounded. A nil *Registry, and what it returns, counts nothing and
// can be used like any other.
package stats

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxNames is how many names a Registry keeps. Some names hold what clients sent, so
	// that there is no end to them: what comes after counts under Overflow.
	MaxNames = 100_000
	// MaxNameBytes is the longest name. What has a longer one counts under Overflow.
	MaxNameBytes = 1024
	// Overflow is the name of the counter for all that has no name of its own.
	Overflow = "ratelimit.stats.overflow"
)

// Registry holds counters, gauges and timers by their names. All its methods may be called
// at once from anywhere.
type Registry struct {
	mu       sync.RWMutex
	counters map[string]*Counter
	gauges   map[string]*Gauge
	timers   map[string]*Timer
}

// New returns a Registry without any names.
func New() *Registry {
	return &Registry{
		counters: map[string]*Counter{Overflow: {}},
		gauges:   make(map[string]*Gauge),
		timers:   make(map[string]*Timer),
	}
}

// Counter returns the counter of that name: the same one for the same name. What a sink
// could not carry, such as a line break, becomes an underscore first. The counter is
// Overflow's if the name is longer than MaxNameBytes, or new when there are MaxNames.
func (r *Registry) Counter(name string) *Counter {
	if r == nil {
		return nil
	}
	if c, ok := named(r, r.counters, name); ok {
		return c
	}
	return r.counters[Overflow]
}

// Gauge returns the gauge of that name, as Counter does. A gauge that cannot have its name
// is nil and shows nothing, and counts one under Overflow.
func (r *Registry) Gauge(name string) *Gauge {
	if r == nil {
		return nil
	}
	g, ok := named(r, r.gauges, name)
	if !ok {
		r.Counter(Overflow).Add(1)
	}
	return g
}

// Timer returns the timer of that name, as Counter does. A timer that cannot have its name
// is nil and keeps nothing, and counts one under Overflow.
func (r *Registry) Timer(name string) *Timer {
	if r == nil {
		return nil
	}
	t, ok := named(r, r.timers, name)
	if !ok {
		r.Counter(Overflow).Add(1)
	}
	return t
}

// named returns what has the name in one of the Registry's maps, and makes it if there is
// room.
func named[T any](r *Registry, in map[string]*T, name string) (*T, bool) {
	name = sanitize(name)
	r.mu.RLock()
	v, ok := in[name]
	r.mu.RUnlock()
	if ok {
		return v, true
	}
	if len(name) > MaxNameBytes {
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok := in[name]; ok {
		return v, true
	}
	if len(r.counters)+len(r.gauges)+len(r.timers) >= MaxNames {
		return nil, false
	}
	v = new(T)
	in[name] = v
	return v, true
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

// Value returns the number that was set last, 0 if none was.
func (g *Gauge) Value() int64 {
	if g == nil {
		return 0
	}
	return g.n.Load()
}

// Timer keeps how long things took.
type Timer struct {
	count atomic.Uint64
	nanos atomic.Int64
}

// Observe keeps that something took d. Less than nothing is nothing.
func (t *Timer) Observe(d time.Duration) {
	if t == nil {
		return
	}
	t.count.Add(1)
	t.nanos.Add(int64(max(d, 0)))
}
