package algorithm

import "weir.dev/weir"

// Window is the state of FixedWindow: Count units taken in the window that begins at
// Start. The zero Window is a key never seen.
type Window struct{ Start, Count int64 }

// at returns the state as it stands at now, or at Start if the clock has stepped back,
// and that time. A window counts for as long as it began in the current one, which
// keeps the count when the period grows.
func (w Window) at(now, period int64) (Window, int64) {
	now = max(now, w.Start)
	start := now - now%period
	if w.Start < start {
		return Window{Start: start}, now
	}
	return Window{start, w.Count}, now
}

// TakeWindow decides by FixedWindow: windows are aligned to the Unix epoch, and a
// request is admitted if the count after it is within the limit.
func TakeWindow(w Window, now int64, ask *weir.Ask) (Window, Verdict, bool) {
	cur, now := w.at(now, ask.Limit.Period().Microseconds())
	v := grant(ask, ask.Limit.Units()-cur.Count)
	v.At = now
	if v.Taken == 0 {
		return w, v, false
	}
	cur.Count += v.Taken
	return cur, v, true
}

// DescribeWindow puts a verdict into words: w is the state after it.
func DescribeWindow(w Window, v Verdict, ask *weir.Ask) weir.Decision {
	period := ask.Limit.Period().Microseconds()
	w, now := w.at(v.At, period)
	d := weir.Decision{Allowed: v.Allowed, Taken: v.Taken, AtMicros: now, Remaining: max(ask.Limit.Units()-w.Count, 0)}
	if w.Count > 0 {
		d.ResetAfter = micros(w.Start + period - now)
	}
	if !v.Allowed {
		d.RetryAfter = micros(w.Start + period - now)
		if hopeless(ask) {
			d.RetryAfter = weir.Never
		}
	}
	return d
}

// Sliding is the state of SlidingWindow: Cur units taken in the aligned window that
// begins at Start, and Prev in the one before.
type Sliding struct{ Start, Cur, Prev int64 }

func (s Sliding) at(now, period int64) (Sliding, int64) {
	now = max(now, s.Start)
	start := now - now%period
	switch {
	case s.Start >= start:
		return Sliding{start, s.Cur, s.Prev}, now
	case s.Start >= start-period:
		return Sliding{start, 0, s.Cur}, now
	}
	return Sliding{Start: start}, now
}

// free returns the units that the limit has left at e microseconds into the window:
// floor(n - cur - prev (period-e)/period), which may be negative.
func (s Sliding) free(n, e, period int64) int64 {
	share, rem := mulDiv(s.Prev, period-e, period)
	if rem > 0 {
		share++
	}
	return n - s.Cur - share
}

// TakeSliding decides by SlidingWindow: the window before counts by the part of it
// that is within the last period, never rounded down.
func TakeSliding(s Sliding, now int64, ask *weir.Ask) (Sliding, Verdict, bool) {
	period := ask.Limit.Period().Microseconds()
	cur, now := s.at(now, period)
	v := grant(ask, cur.free(ask.Limit.Units(), now-cur.Start, period))
	v.At = now
	if v.Taken == 0 {
		return s, v, false
	}
	cur.Cur += v.Taken
	return cur, v, true
}

// DescribeSliding puts a verdict into words: s is the state after it.
func DescribeSliding(s Sliding, v Verdict, ask *weir.Ask) weir.Decision {
	period, n := ask.Limit.Period().Microseconds(), ask.Limit.Units()
	s, now := s.at(v.At, period)
	e := now - s.Start
	d := weir.Decision{Allowed: v.Allowed, Taken: v.Taken, AtMicros: now, Remaining: max(s.free(n, e, period), 0)}
	switch {
	case s.Cur > 0: // until this window's share has left the next one
		d.ResetAfter = micros(2*period - e)
	case s.Prev > 0:
		d.ResetAfter = micros(period - e)
	}
	switch {
	case v.Allowed:
	case hopeless(ask):
		d.RetryAfter = weir.Never
	default:
		d.RetryAfter = micros(s.retry(n, wanted(ask), period) - e)
	}
	return d
}

// retry returns how far after Start a request of c <= n units will be admitted: in
// this window while the share of the one before falls, else in the next, where what
// was Cur is Prev.
func (s Sliding) retry(n, c, period int64) int64 {
	if room := n - s.Cur - c; room >= 0 {
		return falls(s.Prev, room, period)
	}
	return period + falls(s.Cur, n-c, period)
}

// falls returns the first e at which prev (period-e)/period <= room.
func falls(prev, room, period int64) int64 {
	if prev <= room {
		return 0
	}
	quo, _ := mulDiv(room, period, prev) // period - e <= room period / prev
	return period - quo
}
