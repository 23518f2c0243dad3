// Package algorithm is the arithmetic of every limit: pure functions from a state, a
// time and a question to a new state and a decision. It has no clock, no lock and no
// I/O, and computes in integers alone. Times are microseconds since 1970.
//
// A question goes through two steps, which stores may take on two machines: decide,
// from a state to a [Verdict] and the state to keep (the Lua in redisstore is the
// other form of these functions); and describe, from a verdict and the state to what
// callers are told (in Go alone, for every store).
package algorithm

import (
	"math"
	"math/bits"
	"time"

	"weir.dev/weir"
)

// Kind names the kind of state that an algorithm keeps. GCRA and LeakyBucket share
// one; every other algorithm starts afresh beside it. A kind is part of a store's key.
type Kind byte

// The kinds of state.
const (
	KindTAT     Kind = 'g' // theoretical arrival time: GCRA, LeakyBucket
	KindWindow  Kind = 'f' // FixedWindow
	KindSliding Kind = 'w' // SlidingWindow
	KindLog     Kind = 'l' // SlidingLog
	KindRefunds Kind = 'r' // what refunds have moved, under any algorithm
)

// Kinds lists every kind, that of refunds last, for those who forget a key.
var Kinds = [...]Kind{KindTAT, KindWindow, KindSliding, KindLog, KindRefunds}

// KindOf returns the kind of state that an algorithm keeps.
func KindOf(a weir.Algorithm) Kind {
	switch a {
	case weir.FixedWindow:
		return KindWindow
	case weir.SlidingWindow:
		return KindSliding
	case weir.SlidingLog:
		return KindLog
	}
	return KindTAT
}

// Verdict is what was decided, before it is put into words: Taken units at the time
// At, which is the time of the question or, if the state has seen a later one, that.
type Verdict struct {
	Allowed bool
	Taken   int64
	At      int64
}

// grant returns how many units of the ask to take where free could be taken, and
// whether that is enough. A peek takes none, and asks for one.
func grant(ask *weir.Ask, free int64) Verdict {
	switch {
	case ask.Cost == 0:
		return Verdict{Allowed: free >= 1}
	case ask.Cost <= free:
		return Verdict{Allowed: true, Taken: ask.Cost}
	case ask.Partial && free >= 1:
		return Verdict{Allowed: true, Taken: free}
	}
	return Verdict{}
}

// wanted returns the units that must be there for the ask to be allowed.
func wanted(ask *weir.Ask) int64 {
	if ask.Cost == 0 || ask.Partial {
		return 1
	}
	return ask.Cost
}

// hopeless reports whether no waiting lets the ask pass.
func hopeless(ask *weir.Ask) bool { return wanted(ask) > ask.Limit.Capacity() }

func micros(n int64) time.Duration {
	if n > math.MaxInt64/1000 {
		return weir.Never
	}
	return time.Duration(n) * time.Microsecond
}

// mulDiv returns floor(a*b/c) and the remainder for a, b >= 0 and c > 0, whose quotient fits.
func mulDiv(a, b, c int64) (quo, rem int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(c))
	return int64(q), int64(r)
}
