package bench

import (
	"context"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/lease"
	"weir.dev/weir/memstore"
)

// The processes of the simulation: shares of the traffic, the largest ten times the
// smallest.
var shares = []float64{0.30, 0.22, 0.15, 0.11, 0.08, 0.06, 0.05, 0.03}

var results = flag.String("results", "", "write what the leases saved to this file, as JSON")

// leaseFigure is what one simulation measured beside what it should.
type leaseFigure struct {
	Figure, Load      string
	Calls, MostCalls  float64 // a request
	Ideal, LeastIdeal float64 // admitted, of what one limiter would have
	Over, Bound       float64 // units
}

// TestLeasesSaveCalls simulates, in virtual time, eight processes that lease blocks of up
// to 50 of one limit, each with callers who come at random.
func TestLeasesSaveCalls(t *testing.T) {
	var figures []leaseFigure
	for _, tt := range []struct {
		figure, name string
		load         float64 // asked, as a multiple of the limit
		mostCalls    float64
		leastIdeal   float64
	}{
		{"P9", "0.8 times the limit", 0.8, 0.05, 0.99},
		{"P10", "twice the limit", 2, 0.20, 0.99},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := leaseSimulation{limit: weir.PerSecond(10_000), load: tt.load, opts: lease.Options{Block: 50, Instances: len(shares)}}
				s.run(t, 4*time.Second)
				f := leaseFigure{
					Figure: tt.figure, Load: tt.name, Calls: s.callsPerRequest(), MostCalls: tt.mostCalls, Ideal: s.idealShare(), LeastIdeal: tt.leastIdeal,
					Over: s.overshoot(), Bound: float64(lease.Bound(s.limit, s.opts)),
				}
				t.Logf("%+v, least served process %.3f", f, s.leastServed())
				if f.Calls > f.MostCalls || f.Ideal < f.LeastIdeal || f.Over > f.Bound {
					t.Errorf("got %.4f calls a request, %.4f of the ideal, %.1f units over; want at most %v, at least %v, at most %v", f.Calls, f.Ideal, f.Over, f.MostCalls, f.LeastIdeal, f.Bound)
				}
				figures = append(figures, f)
			})
		})
	}
	if *results == "" {
		return
	}
	text, err := json.Marshal(figures)
	if err == nil {
		err = os.WriteFile(*results, text, 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}

type leaseSimulation struct {
	limit weir.Limit
	load  float64
	opts  lease.Options

	calls    atomic.Int64
	asked    []atomic.Int64 // by process
	mu       sync.Mutex
	admitted []time.Duration // since the start
	served   []int64         // by process
	took     time.Duration
}

// farStore answers half a millisecond later.
type farStore struct {
	weir.Store
	calls *atomic.Int64
}

func (f farStore) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	f.calls.Add(1)
	time.Sleep(250 * time.Microsecond)
	d, err := f.Store.Take(ctx, ask)
	time.Sleep(250 * time.Microsecond)
	return d, err
}

func (s *leaseSimulation) run(t *testing.T, d time.Duration) {
	memory, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.asked, s.served, s.took = make([]atomic.Int64, len(shares)), make([]int64, len(shares)), d
	start := time.Now()
	ask := weir.Ask{Name: "api", Key: weir.Text("acme"), Limit: s.limit, Cost: 1}
	var all sync.WaitGroup
	for i, share := range shares {
		tier, err := lease.New(farStore{memory, &s.calls}, s.opts)
		if err != nil {
			t.Fatal(err)
		}
		defer tier.Close()
		const callers = 8
		rate := share * s.load * float64(s.limit.Units()) / callers
		for c := range callers {
			r := rand.New(rand.NewPCG(uint64(i), uint64(c)))
			all.Go(func() {
				for at := start; ; { // who comes next does not wait for who came before
					at = at.Add(time.Duration(r.ExpFloat64() / rate * float64(time.Second)))
					time.Sleep(time.Until(at))
					if time.Since(start) > d {
						return
					}
					s.asked[i].Add(1)
					if d, err := tier.Take(t.Context(), ask); err == nil && d.Allowed {
						s.mu.Lock()
						s.admitted = append(s.admitted, time.Since(start))
						s.served[i]++
						s.mu.Unlock()
					}
				}
			})
		}
	}
	all.Wait()
}

func (s *leaseSimulation) total() (n int64) {
	for i := range s.asked {
		n += s.asked[i].Load()
	}
	return n
}

func (s *leaseSimulation) callsPerRequest() float64 {
	return float64(s.calls.Load()) / float64(s.total())
}

// idealShare returns what was admitted of what one limiter would have.
func (s *leaseSimulation) idealShare() float64 {
	ideal := min(float64(s.total()), float64(s.limit.Capacity())+float64(s.limit.Units())*s.took.Seconds())
	return float64(len(s.admitted)) / ideal
}

// leastServed returns the least that a process was admitted of its share of all.
func (s *leaseSimulation) leastServed() float64 {
	least := 1.0
	for i, n := range s.served {
		fair := float64(s.asked[i].Load()) / float64(s.total()) * float64(len(s.admitted))
		least = min(least, float64(n)/fair)
	}
	return least
}

// overshoot returns by how many units the worst interval exceeds burst and rate.
func (s *leaseSimulation) overshoot() float64 {
	slices.Sort(s.admitted)
	rate, burst := float64(s.limit.Units()), float64(s.limit.Capacity())
	worst, ahead, last := -burst, 0.0, time.Duration(0)
	for _, at := range s.admitted {
		ahead = max(ahead-(at-last).Seconds()*rate, 0) + 1
		last = at
		worst = max(worst, ahead-burst)
	}
	return worst
}
