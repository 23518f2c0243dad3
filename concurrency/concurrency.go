// Package concurrency limits the work in flight in one process, so that a server
// asked for more than it can do refuses the excess at once and does the rest in
// good time. Nobody sets the limit: it is found, and followed when it moves.
//
// A rate limit guards a server from its callers; a concurrency limit guards it
// from itself. The default algorithm, [Auto], keeps no latency baseline. It asks
// now and then whether throughput follows the limit, and that is all it needs:
// where more work in flight yields no more answers, the limit is high enough.
//
// What it gives up: work that never saturates anything is not measured, only
// given room; and below about ten answers a second a decision takes minutes.
// Do not use it to share capacity between tenants: that is what rates are for.
package concurrency

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Limiter admits work while fewer than its limit are in flight. Use [New]. All
// methods may be called from any goroutine.
type Limiter struct {
	mode    Mode
	start   time.Time
	classes []*Class // most important first; the last is for work without a class

	limit    atomic.Int64 // in force now: whole units, at least 1
	inFlight atomic.Int64
	tickets  sync.Pool
	samples  sampler
	tickAt   atomic.Int64 // nanoseconds since start at which a release looks at the window
	queue    *queue       // nil where nothing waits

	mu         sync.Mutex // guards what follows
	algorithm  algorithm
	window     window
	opened     int64         // when the window began
	looked     int64         // when it was last looked at
	settling   bool          // the limit moved: what is measured now is not yet its effect
	settled    int64         // when settling ends, if the work in flight fits the limit by then
	settleBy   int64         // when it ends in any case
	place      time.Duration // how long a place was held in the last window
	total      window        // of all windows
	lastChange Change

	throughput atomic.Uint64 // float64 bits, answers a second in the last window
	shedRate   atomic.Uint64 // float64 bits, refusals a second in the last window
}

// Options configures a [Limiter]. The zero value is [Auto] between 1 and 1,000,
// from 20, enforced, with no queue and one class.
type Options struct {
	Algorithm Algorithm // how the limit is found; default Auto
	Mode      Mode      // default Enforce

	Initial int // limit to start from; default 20, or the nearest bound
	Min     int // lowest limit; default 1
	Max     int // highest limit; default 1000

	// Timeout is the latency above which [AIMD] counts an answer as a drop; default
	// 5 s. The other algorithms need no such figure and refuse one.
	Timeout time.Duration

	QueueLength  int           // how many may wait for a place; default 0, nobody waits
	QueueTimeout time.Duration // longest wait; default 100 ms, needs a QueueLength

	// Classes are the kinds of work told apart, most important first.
	Classes []ClassOptions
}

// New returns a limiter. It starts no goroutine and needs no closing. The error
// names every field that is wrong.
func New(opts Options) (*Limiter, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	l := &Limiter{mode: opts.Mode, start: time.Now(), samples: newSampler(), algorithm: newAlgorithm(opts)}
	l.limit.Store(int64(opts.Initial))
	l.tickets.New = func() any { return &ticket{limiter: l} }
	for _, c := range opts.Classes {
		l.classes = append(l.classes, &Class{limiter: l, name: c.Name, share: c.Share, rank: len(l.classes)})
	}
	l.classes = append(l.classes, &Class{limiter: l, rank: len(l.classes)})
	if opts.QueueLength > 0 {
		l.queue = newQueue(opts.QueueLength, opts.QueueTimeout, l.classes)
	}
	return l, nil
}

// Acquire asks for a place for work without a class. See [Class.Acquire].
func (l *Limiter) Acquire(ctx context.Context) (Permit, bool) {
	return l.classes[len(l.classes)-1].Acquire(ctx)
}

// Class returns the class of that name in [Options.Classes], or false.
func (l *Limiter) Class(name string) (*Class, bool) {
	for _, c := range l.classes[:len(l.classes)-1] {
		if c.name == name {
			return c, true
		}
	}
	return nil, false
}

// RetryAfter is a hint for callers who were refused: the time in which the work
// refused in a second could be done at the present throughput, between 1 s and
// 30 s, plus up to half of that at random so that they do not return together.
func (l *Limiter) RetryAfter() time.Duration {
	seconds := 1.0
	if rate := math.Float64frombits(l.throughput.Load()); rate > 0 {
		backlog := math.Float64frombits(l.shedRate.Load())
		if l.queue != nil {
			backlog += float64(l.queue.waiting.Load())
		}
		seconds = min(max(backlog/rate, 1), 30)
	}
	return time.Duration(seconds * (1 + rand.Float64()/2) * float64(time.Second))
}

// Permit is one place in flight, to be released once. The zero Permit holds
// nothing, and releasing it does nothing.
type Permit struct {
	ticket     *ticket
	generation uint64
	reason     Reason
}

// Outcome says how admitted work ended.
type Outcome uint8

const (
	Success Outcome = iota // an answer was given, of whatever kind: it counts as throughput
	Ignore                 // no answer, and no sign of overload by itself, as when the caller left
	Drop                   // not done in time, or shed by something further down
)

// Release gives the place back and reports the outcome; an unknown one counts as
// [Ignore]. It returns false, and changes nothing, if the permit was released
// before or never held a place.
func (p Permit) Release(outcome Outcome) bool {
	t := p.ticket
	if t == nil || !t.generation.CompareAndSwap(p.generation, p.generation+1) {
		return false
	}
	t.limiter.release(t, outcome)
	return true
}

// Reason says why the work was refused; [Admitted] if it was not.
func (p Permit) Reason() Reason { return p.reason }

// ticket remembers an admission until its release. Tickets are used again, each
// time under a new generation, so that a permit released twice is told apart.
type ticket struct {
	limiter    *Limiter
	class      *Class
	generation atomic.Uint64
	began      int64
	inFlight   int64 // at admission, itself included
	atLimit    bool  // admitted into the last tenth of the limit
}

// now is the monotonic time since the limiter was made, in nanoseconds.
func (l *Limiter) now() int64 { return int64(time.Since(l.start)) }

// take takes one of the limit's places, if there is one. This compare-and-swap is
// all that two admissions contend for.
func (l *Limiter) take() (inFlight int64, ok bool) {
	limit := l.limit.Load()
	for {
		n := l.inFlight.Load()
		if n >= limit {
			return n, false
		}
		if l.inFlight.CompareAndSwap(n, n+1) {
			return n + 1, true
		}
	}
}

// admit hands out a permit for a place that was taken.
func (l *Limiter) admit(c *Class, inFlight int64) Permit {
	t := l.tickets.Get().(*ticket)
	t.class, t.began, t.inFlight = c, l.now(), inFlight
	t.atLimit = 10*inFlight >= 9*l.limit.Load()
	return Permit{ticket: t, generation: t.generation.Load()}
}

func (l *Limiter) release(t *ticket, outcome Outcome) {
	now := l.now()
	l.samples.add(t, outcome, now-t.began)
	t.class.released.Add(1)
	l.inFlight.Add(-1)
	l.tickets.Put(t)
	if now >= l.tickAt.Load() {
		l.tick(now)
	}
	if l.queue != nil && l.queue.waiting.Load() > 0 {
		l.queue.serve()
	}
}

func (o Options) complete() (Options, error) {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf("concurrency: "+format, args...)) }

	if o.Algorithm > Fixed {
		refuse("Algorithm is %d, want Auto, Vegas, Gradient2, AIMD or Fixed", o.Algorithm)
	}
	if o.Mode > Off {
		refuse("Mode is %d, want Enforce, Observe or Off", o.Mode)
	}
	o.Min = orDefault(o.Min, 1)
	o.Max = orDefault(o.Max, max(o.Min, 1000))
	if o.Min < 1 || o.Max < o.Min || o.Max > math.MaxInt32 {
		refuse("Min is %d and Max is %d, want 1 <= Min <= Max <= %d", o.Min, o.Max, math.MaxInt32)
	} else {
		o.Initial = orDefault(o.Initial, min(max(20, o.Min), o.Max))
		if o.Initial < o.Min || o.Initial > o.Max {
			refuse("Initial is %d, want %d to %d (Min to Max)", o.Initial, o.Min, o.Max)
		}
	}
	if o.Timeout != 0 && o.Algorithm != AIMD {
		refuse("Timeout is %v, but only AIMD has one: leave it out", o.Timeout)
	} else if o.Timeout < 0 {
		refuse("Timeout is %v, want more than 0", o.Timeout)
	}
	o.Timeout = orDefault(o.Timeout, 5*time.Second)
	if o.QueueLength < 0 {
		refuse("QueueLength is %d, want 0 or more", o.QueueLength)
	}
	if o.QueueTimeout < 0 || o.QueueTimeout > 0 && o.QueueLength == 0 {
		refuse("QueueTimeout is %v with QueueLength %d, want more than 0 and a queue", o.QueueTimeout, o.QueueLength)
	}
	o.QueueTimeout = orDefault(o.QueueTimeout, 100*time.Millisecond)
	return o, errors.Join(append(errs, validClasses(o.Classes)...)...)
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
