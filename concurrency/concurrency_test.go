package concurrency_test

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir/concurrency"
)

func newLimiter(t testing.TB, o concurrency.Options) *concurrency.Limiter {
	t.Helper()
	l, err := concurrency.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestPlacesAreRefusedBeyondTheLimitAndFreedByRelease(t *testing.T) {
	l := newLimiter(t, concurrency.Options{Algorithm: concurrency.Fixed, Initial: 2})
	a, _ := l.Acquire(t.Context())
	l.Acquire(t.Context())
	if p, ok := l.Acquire(t.Context()); ok || p.Reason() != concurrency.OverLimit {
		t.Errorf("third of two places: got %v, %v; want a refusal, over_limit", ok, p.Reason())
	}
	a.Release(concurrency.Success)
	if _, ok := l.Acquire(t.Context()); !ok {
		t.Error("a place that was released was refused")
	}
}

func TestSecondReleaseChangesNothing(t *testing.T) {
	l := newLimiter(t, concurrency.Options{})
	first, _ := l.Acquire(t.Context())
	if !first.Release(concurrency.Success) {
		t.Error("first release: got false, want true")
	}
	l.Acquire(t.Context()) // may well use the first one's memory again
	if first.Release(concurrency.Drop) {
		t.Error("second release: got true, want false")
	}
	if got := l.Stats(); got.InFlight != 1 || got.Successes != 1 || got.Drops != 0 {
		t.Errorf("got %d in flight, %d successes, %d drops; want 1, 1, 0", got.InFlight, got.Successes, got.Drops)
	}
}

func TestReleaseOfARefusedPermitChangesNothing(t *testing.T) {
	l := newLimiter(t, concurrency.Options{Initial: 1, Max: 1})
	l.Acquire(t.Context())
	p, ok := l.Acquire(t.Context())
	if ok || p.Release(concurrency.Success) || (concurrency.Permit{}).Release(concurrency.Success) {
		t.Error("a permit without a place was released")
	}
	if got := l.Stats().InFlight; got != 1 {
		t.Errorf("got %d in flight, want 1", got)
	}
}

func TestUnknownOutcomeIsNotMeasured(t *testing.T) {
	l := newLimiter(t, concurrency.Options{})
	p, _ := l.Acquire(t.Context())
	p.Release(concurrency.Outcome(99))
	if got := l.Stats(); got.Ignored != 1 || got.InFlight != 0 {
		t.Errorf("got %d ignored, %d in flight; want 1, 0", got.Ignored, got.InFlight)
	}
}

func TestEveryBadOptionIsNamed(t *testing.T) {
	_, err := concurrency.New(concurrency.Options{
		Algorithm: 9, Mode: 9, Min: -1, Max: -2, Timeout: time.Second, QueueLength: -1, QueueTimeout: -1,
		Classes: []concurrency.ClassOptions{{Share: math.NaN()}, {Name: "a", Share: 0.7}, {Name: "a", Share: 0.7}},
	})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"Algorithm is 9", "Mode is 9", "Min is -1", "Timeout is 1s", "QueueLength is -1",
		"QueueTimeout is -1ns", `Classes[0].Name is ""`, "Classes[0].Share is NaN", `Classes[2].Name is "a"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want it to contain %q", err, want)
		}
	}
	for _, o := range []concurrency.Options{
		{Min: 10, Max: 5}, {Initial: 2000}, {Initial: 5, Min: 10}, {Max: math.MaxInt64},
		{Algorithm: concurrency.AIMD, Timeout: -1}, {QueueTimeout: time.Second},
		{Classes: []concurrency.ClassOptions{{Name: "a", Share: 0.6}, {Name: "b", Share: 0.6}}},
	} {
		if _, err := concurrency.New(o); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
}

func TestGuaranteedShareIsAdmittedIntoAFullLimiter(t *testing.T) {
	l := newLimiter(t, concurrency.Options{
		Algorithm: concurrency.Fixed, Initial: 10,
		Classes: []concurrency.ClassOptions{{Name: "pay", Share: 0.3}},
	})
	for range 10 {
		l.Acquire(t.Context())
	}
	pay, _ := l.Class("pay")
	admitted := 0
	for range 5 {
		if _, ok := pay.Acquire(t.Context()); ok {
			admitted++
		}
	}
	if admitted != 3 {
		t.Errorf("got %d admitted, want 3, the share of 10", admitted)
	}
	if _, ok := l.Acquire(t.Context()); ok {
		t.Error("work without a share was admitted beyond the limit")
	}
	if _, ok := l.Class("nobody"); ok {
		t.Error("a class that does not exist was found")
	}
}

func TestObserveAdmitsAllAndCountsWhatItWouldHaveRefused(t *testing.T) {
	l := newLimiter(t, concurrency.Options{Algorithm: concurrency.Fixed, Initial: 1, Mode: concurrency.Observe})
	for range 3 {
		if _, ok := l.Acquire(t.Context()); !ok {
			t.Error("refused while it only observes")
		}
	}
	got := l.Stats()
	if shed := got.Classes[0].Shed[concurrency.OverLimit]; shed != 2 || got.InFlight != 3 {
		t.Errorf("got %d counted, %d in flight; want 2, 3", shed, got.InFlight)
	}
}

func TestOffCountsNothing(t *testing.T) {
	l := newLimiter(t, concurrency.Options{Initial: 1, Mode: concurrency.Off})
	for range 3 {
		p, ok := l.Acquire(t.Context())
		if !ok {
			t.Error("refused while off")
		}
		p.Release(concurrency.Success)
	}
	if got := l.Stats(); got.InFlight != 0 || got.Successes != 0 {
		t.Errorf("got %+v, want no counts", got)
	}
}

func TestQueueServesOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := queueOrder(t, 10*time.Millisecond, 200*time.Millisecond)
		if order != "012" {
			t.Errorf("got %q, want 012", order)
		}
	})
}

func TestStandingQueueServesNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := queueOrder(t, 150*time.Millisecond, time.Second)
		if order != "210" {
			t.Errorf("got %q, want 210", order)
		}
	})
}

// queueOrder has three wait for the place of another that holds it for hold, and
// returns the order in which they are served.
func queueOrder(t *testing.T, hold, timeout time.Duration) string {
	l := newLimiter(t, concurrency.Options{Algorithm: concurrency.Fixed, Initial: 1, QueueLength: 3, QueueTimeout: timeout})
	holder, _ := l.Acquire(t.Context())
	var order strings.Builder
	for i := range 3 {
		go func() {
			p, ok := l.Acquire(t.Context())
			if ok {
				order.WriteByte(byte('0' + i))
				p.Release(concurrency.Success)
			}
		}()
		synctest.Wait()
	}
	if p, ok := l.Acquire(t.Context()); ok || p.Reason() != concurrency.QueueFull {
		t.Errorf("fourth in a queue of three: got %v, %v; want a refusal, queue_full", ok, p.Reason())
	}
	time.Sleep(hold)
	holder.Release(concurrency.Success)
	synctest.Wait()
	return order.String()
}

func TestQueueServesTheMoreImportantClassFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, concurrency.Options{
			Algorithm: concurrency.Fixed, Initial: 1, QueueLength: 2,
			Classes: []concurrency.ClassOptions{{Name: "high"}, {Name: "low"}},
		})
		holder, _ := l.Acquire(t.Context())
		var order strings.Builder
		for _, name := range []string{"low", "high"} {
			c, _ := l.Class(name)
			go func() {
				if p, ok := c.Acquire(t.Context()); ok {
					order.WriteString(name + " ")
					p.Release(concurrency.Success)
				}
			}()
			synctest.Wait()
		}
		holder.Release(concurrency.Success)
		synctest.Wait()
		if got := order.String(); got != "high low " {
			t.Errorf("got %q, want high before low", got)
		}
	})
}

func TestQueueServesAClassWhoseShareCameFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, concurrency.Options{
			Algorithm: concurrency.Fixed, Initial: 2, QueueLength: 2,
			Classes: []concurrency.ClassOptions{{Name: "pay", Share: 0.5}},
		})
		pay, _ := l.Class("pay")
		l.Acquire(t.Context())
		l.Acquire(t.Context())
		owed, _ := pay.Acquire(t.Context()) // the third of two places
		time.AfterFunc(10*time.Millisecond, func() { owed.Release(concurrency.Success) })
		before := time.Now()
		if _, ok := pay.Acquire(t.Context()); !ok || time.Since(before) != 10*time.Millisecond {
			t.Errorf("got %v after %v, want the share's place after 10ms", ok, time.Since(before))
		}
	})
}

func TestWaitEndsWithTheQueueTimeoutTheDeadlineAndTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, concurrency.Options{Algorithm: concurrency.Fixed, Initial: 1, QueueLength: 3})
		l.Acquire(t.Context())
		soon, cancelSoon := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancelSoon()
		left, leave := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, leave)
		for _, c := range []struct {
			ctx  context.Context
			want concurrency.Reason
			wait time.Duration
		}{
			{soon, concurrency.TooLate, 20 * time.Millisecond},
			{left, concurrency.Canceled, 10 * time.Millisecond},
			{t.Context(), concurrency.QueueTimeout, 100 * time.Millisecond},
			{left, concurrency.Canceled, 0},
		} {
			before := time.Now()
			p, ok := l.Acquire(c.ctx)
			if got := time.Since(before); ok || p.Reason() != c.want || got != c.wait {
				t.Errorf("got %v, %v after %v; want a refusal, %v after %v", ok, p.Reason(), got, c.want, c.wait)
			}
		}
		if got := l.Stats(); got.Queued != 0 || got.QueueWait != 130*time.Millisecond {
			t.Errorf("got %d queued, waits of %v; want 0, 130ms", got.Queued, got.QueueWait)
		}
	})
}

// patience is how long the callers of serve wait for an answer.
const patience = 200 * time.Millisecond

// serve offers work to a server of so many workers, each of 10 ms, for as long as
// asked, and returns the answers that found their callers and the last limit.
func serve(t *testing.T, o concurrency.Options, workers, perSecond int, d time.Duration) (answers int64, limit int) {
	l := newLimiter(t, o)
	free := make(chan struct{}, workers)
	var done atomic.Int64
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		if p, ok := l.Acquire(t.Context()); ok {
			began := time.Now()
			go func() {
				free <- struct{}{}
				time.Sleep(10 * time.Millisecond)
				<-free
				if time.Since(began) > patience {
					p.Release(concurrency.Ignore)
					return
				}
				done.Add(1)
				p.Release(concurrency.Success)
			}()
		}
		time.Sleep(time.Second / time.Duration(perSecond))
	}
	answers, limit = done.Load(), l.Stats().Limit
	time.Sleep(10 * time.Second) // let all end
	return answers, limit
}

func TestLimitFindsTheServersCapacityFromBelowAndAbove(t *testing.T) {
	for _, initial := range []int{1, 20, 150} {
		synctest.Test(t, func(t *testing.T) {
			answers, limit := serve(t, concurrency.Options{Initial: initial}, 10, 2000, 30*time.Second)
			if answers < 28_000 || limit < 5 || limit > 60 {
				t.Errorf("from %d: got %d answers of 30,000 and a limit of %d for 10 workers", initial, answers, limit)
			}
		})
	}
}

// With 500 in flight an answer takes 500 ms, and nobody waits for it.
func TestLimitFallsWhenCallersLeaveBecauseOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers, limit := serve(t, concurrency.Options{Initial: 500}, 10, 2000, 60*time.Second)
		if answers < 40_000 || limit > 100 {
			t.Errorf("got %d answers of 60,000 and a limit of %d for 10 workers", answers, limit)
		}
	})
}

func TestEveryAlgorithmServesAHealthyServer(t *testing.T) {
	for a := concurrency.Auto; a <= concurrency.Fixed; a++ {
		synctest.Test(t, func(t *testing.T) {
			answers, _ := serve(t, concurrency.Options{Algorithm: a}, 10, 500, 10*time.Second)
			if answers < 4_950 {
				t.Errorf("algorithm %d: got %d answers of 5,000 at half the capacity", a, answers)
			}
		})
	}
}

func TestStatsTellWhyTheLimitMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, concurrency.Options{})
		for range 1000 {
			if p, ok := l.Acquire(t.Context()); ok {
				time.AfterFunc(50*time.Millisecond, func() { p.Release(concurrency.Drop) })
			}
			time.Sleep(time.Millisecond)
		}
		got := l.Stats()
		time.Sleep(time.Second) // let all end
		if got.LastChange.Why != "drops" || got.Limit >= 20 || got.Drops == 0 {
			t.Errorf("got limit %d, %d drops, last change %+v; want a lower one, for drops", got.Limit, got.Drops, got.LastChange)
		}
	})
}

func TestRetryAfterIsSpreadAndBounded(t *testing.T) {
	l := newLimiter(t, concurrency.Options{})
	seen := map[time.Duration]bool{}
	for range 100 {
		d := l.RetryAfter()
		if d < time.Second || d > 45*time.Second {
			t.Fatalf("got %v, want 1 s to 45 s", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("got %d different hints of 100, want a spread", len(seen))
	}
}

func TestAcquireAndReleaseDoNotAllocate(t *testing.T) {
	l := newLimiter(t, concurrency.Options{})
	ctx := t.Context()
	allocations := testing.AllocsPerRun(1000, func() {
		p, _ := l.Acquire(ctx)
		p.Release(concurrency.Success)
	})
	if allocations >= 1 { // the race detector empties pools at random
		t.Errorf("got %v allocations, want 0", allocations)
	}
}

// FuzzNoPlaceIsLost has callers give up, release twice, report anything and wait in
// a queue, and then wants every place back.
func FuzzNoPlaceIsLost(f *testing.F) {
	f.Add(uint64(1), 3, 2)
	f.Add(uint64(2), 1, 0)
	f.Add(uint64(3), 50, 10)
	f.Fuzz(func(t *testing.T, seed uint64, limit, queue int) {
		limit, queue = 1+abs(limit)%64, abs(queue)%64
		o := concurrency.Options{Initial: limit, QueueLength: queue, Classes: []concurrency.ClassOptions{{Name: "a", Share: 0.5}}}
		if queue > 0 {
			o.QueueTimeout = time.Millisecond
		}
		l := newLimiter(t, o)
		class, _ := l.Class("a")
		var all sync.WaitGroup
		for worker := range uint64(8) {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, worker))
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(1500))*time.Microsecond)
					acquire := l.Acquire
					if r.IntN(2) == 0 {
						acquire = class.Acquire
					}
					if p, ok := acquire(ctx); ok {
						p.Release(concurrency.Outcome(r.IntN(5)))
						if r.IntN(3) == 0 && p.Release(concurrency.Success) {
							t.Error("a second release was taken")
						}
					}
					cancel()
				}
			})
		}
		all.Wait()
		got := l.Stats()
		if got.InFlight != 0 || got.Queued != 0 || got.Classes[0].InFlight != 0 || got.Classes[1].InFlight != 0 {
			t.Errorf("after all returned: %+v", got)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

func BenchmarkAcquireRelease(b *testing.B) {
	l := newLimiter(b, concurrency.Options{})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		p, _ := l.Acquire(ctx)
		p.Release(concurrency.Success)
	}
}

func BenchmarkAcquireReleaseParallel(b *testing.B) {
	l := newLimiter(b, concurrency.Options{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ctx := context.Background()
		for pb.Next() {
			p, _ := l.Acquire(ctx)
			p.Release(concurrency.Success)
		}
	})
}
