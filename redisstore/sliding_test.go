package redisstore

import (
	"math/big"
	"testing"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
)

// The window before can weigh a whole number of units and the least part of one more:
// here 1/P of a unit, on products of 77 bits, which no double tells from the whole number.
// That part counts as one unit.
func TestTheLeastPartOfAUnitOfTheWindowBeforeCounts(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Addrs: []string{redistest.Shared(t, redistest.Redis7).Addr}, Budget: patient})
	for _, units := range []int64{101, 104_729, 15_485_863, 4_294_967_291} { // primes
		limit := weir.Per(units, weir.MaxPeriod).By(weir.SlidingWindow)
		period := limit.Period().Microseconds()
		// units x left = whole x period + 1
		left := new(big.Int).ModInverse(big.NewInt(units), big.NewInt(period)).Int64()
		whole := new(big.Int).Div(new(big.Int).Mul(big.NewInt(units), big.NewInt(left)), big.NewInt(period)).Int64()
		begin := 60 * period // a window of 2030
		ask := askOf("least part", limit.String(), limit, units)
		var d [1]weir.Decision
		for _, step := range []struct {
			at, cost, taken int64
		}{
			{begin - 1, units, units},
			{begin + period - left, units - whole, 0},
			{begin + period - left, units - whole - 1, units - whole - 1},
		} {
			ask.Cost = step.cost
			if err := s.TakeAt(ctx, step.at, []weir.Ask{ask}, d[:]); err != nil {
				t.Fatal(err)
			}
			if d[0].Taken != step.taken {
				t.Errorf("%v: %d units at %d µs: got %d taken, want %d", limit, step.cost, step.at, d[0].Taken, step.taken)
			}
		}
	}
}
