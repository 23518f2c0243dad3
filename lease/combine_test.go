package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/lease"
	"weir.dev/weir/memstore"
	"weir.dev/weir/storetest"
)

var algorithms = []weir.Algorithm{weir.GCRA, weir.LeakyBucket, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog}

// together asks n times at once and returns the decisions.
func together(t *testing.T, s weir.Store, ask weir.Ask, n int) []weir.Decision {
	t.Helper()
	ds := make([]weir.Decision, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { ds[i] = take(t, s, ask) })
	}
	all.Wait()
	return ds
}

func TestCallersWhoComeDuringACallShareTheNextOne(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				below := newRemote(t, 2*time.Millisecond)
				s := newStore(t, below, lease.Options{})
				limit := weir.Per(60, time.Hour).By(a)
				ask := of(limit)
				ds := together(t, s, ask, 100)
				// One alone, the others together, and where that cannot tell how long those
				// must wait who got nothing, one to ask.
				want := int64(2)
				if a == weir.SlidingWindow || a == weir.SlidingLog {
					want = 3
				}
				if got := below.calls.Load(); got != want {
					t.Errorf("100 callers at once: got %d calls, want %d", got, want)
				}
				var history []storetest.Event
				for _, d := range ds {
					history = append(history, storetest.EventOf(ask, d))
				}
				slices.SortStableFunc(history, func(a, b storetest.Event) int {
					if a.AtMicros == b.AtMicros {
						return int(b.Taken - a.Taken) // those who got one came first
					}
					return storetest.ByTime(a, b)
				})
				if err := storetest.Check(limit, history); err != nil {
					t.Errorf("the history: %v", err)
				}
			})
		})
	}
}

// What each caller is told is what it would have been told had it asked by itself, all at
// the moment of the call.
func TestSharedDecisionsAreThoseOfOneAfterTheOther(t *testing.T) {
	for _, a := range algorithms {
		for _, limit := range []weir.Limit{weir.Per(60, time.Hour).By(a), weir.Per(7, time.Second).By(a), weir.Per(40, 90*time.Second).By(a)} {
			t.Run(limit.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const n = 70
					got := together(t, newStore(t, newRemote(t, 2*time.Millisecond), lease.Options{}), of(limit), n)
					alone, err := memstore.New(memstore.Options{})
					if err != nil {
						t.Fatal(err)
					}
					slices.SortStableFunc(got, func(a, b weir.Decision) int {
						if a.AtMicros != b.AtMicros {
							return int(a.AtMicros - b.AtMicros)
						}
						return int(b.Remaining - a.Remaining)
					})
					slices.SortStableFunc(got, func(a, b weir.Decision) int { return int(b.Taken - a.Taken) })
					for i, d := range got {
						var want [1]weir.Decision
						if err := alone.TakeAt(t.Context(), d.AtMicros, []weir.Ask{of(limit)}, want[:]); err != nil {
							t.Fatal(err)
						}
						// Where units are not whole microseconds long, waits are within one.
						for _, wait := range []*time.Duration{&d.ResetAfter, &d.RetryAfter} {
							exact := want[0].ResetAfter
							if wait == &d.RetryAfter {
								exact = want[0].RetryAfter
							}
							if limit.Emission().Rem > 0 && (*wait-exact).Abs() <= time.Microsecond {
								*wait = exact
							}
						}
						if d != want[0] {
							t.Fatalf("caller %d:\n got %+v\nwant %+v", i, d, want[0])
						}
					}
				})
			})
		}
	}
}

func TestEachSharedDecisionIsRefundedByItself(t *testing.T) {
	for _, a := range algorithms {
		if a == weir.LeakyBucket {
			continue // only its last place comes back
		}
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t, newRemote(t, 2*time.Millisecond), lease.Options{})
				ask := of(weir.Per(60, time.Hour).By(a))
				for _, d := range together(t, s, ask, 40) {
					for i, want := range []int64{1, 0} {
						got, err := s.Refund(t.Context(), ask, d)
						if err != nil || got != want {
							t.Errorf("refund %d of %+v: got %d back and the error %v, want %d", i, d, got, err, want)
						}
					}
				}
				peek := ask
				peek.Cost = 0
				// By GCRA what was earned since the first call does not come back.
				if got := take(t, s, peek).Remaining; got < 59 || a != weir.GCRA && got < 60 {
					t.Errorf("after all came back: got %d remaining, want 60", got)
				}
			})
		})
	}
}

func TestOneWhoLeavesHarmsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 4*time.Millisecond)
		s := newStore(t, below, lease.Options{})
		ask := of(weir.Per(60, time.Hour))
		var all sync.WaitGroup
		var allowed atomic.Int64 // of those who leave, too, in the moment of their answer
		for i := range 30 {
			all.Go(func() {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				switch i % 3 {
				case 1: // before its call begins
					time.AfterFunc(2*time.Millisecond, leave)
				case 2: // during its call
					time.AfterFunc(6*time.Millisecond, leave)
				}
				d, err := s.Take(ctx, ask)
				if d.Allowed {
					allowed.Add(1)
				}
				switch {
				case i%3 == 0 && (err != nil || !d.Allowed):
					t.Errorf("caller %d, who stays: got %+v and the error %v, want allowed", i, d, err)
				case err != nil && (!errors.Is(err, context.Canceled) || d.Allowed):
					t.Errorf("caller %d, who leaves: got %+v and the error %v, want context.Canceled", i, d, err)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		peek := ask
		peek.Cost = 0
		// The first call is for the one who came first, who may have left before its answer.
		gone := 60 - take(t, s, peek).Remaining
		if took := allowed.Load(); gone < took || gone > took+1 {
			t.Errorf("20 of 30 left: got %d of 60 gone, want the %d that were allowed and at most one more", gone, took)
		}
	})
}

func TestNobodyWaitsLongerThanTheBudgetForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, time.Millisecond)
		below.hangs.Store(true)
		const budget = 50 * time.Millisecond
		s := newStore(t, bounded{below, budget}, lease.Options{Budget: budget})
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				start := time.Now()
				d, err := s.Take(context.Background(), of(weir.PerSecond(1000)))
				if took := time.Since(start); err == nil || d.Allowed || took > budget {
					t.Errorf("caller %d: got %+v and the error %v after %v, want an error within %v", i, d, err, took, budget)
				}
			})
		}
		all.Wait()
	})
}

// bounded is a store that answers within a budget, as redisstore does.
type bounded struct {
	weir.Store
	budget time.Duration
}

func (b bounded) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, b.budget)
	defer cancel()
	return b.Store.Take(ctx, ask)
}

// A caller whose own deadline is near leaves by then, whatever the others wait for.
func TestACallersDeadlineIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, newRemote(t, 30*time.Millisecond), lease.Options{})
		ask := of(weir.PerHour(60))
		var all sync.WaitGroup
		all.Go(func() { take(t, s, ask) })
		all.Go(func() {
			time.Sleep(time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			start := time.Now()
			if _, err := s.Take(ctx, ask); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 20*time.Millisecond {
				t.Errorf("got the error %v after %v, want a deadline exceeded after 20ms", err, time.Since(start))
			}
		})
		all.Go(func() {
			time.Sleep(2 * time.Millisecond)
			if d := take(t, s, ask); !d.Allowed {
				t.Errorf("who waits longer: got %+v, want allowed", d)
			}
		})
		all.Wait()
	})
}

// Whoever comes while calls take long does not wait for them in a row.
func TestSlowCallsGoSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, newRemote(t, 40*time.Millisecond), lease.Options{})
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				start := time.Now()
				d := take(t, s, of(weir.PerHour(1000)))
				if took := time.Since(start); !d.Allowed || took > 50*time.Millisecond {
					t.Errorf("caller %d: got %+v after %v, want allowed within 50ms", i, d, took)
				}
			})
		}
		all.Wait()
	})
}
