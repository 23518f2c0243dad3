package lease

import (
	"time"

	"weir.dev/weir"
)

// longestDenial is how long a denial is remembered at most, so that resets and refunds of
// other processes get through.
const longestDenial = time.Second

// denial is what the store last denied. The zero one denies nothing.
type denial struct {
	cost   int64 // units that must be there; 0: none
	told   weir.Decision
	at     instant // when the answer came
	passes instant // when the question could pass
	until  instant // when it is forgotten: no later
}

func (n *denial) live(now instant) bool { return n.cost > 0 && !now.reached(n.until) }

// needed returns the units that must be there for a question to be allowed.
func needed(ask *weir.Ask) int64 {
	if ask.Partial {
		return 1
	}
	return ask.Cost
}

// remember notes that a question was denied, unless no waiting helps, it would have taken
// a later place, or one for fewer units is remembered.
func (e *entry) remember(ask *weir.Ask, d *weir.Decision, now instant) {
	cost := needed(ask)
	if ask.MaxWait != 0 || d.RetryAfter == weir.Never || d.RetryAfter <= 0 || d.Cause != nil {
		return
	}
	if e.denial.live(now) && e.denial.cost < cost {
		return
	}
	e.denial = denial{
		cost: cost, told: *d, at: now,
		passes: now.add(d.RetryAfter), until: now.add(min(d.RetryAfter, longestDenial)),
	}
}

// forgetDenial ends what is remembered, and what calls under way will tell.
func (e *entry) forgetDenial() {
	e.denial = denial{}
	e.changes++
}

// deny denies a question as the remembered one was, if that was for no more units.
func (n *denial) deny(ask *weir.Ask, now instant, d *weir.Decision) bool {
	cost := needed(ask)
	if cost < n.cost || ask.MaxWait != 0 || !n.live(now) {
		return false
	}
	wait := n.passes.since(now)
	if more := cost - n.cost; more > 0 {
		switch limit := ask.Limit; {
		case cost > limit.Capacity():
			wait = weir.Never
		case limit.Algorithm() == weir.GCRA, limit.Algorithm() == weir.LeakyBucket:
			wait += earning(limit, more)
		case limit.Algorithm() != weir.FixedWindow:
			return false // only the store knows how much longer it takes
		}
	}
	gone := now.since(n.at).Truncate(time.Microsecond)
	*d = n.told
	d.Source = weir.FromCache
	d.RetryAfter = max(ceilMicros(wait), time.Microsecond)
	d.ResetAfter = max(d.ResetAfter-gone, time.Microsecond)
	d.AtMicros += gone.Microseconds()
	return true
}

func ceilMicros(d time.Duration) time.Duration {
	if d == weir.Never {
		return d
	}
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

// earning returns how long units take to be earned, rounded up to a microsecond.
func earning(limit weir.Limit, units int64) time.Duration {
	micros, rem := limit.Emission().Span(units)
	if rem > 0 {
		micros++
	}
	return time.Duration(micros) * time.Microsecond
}

// waitAfter returns how long after a grant that left nothing one unit is there again, and
// whether the grant says so.
func waitAfter(limit weir.Limit, d *weir.Decision) (time.Duration, bool) {
	switch limit.Algorithm() {
	case weir.FixedWindow:
		return d.ResetAfter, true
	case weir.GCRA, weir.LeakyBucket:
		e := limit.Emission()
		micros := d.ResetAfter.Microseconds() + e.Micros - e.TolMicros
		if e.Rem > e.TolRem {
			micros++
		}
		return time.Duration(max(micros, 1)) * time.Microsecond, true
	}
	return 0, false
}
