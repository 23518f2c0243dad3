package lease_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/lease"
	"weir.dev/weir/memstore"
	"weir.dev/weir/storetest"
)

// The simulation runs processes, each with a Limiter, a fallback and a lease, in front of
// one store, in virtual time. They ask about a few keys, for one unit or more, about one key
// or two at once, give units back, and reset keys. Requests and answers are late, lost or
// twice there; callers leave; the store fails over to a replica that lacks the last of what was charged and
// has another clock; processes are stopped, suspended and killed, and wall clocks are
// stepped. A run is known by its seed:
//
//	go test ./lease -run TestSimulation -seeds 10000
//	go test ./lease -run TestSimulation/seed_4711
var seeds = flag.Int("seeds", 200, "how many simulations to run")

func TestSimulation(t *testing.T) {
	for seed := range uint64(*seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newWorld(t, seed).run() })
		})
	}
}

const (
	simBudget = 50 * time.Millisecond
	simTime   = 2 * time.Second
	simSkew   = 500 * time.Millisecond // the most that the store's clock is ahead or behind
)

var errRefused = errors.New("the store refuses")

// world is one simulation.
type world struct {
	t     *testing.T
	rand  *rand.Rand // of the world itself: each caller and each link has its own
	seed  uint64
	limit weir.Limit
	opts  lease.Options
	keys  []weir.Key
	load  float64 // asked, as a multiple of the limit
	store simStore
	all   []*process
	ended bool // faults are over

	mu      sync.Mutex
	central map[weir.Key][]storetest.Event // charged to the store, at the time of use
	local   map[string][]storetest.Event   // by process and key
	resets  map[weir.Key]int64
}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 0))
	w := &world{
		t: t, rand: r, seed: seed, load: 0.3 + 2*r.Float64(),
		keys:    []weir.Key{weir.Text("acme"), weir.Text("bolt"), weir.Text("cove")}[:1+r.IntN(3)],
		store:   newSimStore(),
		central: map[weir.Key][]storetest.Event{}, local: map[string][]storetest.Event{}, resets: map[weir.Key]int64{},
	}
	w.limit = weir.Per(200+r.Int64N(400), time.Second).By([]weir.Algorithm{weir.GCRA, weir.GCRA, weir.FixedWindow, weir.SlidingWindow}[r.IntN(4)])
	if w.limit.Algorithm() == weir.GCRA {
		w.limit = w.limit.Burst(100 + r.Int64N(1000))
	}
	w.opts = lease.Options{
		Block: r.Int64N(60), Instances: 2 + r.IntN(4), Budget: simBudget,
		Refill: 0.1 + 0.4*r.Float64(), Expiry: time.Duration(20+r.IntN(480)) * time.Millisecond,
	}
	return w
}

func (w *world) run() {
	for i := range w.opts.Instances {
		w.all = append(w.all, w.start(i, 0))
	}
	for range 2 + w.rand.IntN(6) {
		time.Sleep(time.Duration(w.rand.Int64N(int64(simTime / 5))))
		w.fault()
	}
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	time.Sleep(time.Second)
	for _, p := range w.all {
		p.stop()
	}
	w.check()
}

// fault makes one thing go wrong, and waits until it is over.
func (w *world) fault() {
	i := w.rand.IntN(len(w.all))
	p := w.all[i]
	long := time.Duration(w.rand.Int64N(int64(800 * time.Millisecond)))
	switch w.rand.IntN(7) {
	case 0:
		p.pause(long, false)
	case 1:
		p.pause(long, true)
	case 2: // killed, and started again
		p.stop()
		w.all[i] = w.start(i, p.life+1)
	case 3:
		p.stepped = time.Now()
		p.skew(0, time.Duration(w.rand.Int64N(int64(time.Minute)))-30*time.Second)
	case 4:
		skew := time.Duration(w.rand.Int64N(int64(2*simSkew))) - simSkew
		w.store.failOver(time.Duration(w.rand.Int64N(int64(100*time.Millisecond))), skew*time.Duration(w.rand.IntN(2)))
	case 5:
		w.store.away(true)
		time.Sleep(long)
		w.store.away(false)
	case 6:
		p.reset(w.keys[w.rand.IntN(len(w.keys))])
	}
}

// check holds the history against what is promised.
func (w *world) check() {
	for _, key := range w.keys {
		w.checkCentral(key)
	}
	share := weir.Per(w.limit.Units(), w.limit.Period()*time.Duration(w.opts.Instances)).Burst(max(w.limit.Capacity()/int64(w.opts.Instances), 1))
	for name, history := range w.local {
		if got := overshoot(share, history); got > 0.001 {
			w.t.Errorf("seed %d: %s got %v units over its share %v of the fallback", w.seed, name, got, share)
		}
	}

	// Nobody is locked out for longer than the bucket takes to fill, and the store decides again.
	time.Sleep(w.limit.Period()*time.Duration(1+w.limit.Capacity()/w.limit.Units()) + w.store.lag())
	for i := range w.all {
		p := w.start(i, 1000)
		p.stop()
		for _, key := range w.keys {
			if d, err := p.limiter.Take(w.t.Context(), key, 1); err != nil || !d.Allowed || d.Cause != nil {
				w.t.Errorf("seed %d: when all is over: got %+v and the error %v, want allowed by the store", w.seed, d, err)
			}
			if d, err := w.all[i].limiter.Take(w.t.Context(), key, 1); err != nil || !d.Allowed || d.Cause != nil {
				w.t.Errorf("seed %d: when all is over, in a process that saw it: got %+v and the error %v, want allowed by the store", w.seed, d, err)
			}
		}
	}
}

// checkCentral holds what was let through for one key against the bound: the limit's own,
// what leases add, what failovers lost, a burst for each reset, and what was early by the
// store's clock.
func (w *world) checkCentral(key weir.Key) {
	more := w.store.lost[key] + w.resets[key]*w.limit.Capacity()
	if w.limit.Algorithm() == weir.GCRA {
		bound := float64(lease.Bound(w.limit, w.opts)+more) + w.store.early(w.limit) + 0.001
		if got := overshoot(w.limit, w.central[key]); got > bound {
			w.t.Errorf("seed %d: got %v units over %v, want at most %v, of which failovers and resets gave %d", w.seed, got, w.limit, bound, more)
		}
		return
	}
	windows := map[int64]int64{} // of the store's clock
	for _, e := range w.central[key] {
		windows[e.AtMicros/w.limit.Period().Microseconds()] += e.Taken
	}
	for _, got := range windows {
		if got > w.limit.Units()+more {
			w.t.Errorf("seed %d: got %d units in a window of %v, of which failovers and resets gave %d", w.seed, got, w.limit, more)
		}
	}
}

// process is one that takes part in a limit.
type process struct {
	w       *world
	name    string
	life    int
	tier    *lease.Store
	skew    func(mono, wall time.Duration)
	link    *link
	limiter *weir.Limiter
	callers sync.WaitGroup

	mu      sync.Mutex
	goOn    chan struct{} // closed while the process does not stand still
	stopped bool
	pauses  int
	stepped time.Time // when its wall clock was
}

// standStill waits until the process goes on, and returns how often it stood still and
// whether it has been stopped.
func (p *process) standStill() (pauses int, stopped bool) {
	for {
		p.mu.Lock()
		goOn := p.goOn
		pauses, stopped = p.pauses, p.stopped
		p.mu.Unlock()
		select {
		case <-goOn:
			return pauses, stopped
		default:
			<-goOn
		}
	}
}

// start starts the i-th process and its callers.
func (w *world) start(i, life int) *process {
	p := &process{w: w, name: fmt.Sprintf("process %d.%d", i, life), life: life, goOn: make(chan struct{})}
	close(p.goOn)
	p.link = &link{p: p, rand: rand.New(rand.NewPCG(w.seed, uint64(1000*life+100*i+99)))}
	p.tier = newStore(w.t, p.link, w.opts)
	p.skew = p.tier.Skewable()
	local, err := memstore.New(memstore.Options{MaxKeys: 64})
	if err != nil {
		w.t.Fatal(err)
	}
	if p.limiter, err = weir.New(p.tier, "api", w.limit, weir.Options{Fallback: local, Instances: w.opts.Instances}); err != nil {
		w.t.Fatal(err)
	}
	if w.ended {
		return p
	}
	// Uneven: each process asks for two thirds of what the one before does.
	rate := w.load * float64(w.limit.Units()) / 3
	for range i {
		rate *= 2.0 / 3
	}
	for c := range 6 {
		r := rand.New(rand.NewPCG(w.seed, uint64(1000*life+100*i+c)))
		p.callers.Go(func() { p.call(r, rate/6) })
	}
	return p
}

// call asks at a rate, by chance together with others, until the process stops.
func (p *process) call(r *rand.Rand, rate float64) {
	for {
		time.Sleep(time.Duration(r.ExpFloat64() / rate * float64(time.Second)))
		pauses, stopped := p.standStill()
		if stopped {
			return
		}
		p.ask(r, pauses)
	}
}

// patience returns the context of a caller, who may leave early or be in a hurry.
func (p *process) patience(r *rand.Rand) (context.Context, context.CancelFunc) {
	soon := time.Duration(r.Int64N(int64(20 * time.Millisecond)))
	switch r.IntN(20) {
	case 0:
		ctx, cancel := context.WithCancel(p.w.t.Context())
		time.AfterFunc(soon, cancel)
		return ctx, cancel
	case 1:
		return context.WithTimeout(p.w.t.Context(), soon)
	}
	return p.w.t.Context(), func() {}
}

// ask asks one question, mostly for a unit of the first key, and writes down the answer.
func (p *process) ask(r *rand.Rand, pauses int) {
	w, start := p.w, time.Now()
	keys, cost := w.keys[:1], int64(1)
	switch r.IntN(5) {
	case 0:
		cost = 1 + r.Int64N(5)
	case 1, 2:
		first := r.IntN(len(w.keys))
		keys = w.keys[first:min(first+1+r.IntN(2), len(w.keys))]
	}
	charges := make([]weir.Charge, len(keys))
	for i, key := range keys {
		charges[i] = p.limiter.For(key, cost)
	}
	decisions := make([]weir.Decision, 1)
	var err error
	ctx, leave := p.patience(r)
	defer leave()
	if len(keys) == 1 {
		decisions[0], err = p.limiter.Take(ctx, keys[0], cost)
	} else {
		_, decisions, err = weir.TakeAll(ctx, charges...)
	}
	took := time.Since(start)
	p.mu.Lock()
	paused := p.pauses != pauses
	killed := p.stopped
	p.mu.Unlock()
	switch {
	case killed:
		return
	case err != nil && ctx.Err() != context.Canceled:
		w.t.Errorf("seed %d: got the error %v, want a decision", w.seed, err)
	case took > simBudget && !paused:
		w.t.Errorf("seed %d: an answer took %v, want at most the budget of %v", w.seed, took, simBudget)
	}
	if len(keys) == 1 { // of several, what blocks gave was decided before the others were asked
		start = time.Now()
	}
	for i, d := range decisions {
		if d.Taken > 0 && len(keys) == 2 && !(err == nil && decisions[0].Allowed && decisions[1].Allowed) {
			w.t.Errorf("seed %d: got %+v of two, want all or none", w.seed, decisions)
		}
		if wait := w.refillTime() + w.store.lag(); !d.Allowed && d.Cause == nil && d.RetryAfter > wait {
			w.t.Errorf("seed %d: got %v to wait, want at most the %v in which all of %v is earned", w.seed, d.RetryAfter, wait, w.limit)
		}
		if d.Taken > 0 && r.IntN(10) == 0 {
			d.Taken -= p.giveBack(keys[i], d, 1+r.Int64N(d.Taken))
		}
		p.note(keys[i], d, start)
	}
}

// giveBack refunds units of a decision, and returns how many: they were not used, whatever
// becomes of the refund.
func (p *process) giveBack(key weir.Key, d weir.Decision, units int64) int64 {
	if back, err := p.limiter.Refund(p.w.t.Context(), key, d, units); err == nil && (back < 0 || back > units) {
		p.w.t.Errorf("seed %d: got %d units back of %d", p.w.seed, back, units)
	}
	return units
}

// note writes down what was let through, at the time at which it was decided: by the true
// clock, but for windows, which are the store's.
func (p *process) note(key weir.Key, d weir.Decision, decided time.Time) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	e := storetest.Event{AtMicros: d.AtMicros, Taken: d.Taken}
	switch isWindow := w.limit.Algorithm() != weir.GCRA; {
	case d.Taken == 0:
	case d.Source == weir.FromFallback:
		name := fmt.Sprintf("%s, %v, reset %d times", p.name, key, w.resets[key])
		w.local[name] = append(w.local[name], e)
	case d.Source == weir.FromLease && !isWindow:
		e.AtMicros = decided.UnixMicro()
		w.central[key] = append(w.central[key], e)
	case d.Source == weir.FromLease:
		if own := w.limit.Period().Microseconds(); w.store.steady() && decided.UnixMicro()/own != d.AtMicros/own {
			w.t.Errorf("seed %d: units of the window at %d µs were spent at %d µs, want none after its end", w.seed, d.AtMicros, decided.UnixMicro())
		}
		w.central[key] = append(w.central[key], e)
	default:
		if !isWindow {
			e.AtMicros = w.store.trueTime(d.AtMicros)
		}
		w.central[key] = append(w.central[key], e)
	}
}

// reset resets a key, which may do so although its answer is lost.
func (p *process) reset(key weir.Key) {
	p.w.mu.Lock()
	p.w.resets[key]++
	p.w.mu.Unlock()
	start := time.Now()
	p.limiter.Reset(p.w.t.Context(), key)
	if took := time.Since(start); took > 2*simBudget {
		p.w.t.Errorf("seed %d: a reset took %v, want at most twice the budget of %v", p.w.seed, took, simBudget)
	}
}

// refillTime is in how long the limit is as new.
func (w *world) refillTime() time.Duration {
	if w.limit.Algorithm() != weir.GCRA {
		return 2 * w.limit.Period()
	}
	micros, _ := w.limit.Emission().Span(w.limit.Capacity())
	return time.Duration(micros+1) * time.Microsecond
}

// pause makes the process stand still. One that was suspended wakes up with a monotonic
// clock that did not go on.
func (p *process) pause(d time.Duration, suspended bool) {
	goOn := make(chan struct{})
	p.mu.Lock()
	p.pauses++
	p.goOn = goOn
	p.mu.Unlock()
	time.Sleep(d)
	// No clock shows a suspension while a block lives whose time the wall clock was stepped back by.
	if suspended && time.Since(p.stepped) > d+p.w.opts.Expiry {
		p.skew(-d, 0)
	}
	defer close(goOn)
	held := p.tier.Stats()
	if d >= p.w.opts.Expiry && held.Outstanding != 0 {
		p.w.t.Errorf("seed %d: after a pause of %v: got %d units that have expired, want none", p.w.seed, d, held.Outstanding)
	}
}

// stop ends the process and its callers; what they get after it does not count.
func (p *process) stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.callers.Wait()
	balance(p.w.t, p.tier.Stats())
}
