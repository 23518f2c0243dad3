package memstore_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"weir.dev/weir"
)

func TestAllAreChargedOrNone(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms {
		s := newStore(t, 0)
		ask := func(k int, cost int64) weir.Ask {
			return weir.Ask{Name: "api", Key: number(k), Limit: weir.PerHour(5).By(a), Cost: cost}
		}
		takeAt(t, s, noon, ask(1, 2), ask(2, 4))
		d := takeAt(t, s, noon, ask(1, 2), ask(2, 2), ask(3, 1))
		if !d[0].Allowed || d[0].Taken != 0 || d[0].Remaining != 3 || d[0].Delay != 0 {
			t.Errorf("%v: held back: got %+v, want allowed, taken 0, remaining 3", a, d[0])
		}
		if d[1].Allowed || d[1].Taken != 0 || d[1].Remaining != 1 || d[1].RetryAfter <= 0 {
			t.Errorf("%v: denied: got %+v, want remaining 1 and a wait", a, d[1])
		}
		if !d[2].Allowed || d[2].Taken != 0 || d[2].Remaining != 5 || d[2].ResetAfter != 0 {
			t.Errorf("%v: held back and new: got %+v, want it as new", a, d[2])
		}
		if st := s.Stats(); st.Keys != 2 {
			t.Errorf("%v: %d keys are remembered, want the 2 that were charged", a, st.Keys)
		}
		d = takeAt(t, s, noon, ask(1, 3), ask(2, 1), ask(3, 5))
		for i := range d {
			if !d[i].Allowed || d[i].Remaining != 0 {
				t.Errorf("%v: question %d: got %+v, want all that was left", a, i, d[i])
			}
		}
	}
}

func TestASecondAskOfAKeySeesTheFirst(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms {
		s := newStore(t, 0)
		ask := weir.Ask{Name: "api", Key: number(1), Limit: weir.PerHour(5).By(a), Cost: 3}
		if d := takeAt(t, s, noon, ask, ask); !d[0].Allowed || d[0].Taken != 0 || d[1].Allowed || d[1].Remaining != 2 {
			t.Errorf("%v: 3 and 3 of 5: got %+v, want the second denied and nothing taken", a, d)
		}
		ask.Cost = 2
		if d := takeAt(t, s, noon, ask, ask); d[0].Taken != 2 || d[1].Taken != 2 || d[1].Remaining != 1 {
			t.Errorf("%v: 2 and 2 of 5: got %+v, want both taken and 1 left", a, d)
		}
	}
}

func TestAPeekRefusesTheOthersIfNothingIsThere(t *testing.T) {
	t.Parallel()
	s := newStore(t, 0)
	peek := weir.Ask{Name: "gate", Key: number(1), Limit: weir.PerHour(1)}
	ask := weir.Ask{Name: "api", Key: number(1), Limit: weir.PerHour(9), Cost: 1}
	if d := takeAt(t, s, noon, peek, ask); !d[0].Allowed || d[1].Taken != 1 {
		t.Errorf("got %+v, want the second taken", d)
	}
	takeAt(t, s, noon, weir.Ask{Name: "gate", Key: number(1), Limit: weir.PerHour(1), Cost: 1})
	if d := takeAt(t, s, noon, peek, ask); d[0].Allowed || d[1].Taken != 0 || d[1].Remaining != 8 {
		t.Errorf("got %+v, want the second held back with 8 left", d)
	}
}

func TestAskThatIsAloneNeitherHoldsBackNorIsHeldBack(t *testing.T) {
	t.Parallel()
	s := newStore(t, 0)
	full := weir.Ask{Name: "full", Key: number(1), Limit: weir.PerHour(0), Cost: 1}
	ask := weir.Ask{Name: "api", Key: number(1), Limit: weir.PerHour(9), Cost: 1}
	alone, aloneFull := ask, full
	alone.Alone, aloneFull.Alone = true, true
	if d := takeAt(t, s, noon, aloneFull, ask); d[0].Allowed || d[1].Taken != 1 {
		t.Errorf("got %+v, want the second taken", d)
	}
	// The one alone comes after the group, and sees what is left then.
	if d := takeAt(t, s, noon, alone, full, ask); d[0].Taken != 1 || d[0].Remaining != 7 || d[1].Allowed || d[2].Taken != 0 {
		t.Errorf("got %+v, want only the one alone taken", d)
	}
}

func TestAsksWithoutRoomAreUndoneToo(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms {
		s := newStore(t, 1)
		takeAt(t, s, noon, weir.Ask{Name: "fill", Key: number(0), Limit: weir.PerHour(1), Cost: 1})
		ask := func(k int) weir.Ask {
			return weir.Ask{Name: "api", Key: number(k), Limit: weir.PerHour(3).By(a), Cost: 1}
		}
		full := weir.Ask{Name: "full", Key: number(1), Limit: weir.PerHour(0), Cost: 1}
		if d := takeAt(t, s, noon, ask(1), ask(2), full); d[0].Remaining != 3 || d[1].Remaining != 3 || d[1].Taken != 0 {
			t.Errorf("%v: got %+v, want both held back with 3 left", a, d)
		}
		if d := takeAt(t, s, noon, ask(1), ask(2), ask(3)); d[2].Taken != 1 || d[2].Remaining != 0 {
			t.Errorf("%v: got %+v, want the shared counter used up", a, d)
		}
	}
}

// TakeAll takes its locks in one order, whatever that of the asks.
func TestManyAtOnceAskInOppositeOrder(t *testing.T) {
	t.Parallel()
	s := newStore(t, 0)
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			asks := make([]weir.Ask, 10)
			decisions := make([]weir.Decision, len(asks))
			for range 300 {
				for i := range asks {
					asks[i] = weir.Ask{Name: "api", Key: number(r.IntN(40)), Limit: weir.Per(50, 24*time.Hour).By(algorithms[r.IntN(5)]), Cost: r.Int64N(3), Alone: r.IntN(5) == 0}
				}
				if err := s.TakeAll(ctx, asks, decisions); err != nil {
					t.Error(err)
					return
				}
				for i, d := range decisions {
					if d.Taken > 0 && r.IntN(3) == 0 {
						asks[i].Cost = d.Taken
						s.Refund(ctx, asks[i], d)
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestADenialForgetsNothingThatALongerPeriodCounts(t *testing.T) {
	t.Parallel()
	s := newStore(t, 0)
	log := func(limit weir.Limit, cost int64) weir.Ask {
		return weir.Ask{Name: "api", Key: number(1), Limit: limit.By(weir.SlidingLog), Cost: cost}
	}
	nobody := weir.Ask{Name: "closed", Key: number(1), Limit: weir.PerHour(0), Cost: 1}
	takeAt(t, s, noon, log(weir.PerHour(100), 10))
	for i := range int64(3) { // of the last second nothing counts, and room is made for more and more
		takeAt(t, s, noon+(3+i)*1_000_000, log(weir.PerSecond(50), 1+9*i), nobody)
	}
	if d := takeAt(t, s, noon+9_000_000, log(weir.PerHour(100), 0)); d[0].Remaining != 90 {
		t.Errorf("after denied questions %d units are left, want 90", d[0].Remaining)
	}
}

func TestADenialUndoesNothingOfAKeyForgottenMeanwhile(t *testing.T) {
	t.Parallel()
	const most = 127 // the most keys of one shard
	s := newStore(t, most)
	brief := func(k int) weir.Ask {
		return weir.Ask{Name: "api", Key: number(k), Limit: weir.Per(1, time.Microsecond).Burst(1000), Cost: 1}
	}
	long := func(k int) weir.Ask {
		return weir.Ask{Name: "api", Key: number(k), Limit: weir.PerHour(1), Cost: 1}
	}
	var asks []weir.Ask
	for k := range most {
		takeAt(t, s, noon, brief(k))
		asks = append(asks, brief(k))
	}
	for k := most; k == most || s.Stats().Room > 0; k++ { // forgets some at 100 µs
		takeAt(t, s, noon+100, long(k))
	}
	// A clock read before the lock: the new key forgets more as at 100 µs, some of which
	// this question has just charged at 50 µs.
	takeAt(t, s, noon+50, append(asks, long(-1), weir.Ask{Name: "closed", Key: number(1), Limit: weir.PerHour(0), Cost: 1})...)
}
