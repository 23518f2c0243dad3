package storetest

import (
	"fmt"
	"testing"
	"time"

	"weir.dev/weir"
)

// These are the histories that make an algorithm let most through in one period. Each
// is admitted by the arithmetic itself, and is the published bound to the unit.

// admit asks a fresh key at each time for as many units as there are, and returns the
// history.
func admit(t *testing.T, limit weir.Limit, at ...int64) []Event {
	t.Helper()
	s := newPlain("")
	var history []Event
	for _, now := range at {
		ask := weir.Ask{Name: "worst", Key: weir.Text("case"), Limit: limit, Cost: limit.Capacity(), Partial: true}
		var d [1]weir.Decision
		if err := s.TakeAt(t.Context(), now, []weir.Ask{ask}, d[:]); err != nil {
			t.Fatal(err)
		}
		history = append(history, EventOf(ask, d[0]))
	}
	if err := Check(limit, history); err != nil {
		t.Errorf("the history: %v", err)
	}
	return history
}

// every returns n times from one on, an interval apart.
func every(interval time.Duration, from int64, n int) []int64 {
	at := make([]int64, n)
	for i := range at {
		at[i] = from + int64(i)*interval.Microseconds()
	}
	return at
}

func wantMost(t *testing.T, limit weir.Limit, history []Event, want int64) {
	t.Helper()
	if got := mostIn(limit.Period(), history); got != want {
		t.Errorf("most units of %v in one period: got %d, want %d", limit, got, want)
	}
	if bound := worstCase(limit); want > bound {
		t.Errorf("%v: %d units are beyond the published %d", limit, want, bound)
	}
}

// All of one window in its last microsecond, and all of the next in its first.
func TestFixedWindowLetsAtMostTwiceTheLimitThrough(t *testing.T) {
	for _, n := range []int64{1, 2, 100} {
		limit := weir.PerSecond(n).By(weir.FixedWindow)
		wantMost(t, limit, admit(t, limit, day-1, day), 2*n)
		wantMost(t, limit, admit(t, limit, every(time.Millisecond, day-500_000, 3000)...), 2*n)
	}
}

// However it is asked, each microsecond or all at once.
func TestSlidingLogLetsAtMostTheLimitThrough(t *testing.T) {
	for _, n := range []int64{1, 2, 100} {
		limit := weir.PerSecond(n).By(weir.SlidingLog)
		wantMost(t, limit, admit(t, limit, day-1, day, day+second-2, day+second-1, day+second), n)
		wantMost(t, limit, admit(t, limit, every(time.Millisecond, day-1, 3000)...), n)
	}
}

// All of one window at its very start, which by the end of the next one hardly weighs:
// the rolling period from just after that start holds the rest.
func TestSlidingWindowLetsAtMostTwiceTheLimitLessOneThrough(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 100} {
		limit := weir.PerSecond(n).By(weir.SlidingWindow)
		// N at the end of one window; then one more at each instant when another unit of
		// the weight has gone: N-1 by the end of the period.
		at := []int64{day - 1}
		for k := int64(1); k <= n; k++ {
			at = append(at, day+(k*second+n-1)/n)
		}
		wantMost(t, limit, admit(t, limit, at...), max(2*n-1, 1))
	}
}

// A burst at once, and then each unit as it is earned.
func TestGCRALetsLessThanBurstAndLimitThrough(t *testing.T) {
	for _, tt := range []struct {
		limit weir.Limit
		want  int64
	}{
		{weir.PerSecond(100), 199},
		{weir.PerSecond(100).Burst(1), 100},
		{weir.PerSecond(100).Burst(20), 119},
		{weir.PerSecond(1), 1},
	} {
		interval := tt.limit.Period() / time.Duration(tt.limit.Units())
		wantMost(t, tt.limit, admit(t, tt.limit, every(interval, day, 300)...), tt.want)
	}
}

// A closed period, both of whose ends count, holds one unit more: that of its last instant.
func TestPacedGCRALetsAtMostOneMoreThanTheLimitThroughInAClosedPeriod(t *testing.T) {
	limit := weir.PerSecond(100).Burst(1)
	history := admit(t, limit, every(10*time.Millisecond, day, 300)...)
	if got := mostIn(limit.Period()+time.Microsecond, history); got != 101 {
		t.Errorf("most units of %v in one closed period: got %d, want 101", limit, got)
	}
}

// A full queue is admitted at once; what leaves it does so one interval apart.
func TestLeakyBucketLetsAtMostOneMoreThanTheLimitLeaveAndTheBurstArrive(t *testing.T) {
	limit := weir.PerSecond(100).Burst(50).By(weir.LeakyBucket)
	s := newPlain("")
	ask := weir.Ask{Name: "worst", Key: weir.Text("case"), Limit: limit, Cost: 1}
	var arrive, leave []Event
	for i := range int64(4000) {
		now := day + i/40*10_000 // 40 ask in each interval
		var d [1]weir.Decision
		if err := s.TakeAt(t.Context(), now, []weir.Ask{ask}, d[:]); err != nil {
			t.Fatal(err)
		}
		e := EventOf(ask, d[0])
		arrive = append(arrive, e)
		e.AtMicros += d[0].Delay.Microseconds()
		leave = append(leave, e)
	}
	wantMost(t, limit, arrive, 50+100-1)
	if got := mostIn(time.Microsecond, arrive); got > 50 {
		t.Errorf("most units admitted at once: got %d, want at most 50", got)
	}
	if got := mostIn(limit.Period()+time.Microsecond, leave); got != 101 {
		t.Errorf("most units that leave in one closed period: got %d, want 101", got)
	}
}

func ExampleCheck() {
	limit := weir.PerMinute(2).By(weir.SlidingLog)
	fmt.Println(Check(limit, []Event{
		{AtMicros: 60_000_000, Cost: 2, Taken: 2, Allowed: true},
		{AtMicros: 119_999_999, Cost: 1, Taken: 1, Allowed: true},
	}))
	// Output: event 1 at 119999999 µs, cost 1, taken 1: admitted beyond the limit under 2 per 1m0s by sliding_log
}
