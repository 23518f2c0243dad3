package algorithm

import (
	"testing"
	"time"

	"weir.dev/weir"
)

// Two clients whose clocks differ: the earlier one's denials must not cut the state
// short for the later one.
func TestClocksThatDisagreeMintNoUnits(t *testing.T) {
	for _, tt := range []struct {
		limit        weir.Limit
		early, late  int64
		mostAdmitted int
	}{
		{weir.PerSecond(1).Burst(2), 8_000_000, 10_000_000, 2},
		{weir.PerSecond(1), 9_000_000, 10_000_000, 1},
		{weir.Per(10, time.Millisecond), 9_000_000, 10_000_000, 10},
		{weir.Per(3, time.Millisecond), 9_000_000, 10_000_000, 3},
	} {
		for _, a := range []weir.Algorithm{weir.GCRA, weir.LeakyBucket} {
			ask := weir.Ask{Limit: tt.limit.By(a), Cost: 1}
			var state TAT
			admitted := 0
			for range 1000 {
				for _, now := range []int64{tt.late, tt.early} {
					var v Verdict
					if state, v, _ = TakeGCRA(state, now, &ask); v.Allowed {
						admitted++
					}
				}
			}
			if admitted > tt.mostAdmitted {
				t.Errorf("%v, asked at %d and %d µs in turn: got %d units admitted, want at most %d", ask.Limit, tt.late, tt.early, admitted, tt.mostAdmitted)
			}
		}
	}
}
