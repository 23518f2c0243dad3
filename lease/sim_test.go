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
	"weir.dev/weir/internal/algorithm"
	"weir.dev/weir/lease"
	"weir.dev/weir/memstore"
	"weir.dev/weir/storetest"
)

// The simulation runs processes, each with a Limiter, a fallback and a lease, in front of
// one store, in virtual time. Requests and answers are late, lost or twice there; the
// store fails over to a replica that lacks the last of what was charged; processes are
// stopped, suspended and killed, and wall clocks are stepped. A run is known by its seed:
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
)

var errRefused = errors.New("the store refuses")

// world is one simulation.
type world struct {
	t     *testing.T
	rand  *rand.Rand // of the world itself: each caller and each link has its own
	seed  uint64
	limit weir.Limit
	opts  lease.Options
	load  float64 // asked, as a multiple of the limit
	store simStore
	all   []*process
	ended bool // faults are over

	mu      sync.Mutex
	central []storetest.Event // charged to the store, at the time of use
	local   map[string][]storetest.Event
}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 0))
	w := &world{t: t, rand: r, seed: seed, local: map[string][]storetest.Event{}, load: 0.3 + 2*r.Float64()}
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
	switch w.rand.IntN(6) {
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
		w.store.failOver(time.Duration(w.rand.Int64N(int64(100 * time.Millisecond))))
	case 5:
		w.store.away(true)
		time.Sleep(long)
		w.store.away(false)
	}
}

// check holds the history against what is promised.
func (w *world) check() {
	lost := w.store.lost
	switch got := overshoot(w.limit, w.central); {
	case w.limit.Algorithm() == weir.GCRA:
		if bound := float64(lease.Bound(w.limit, w.opts) + lost); got > bound {
			w.t.Errorf("seed %d: got %v units over %v, want at most %v, of which failovers lost %d", w.seed, got, w.limit, bound, lost)
		}
	default:
		windows := map[int64]int64{}
		for _, e := range w.central {
			k := e.AtMicros / w.limit.Period().Microseconds()
			if windows[k] += e.Taken; windows[k] == w.limit.Units()+lost+1 {
				w.t.Errorf("seed %d: got more than %d units in a window of %v, of which failovers lost %d", w.seed, windows[k]-1, w.limit, lost)
			}
		}
	}
	share := weir.Per(w.limit.Units(), w.limit.Period()*time.Duration(w.opts.Instances)).Burst(max(w.limit.Capacity()/int64(w.opts.Instances), 1))
	for name, history := range w.local {
		if got := overshoot(share, history); got > 0.001 {
			w.t.Errorf("seed %d: %s got %v units over its share %v of the fallback", w.seed, name, got, share)
		}
	}

	// Nobody is locked out for longer than the bucket takes to fill, and the store decides again.
	time.Sleep(w.limit.Period() * time.Duration(1+w.limit.Capacity()/w.limit.Units()))
	for i := range w.all {
		p := w.start(i, 1000)
		p.stop()
		if d, err := p.limiter.Take(w.t.Context(), simKey, 1); err != nil || !d.Allowed || d.Cause != nil {
			w.t.Errorf("seed %d: when all is over: got %+v and the error %v, want allowed by the store", w.seed, d, err)
		}
		if d, err := w.all[i].limiter.Take(w.t.Context(), simKey, 1); err != nil || !d.Allowed || d.Cause != nil {
			w.t.Errorf("seed %d: when all is over, in a process that saw it: got %+v and the error %v, want allowed by the store", w.seed, d, err)
		}
	}
}

var simKey = weir.Text("acme")

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
		p.take(pauses)
	}
}

// take asks once and writes down the answer.
func (p *process) take(pauses int) weir.Decision {
	w, start := p.w, time.Now()
	d, err := p.limiter.Take(w.t.Context(), simKey, 1)
	took := time.Since(start)
	now := time.Now().UnixMicro()
	p.mu.Lock()
	paused := p.pauses != pauses
	killed := p.stopped
	p.mu.Unlock()
	if killed {
		return d
	}
	if took > simBudget && !paused {
		w.t.Errorf("seed %d: an answer took %v, want at most the budget of %v", w.seed, took, simBudget)
	}
	switch {
	case err != nil:
		w.t.Errorf("seed %d: got the error %v, want a decision", w.seed, err)
	case !d.Allowed && d.Cause == nil && d.RetryAfter > w.refillTime():
		w.t.Errorf("seed %d: got %v to wait, want at most the %v in which all of %v is earned", w.seed, d.RetryAfter, w.refillTime(), w.limit)
	case !d.Allowed:
	case d.Source == weir.FromStore:
		w.note(&w.central, d.AtMicros, d.Taken)
	case d.Source == weir.FromLease:
		w.note(&w.central, now, d.Taken)
	case d.Source == weir.FromFallback:
		w.mu.Lock()
		w.local[p.name] = append(w.local[p.name], storetest.Event{AtMicros: d.AtMicros, Taken: d.Taken})
		w.mu.Unlock()
	}
	return d
}

// refillTime is in how long the limit is as new.
func (w *world) refillTime() time.Duration {
	if w.limit.Algorithm() != weir.GCRA {
		return 2 * w.limit.Period()
	}
	micros, _ := w.limit.Emission().Span(w.limit.Capacity())
	return time.Duration(micros+1) * time.Microsecond
}

func (w *world) note(history *[]storetest.Event, at, units int64) {
	w.mu.Lock()
	*history = append(*history, storetest.Event{AtMicros: at, Taken: units})
	w.mu.Unlock()
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

// link is a process's way to the store, with the budget that redisstore has.
type link struct {
	p    *process
	mu   sync.Mutex
	rand *rand.Rand
}

// fate is what happens to one request.
type fate struct {
	there, back time.Duration
	lost        bool // on the way there
	unanswered  bool
	twice       bool
	refused     bool
}

func (l *link) fate() fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	delay := func() time.Duration {
		return 100*time.Microsecond + time.Duration(l.rand.ExpFloat64()*float64(time.Millisecond))
	}
	f := fate{there: delay(), back: delay()}
	l.p.w.mu.Lock()
	quiet := l.p.w.ended
	l.p.w.mu.Unlock()
	if quiet {
		return f
	}
	switch l.rand.IntN(100) {
	case 0:
		f.there *= 40
	case 1:
		f.back *= 40
	case 2:
		f.lost = true
	case 3:
		f.unanswered = true
	case 4:
		f.twice = true
	case 5:
		f.refused = true
	}
	return f
}

func (l *link) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	f := l.fate()
	deadline := time.Now().Add(simBudget)
	if own, ok := ctx.Deadline(); ok && own.Before(deadline) {
		deadline = own
	}
	// The answer of the network comes at its time, whether anybody waits or not.
	answer := make(chan weir.Decision, 1)
	refused := make(chan struct{}, 1)
	time.AfterFunc(f.there, func() {
		switch {
		case f.lost || l.p.w.store.isAway():
			return
		case f.refused:
			refused <- struct{}{}
			return
		}
		d := l.p.w.store.take(&ask)
		if f.twice {
			l.p.w.store.take(&ask)
		}
		if !f.unanswered {
			time.AfterFunc(f.back, func() { answer <- d })
		}
	})
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	var d weir.Decision
	var err error
	select {
	case d = <-answer:
	case <-refused:
		err = errRefused
	case <-timer.C:
		err = context.DeadlineExceeded
	}
	l.p.standStill() // it sees the answer when it goes on
	return d, err
}

func (l *link) TakeAll(context.Context, []weir.Ask, []weir.Decision) error { return errRefused }
func (l *link) Refund(context.Context, weir.Ask, weir.Decision) (int64, error) {
	return 0, errRefused
}
func (l *link) Reset(context.Context, string, weir.Key) error { return errRefused }

// simStore is the store of all processes: one key, with the states it had.
type simStore struct {
	mu     sync.Mutex
	gone   bool
	states []simState
	lost   int64 // units that failovers forgot
}

type simState struct {
	at      int64
	tat     algorithm.TAT
	window  algorithm.Window
	sliding algorithm.Sliding
	taken   int64 // by the decision that made it
}

func (s *simStore) take(ask *weir.Ask) weir.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UnixMicro()
	var st simState
	if n := len(s.states); n > 0 {
		st = s.states[n-1]
	}
	var v algorithm.Verdict
	var d weir.Decision
	switch ask.Limit.Algorithm() {
	case weir.FixedWindow:
		st.window, v, _ = algorithm.TakeWindow(st.window, now, ask)
		d = algorithm.DescribeWindow(st.window, v, ask)
	case weir.SlidingWindow:
		st.sliding, v, _ = algorithm.TakeSliding(st.sliding, now, ask)
		d = algorithm.DescribeSliding(st.sliding, v, ask)
	default:
		st.tat, v, _ = algorithm.TakeGCRA(st.tat, now, ask)
		d = algorithm.DescribeGCRA(st.tat, v, ask)
	}
	st.at, st.taken = now, v.Taken
	s.states = append(s.states, st)
	return d
}

// failOver goes back to what a replica had that lags behind.
func (s *simStore) failOver(lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	then := time.Now().Add(-lag).UnixMicro()
	for n := len(s.states); n > 0 && s.states[n-1].at > then; n-- {
		s.lost += s.states[n-1].taken
		s.states = s.states[:n-1]
	}
}

func (s *simStore) away(gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = gone
}

func (s *simStore) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}
