package lease_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/lease"
)

// exhaust uses a limit up and returns the denial.
func exhaust(t *testing.T, s weir.Store, ask weir.Ask) weir.Decision {
	t.Helper()
	take(t, s, weir.Ask{Name: ask.Name, Key: ask.Key, Limit: ask.Limit, Cost: ask.Limit.Capacity()})
	d := take(t, s, ask)
	if d.Allowed || d.Source != weir.FromStore {
		t.Fatalf("of none: got %+v, want denied by the store", d)
	}
	return d
}

func TestADenialIsRepeatedUntilTheQuestionCouldPass(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				below := newRemote(t, 0)
				s := newStore(t, below, lease.Options{})
				ask := of(weir.Per(4, 400*time.Millisecond).By(a))
				time.Sleep(30 * time.Millisecond)
				first := exhaust(t, s, ask)
				calls := below.calls.Load()
				for left := first.RetryAfter; left > 0; left -= time.Millisecond {
					d := take(t, s, ask)
					if d.Allowed || d.Source != weir.FromCache || d.RetryAfter != left || d.Remaining != 0 || d.ResetAfter < left {
						t.Fatalf("%v before it could pass: got %+v, want the denial with what is left of the wait", left, d)
					}
					if d.AtMicros != time.Now().UnixMicro() {
						t.Fatalf("got decided at %d µs, want %d", d.AtMicros, time.Now().UnixMicro())
					}
					time.Sleep(min(left, time.Millisecond))
				}
				if got := below.calls.Load(); got != calls {
					t.Errorf("got %d calls while it could not pass, want none", got-calls)
				}
				if d := take(t, s, ask); !d.Allowed || d.Source != weir.FromStore {
					t.Errorf("when it could pass: got %+v, want allowed by the store", d)
				}
			})
		})
	}
}

func TestADenialIsRepeatedForAsManyUnitsOrMore(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				below := newRemote(t, 0)
				s := newStore(t, below, lease.Options{})
				limit := weir.Per(10, time.Second).By(a)
				ask := of(limit)
				ask.Cost = 8
				take(t, s, ask)
				ask.Cost = 4
				denied := take(t, s, ask)
				for _, cost := range []int64{4, 5, 10} {
					ask.Cost = cost
					got, want := take(t, s, ask), take(t, below, ask)
					if got.Source == weir.FromCache {
						want.Source = weir.FromCache
					} else if cost == 4 || a != weir.SlidingWindow && a != weir.SlidingLog {
						t.Errorf("%d units after 4 were denied: got %+v, want it from memory", cost, got)
					}
					if got != want {
						t.Errorf("%d units after 4 were denied:\n got %+v\nwant %+v", cost, got, want)
					}
				}
				ask.Cost = 11
				if got := take(t, s, ask); got.Allowed || got.RetryAfter != weir.Never {
					t.Errorf("11 of 10: got %+v, want never", got)
				}
				ask.Cost = 10
				ask.Partial = true
				if got := take(t, s, ask); !got.Allowed || got.Taken != 2 {
					t.Errorf("up to 10 after 4 were denied with %v to wait: got %+v, want the 2 there are", denied.RetryAfter, got)
				}
			})
		})
	}
}

// A cache keyed without the limit denies a customer who has just bought more.
func TestARaisedLimitEndsADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, newRemote(t, 0), lease.Options{})
		ask := of(weir.PerHour(1))
		exhaust(t, s, ask)
		if d := take(t, s, ask); d.Source != weir.FromCache {
			t.Fatalf("got %+v, want the denial from memory", d)
		}
		ask.Limit = weir.PerHour(100).Burst(200) // with a burst of 100, what was taken is all of it
		if d := take(t, s, ask); !d.Allowed {
			t.Errorf("under a raised limit: got %+v, want allowed at once", d)
		}
	})
}

func TestAResetAndARefundEndADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, newRemote(t, 0), lease.Options{})
		ask := of(weir.PerHour(2))
		kept := take(t, s, ask)
		take(t, s, ask)
		take(t, s, ask)
		if back, err := s.Refund(t.Context(), ask, kept); back != 1 || err != nil {
			t.Fatalf("refund: got %d back and the error %v, want 1", back, err)
		}
		if d := take(t, s, ask); !d.Allowed {
			t.Errorf("after a refund: got %+v, want allowed", d)
		}
		take(t, s, ask)
		if d := take(t, s, ask); d.Source != weir.FromCache {
			t.Fatalf("got %+v, want the denial from memory", d)
		}
		if err := s.Reset(t.Context(), ask.Name, ask.Key); err != nil {
			t.Fatal(err)
		}
		if d := take(t, s, ask); !d.Allowed || d.Remaining != 1 {
			t.Errorf("after a reset: got %+v, want the first of 2", d)
		}
	})
}

// A denial that the store gave before a refund, and that comes after it, is not kept.
func TestADenialFromBeforeARefundIsNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 20*time.Millisecond)
		s := newStore(t, below, lease.Options{})
		ask := of(weir.PerHour(1))
		only := take(t, s, ask)
		done := make(chan weir.Decision)
		go func() { done <- take(t, s, ask) }()
		time.Sleep(15 * time.Millisecond) // it is decided
		if back, err := s.Refund(t.Context(), ask, only); back != 1 || err != nil {
			t.Fatalf("refund: got %d back and the error %v, want 1", back, err)
		}
		if d := <-done; d.Allowed {
			t.Fatalf("before the refund: got %+v, want denied", d)
		}
		if d := take(t, s, ask); !d.Allowed {
			t.Errorf("after the refund: got %+v, want allowed", d)
		}
	})
}

func TestADenialIsRememberedForASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 0)
		s := newStore(t, below, lease.Options{})
		ask := of(weir.PerHour(1))
		exhaust(t, s, ask)
		time.Sleep(time.Second - time.Microsecond)
		if d := take(t, s, ask); d.Source != weir.FromCache || d.RetryAfter != time.Hour-time.Second+time.Microsecond {
			t.Errorf("just before a second has passed: got %+v, want the denial with the whole wait", d)
		}
		below.Reset(t.Context(), ask.Name, ask.Key) // by another process
		time.Sleep(time.Microsecond)
		if d := take(t, s, ask); !d.Allowed {
			t.Errorf("a second later: got %+v, want the store asked again", d)
		}
	})
}

// A suspended machine wakes up with denials whose time has passed.
func TestADenialEndsByTheWallClockToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, newRemote(t, 0), lease.Options{})
		skew := s.Skewable()
		ask := of(weir.PerHour(1))
		exhaust(t, s, ask)
		skew(0, time.Second)
		if d := take(t, s, ask); d.Source != weir.FromStore {
			t.Errorf("got %+v, want the store asked again", d)
		}
	})
}

// The second of two questions about one key is denied for what the first would have
// taken; alone it would pass.
func TestADenialBesideAnotherQuestionOfTheKeyIsNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, newRemote(t, 0), lease.Options{})
		ask := of(weir.PerHour(5))
		ask.Cost = 3
		ds := make([]weir.Decision, 2)
		if err := s.TakeAll(t.Context(), []weir.Ask{ask, ask}, ds); err != nil || ds[1].Allowed {
			t.Fatalf("3 and 3 of 5: got %+v and the error %v, want the second denied", ds, err)
		}
		if d := take(t, s, ask); !d.Allowed {
			t.Errorf("3 of 5 alone: got %+v, want allowed", d)
		}
	})
}

// Whoever counts decisions counts those from memory too.
func TestObserveSeesWhatIsAnsweredFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 0)
		seen := map[weir.Source]int{}
		l, err := weir.New(newStore(t, below, lease.Options{Block: 50, Instances: 1}), "api", weir.PerHour(1000), weir.Options{
			Observe: func(_ context.Context, o weir.Observation) {
				if o.Name != "api" || o.Cost != 1 || o.Err != nil || o.Decision.Allowed != (o.Decision.Taken == 1) {
					t.Errorf("got %+v", o)
				}
				seen[o.Decision.Source]++
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		allowed := 0
		for range 1500 {
			d, err := l.Take(t.Context(), weir.Text("acme"), 1)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				allowed++
			}
			synctest.Wait()
		}
		if allowed != 1000 {
			t.Errorf("1500 questions about 1000 an hour: got %d allowed, want 1000", allowed)
		}
		if total := seen[weir.FromStore] + seen[weir.FromLease] + seen[weir.FromCache]; total != 1500 || seen[weir.FromLease] < 900 || seen[weir.FromCache] < 490 {
			t.Errorf("got %v seen, want 1500, most of them from blocks and then from memory", seen)
		}
	})
}

func TestAnswersOfAPeekComeFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newRemote(t, 0)
		s := newStore(t, below, lease.Options{Block: 50, Instances: 2})
		ask := of(weir.PerHour(1000))
		for left := int64(999); left >= 900; left-- {
			take(t, s, ask)
			synctest.Wait()
			peek := ask
			peek.Cost = 0
			if d := take(t, s, peek); !d.Allowed || d.Remaining != left || d.Taken != 0 {
				t.Fatalf("with %d left, some of them in a block: got %+v", left, d)
			}
		}
	})
}

func TestADenialOfAKeyAskedTwiceIsNotRepeatedHoweverManyAreAsked(t *testing.T) {
	for _, others := range []int{0, 100} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore(t, newRemote(t, 0), lease.Options{})
			ask := of(weir.PerHour(3))
			ask.Cost = 2
			asks := []weir.Ask{ask, ask}
			for i := range others {
				other := of(weir.PerHour(3))
				other.Key = weir.Text(fmt.Sprint("other ", i))
				asks = append(asks, other)
			}
			ds := make([]weir.Decision, len(asks))
			if err := s.TakeAll(t.Context(), asks, ds); err != nil || ds[1].Allowed {
				t.Fatalf("2 and 2 of 3, %d others: got %+v, %v, want the second denied", others, ds[1], err)
			}
			if d := take(t, s, ask); !d.Allowed { // since nothing of the two was charged
				t.Errorf("2 of 3 after %d others: got %+v, want allowed", others, d)
			}
		})
	}
}
