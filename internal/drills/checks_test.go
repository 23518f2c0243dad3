package drills

import (
	"testing"
	"time"

	"weir.dev/weir"
)

// The checks of the drills are checked here: each finds the fault that it is for.

// at is a call that took or was denied one unit so many microseconds after an hour's start.
func at(micros int64, source weir.Source, taken int64) call {
	const hour = 1_800_000_000_000_000 - 1_800_000_000_000_000%3_600_000_000
	return call{d: weir.Decision{Source: source, AtMicros: hour + micros, Taken: taken, Allowed: taken > 0}}
}

func TestOverCountsTheUnitsBeyondBurstAndRate(t *testing.T) {
	t.Parallel()
	limit := weir.PerSecond(1000)
	var h history
	for n := range int64(1000) {
		h = append(h, at(0, weir.FromStore, 1), at(1000+n*1000, weir.FromStore, 1))
	}
	if got := h.over(limit, byDecider); got != 0 {
		t.Errorf("a burst and its rate: got %d units over, want 0", got)
	}
	for n := range int64(7) { // however they lie
		h = append(h, at(n*100_000+500, weir.FromFallback, 1))
	}
	if got := h.over(limit, byDecider); got != 7 {
		t.Errorf("got %d units over, want 7", got)
	}
}

func TestOverCountsTheUnitsBeyondAWindow(t *testing.T) {
	t.Parallel()
	limit := weir.PerHour(10).By(weir.FixedWindow)
	var h history
	for n := range int64(13) {
		h = append(h, at(n, weir.FromStore, 1))
	}
	for range 10 {
		h = append(h, at(3_600_000_000, weir.FromStore, 1))
	}
	if got := h.over(limit, byDecider); got != 3 {
		t.Errorf("got %d units over, want 3", got)
	}
}

func TestCheckFindsAUnitTooManyAndADenialTooMany(t *testing.T) {
	t.Parallel()
	limit := weir.PerSecond(1)
	good := history{at(0, weir.FromStore, 1), at(0, weir.FromStore, 0), at(999_999, weir.FromStore, 0), at(1_000_000, weir.FromStore, 1)}
	if err := good.check(limit); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if err := append(good, at(1_500_000, weir.FromStore, 1)).check(limit); err == nil {
		t.Error("a unit too many was not found")
	}
	denied := append(good, at(2_000_000, weir.FromStore, 0))
	if err := denied.check(limit); err == nil {
		t.Error("a denial that the limit admits was not found")
	}
	lost := call{unknown: true, d: at(1_500_000, weir.FromFallback, 0).d}
	if err := append(denied, lost).check(limit); err != nil {
		t.Errorf("a denial where an answer was lost: got %v, want nil", err)
	}
}

func TestOutageBoundIsABurstAndTheRateForAsLongAsTheFallbackAnswered(t *testing.T) {
	t.Parallel()
	h := history{at(0, weir.FromStore, 1), at(1_000_000, weir.FromFallback, 1), at(3_000_000, weir.FromFallback, 0), at(9_000_000, weir.FromStore, 1)}
	if got := h.outageBound(weir.PerSecond(100)); got != 100+200+1 {
		t.Errorf("got %d, want 301", got)
	}
	if got := h.central().outageBound(weir.PerSecond(100)); got != 0 {
		t.Errorf("without fallback: got %d, want 0", got)
	}
}

func TestLossesAreSeenByWhatIsLeft(t *testing.T) {
	t.Parallel()
	limit := weir.PerSecond(100)
	left := func(micros, remaining int64) call {
		c := at(micros, weir.FromStore, 1)
		c.d.Remaining = remaining
		return c
	}
	h := history{left(0, 99), left(100, 98), left(1_000_000, 99), left(1_000_100, 10), left(1_100_100, 19), left(1_100_200, 99)}
	if got := h.losses(limit); got != 1 {
		t.Errorf("got %d losses, want 1", got)
	}
}

func TestGapAndRecoveryAreMeasuredFromTheirMoment(t *testing.T) {
	t.Parallel()
	central := func(at time.Duration) call { return call{asked: at, took: time.Millisecond} }
	local := call{asked: 300 * time.Millisecond, took: 50 * time.Millisecond, d: weir.Decision{Source: weir.FromFallback}}
	h := history{central(0), central(100 * time.Millisecond), local, central(250 * time.Millisecond), central(900 * time.Millisecond)}
	if got := h.central().gap(); got != 650*time.Millisecond {
		t.Errorf("got a gap of %v, want 650ms", got)
	}
	s := &stage{}
	s.recovered(h, 200*time.Millisecond)
	if s.row.first != 51*time.Millisecond || s.row.whole != 150*time.Millisecond {
		t.Errorf("got %v and %v, want 51ms and 150ms", s.row.first, s.row.whole)
	}
}
