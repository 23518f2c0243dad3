package httpretry

import "time"

// Backoff says how long to wait before a retry.
type Backoff struct {
	Jitter Jitter        // default FullJitter
	Base   time.Duration // the scale of the first wait; default 100 ms
	Cap    time.Duration // the longest wait drawn; default 10 s
}

// Jitter is how a wait is drawn. With b the Base, c the Cap, n the number of the retry from 1, e = min(c, b 2^(n-1)),
// s the wait drawn before (b at first), and U uniform. The names are those of the AWS Architecture Blog, "Exponential
// Backoff And Jitter".
type Jitter uint8

// The jitters. No choice without jitter is offered: clients that failed together would come back together.
const (
	// FullJitter draws U(0, e): clients that failed together are spread the widest.
	FullJitter Jitter = iota

	// EqualJitter draws e/2 + U(0, e/2), where a least distance between attempts is wanted.
	EqualJitter

	// DecorrelatedJitter draws min(c, U(b, 3s)), the textbook form. About two thirds of the waits that follow a capped one
	// are capped too, so that after a long outage many clients wait exactly c and are in step again.
	DecorrelatedJitter

	// DecorrelatedInside draws U(b, min(c, 3s)): the cap bounds the interval and not the draw, so nothing piles up at c.
	// The long-run mean falls to about c/4, which is more requests than the textbook form sends.
	DecorrelatedInside
)

// Draw returns the wait before retry n, which is at least 1, after a wait of previous, given u, a uniform draw from
// [0, 1). It is from 0 to Cap. A zero field of b counts as its default.
func (b Backoff) Draw(n int, previous time.Duration, u float64) time.Duration {
	b = b.withDefaults()
	switch b.Jitter {
	case EqualJitter:
		half := b.exponential(n) / 2
		return half + portion(half, u)
	case DecorrelatedJitter:
		return min(b.Cap, b.Base+portion(b.triple(previous)-b.Base, u))
	case DecorrelatedInside:
		return b.Base + portion(min(b.Cap, b.triple(previous))-b.Base, u)
	default:
		return portion(b.exponential(n), u)
	}
}

// spread is what is added to a server's hint, so that the clients that got the same hint do not return together: from 0
// to half the hint or the exponential wait, whichever is longer, but at most Cap.
func (b Backoff) spread(n int, hint time.Duration, u float64) time.Duration {
	return portion(min(b.Cap, max(b.exponential(n), hint/2)), u)
}

// exponential is min(c, b 2^(n-1)).
func (b Backoff) exponential(n int) time.Duration {
	e := b.Base
	for ; n > 1 && e < b.Cap; n-- {
		if e > b.Cap/2 { // doubling would pass the cap, or overflow
			return b.Cap
		}
		e *= 2
	}
	return min(e, b.Cap)
}

// triple is 3s, with s at least Base. Beyond a third of the cap the exact value only matters to the textbook form, whose
// s never exceeds Cap; both are kept from overflowing.
func (b Backoff) triple(previous time.Duration) time.Duration {
	const most = time.Duration(1<<63-1) / 3
	return 3 * min(max(previous, b.Base), most)
}

func (b Backoff) withDefaults() Backoff {
	setDefault(&b.Base, 100*time.Millisecond)
	setDefault(&b.Cap, 10*time.Second)
	return b
}

func portion(d time.Duration, u float64) time.Duration { return time.Duration(float64(d) * u) }
