package concurrency

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// A window is closed when it is this long, has seen this many answers, and has
// outlasted the usual place in flight a few times over.
const (
	minWindow        = 250 * time.Millisecond
	minWindowSamples = 30
	placesInWindow   = 2
	placesToSettle   = 10              // at most: guaranteed shares may keep more than the limit in flight
	longestGap       = 2 * time.Second // between two looks at a window, else it starts afresh
)

// window is what was measured under one limit. Places whose outcome is ignored count
// as held, for they were, but their latency says nothing.
type window struct {
	elapsed   time.Duration
	limit     float64 // that was in force
	successes int64
	drops     int64
	ignored   int64
	refused   int64
	latency   time.Duration // of all successes and drops together

	held     time.Duration // how long places were held, all together
	squares  int64         // of the same times, in units of 2^30 ns²
	inFlight int64         // at their admissions, all together
	atLimit  int64         // that were admitted into the last tenth of the limit
	peak     int64         // most in flight at an admission
}

func (w *window) answers() int64 { return w.successes + w.drops }

func (w *window) samples() int64 { return w.answers() + w.ignored }

func (w *window) meanLatency() time.Duration { return w.latency / time.Duration(max(w.answers(), 1)) }

// throughput is successes a second: a late answer is no throughput.
func (w *window) throughput() float64 { return float64(w.successes) / w.elapsed.Seconds() }

// steadyThroughput is the same by Little's law, mean in flight over mean time held,
// times the share of successes. Requests admitted together end together, and a count
// of them would depend on whether the window's edge falls before or after.
func (w *window) steadyThroughput() float64 {
	return float64(w.inFlight) / w.held.Seconds() * float64(w.successes) / float64(w.samples())
}

// place is how long the request takes that is found in a place in flight at any one
// moment: the mean time held, weighted by itself. Where few requests are long, it is
// much longer than the mean, and so is the time in which a new limit shows.
func (w *window) place() time.Duration {
	squares := float64(w.squares) * (1 << 30)
	return max(w.meanHeld(), time.Duration(squares/float64(max(w.held, 1))))
}

func (w *window) meanHeld() time.Duration { return w.held / time.Duration(max(w.samples(), 1)) }

// variation is the squared coefficient of variation of the times held.
func (w *window) variation() float64 { return float64(w.place())/float64(max(w.meanHeld(), 1)) - 1 }

// inUse is the mean number of places in flight over the window's time.
func (w *window) inUse() float64 { return w.held.Seconds() / w.elapsed.Seconds() }

// bound reports whether the limit held work back for most of the window. A burst
// that touched the limit and went is not that.
func (w *window) bound() bool { return 2*w.atLimit >= w.samples() }

func (w *window) add(v window) {
	w.successes += v.successes
	w.drops += v.drops
	w.ignored += v.ignored
	w.refused += v.refused
	w.atLimit += v.atLimit
	w.peak = max(w.peak, v.peak)
	w.latency += v.latency
	w.elapsed += v.elapsed
	w.held += v.held
	w.squares += v.squares
	w.inFlight += v.inFlight
}

// tick looks at the window and, when it is complete, has the algorithm choose the
// next limit. One goroutine does so; others that come meanwhile go on.
func (l *Limiter) tick(now int64) {
	if !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	if now < l.tickAt.Load() {
		return
	}
	l.absorb()
	gap := now - l.looked
	l.looked = now
	if l.settling {
		l.settle(now)
		return
	}
	if gap > int64(max(longestGap, placesInWindow*l.place)) {
		l.window, l.opened = window{}, now // there was nothing to do for a while: no measure of anything
		l.tickAt.Store(now + int64(minWindow))
		return
	}
	l.window.elapsed = time.Duration(now - l.opened)
	need := max(minWindow, placesInWindow*l.window.place())
	if l.window.elapsed < need || l.window.samples() < minWindowSamples {
		wait := max(need-l.window.elapsed, minWindow/10)
		l.tickAt.Store(now + int64(min(wait, minWindow)))
		return
	}
	l.closeWindow(now)
}

// settle waits until the work in flight fits the new limit, then for as long
// as a place is held: until then answers still come from the old limit.
func (l *Limiter) settle(now int64) {
	over := l.inFlight.Load() > l.limit.Load() && now < l.settleBy
	if over {
		l.settled = now + int64(l.place)
	}
	if !over && now >= l.settled {
		l.settling, l.opened, l.window = false, now, window{}
		l.tickAt.Store(now + int64(minWindow))
		return
	}
	l.tickAt.Store(now + int64(min(l.place/4, minWindow/10)))
}

func (l *Limiter) closeWindow(now int64) {
	w := l.window
	w.limit = float64(l.limit.Load())
	l.place = w.place()
	l.throughput.Store(math.Float64bits(w.throughput()))
	l.shedRate.Store(math.Float64bits(float64(w.refused) / w.elapsed.Seconds()))
	if l.mode == Observe {
		w.atLimit = 0 // a limit that does not hold cannot be tried, only given room
	}

	limit, why := l.algorithm.next(w)
	from, to := l.limit.Load(), max(1, int64(math.Round(limit)))
	l.window = window{}
	l.opened = now
	l.tickAt.Store(now + int64(minWindow))
	if from == to {
		return
	}
	l.limit.Store(to)
	l.lastChange = Change{After: time.Duration(now), From: int(from), To: int(to), Why: why}
	l.settling, l.settled = true, now+int64(l.place)
	l.settleBy = now + int64(minWindow+placesToSettle*l.place)
	l.tickAt.Store(now)
}

// absorb moves what was sampled into the window.
func (l *Limiter) absorb() {
	for i := range l.samples.shards {
		s := &l.samples.shards[i]
		s.mu.Lock()
		l.window.add(s.window)
		l.total.add(s.window)
		s.window = window{}
		s.mu.Unlock()
	}
}

// sampler takes the outcomes in several places, so that releases seldom meet at one
// lock or cache line.
type sampler struct {
	shards []shard
	mask   uint32
}

type shard struct {
	mu     sync.Mutex
	window window
	_      [24]byte // two cache lines in all: neighbours are fetched in pairs
}

func newSampler() sampler {
	n := 4
	for n < 4*runtime.GOMAXPROCS(0) && n < 256 {
		n *= 2
	}
	return sampler{shards: make([]shard, n), mask: uint32(n - 1)}
}

func (s *sampler) pick() *shard { return &s.shards[rand.Uint32()&s.mask] }

func (s *sampler) refused() {
	d := s.pick()
	d.mu.Lock()
	d.window.refused++
	d.mu.Unlock()
}

func (s *sampler) add(t *ticket, outcome Outcome, nanos int64) {
	d := s.pick()
	d.mu.Lock()
	defer d.mu.Unlock()
	w := &d.window
	held := time.Duration(max(nanos, 1)) // not 0: it is divided by
	switch outcome {
	case Success:
		w.successes++
		w.latency += held
	case Drop:
		w.drops++
		w.latency += held
	default:
		w.ignored++
	}
	w.held += held
	w.squares += (nanos >> 10) * (nanos >> 10) >> 10
	w.inFlight += t.inFlight
	w.peak = max(w.peak, t.inFlight)
	if t.atLimit {
		w.atLimit++
	}
}
