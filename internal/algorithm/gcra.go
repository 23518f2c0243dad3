package algorithm

import (
	"math/bits"

	"weir.dev/weir"
)

// TAT is the state of GCRA and LeakyBucket: the theoretical arrival time, Micros +
// Rem/Den microseconds. The zero TAT is a key never seen.
type TAT struct{ Micros, Rem, Den int64 }

// span is a length of time: us + rem/den microseconds, 0 <= rem < den, of a den known
// from where it is used.
type span struct{ us, rem int64 }

func (s span) cmp(o span) int64 {
	if s.us != o.us {
		return s.us - o.us
	}
	return s.rem - o.rem
}

func (s span) add(o span, den int64) span {
	s.us, s.rem = s.us+o.us, s.rem+o.rem
	if s.rem >= den {
		s.us, s.rem = s.us+1, s.rem-den
	}
	return s
}

func (s span) sub(o span, den int64) span {
	s.us, s.rem = s.us-o.us, s.rem-o.rem
	if s.rem < 0 {
		s.us, s.rem = s.us-1, s.rem+den
	}
	return s
}

func (s span) ceil() int64 {
	if s.rem > 0 {
		return s.us + 1
	}
	return s.us
}

func cost(e *weir.Emission, units int64) span {
	us, rem := e.Span(units)
	return span{us, rem}
}

// stepBack is how far, in microseconds, the clock may step back without minting units.
// Within it, a state that seems too far ahead is left as it is.
const stepBack = 1_000_000

// ahead returns how far t is ahead of now under an emission: 0 if it is not, and at
// most the tolerance, one period, which is as far as a reservation can reach, and
// stepBack: a state seen from before it was made is not one to cut short. It reports
// whether that bound cut it short, as it does after a limit has shrunk. A remainder in
// other parts than the emission's is rounded up to a whole microsecond.
func (t TAT) ahead(e *weir.Emission, now, period int64) (span, bool) {
	s := t.owed(e, now)
	if most := (span{Reach(e, period), e.TolRem}); s.cmp(most) > 0 {
		return most, true
	}
	return s, false
}

// owed is ahead without the bound.
func (t TAT) owed(e *weir.Emission, now int64) span {
	s := span{t.Micros - now, t.Rem}
	if t.Den != e.Den && t.Rem > 0 {
		s = span{s.us + 1, 0}
	}
	if s.us < 0 {
		return span{}
	}
	return s
}

// Reach returns how far ahead of now a state can be, in whole microseconds beside the
// tolerance's remainder.
func Reach(e *weir.Emission, period int64) int64 { return e.TolMicros + period + stepBack }

// tolerance returns how far ahead of now the ask may leave the key: the burst's worth,
// beyond it MaxWait for GCRA, and for a LeakyBucket no further than MaxWait and its own cost.
func tolerance(ask *weir.Ask, e *weir.Emission, units int64) span {
	tol, wait := span{e.TolMicros, e.TolRem}, ask.MaxWait.Microseconds()
	if ask.MaxWait == 0 { // not wait: less than a microsecond is a bound too
		return tol
	}
	if ask.Limit.Algorithm() != weir.LeakyBucket {
		tol.us += wait
		return tol
	}
	if own := cost(e, units).add(span{wait, 0}, e.Den); own.cmp(tol) < 0 {
		return own
	}
	return tol
}

// TakeGCRA decides by GCRA or LeakyBucket: a request is admitted if the theoretical
// arrival time after it is within the tolerance of now. It returns the state to keep
// and whether that differs from t. The cost is tested before it is added, so a large
// one cannot overdraw.
func TakeGCRA(t TAT, now int64, ask *weir.Ask) (TAT, Verdict, bool) {
	v := Verdict{At: now}
	e := ask.Limit.Emission()
	if e.Den == 0 { // a limit of 0 units
		return t, v, false
	}
	d, clamped := t.ahead(&e, now, ask.Limit.Period().Microseconds())
	if n := wanted(ask); n <= ask.Limit.Capacity() {
		v.Allowed = d.add(cost(&e, n), e.Den).cmp(tolerance(ask, &e, n)) <= 0
	}
	if v.Allowed {
		v.Taken = ask.Cost
		if ask.Partial {
			most := ask.Limit.Capacity()
			v.Taken = min(ask.Cost, most, units(&e, tolerance(ask, &e, most).sub(d, e.Den)))
		}
	}
	if v.Taken > 0 || clamped && ask.Cost > 0 && !hopeless(ask) {
		d = d.add(cost(&e, v.Taken), e.Den)
		return TAT{now + d.us, d.rem, e.Den}, v, true
	}
	return t, v, false
}

// Tolerance returns how far ahead of now a question of that many units may leave a key.
func Tolerance(ask *weir.Ask, e *weir.Emission, units int64) (micros, rem int64) {
	s := tolerance(ask, e, units)
	return s.us, s.rem
}

// AdmitGCRA is TakeGCRA and DescribeGCRA in one pass for the commonest question and
// answer: whole units of a GCRA limit, without waiting, which are there. It fills d,
// which must be zero, and returns the state to keep. Anything else it leaves to those
// two, and reports false.
func AdmitGCRA(t TAT, now int64, ask *weir.Ask, d *weir.Decision) (TAT, bool) {
	e := ask.Limit.Emission()
	if ask.MaxWait != 0 || ask.Partial || ask.Cost < 1 || ask.Cost > ask.Limit.Capacity() ||
		ask.Limit.Algorithm() != weir.GCRA || t.Rem > 0 && t.Den != e.Den {
		return t, false
	}
	after := span{t.Micros - now, t.Rem}
	if after.us < 0 {
		after = span{}
	}
	if e.Rem == 0 { // whole microseconds a unit: Rem is 0 everywhere
		after.us += ask.Cost * e.Micros
	} else {
		after = after.add(cost(&e, ask.Cost), e.Den)
	}
	left := span{e.TolMicros, e.TolRem}.sub(after, e.Den)
	if left.us < 0 {
		return t, false
	}
	d.Allowed, d.Taken, d.AtMicros = true, ask.Cost, now
	if e.Rem == 0 {
		d.Remaining = left.us / e.Micros
	} else {
		d.Remaining = units(&e, left)
	}
	d.ResetAfter = micros(after.ceil())
	return TAT{now + after.us, after.rem, e.Den}, true
}

// units returns how many whole units fit into a span of an emission.
func units(e *weir.Emission, s span) int64 {
	if s.us < 0 {
		return 0
	}
	if e.Rem == 0 {
		return s.us / e.Micros
	}
	per := uint64(e.Micros)*uint64(e.Den) + uint64(e.Rem) // the reduced period: below 2^53
	hi, lo := bits.Mul64(uint64(s.us), uint64(e.Den))
	lo, carry := bits.Add64(lo, uint64(s.rem), 0)
	if hi += carry; hi >= per {
		return weir.MaxUnits
	}
	q, _ := bits.Div64(hi, lo, per)
	return int64(min(q, weir.MaxUnits))
}

// DescribeGCRA puts a verdict into words: t is the state after it.
func DescribeGCRA(t TAT, v Verdict, ask *weir.Ask) weir.Decision {
	d := weir.Decision{Allowed: v.Allowed, Taken: v.Taken, AtMicros: v.At}
	e := ask.Limit.Emission()
	if e.Den == 0 {
		d.RetryAfter = weir.Never
		return d
	}
	tol := span{e.TolMicros, e.TolRem}
	ahead, _ := t.ahead(&e, v.At, ask.Limit.Period().Microseconds())
	d.Remaining = units(&e, tol.sub(ahead, e.Den))
	d.ResetAfter = micros(ahead.ceil())
	switch {
	case !v.Allowed && hopeless(ask):
		d.RetryAfter = weir.Never
	case !v.Allowed:
		n := wanted(ask)
		late := ahead.add(cost(&e, n), e.Den).sub(tolerance(ask, &e, n), e.Den)
		d.RetryAfter = micros(late.ceil())
	case ask.Limit.Algorithm() == weir.LeakyBucket:
		if v.Taken > 0 {
			d.Delay = micros(ahead.sub(cost(&e, v.Taken), e.Den).ceil())
		}
	case ahead.cmp(tol) > 0:
		if v.Taken > 0 {
			d.Delay = micros(ahead.sub(tol, e.Den).ceil())
		}
	}
	return d
}

// UnitsIn returns how many more units can be taken after a TAT has moved back by a span,
// a part of one counting as one, and at most that many.
func UnitsIn(e weir.Emission, micros, rem, most int64) int64 {
	whole := units(&e, span{micros, rem})
	if back := cost(&e, min(whole, most)); back.cmp(span{micros, rem}) < 0 {
		whole++
	}
	return min(whole, most)
}
