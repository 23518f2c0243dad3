package weir_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
)

var (
	ctx   = context.Background()
	alice = weir.Text("alice")
)

// awayStore is a store that cannot decide.
type awayStore struct {
	weir.Store
	err error
}

func (b awayStore) Take(context.Context, weir.Ask) (weir.Decision, error) {
	return weir.Decision{}, b.err
}
func (b awayStore) TakeAll(context.Context, []weir.Ask, []weir.Decision) error {
	return b.err
}

var errAway = errors.New("the store is away")

func memory(t testing.TB) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Options{MaxKeys: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func limiter(t testing.TB, store weir.Store, limit weir.Limit, opts weir.Options) *weir.Limiter {
	t.Helper()
	l, err := weir.New(store, "test", limit, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func take(t testing.TB, l *weir.Limiter, cost int64) weir.Decision {
	t.Helper()
	d, err := l.Take(ctx, alice, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNewNamesEveryBadArgument(t *testing.T) {
	t.Parallel()
	_, err := weir.New(nil, "a b", weir.PerSecond(-1), weir.Options{OnFailure: 7, Instances: 2})
	for _, part := range []string{"no store", `a limit's name "a b"`, "-1 units", "failure mode 7", "2 instances without a fallback"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want it to say %q", err, part)
		}
	}
	_, err = weir.New(memory(t), "x", weir.PerSecond(1), weir.Options{Fallback: memory(t)})
	if err == nil || !strings.Contains(err.Error(), "fallback with 0 instances") {
		t.Errorf("got %v, want it to ask for the instances", err)
	}
	_, err = weir.New(memory(t), "x", weir.Per(30, weir.MaxPeriod), weir.Options{Fallback: memory(t), Instances: 1000})
	if err == nil || !strings.Contains(err.Error(), "one share of 1000") || !strings.Contains(err.Error(), "let fewer share it") {
		t.Errorf("got %v, want it to refuse a share that cannot be counted", err)
	}
	for _, instances := range []int{1 << 44, 1 << 62, math.MaxInt} { // whose product with the period wraps around
		for _, limit := range []weir.Limit{weir.PerSecond(1), weir.PerSecond(0), weir.PerSecond(5).By(weir.SlidingLog)} {
			_, err = weir.New(memory(t), "x", limit, weir.Options{Fallback: memory(t), Instances: instances})
			if err == nil || !strings.Contains(err.Error(), "too long to compute") {
				t.Errorf("%v by %d instances: got %v, want that it is too long", limit, instances, err)
			}
		}
	}
}

func TestTakeRefusesACostBelowOne(t *testing.T) {
	t.Parallel()
	l := limiter(t, memory(t), weir.PerHour(5), weir.Options{OnFailure: weir.FailOpen})
	for _, cost := range []int64{0, -1, math.MinInt64} {
		if d, err := l.Take(ctx, alice, cost); err == nil || d.Allowed {
			t.Errorf("cost %d: got %+v, %v; want an error", cost, d, err)
		}
	}
	if d, err := l.Take(ctx, weir.Key{}, 1); err == nil || d.Allowed {
		t.Errorf("the zero key: got %+v, %v; want an error even where failures are let through", d, err)
	}
	if d, err := l.With(weir.PerSecond(-1)).Take(ctx, alice, 1); err == nil || d.Allowed {
		t.Errorf("a bad limit: got %+v, %v; want an error", d, err)
	}
}

func TestShadowLetsPassAndTellsSo(t *testing.T) {
	t.Parallel()
	l := limiter(t, memory(t), weir.PerHour(1), weir.Options{Shadow: true})
	if d := take(t, l, 1); !d.Allowed || d.Shadow || d.Taken != 1 {
		t.Errorf("within the limit: got %+v", d)
	}
	if d := take(t, l, 1); !d.Allowed || !d.Shadow || d.Taken != 0 || d.RetryAfter == 0 {
		t.Errorf("over the limit: got %+v, want it let through in shadow, uncharged", d)
	}
}

func TestUnlimitedAsksNobody(t *testing.T) {
	t.Parallel()
	l := limiter(t, awayStore{err: errAway}, weir.Unlimited(), weir.Options{})
	d := take(t, l, math.MaxInt64)
	if !d.Allowed || d.Source != weir.FromPolicy || d.Taken != 0 || d.Remaining != math.MaxInt64 {
		t.Errorf("got %+v", d)
	}
	if n, err := l.Refund(ctx, alice, d, 0); n != 0 || err != nil {
		t.Errorf("a refund of nothing: got %d, %v", n, err)
	}
	if _, err := l.Take(ctx, weir.Key{}, 1); err == nil {
		t.Error("the zero key passed")
	}
}

func TestAPlanThatChangesKeepsWhatWasUsed(t *testing.T) {
	l := limiter(t, memory(t), weir.PerHour(10), weir.Options{})
	take(t, l, 10)
	if d, _ := l.With(weir.PerHour(10).Burst(20)).Take(ctx, alice, 1); !d.Allowed || d.Remaining != 9 {
		t.Errorf("a larger burst: got %+v, want allowed and 9 remaining", d)
	}
	if n := testing.AllocsPerRun(100, func() { l.With(weir.PerHour(10)).Peek(ctx, alice) }); n > 0 {
		t.Errorf("With allocates %v times a call, want 0", n)
	}
}

func TestFailureModes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode    weir.FailureMode
		allowed bool
		err     bool
	}{{weir.ReturnError, false, true}, {weir.FailClosed, false, false}, {weir.FailOpen, true, false}} {
		l := limiter(t, awayStore{err: errAway}, weir.PerSecond(1), weir.Options{OnFailure: tt.mode})
		d, err := l.Take(ctx, alice, 1)
		if d.Allowed != tt.allowed || (err != nil) != tt.err || err == nil && (d.Source != weir.FromPolicy || !errors.Is(d.Cause, errAway)) {
			t.Errorf("mode %d: got %+v, %v", tt.mode, d, err)
		}
		if !d.Allowed && err == nil && d.RetryAfter < time.Second {
			t.Errorf("mode %d: got RetryAfter %v, want at least 1s", tt.mode, d.RetryAfter)
		}
		_, each, err := weir.TakeAll(ctx, l.For(alice, 1), l.For(weir.Text("bob"), 1))
		if (err != nil) != tt.err || err == nil && each[0].Allowed != tt.allowed {
			t.Errorf("mode %d, several: got %+v, %v", tt.mode, each, err)
		}
	}
}

func TestCallerWhoLeftGetsNoFallback(t *testing.T) {
	t.Parallel()
	left, cancel := context.WithCancel(ctx)
	cancel()
	fallback := memory(t)
	l := limiter(t, awayStore{err: context.Canceled}, weir.PerHour(5), weir.Options{Fallback: fallback, Instances: 1, OnFailure: weir.FailOpen})
	if d, err := l.Take(left, alice, 1); !errors.Is(err, context.Canceled) || d.Allowed {
		t.Errorf("got %+v, %v; want the caller's own error", d, err)
	}
}

func TestFallbackHoldsAShareOfTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, awayStore{err: errAway}, weir.PerMinute(60).Burst(20), weir.Options{Fallback: memory(t), Instances: 10})
		admitted := 0
		for d := take(t, l, 1); d.Allowed; d = take(t, l, 1) {
			if d.Source != weir.FromFallback || !errors.Is(d.Cause, errAway) {
				t.Fatalf("got %+v, want it from the fallback with its cause", d)
			}
			admitted++
		}
		if admitted != 2 {
			t.Errorf("got %d at once, want the burst's share of 2", admitted)
		}
		time.Sleep(time.Minute)
		admitted = 0
		for range 60 {
			if take(t, l, 1).Allowed {
				admitted++
			}
			time.Sleep(time.Second)
		}
		if admitted < 6 || admitted > 8 {
			t.Errorf("got %d in a minute, want a tenth of 60 and at most the burst's 2 more", admitted)
		}
		if d := take(t, l, 5); d.Allowed {
			t.Errorf("a cost above the share passed while units were owed: %+v", d)
		}
		time.Sleep(time.Hour)
		if d := take(t, l, 5); !d.Allowed {
			t.Errorf("a cost above the share from rest: got %+v, want allowed", d)
		}
		if d := take(t, l, 21); d.Allowed || d.RetryAfter != weir.Never {
			t.Errorf("a cost above the burst: got %+v, want never", d)
		}
	})
}

func TestFewerUnitsFromTheFallbackAreAtMostTheShareOfTheBurst(t *testing.T) {
	t.Parallel()
	l := limiter(t, awayStore{err: errAway}, weir.PerHour(20), weir.Options{Fallback: memory(t), Instances: 10})
	for _, want := range []weir.Decision{{Allowed: true, Taken: 2}, {}} {
		d, err := l.TakeUpTo(ctx, alice, math.MaxInt64)
		if err != nil || d.Allowed != want.Allowed || d.Taken != want.Taken || d.RetryAfter == weir.Never {
			t.Errorf("as many as there are of a tenth of 20: got %+v, %v; want allowed %t, taken %d", d, err, want.Allowed, want.Taken)
		}
	}
}

func TestRefundGoesBackToWhereItCameFrom(t *testing.T) {
	t.Parallel()
	l := limiter(t, awayStore{err: errAway}, weir.PerHour(10), weir.Options{Fallback: memory(t), Instances: 1})
	d := take(t, l, 10)
	if n, err := l.Refund(ctx, alice, d, 4); n != 4 || err != nil {
		t.Errorf("got %d, %v; want 4 from the fallback", n, err)
	}
	if n, err := l.Refund(ctx, alice, d, 4); n != 0 || err != nil {
		t.Errorf("a second time: got %d, %v; want 0", n, err)
	}
	for _, units := range []int64{-1, 11} {
		if _, err := l.Refund(ctx, alice, d, units); err == nil {
			t.Errorf("a refund of %d of 10 passed", units)
		}
	}
}

func TestWaitTakesAPlaceAndWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, a := range []weir.Algorithm{weir.GCRA, weir.LeakyBucket, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog} {
			l := limiter(t, memory(t), weir.Per(2, time.Second).By(a), weir.Options{})
			start := time.Now()
			patient, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			for range 6 {
				if _, err := l.Wait(patient, alice, 1); err != nil {
					t.Fatalf("%v: %v", a, err)
				}
			}
			if took := time.Since(start); took < time.Second || took > 4*time.Second {
				t.Errorf("%v: 6 units of 2 a second took %v", a, took)
			}
		}
	})
}

func TestWaitGivesUpAtOnceWhenTheDeadlineIsTooNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memory(t), weir.PerMinute(1), weir.Options{})
		take(t, l, 1)
		near, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		start := time.Now()
		if _, err := l.Wait(near, alice, 1); !errors.Is(err, weir.ErrTooLong) {
			t.Errorf("got %v, want ErrTooLong", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("gave up after %v, want at once", took)
		}
		if _, err := l.Wait(ctx, alice, 2); !errors.Is(err, weir.ErrTooLong) {
			t.Errorf("more than the burst: got %v, want ErrTooLong", err)
		}
	})
}

func TestWaitThatIsCancelledGivesItsPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memory(t), weir.PerMinute(60).Burst(1), weir.Options{})
		take(t, l, 1)
		before, _ := l.Peek(ctx, alice)
		waiting, cancel := context.WithCancel(ctx)
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := l.Wait(waiting, alice, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if after, _ := l.Peek(ctx, alice); after.RetryAfter > before.RetryAfter {
			t.Errorf("the next must wait %v, want at most %v: the place was not given back", after.RetryAfter, before.RetryAfter)
		}
	})
}

func TestEveryDecisionIsObservedOnce(t *testing.T) {
	t.Parallel()
	var seen []weir.Observation
	opts := weir.Options{Observe: func(_ context.Context, o weir.Observation) { seen = append(seen, o) }}
	l := limiter(t, memory(t), weir.PerHour(1), opts)
	take(t, l, 1)
	take(t, l, 1)
	l.Peek(ctx, alice)
	weir.TakeAll(ctx, l.For(alice, 1), limiter(t, awayStore{err: errAway}, weir.PerHour(1), opts).For(alice, 1))
	if len(seen) != 5 {
		t.Fatalf("got %d observations, want 5", len(seen))
	}
	if o := seen[4]; o.Name != "test" || o.Err == nil {
		t.Errorf("got %+v, want the failure", o)
	}
}
