package weir_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir"
)

func TestDenialByOneLimitChargesNoOther(t *testing.T) {
	t.Parallel()
	one := memory(t)
	for _, other := range []weir.Store{one, memory(t)} { // one question, or two stores
		wide, err := weir.New(one, "wide", weir.PerHour(100), weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		narrow, err := weir.New(other, "narrow", weir.PerHour(1), weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wide.Reset(ctx, alice)
		narrow.Reset(ctx, alice)
		if d, each, err := weir.TakeAll(ctx, wide.For(alice, 1), narrow.For(alice, 1)); err != nil || !d.Allowed || each[0].Taken != 1 || each[1].Taken != 1 {
			t.Fatalf("the first: got %+v, %+v, %v", d, each, err)
		}
		d, each, err := weir.TakeAll(ctx, wide.For(alice, 1), narrow.For(alice, 1))
		if err != nil || d.Allowed || d.RetryAfter == 0 {
			t.Errorf("the second: got %+v, %v; want denied", d, err)
		}
		if each[0].Taken != 0 || each[0].Remaining != 99 || each[1].Allowed {
			t.Errorf("the second: got %+v, want the wide limit untouched", each)
		}
		if d, _ := wide.Peek(ctx, alice); d.Remaining != 99 {
			t.Errorf("got %d remaining of the wide limit, want 99", d.Remaining)
		}
	}
}

func TestShadowNeitherHoldsBackNorIsHeldBack(t *testing.T) {
	t.Parallel()
	store := memory(t)
	now, _ := weir.New(store, "now", weir.PerHour(2), weir.Options{})
	next, _ := weir.New(store, "next", weir.PerHour(1), weir.Options{Shadow: true})
	for i, want := range []struct{ allowed, shadow bool }{{true, false}, {true, true}, {false, true}} {
		d, each, err := weir.TakeAll(ctx, now.For(alice, 1), next.For(alice, 1))
		if err != nil || d.Allowed != want.allowed || each[1].Shadow != want.shadow || !each[1].Allowed {
			t.Errorf("%d: got %+v, %+v, %v; want %+v", i, d, each, err, want)
		}
	}
	full, _ := weir.New(store, "full", weir.PerHour(0), weir.Options{})
	other, _ := weir.New(store, "other", weir.PerHour(9), weir.Options{Shadow: true})
	if d, each, _ := weir.TakeAll(ctx, full.For(alice, 1), other.For(alice, 1)); d.Allowed || each[1].Taken != 1 {
		t.Errorf("got %+v, %+v; want the shadow charged though the other denied", d, each)
	}
}

func TestOneThatIsAloneDeniesButHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	one := memory(t)
	for _, other := range []weir.Store{one, memory(t)} { // one question, or two stores
		wide, _ := weir.New(one, "wide-alone", weir.PerHour(100), weir.Options{Alone: true})
		narrow, _ := weir.New(other, "narrow-alone", weir.PerHour(1), weir.Options{Alone: true})
		bound, _ := weir.New(other, "all-or-none", weir.PerHour(2), weir.Options{})
		for _, l := range []*weir.Limiter{wide, narrow, bound} {
			l.Reset(ctx, alice)
		}
		for i, want := range []struct {
			allowed bool
			taken   [3]int64 // wide, narrow, bound
		}{{true, [3]int64{1, 1, 1}}, {false, [3]int64{1, 0, 1}}, {false, [3]int64{1, 0, 0}}} {
			d, each, err := weir.TakeAll(ctx, wide.For(alice, 1), narrow.For(alice, 1), bound.For(alice, 1))
			taken := [3]int64{each[0].Taken, each[1].Taken, each[2].Taken}
			if err != nil || d.Allowed != want.allowed || taken != want.taken {
				t.Errorf("question %d: got %+v, %v, taken %v; want %+v", i, d, err, taken, want)
			}
		}
	}
}

func TestFailureOfOneThatIsAloneLeavesTheOthersCharged(t *testing.T) {
	t.Parallel()
	up := memory(t)
	away, _ := weir.New(awayStore{err: errAway}, "away", weir.PerHour(5), weir.Options{Alone: true})
	other, _ := weir.New(up, "other", weir.PerHour(5), weir.Options{})
	d, each, err := weir.TakeAll(ctx, other.For(alice, 1), away.For(alice, 1))
	if err == nil || d.Allowed || each[0].Taken != 1 || each[1].Allowed {
		t.Errorf("got %+v, %+v, %v; want an error, and the other charged", d, each, err)
	}
}

func TestBindingAnswerIsTheOneToPassOn(t *testing.T) {
	t.Parallel()
	store := memory(t)
	limit := func(name string, l weir.Limit) *weir.Limiter {
		lim, err := weir.New(store, name, l, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return lim
	}
	short, long, wide := limit("short", weir.PerSecond(0)), limit("long", weir.PerHour(1)), limit("wide", weir.PerHour(50))
	take(t, long, 1)
	if d, _, _ := weir.TakeAll(ctx, wide.For(alice, 1), long.For(alice, 1)); d.Allowed || d.RetryAfter < 59*time.Minute {
		t.Errorf("got %+v, want the denial", d)
	}
	if d, _, _ := weir.TakeAll(ctx, long.For(alice, 1), short.For(alice, 1)); d.RetryAfter != weir.Never {
		t.Errorf("got %+v, want the longest wait", d)
	}
	tight := limit("tight", weir.PerHour(5))
	if d, _, _ := weir.TakeAll(ctx, wide.For(alice, 1), tight.For(alice, 1)); !d.Allowed || d.Remaining != 4 {
		t.Errorf("got %+v, want the fewest remaining", d)
	}
}

func TestTakeAllRefusesWhatItCannotAsk(t *testing.T) {
	t.Parallel()
	l := limiter(t, memory(t), weir.PerHour(5), weir.Options{OnFailure: weir.FailOpen})
	for _, charges := range [][]weir.Charge{nil, {{}}, {l.For(alice, 1), l.For(alice, -1)}, {l.For(weir.Key{}, 1)}} {
		if d, _, err := weir.TakeAll(ctx, charges...); err == nil || d.Allowed {
			t.Errorf("%d charges: got %+v, %v; want an error", len(charges), d, err)
		}
	}
	if d, _ := l.Peek(ctx, alice); d.Remaining != 5 {
		t.Errorf("got %d remaining, want 5", d.Remaining)
	}
}

func TestPartOfAStoreThatIsAwayIsSettledByItsLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := memory(t)
		strict, _ := weir.New(awayStore{err: errAway}, "strict", weir.PerHour(5), weir.Options{OnFailure: weir.FailClosed})
		local, _ := weir.New(awayStore{err: errAway}, "local", weir.PerHour(5), weir.Options{Fallback: memory(t), Instances: 1})
		other, _ := weir.New(up, "other", weir.PerHour(5), weir.Options{})
		if d, each, err := weir.TakeAll(ctx, other.For(alice, 1), local.For(alice, 1)); err != nil || !d.Allowed || each[1].Source != weir.FromFallback {
			t.Errorf("with a fallback: got %+v, %+v, %v", d, each, err)
		}
		if d, each, err := weir.TakeAll(ctx, other.For(alice, 1), local.For(alice, 1), strict.For(alice, 1)); err != nil || d.Allowed || each[0].Taken != 0 || each[1].Taken != 0 {
			t.Errorf("closed: got %+v, %+v, %v; want nothing taken", d, each, err)
		}
		if d, _ := other.Peek(ctx, alice); d.Remaining != 4 {
			t.Errorf("got %d remaining, want 4: what was taken is given back", d.Remaining)
		}
	})
}

// slowRefunds is a store that takes its time to give back.
type slowRefunds struct{ weir.Store }

func (s slowRefunds) Refund(ctx context.Context, ask weir.Ask, d weir.Decision) (int64, error) {
	time.Sleep(50 * time.Millisecond)
	return s.Store.Refund(ctx, ask, d)
}

func TestNobodyWaitsForRefundsOneAfterTheOtherNorBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := limiter(t, slowRefunds{memory(t)}, weir.PerHour(5), weir.Options{})
		two := limiter(t, slowRefunds{memory(t)}, weir.PerHour(5), weir.Options{})
		full := limiter(t, memory(t), weir.PerHour(0), weir.Options{})
		for _, patience := range []time.Duration{time.Second, 20 * time.Millisecond} {
			hurried, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			start := time.Now()
			d, each, err := weir.TakeAll(hurried, one.For(alice, 1), two.For(alice, 1), full.For(alice, 1))
			if err != nil || d.Allowed || each[0].Taken != 0 || each[1].Taken != 0 {
				t.Errorf("got %+v, %+v, %v; want denied and nothing taken", d, each, err)
			}
			if took, most := time.Since(start), min(patience, 50*time.Millisecond); took > most {
				t.Errorf("with %v to wait: took %v, want at most %v", patience, took, most)
			}
			time.Sleep(time.Second)
			for _, l := range []*weir.Limiter{one, two} {
				if d, _ := l.Peek(t.Context(), alice); d.Remaining != 5 {
					t.Errorf("got %d remaining, want 5: what was taken is given back", d.Remaining)
				}
			}
		}
	})
}

func TestErrorOfManyChargesIsShort(t *testing.T) {
	t.Parallel()
	l := limiter(t, awayStore{err: errAway}, weir.PerMinute(5), weir.Options{})
	many := make([]weir.Charge, 1000)
	for i := range many {
		many[i] = l.For(weir.Text("k"), 1)
	}
	_, _, err := weir.TakeAll(t.Context(), many...)
	if !errors.Is(err, errAway) || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "and 996 more charges") {
		t.Errorf("got %.2000v, want a few of the errors", err)
	}
}
