package lease

import (
	"math"

	"weir.dev/weir"
)

// share is the part of a limit's capacity that the blocks of all processes may hold.
const share = 0.05

// Bound returns how many units more than the limit itself the processes may let through
// in any interval, because of leases taken with these options: the smaller of N b (1 + h)
// and r E, rounded up, by GCRA; 0 by every other algorithm, and where the limit is not
// leased. N is Instances, b the largest block, h Refill, E Expiry, r the rate. Combining
// and remembered denials add nothing. The block b is the smaller of Block and 0.05 B / (N
// (1 + h)), for a capacity B. The options must be such as New
// takes; those of a limit with its own terms are Options.For its name.
func Bound(limit weir.Limit, opts Options) int64 {
	terms := Terms{opts.Block, opts.Refill, opts.Expiry}.withDefaults()
	b := largestBlock(limit, &terms, opts.Instances)
	if b == 0 || limit.Algorithm() != weir.GCRA {
		return 0
	}
	held := float64(opts.Instances) * float64(b) * (1 + terms.Refill)
	earned := float64(limit.Units()) * float64(terms.Expiry) / float64(limit.Period())
	return int64(math.Ceil(min(held, earned)))
}

// largestBlock returns the most units that one process takes ahead for a key of the
// limit; 0 is none.
func largestBlock(limit weir.Limit, terms *Terms, instances int) int64 {
	switch limit.Algorithm() {
	case weir.GCRA, weir.FixedWindow, weir.SlidingWindow:
	default:
		return 0
	}
	if terms.Block < 1 {
		return 0
	}
	b := share * float64(limit.Capacity()) / (float64(instances) * (1 + terms.Refill))
	return min(terms.Block, int64(b))
}
