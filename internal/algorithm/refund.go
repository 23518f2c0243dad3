package algorithm

import (
	"math/bits"

	"weir.dev/weir"
)

// MaxReceipts is how many refunds of one key can be outstanding: those whose decision
// still reaches ahead of the clock. A refund beyond them gives nothing back.
const MaxReceipts = 1024

// Ledger is what must be remembered of the refunds of one key, so that each decision is
// refunded once, and never more comes back than if its units had not been taken. The
// zero Ledger is of a key never refunded.
//
// A decision of the time t that took units, g of which are given back at now, reached
// up to mark = t + ResetAfter. It is known by its receipt: AtMicros, ResetAfter, Remaining
// and Taken. A receipt is kept until its mark. Once now is at the mark nothing comes
// back, nor does it where the receipt is there, where MaxReceipts are, or where the state
// is as new. A refund that gives nothing is not recorded. Otherwise:
//
//   - GCRA moves the theoretical arrival time back by min(gT, max(gT - (now-t), mark -
//     now - S)), and never behind now: what was earned again meanwhile is not given
//     again. S is what refunds have moved since t: a busy key has earned part of what
//     it took, and the places that a refund frees may be taken again, so without S two
//     refunds could give back more than is ahead of the clock. mark is 1 µs less where
//     T is not in whole microseconds, since ResetAfter was rounded up. Of the units that
//     came back, the last may be one in part: Remaining grows by as many.
//   - LeakyBucket gives back only the last place, that is if the theoretical arrival
//     time, rounded up, is the mark: it moves back by min(gT, mark - now).
//   - FixedWindow takes g off the count of the window in which t is, if that is the
//     current one; SlidingWindow also off the one before; neither goes below 0.
//   - SlidingLog forgets g of the entries made at t.
//
// S is kept in buckets of time, each as wide as the smallest power of two µs that is at
// least 1/64 of tolerance + period, and aligned to 1970. A bucket counts where its end is
// later than t, so S is never too small; what a refund moved is rounded up to 1 µs. A
// bucket is forgotten a tolerance and a period after its end: a decision before it has
// no mark ahead any more.
//
// A decision from before a reset gives nothing back: what it took was forgiven already.
type Ledger struct {
	used  []receipt
	moved []bucket
	reset int64 // when the key was last reset
	until int64 // when no decision from before that reaches ahead any more
}

type receipt struct {
	at         int64
	resetAfter int64 // µs
	remaining  int64
	taken      int64
}

type bucket struct {
	end   int64
	until int64 // when it is forgotten
	moved int64 // µs
}

func receiptOf(d *weir.Decision) receipt {
	return receipt{d.AtMicros, d.ResetAfter.Microseconds(), d.Remaining, d.Taken}
}

func (r receipt) mark() int64 { return r.at + r.resetAfter }

// Size returns the bytes that the ledger holds: 0 where it need not be kept, at most
// about 48 KiB.
func (l *Ledger) Size() int {
	const receiptBytes, bucketBytes = 32, 24
	size := cap(l.used)*receiptBytes + cap(l.moved)*bucketBytes
	if l.until > 0 {
		size += receiptBytes
	}
	return size
}

// Reset forgets the refunds of a key that is reset at now, of which a state was ahead
// until then, and keeps what is needed to refuse those of the decisions before.
func (l *Ledger) Reset(now, until int64) {
	until = max(until, l.until) + l.since(0, now) // a mark can be ahead by what was moved back
	*l = Ledger{reset: now, until: until}
	l.Forget(now)
}

// Forget drops what cannot matter any more.
func (l *Ledger) Forget(now int64) {
	if l.until <= now {
		l.reset, l.until = 0, 0
	}
	used := l.used[:0]
	for _, r := range l.used {
		if r.mark() > now {
			used = append(used, r)
		}
	}
	if l.used = used; len(used) == 0 {
		l.used = nil
	}
	moved := l.moved[:0]
	for _, b := range l.moved {
		if b.until > now {
			moved = append(moved, b)
		}
	}
	if l.moved = moved; len(moved) == 0 {
		l.moved = nil
	}
}

// open reports whether the receipt may still give something back.
func (l *Ledger) open(r receipt, now int64) bool {
	if r.taken < 1 || r.mark() <= now || r.at <= l.reset && l.until > now {
		return false
	}
	outstanding := 0
	for _, u := range l.used {
		if u == r {
			return false
		}
		if u.mark() > now {
			outstanding++
		}
	}
	return outstanding < MaxReceipts
}

// use records that a receipt has given something back at now.
func (l *Ledger) use(r receipt, now int64) {
	l.Forget(now)
	l.used = append(l.used, r)
}

// since returns how far refunds have moved the key since t, in µs.
func (l *Ledger) since(t, now int64) int64 {
	var s int64
	for _, b := range l.moved {
		if b.end > t && b.until > now {
			s += b.moved
		}
	}
	return s
}

// move records that a refund at now has moved the key.
func (l *Ledger) move(micros, now, horizon int64) {
	width := int64(1) << bits.Len64(uint64((horizon+63)/64-1))
	end := (now/width + 1) * width
	for i := range l.moved {
		if b := &l.moved[i]; b.end == end {
			b.moved, b.until = b.moved+micros, max(b.until, end+horizon)
			return
		}
	}
	l.moved = append(l.moved, bucket{end, end + horizon, micros})
}

// RefundGCRA gives back up to ask.Cost of the units that d took by GCRA or LeakyBucket.
// It returns the state to keep and how many units came back.
func (l *Ledger) RefundGCRA(t TAT, now int64, ask *weir.Ask, d *weir.Decision) (TAT, int64) {
	e, period, r := ask.Limit.Emission(), ask.Limit.Period().Microseconds(), receiptOf(d)
	now = max(now, d.AtMicros)
	if e.Den == 0 || !l.open(r, now) {
		return t, 0
	}
	ahead := t.owed(&e, now)
	mark, taken := r.mark(), cost(&e, ask.Cost)
	left := span{us: mark - now}
	if e.Den > 1 {
		left.us--
	}
	if ask.Limit.Algorithm() == weir.LeakyBucket {
		if now+ahead.ceil() != mark {
			return t, 0
		}
	} else {
		left.us -= l.since(d.AtMicros, now)
		if own := taken.sub(span{us: now - d.AtMicros}, e.Den); own.cmp(left) > 0 {
			left = own
		}
	}
	for _, bound := range []span{taken, ahead} {
		if bound.cmp(left) < 0 {
			left = bound
		}
	}
	if left.cmp(span{}) <= 0 {
		return t, 0
	}
	l.use(r, now)
	l.move(left.ceil(), now, e.TolMicros+period)
	ahead = ahead.sub(left, e.Den)
	return TAT{now + ahead.us, ahead.rem, e.Den}, UnitsIn(e, left.us, left.rem, ask.Cost)
}

// RefundWindow is RefundGCRA for FixedWindow.
func (l *Ledger) RefundWindow(w Window, now int64, ask *weir.Ask, d *weir.Decision) (Window, int64) {
	now = max(now, d.AtMicros)
	cur, _ := w.at(now, ask.Limit.Period().Microseconds())
	back := min(ask.Cost, cur.Count)
	r := receiptOf(d)
	if d.AtMicros < cur.Start || back == 0 || !l.open(r, now) {
		return w, 0
	}
	l.use(r, now)
	cur.Count -= back
	return cur, back
}

// RefundSliding is RefundGCRA for SlidingWindow.
func (l *Ledger) RefundSliding(s Sliding, now int64, ask *weir.Ask, d *weir.Decision) (Sliding, int64) {
	period := ask.Limit.Period().Microseconds()
	now = max(now, d.AtMicros)
	cur, _ := s.at(now, period)
	count := &cur.Cur
	if d.AtMicros < cur.Start {
		count = &cur.Prev
	}
	back := min(ask.Cost, *count)
	r := receiptOf(d)
	if d.AtMicros < cur.Start-period || back == 0 || !l.open(r, now) {
		return s, 0
	}
	l.use(r, now)
	*count -= back
	return cur, back
}

// RefundLog is RefundGCRA for SlidingLog. It changes g.
func (l *Ledger) RefundLog(g *Log, now int64, ask *weir.Ask, d *weir.Decision) int64 {
	r := receiptOf(d)
	// ResetAfter is the period: the entries of t are gone at the mark.
	now = max(now, d.AtMicros)
	if !l.open(r, now) {
		return 0
	}
	back := int64(g.remove(d.AtMicros, int(min(ask.Cost, weir.MaxLogUnits))))
	if back > 0 {
		l.use(r, now)
	}
	return back
}
