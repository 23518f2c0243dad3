// Package backoffsim measures what retries do to a server and to its callers when the server stumbles. Many clients, each
// with the real httpretry.Transport, call a modelled server in virtual time (testing/synctest); outages, clients and
// retry policies are crossed. A run depends on its seed alone: every arrival has an instant of its own, so that nothing
// depends on which goroutine runs first, and the tables come out the same byte for byte.
//
// `make backoffsim` writes the tables and the plots of docs/backoff.md again; `go test` reruns a part and compares.
package backoffsim

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"weir.dev/weir/httpretry"
)

// Scenario is a server, its clients and what befalls the server.
type Scenario struct {
	Name       string
	Clients    int
	PerProcess int           // clients that share a Transport; 0: each has its own
	Think      time.Duration // mean pause between the calls of a client; 0: each calls once, all at the same instant
	Every      time.Duration // if set, all clients call at each multiple of it and do not think
	Fault      Fault
	For        time.Duration // how long the fault lasts
	Workers    int
	Service    time.Duration // of one request by one worker
	Queue      int           // requests that wait for a worker; more are refused with 503
	RejectCost time.Duration // of a worker, for each refusal under overload
	Timeout    time.Duration // of one attempt, set by all clients; 0: none
	After      time.Duration // how long the run goes on after the fault
}

// Fault is what befalls the server.
type Fault string

// The faults.
const (
	NoFault     Fault = ""            // the load alone is the trouble
	Refuse      Fault = "refuse"      // every request is answered 503 at once
	Unreachable Fault = "unreachable" // no connection can be made
	BlackHole   Fault = "black hole"  // requests are never answered
	HalfWorkers Fault = "half"        // every second worker is gone
	TwentiethOf Fault = "5 % errors"  // one request in twenty is answered 503
)

const (
	warmUp = 10 * time.Second // before the fault
	// slot is the period of arrival instants: client i sends and is answered at instants that are i ns past a multiple of
	// it. No two clients therefore act on shared state at one instant.
	slot = 1 << 14
)

// Result is what one run came to. Times are after the end of the fault, or after the beginning where there is none.
type Result struct {
	Calls, Attempts, Failed, Unfinished int

	Recovery   time.Duration // until the last call begun before is over; Unfinished > 0 may mean never
	Recovered  bool          // whether that was within the run
	GoodAgain  time.Duration // until 5 s with at least 90 % of the usual answers begin; only with Think
	Metastable bool          // the usual answers had not come back at the end of the run
	P99        time.Duration // of the time that calls took, failed ones included
	Peak       float64       // attempts in the worst second, over the server's capacity
	WorstTen   float64       // attempts over calls in progress, in the worst ten seconds
	PerSecond  []int         // attempts
}

// Amplification is attempts per call, from the beginning of the fault on.
func (r Result) Amplification() float64 { return float64(r.Attempts) / float64(max(1, r.Calls)) }

// FailedShare is the share of calls that did not get an answer of 200.
func (r Result) FailedShare() float64 { return float64(r.Failed) / float64(max(1, r.Calls)) }

// Run simulates a scenario under a policy. It must be called in a synctest bubble.
func Run(s Scenario, p Policy, seed uint64) Result {
	r := newRun(s, p)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	var transport http.RoundTripper
	for id := range s.Clients {
		if id%max(1, s.PerProcess) == 0 {
			transport = p.transport(s, r.server, rand.New(rand.NewPCG(seed, uint64(id)<<1)))
		}
		c := client{id: id, run: r, via: transport, random: rand.New(rand.NewPCG(seed, uint64(id)<<1|1))}
		done.Go(func() { c.live(ctx) })
	}
	time.Sleep(time.Until(r.server.begun.Add(r.end)))
	cancel()
	done.Wait()
	return r.result()
}

// run is a simulation in progress.
type run struct {
	scenario Scenario
	server   *server
	end      time.Duration // of the run, from its beginning

	mu    sync.Mutex
	calls []call
}

type call struct {
	begun, ended time.Duration
	good, over   bool
}

func newRun(s Scenario, p Policy) *run {
	r := &run{scenario: s, server: newServer(s, p.Hint)}
	r.end = r.server.until + s.After
	r.end = r.end/slot*slot + slot - 1 // an instant of nobody's
	return r
}

func (r *run) begin(at time.Duration) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call{begun: at})
	return len(r.calls) - 1
}

func (r *run) finish(i int, at time.Duration, good bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.calls[i]
	c.ended, c.good, c.over = at, good, true
}

// client is one caller. Its id is the residue of its instants.
type client struct {
	id     int
	run    *run
	via    http.RoundTripper
	random *rand.Rand
}

// live calls again and again until the run ends.
func (c *client) live(ctx context.Context) {
	s := c.run.scenario
	ctx = context.WithValue(ctx, idKey{}, c.id)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server.example/", nil)
	if err != nil {
		panic(err) // the URL is a literal
	}
	if s.Think > 0 { // be in the middle of a pause: what is left of an exponential one is distributed as the whole
		c.sleep(ctx, time.Duration(c.random.ExpFloat64()*float64(s.Think)))
	}
	for ctx.Err() == nil {
		c.run.server.align(ctx, c.id, 0)
		i := c.run.begin(c.run.server.now())
		resp, err := c.via.RoundTrip(req)
		if ctx.Err() != nil {
			return
		}
		c.run.finish(i, c.run.server.now(), err == nil && resp.StatusCode == http.StatusOK)
		switch {
		case s.Every > 0:
			c.sleep(ctx, s.Every-c.run.server.now()%s.Every)
		case s.Think > 0:
			c.sleep(ctx, time.Duration(c.random.ExpFloat64()*float64(s.Think)))
		default:
			return
		}
	}
}

func (c *client) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

type idKey struct{}

// result sums up. Calls that began before the fault belong to it only if the fault found them in progress.
func (r *run) result() Result {
	s := r.server
	out := Result{Recovered: true, PerSecond: s.perSecond}
	var took []time.Duration
	seconds := len(s.perSecond)
	begun, ended, good := make([]int, seconds), make([]int, seconds), make([]int, seconds)
	for _, c := range r.calls {
		begun[c.begun/time.Second]++
		if !c.over {
			c.ended = r.end
		} else {
			ended[c.ended/time.Second]++
		}
		if c.good {
			good[c.ended/time.Second]++
		}
		if c.begun < s.until {
			out.Recovery = max(out.Recovery, c.ended-s.until)
			out.Recovered = out.Recovered && c.over
		} else if r.scenario.Think == 0 && r.scenario.Every == 0 { // one call each, at the beginning
			out.Recovery, out.Recovered = max(out.Recovery, c.ended-s.until), out.Recovered && c.over
		}
		if c.ended < s.from {
			continue
		}
		out.Calls++
		took = append(took, c.ended-c.begun)
		switch {
		case !c.over:
			out.Unfinished++
		case !c.good:
			out.Failed++
		}
	}
	for second, n := range s.perSecond {
		if time.Duration(second)*time.Second >= s.from {
			out.Attempts += n
		}
		out.Peak = max(out.Peak, float64(n)/s.capacity())
	}
	slices.Sort(took)
	out.P99 = took[(len(took)-1)*99/100]
	out.WorstTen = worstTen(s.perSecond, begun, ended)
	r.judge(&out, good)
	return out
}

// judge tells whether and when the rate of good answers before the fault came back.
func (r *run) judge(out *Result, good []int) {
	s := r.scenario
	last := int(r.end / time.Second)
	if s.Think == 0 && s.Every == 0 {
		out.Metastable = !out.Recovered
		return
	}
	sum := func(from, n int) (total float64) {
		for _, g := range good[from : from+n] {
			total += float64(g)
		}
		return total
	}
	usual := sum(0, int(warmUp/time.Second)) / warmUp.Seconds()
	out.Metastable = sum(last-20, 20) < 0.7*20*usual
	out.GoodAgain = s.After
	window := max(5, int(s.Every/time.Second))
	for from := int(r.server.until / time.Second); from+window <= last; from++ {
		if sum(from, window) >= 0.9*float64(window)*usual {
			out.GoodAgain = time.Duration(from)*time.Second - r.server.until
			return
		}
	}
}

func worstTen(attempts, begun, ended []int) (worst float64) {
	inProgress := 0
	for from := 0; from+10 <= len(attempts); from++ {
		sent, calls := 0, inProgress
		for i := from; i < from+10; i++ {
			sent += attempts[i]
			calls += begun[i]
		}
		worst = max(worst, float64(sent)/float64(max(1, calls)))
		inProgress += begun[from] - ended[from]
	}
	return worst
}

// Policy is how clients retry.
type Policy struct {
	Name    string
	Hint    bool // the server sends Retry-After
	Options func(random func() float64) httpretry.Options
}

func (p Policy) transport(s Scenario, next http.RoundTripper, random *rand.Rand) http.RoundTripper {
	var mu sync.Mutex // clients of one process share it, though never at one instant
	opts := p.Options(func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return random.Float64()
	})
	opts.AttemptTimeout = s.Timeout
	t, err := httpretry.New(next, opts)
	if err != nil {
		panic(err) // the policies are a table in this package, and a test makes each
	}
	return t
}
