package lease_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/lease"
	"weir.dev/weir/memstore"
	"weir.dev/weir/storetest"
)

// overshoot returns by how many units the charges of a history, at their AtMicros, exceed
// what the rate and burst of a limit allow in the worst interval; it is negative if they
// stay below.
func overshoot(limit weir.Limit, history []storetest.Event) float64 {
	history = slices.Clone(history)
	slices.SortStableFunc(history, storetest.ByTime)
	unit := float64(limit.Period().Microseconds()) / float64(limit.Units())
	worst, ahead, last := -float64(limit.Capacity()), 0.0, int64(0)
	for _, e := range history {
		ahead = max(ahead-float64(e.AtMicros-last), 0) + float64(e.Taken)*unit
		last = e.AtMicros
		worst = max(worst, ahead/unit-float64(limit.Capacity()))
	}
	return worst
}

// drain takes until it is denied, at the clock of the test, and returns what it took.
func drain(t *testing.T, s weir.Store, ask weir.Ask) (history []storetest.Event) {
	t.Helper()
	for {
		d := take(t, s, ask)
		if !d.Allowed {
			return history
		}
		history = append(history, storetest.Event{AtMicros: time.Now().UnixMicro(), Cost: d.Taken, Taken: d.Taken, Allowed: true})
	}
}

func TestAHotKeyIsServedFromItsBlock(t *testing.T) {
	for _, a := range []weir.Algorithm{weir.GCRA, weir.FixedWindow, weir.SlidingWindow} {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				below := newRemote(t, time.Millisecond)
				s := newStore(t, below, lease.Options{Block: 50, Instances: 2})
				ask := of(weir.Per(100_000, time.Minute).By(a))
				for range 2000 {
					if d := take(t, s, ask); !d.Allowed || d.Taken != 1 || d.ResetAfter <= 0 || d.Remaining < 90_000 {
						t.Fatalf("got %+v, want one unit of many", d)
					}
					time.Sleep(time.Millisecond)
				}
				if got := below.calls.Load(); got > 100 {
					t.Errorf("2000 questions in 2 s: got %d calls, want at most 100", got)
				}
				st := s.Stats()
				if st.Asks != 2000 || st.Calls != uint64(below.calls.Load()) || st.FromLease+100 < 2000 || st.Saved() < 1900 {
					t.Errorf("got %+v, want 2000 questions, most of them from a block", st)
				}
				balance(t, st)
			})
		})
	}
}

func TestColdKeysAndOtherAlgorithmsAreNotLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 0)
		s := newStore(t, below, lease.Options{Block: 50, Instances: 2})
		for i := range 3000 { // 20 questions a second for each key
			ask := of(weir.PerMinute(100_000))
			ask.Key = weir.Text(fmt.Sprint("key ", i%10))
			take(t, s, ask)
			time.Sleep(time.Second / 200)
		}
		ask := of(weir.PerMinute(100_000))
		for _, a := range []weir.Algorithm{weir.LeakyBucket, weir.SlidingLog} {
			ask.Limit = ask.Limit.By(a)
			ask.Name = a.String()
			for range 1000 {
				take(t, s, ask)
			}
		}
		small := of(weir.PerMinute(47)) // a twentieth of 47 is less than 1.2 units for each of 2
		small.Name = "small"
		for range 47 {
			take(t, s, small)
		}
		if st := s.Stats(); st.Granted != 0 || below.calls.Load() != 5047 {
			t.Errorf("got %d units taken ahead and %d calls, want 0 and 5047: %+v", st.Granted, below.calls.Load(), st)
		}
	})
}

// The worst that P1 allows: the blocks of all are full and idle while the store is full.
func TestBlocksOfAllProcessesStayWithinTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 0)
		opts := lease.Options{Block: 1000, Instances: 4}
		limit := weir.PerSecond(1000)
		ask := of(limit)
		var all []*lease.Store
		for range opts.Instances {
			all = append(all, newStore(t, below, opts))
		}
		for _, s := range all {
			heat(t, s, ask)
			for range 40 { // the last block is full, and some of the one before is left
				take(t, s, ask)
				synctest.Wait()
			}
		}
		time.Sleep(lease.DefaultExpiry - time.Microsecond)
		var history []storetest.Event
		for _, s := range all {
			history = append(history, drain(t, s, ask)...)
		}
		bound := lease.Bound(limit, opts)
		if bound != 48 { // blocks of 10
			t.Fatalf("the bound is %d, want 48", bound)
		}
		if got := overshoot(limit, history); got > float64(bound) || got < 10 {
			t.Errorf("got %v units over the limit, want at most %d, and enough to show that the bound is needed", got, bound)
		}
	})
}

// So many processes, against what was told, that only the expiry bounds them. Each comes
// once in a burst, and goes away with a block half full.
func TestExpiryBoundsProcessesThatNobodyCounted(t *testing.T) {
	for _, idle := range []time.Duration{39 * time.Millisecond, 41 * time.Millisecond, 3 * time.Second} {
		t.Run(idle.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				below := newRemote(t, 0)
				opts := lease.Options{Block: 1000, Instances: 1, Expiry: 40 * time.Millisecond}
				limit := weir.PerSecond(5000).Burst(10_000)
				ask := of(limit)
				var all []*lease.Store
				var history []storetest.Event
				for range 50 {
					s := newStore(t, below, opts)
					all = append(all, s)
					time.Sleep(100 * time.Millisecond)
					for range 100 {
						if d := take(t, s, ask); d.Allowed {
							history = append(history, storetest.Event{AtMicros: time.Now().UnixMicro(), Taken: d.Taken})
						}
						synctest.Wait()
					}
				}
				time.Sleep(idle)
				for _, s := range all {
					history = append(history, drain(t, s, ask)...)
				}
				const earned = 200 // 5000 a second for 40 ms
				got := overshoot(limit, history)
				if got > earned || lease.Bound(limit, opts) != earned {
					t.Errorf("got %v units over the limit, and a bound of %d, want at most %d", got, lease.Bound(limit, opts), earned)
				}
				if idle < opts.Expiry && got < 1 {
					t.Errorf("got %v units over the limit, want enough to show that the bound is needed", got)
				}
			})
		})
	}
}

func TestAPausedProcessSpendsNothingThatHasExpired(t *testing.T) {
	type skew = func(mono, wall time.Duration)
	for name, pause := range map[string]func(skew){
		"stopped": func(skew) { time.Sleep(lease.DefaultExpiry) },
		"stopped, and its wall clock stepped back": func(s skew) {
			s(0, -time.Hour)
			time.Sleep(lease.DefaultExpiry)
		},
		"suspended": func(s skew) { s(0, lease.DefaultExpiry) },
		"for long":  func(skew) { time.Sleep(10 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				below := newRemote(t, 0)
				s := newStore(t, below, lease.Options{Block: 50, Instances: 2})
				skew := s.Skewable()
				ask := of(weir.PerHour(100_000))
				heat(t, s, ask)
				synctest.Wait()
				held := s.Stats().Outstanding
				if held == 0 {
					t.Fatal("nothing is held")
				}
				pause(skew)
				if d := take(t, s, ask); d.Source == weir.FromLease {
					t.Errorf("after the pause: got %+v, want an answer of the store", d)
				}
				st := s.Stats()
				if st.Wasted != uint64(held) {
					t.Errorf("got %d units thrown away, want the %d that had expired", st.Wasted, held)
				}
				balance(t, st)
			})
		})
	}
}

// A block's time begins before it is asked for.
func TestABlockThatComesLateIsNotSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 0)
		s := newStore(t, below, lease.Options{Block: 50, Instances: 2, Expiry: 30 * time.Millisecond})
		ask := of(weir.PerHour(100_000))
		for range 2 {
			take(t, s, ask)
		}
		below.latency = 30 * time.Millisecond
		for range 10 {
			if d := take(t, s, ask); d.Source == weir.FromLease {
				t.Fatalf("got %+v, want nothing from blocks that come as they expire", d)
			}
		}
		balance(t, s.Stats())
	})
}

// Increments that come late must not count in another window, nor units be spent there.
func TestABlockDiesWithItsWindow(t *testing.T) {
	for _, a := range []weir.Algorithm{weir.FixedWindow, weir.SlidingWindow} {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				below := newRemote(t, 2*time.Millisecond)
				s := newStore(t, below, lease.Options{Block: 50, Instances: 2})
				ask := of(weir.Per(10_000, 10*time.Second).By(a))
				time.Sleep(9_800 * time.Millisecond)
				heat(t, s, ask)
				time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(10*time.Second - 2*time.Millisecond)))
				if st := s.Stats(); st.Outstanding == 0 {
					t.Fatalf("nothing is held: %+v", st)
				}
				below.hangs.Store(true) // a partition until after the window
				time.Sleep(2 * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				if d, err := s.Take(ctx, ask); err == nil {
					t.Errorf("in the next window: got %+v, want nothing without the store", d)
				}
				below.hangs.Store(false)
				ask.Cost = 0
				if got := take(t, below, ask); a == weir.FixedWindow && got.Remaining != 10_000 {
					t.Errorf("in the next window: got %d remaining, want it untouched", got.Remaining)
				}
			})
		})
	}
}

// Near the limit a block comes short, and the process denies until the rest of it is earned.
func TestAShortBlockLocksOutForNoLongerThanItTakesToEarn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, time.Millisecond)
		opts := lease.Options{Block: 50, Instances: 1}
		limit := weir.PerSecond(1000).Burst(1200) // blocks of 50: 50 ms
		s := newStore(t, below, opts)
		ask := of(limit)
		start, asks, admitted := time.Now(), int64(0), 0.0
		for time.Since(start) < 5*time.Second {
			asks++
			d := take(t, s, ask)
			if d.Allowed {
				admitted++
			} else if d.RetryAfter > 50*time.Millisecond {
				t.Fatalf("got %+v, want at most 50ms to wait", d)
			}
			time.Sleep(500 * time.Microsecond) // twice the limit
		}
		if ideal := 1200 + 1000*time.Since(start).Seconds(); admitted < 0.99*ideal || admitted > ideal {
			t.Errorf("got %v admitted, want 0.99 to 1 of %v", admitted, ideal)
		}
		if got := below.calls.Load(); got > asks/10 {
			t.Errorf("%d questions: got %d calls, want at most a tenth", asks, got)
		}
	})
}

func TestAProcessThatDiesLosesAtMostItsBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 0)
		opts := lease.Options{Block: 20, Instances: 2}
		ask := of(weir.PerHour(10_000))
		dies, lives := newStore(t, below, opts), newStore(t, below, opts)
		spent := 0
		for range 333 {
			take(t, dies, ask)
			spent++
			synctest.Wait()
		}
		left := len(drain(t, lives, ask))
		if lost := 10_000 - spent - left; lost < 0 || lost > 24 {
			t.Errorf("after %d units and a death: got %d more, so %d were lost; want 0 to 24", spent, left, lost)
		}
	})
}

func TestAnUnknownOutcomeGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 0)
		s := newStore(t, below, lease.Options{Block: 50, Instances: 2})
		ask := of(weir.PerHour(100_000))
		heat(t, s, ask)
		synctest.Wait()
		below.loses.Store(true)
		granted := s.Stats().Granted
		for range s.Stats().Outstanding {
			take(t, s, ask)
		}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if d, err := s.Take(ctx, ask); err == nil {
				t.Errorf("got %+v, want an error", d)
			}
			cancel()
		}
		time.Sleep(200 * time.Millisecond)
		st := s.Stats()
		if st.Granted != granted || st.Outstanding != 0 {
			t.Errorf("got %+v, want no more than the %d units granted before", st, granted)
		}
		if got := below.asked.Load(); got != 1 {
			t.Errorf("after a block was lost: got %d units asked, want 1 and no block for a while", got)
		}
		balance(t, st)
	})
}

func TestALeasedUnitGoesBackIntoItsLiveBlockOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, newRemote(t, 0), lease.Options{Block: 50, Instances: 2})
		ask := of(weir.PerHour(100_000))
		heat(t, s, ask)
		synctest.Wait()
		d := take(t, s, ask)
		before := s.Stats().Outstanding
		for i, want := range []int64{1, 0, 0} {
			back, err := s.Refund(t.Context(), ask, d)
			if err != nil || back != want {
				t.Errorf("refund %d: got %d back and the error %v, want %d", i, back, err, want)
			}
		}
		if got := s.Stats().Outstanding; got != before+1 {
			t.Errorf("got %d units held, want %d", got, before+1)
		}
		again := take(t, s, ask)
		if back, _ := s.Refund(t.Context(), ask, d); back != 0 {
			t.Errorf("the first once more: got %d back, want 0", back)
		}
		if back, _ := s.Refund(t.Context(), ask, again); back != 1 {
			t.Errorf("the unit taken again: got %d back, want 1", back)
		}
		other := ask
		other.Limit = weir.PerHour(200_000)
		third := take(t, s, ask)
		if back, _ := s.Refund(t.Context(), other, third); back != 0 {
			t.Errorf("under another limit: got %d back, want 0", back)
		}
		time.Sleep(lease.DefaultExpiry)
		if back, err := s.Refund(t.Context(), ask, third); back != 0 || err != nil {
			t.Errorf("after the block expired: got %d back and the error %v, want 0", back, err)
		}
		balance(t, s.Stats())
	})
}

func TestResetForgetsTheBlockAndTheOneUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 2*time.Millisecond)
		s := newStore(t, below, lease.Options{Block: 50, Instances: 2})
		ask := of(weir.PerHour(100_000))
		heat(t, s, ask)
		for s.Stats().Calls == uint64(below.calls.Load()) { // until a refill is under way
			take(t, s, ask)
			synctest.Wait()
		}
		if err := s.Reset(t.Context(), ask.Name, ask.Key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		peek := ask
		peek.Cost = 0
		if d := take(t, s, peek); d.Remaining != 100_000 {
			t.Errorf("after a reset: got %d remaining, want all", d.Remaining)
		}
		if st := s.Stats(); st.Outstanding != 0 {
			t.Errorf("after a reset: got %d units held, want 0", st.Outstanding)
		}
		balance(t, s.Stats())
	})
}

func TestSeveralAreAnsweredFromBlocksWithoutACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 0)
		s := newStore(t, below, lease.Options{Block: 50, Instances: 2})
		user, tenant := of(weir.PerHour(100_000)), of(weir.PerMinute(50_000))
		user.Name, tenant.Name = "user", "tenant"
		asks, ds := []weir.Ask{user, tenant}, make([]weir.Decision, 2)
		both := func() {
			t.Helper()
			if err := s.TakeAll(t.Context(), asks, ds); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for range 10 {
			both()
		}
		calls := below.calls.Load()
		for range 100 {
			both()
			if !ds[0].Allowed || !ds[1].Allowed || ds[0].Taken != 1 || ds[1].Taken != 1 {
				t.Fatalf("got %+v, want both taken", ds)
			}
			time.Sleep(time.Millisecond)
		}
		if got := below.calls.Load() - calls; got > 40 {
			t.Errorf("100 questions about two hot keys: got %d calls, want few", got)
		}

		// One that is denied holds the other back, which keeps its unit.
		full := of(weir.PerHour(1))
		full.Name = "full"
		take(t, s, full)
		take(t, s, full)
		heat(t, s, user)
		asks, ds = []weir.Ask{user, full}, make([]weir.Decision, 2)
		before := s.Stats()
		calls = below.calls.Load()
		both()
		if !ds[0].Allowed || ds[0].Taken != 0 || ds[1].Allowed || ds[1].Source != weir.FromCache {
			t.Errorf("beside a denial: got %+v, want the first held back", ds)
		}
		after := s.Stats()
		if after.Outstanding != before.Outstanding || below.calls.Load() != calls {
			t.Errorf("beside a remembered denial: got %d units held and %d calls, want %d and none", after.Outstanding, below.calls.Load()-calls, before.Outstanding)
		}
		balance(t, after)
	})
}

func TestCloseStopsLeasingAndLeavesTheStoreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 2*time.Millisecond)
		s := newStore(t, below, lease.Options{Block: 50, Instances: 2})
		ask := of(weir.PerHour(100_000))
		heat(t, s, ask)
		for s.Stats().Calls == uint64(below.calls.Load()) {
			take(t, s, ask)
			synctest.Wait()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		st := s.Stats()
		if st.Outstanding != 0 || st.Calls != uint64(below.calls.Load()) {
			t.Errorf("after Close: got %+v and %d calls, want nothing held and no call under way", st, below.calls.Load())
		}
		for range 20 {
			if d := take(t, s, ask); d.Source != weir.FromStore || !d.Allowed {
				t.Errorf("after Close: got %+v, want an answer of the store", d)
			}
		}
		balance(t, s.Stats())
	})
}

func TestEveryQuestionIsCountedOnce(t *testing.T) {
	t.Parallel()
	below := newRemote(t, 50*time.Microsecond)
	s := newStore(t, below, lease.Options{Block: 40, Instances: 2, MaxKeys: 64, Expiry: 5 * time.Millisecond})
	limit := weir.PerSecond(20_000)
	var own, fromLease, fromCache, left [16]uint64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := range 400 {
				ask := of(limit)
				ask.Key = weir.Text(fmt.Sprint(n % 3 * (n % 7)))
				ctx, cancel := context.WithCancel(t.Context())
				if n%50 == 0 {
					cancel()
				}
				d, err := s.Take(ctx, ask)
				switch {
				case err != nil:
					left[i]++
				case d.Source == weir.FromLease:
					fromLease[i]++
				case d.Source == weir.FromCache:
					fromCache[i]++
				default:
					own[i]++
				}
				if n%20 == 0 && d.Taken > 0 {
					s.Refund(t.Context(), ask, d)
				}
				if n%100 == 0 {
					s.Reset(t.Context(), ask.Name, ask.Key)
				}
				cancel()
			}
		})
	}
	all.Wait()
	s.Close()
	sum := func(n [16]uint64) (total uint64) {
		for _, v := range n {
			total += v
		}
		return total
	}
	st := s.Stats()
	if st.Asks != 16*400 || st.FromLease != sum(fromLease) || st.FromCache != sum(fromCache) {
		t.Errorf("got %+v, want 6400 questions, %d from blocks and %d from memory", st, sum(fromLease), sum(fromCache))
	}
	if st.Calls != uint64(below.calls.Load()) {
		t.Errorf("got %d calls counted, want the %d that were made", st.Calls, below.calls.Load())
	}
	balance(t, st)
}

func TestKeysThatAreWatchedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, newRemote(t, 0), lease.Options{Block: 50, Instances: 2, MaxKeys: 100})
		for i := range 10_000 {
			ask := of(weir.PerMinute(10))
			ask.Key = weir.Text(fmt.Sprint(i))
			if d := take(t, s, ask); !d.Allowed || d.Remaining != 9 {
				t.Fatalf("key %d: got %+v, want the first of 10", i, d)
			}
			time.Sleep(time.Millisecond)
		}
		if got, most := s.Stats().Keys, s.MostKeys(); got > most || most > 128 {
			t.Errorf("got %d keys watched of at most %d, want about 100", got, most)
		}
	})
}

func TestEveryWrongOptionIsNamed(t *testing.T) {
	memory, _ := memstore.New(memstore.Options{})
	for _, tt := range []struct {
		opts lease.Options
		want []string
	}{
		{lease.Options{}, nil},
		{lease.Options{Block: 50, Instances: 12}, nil},
		{lease.Options{Instances: 3, Named: map[string]lease.Terms{"login": {}, "api": {Block: 5, Refill: 0.5, Expiry: time.Second}}}, nil},
		{lease.Options{Named: map[string]lease.Terms{"login": {Block: 5, Expiry: -1}}}, []string{`limit "login": blocks of 5 units with 0 instances`, "an expiry of -1ns"}},
		{lease.Options{Block: 50}, []string{"blocks of 50 units with 0 instances"}},
		{lease.Options{Block: -1, Instances: -2, Refill: 1, Expiry: 2 * time.Second, Budget: -1, MaxKeys: -5},
			[]string{"a block of -1 units", "-2 instances", "a share of 1", "an expiry of 2s", "a budget of -1ns", "-5 keys"}},
	} {
		_, err := lease.New(memory, tt.opts)
		if (err == nil) != (tt.want == nil) {
			t.Errorf("%+v: got the error %v, want %q", tt.opts, err, tt.want)
		}
		for _, part := range tt.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: got the error %v, want one with %q", tt.opts, err, part)
			}
		}
	}
	if _, err := lease.New(nil, lease.Options{}); err == nil || !strings.Contains(err.Error(), "no store") {
		t.Errorf("no store: got the error %v, want one that says so", err)
	}
}

func TestBoundIsThatOfTheDocumentation(t *testing.T) {
	for _, tt := range []struct {
		limit weir.Limit
		opts  lease.Options
		want  int64
	}{
		{weir.PerSecond(1000).Burst(2000), lease.Options{Block: 50, Instances: 12}, 87},          // 12 x 6 x 1.2
		{weir.PerSecond(10_000), lease.Options{Block: 50, Instances: 8}, 480},                    // 8 x 50 x 1.2
		{weir.PerHour(7200).Burst(72_000), lease.Options{Block: 50, Instances: 8}, 1},            // 2 a second for 500 ms
		{weir.PerSecond(100), lease.Options{Block: 50, Instances: 12}, 0},                        // less than a unit each
		{weir.PerSecond(10_000), lease.Options{}, 0},                                             // no leases
		{weir.PerSecond(10_000).By(weir.FixedWindow), lease.Options{Block: 50, Instances: 8}, 0}, // dies with its window
		{weir.PerSecond(10_000).By(weir.LeakyBucket), lease.Options{Block: 50, Instances: 8}, 0},
		{weir.PerSecond(10_000), lease.Options{Block: 50, Instances: 8, Refill: 0.5}, 492},
	} {
		if got := lease.Bound(tt.limit, tt.opts); got != tt.want {
			t.Errorf("bound of %v with %+v: got %d, want %d", tt.limit, tt.opts, got, tt.want)
		}
	}
}

func TestALimitMayHaveTermsOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := lease.Options{Block: 50, Instances: 2, Named: map[string]lease.Terms{"login": {}, "search": {Block: 4, Expiry: 50 * time.Millisecond}}}
		s := newStore(t, newRemote(t, 0), opts)
		most := map[string]int64{"api": 60, "login": 0, "search": 4} // 50 and a rest of 20 %, 4 and less than a unit
		for _, name := range []string{"api", "login", "search"} {
			ask := of(weir.PerMinute(100_000))
			ask.Name = name
			held, before := int64(0), s.Stats().Outstanding
			for range 300 {
				take(t, s, ask)
				synctest.Wait()
				held = max(held, s.Stats().Outstanding-before)
			}
			if held > most[name] || held == 0 && most[name] > 0 {
				t.Errorf("limit %q: got up to %d units held, want up to %d", name, held, most[name])
			}
		}
		if got := lease.Bound(weir.PerMinute(100_000), opts.For("search")); got != 10 { // 2 x 4 x 1.2
			t.Errorf("bound of search: got %d, want 10", got)
		}
		if got := lease.Bound(weir.PerMinute(100_000), opts.For("login")); got != 0 {
			t.Errorf("bound of login: got %d, want 0", got)
		}
	})
}

func TestAnAnswerFromMemoryAllocatesNothing(t *testing.T) {
	s := newStore(t, newRemote(t, 0), lease.Options{Block: 1 << 20, Instances: 1})
	hot := of(weir.PerSecond(1 << 30))
	heat(t, s, hot)
	full := of(weir.PerHour(1))
	full.Name = "full"
	take(t, s, full)
	take(t, s, full)
	for name, ask := range map[string]weir.Ask{"a block": hot, "a remembered denial": full} {
		if got := testing.AllocsPerRun(200, func() { s.Take(context.Background(), ask) }); got != 0 {
			t.Errorf("an answer from %s: got %v allocations, want 0", name, got)
		}
	}
}
