package rules

import (
	"testing"
	"time"

	"weir.dev/weir"
)

func TestLimitsAreSaidAsPeopleDo(t *testing.T) {
	t.Parallel()
	of := func(l weir.Limit) Limit {
		unit, multiplier := inUnits(l.Period())
		return Limit{Limit: l, Unit: unit, Multiplier: multiplier}
	}
	for _, test := range []struct {
		limit Limit
		want  string
	}{
		{of(weir.PerMinute(100)), "100 per minute by gcra"},
		{of(weir.PerMinute(100).Burst(20)), "100 per minute burst 20 by gcra"},
		{Limit{Limit: weir.Per(5, 30*day).By(weir.FixedWindow), Unit: UnitMonth, Multiplier: 1}, "5 per month by fixed_window"},
		{of(weir.PerHour(0)), "denies everything"},
		{of(weir.Per(5, 36*time.Hour).By(weir.SlidingLog)), "5 per 36h by sliding_log"},
		{of(weir.Per(5, 100*time.Hour)), "5 per 100h by gcra"},
		{of(weir.Per(5, 90*time.Minute)), "5 per 1h30m by gcra"},
		{of(weir.Per(5, 10*time.Minute)), "5 per 10m by gcra"},
		{of(weir.Per(5, 90*time.Second)), "5 per 1m30s by gcra"},
		{of(weir.Per(5, time.Hour+time.Second)), "5 per 1h0m1s by gcra"},
		{of(weir.Per(5, 1500*time.Microsecond)), "5 per 1.5ms by gcra"},
	} {
		if got := test.limit.String(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestWorstCasesAreThoseOfTheAlgorithms(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit weir.Limit
		want  int64
	}{
		{weir.PerMinute(100), 199},
		{weir.PerMinute(100).Burst(1), 100},
		{weir.PerMinute(100).By(weir.LeakyBucket), 101},
		{weir.PerMinute(100).By(weir.FixedWindow), 200},
		{weir.PerMinute(100).By(weir.SlidingWindow), 199},
		{weir.PerMinute(100).By(weir.SlidingLog), 100},
		{weir.PerMinute(0), 0},
	} {
		if got := (Limit{Limit: test.limit}).WorstCase(); got != test.want {
			t.Errorf("%v: got %d, want %d", test.limit, got, test.want)
		}
	}
}
