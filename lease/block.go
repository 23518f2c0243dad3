package lease

import (
	"math"
	"time"

	"weir.dev/weir"
)

// mostReceipts is how many refunds into the blocks of one key can be told apart from
// repeated ones. Beyond it nothing comes back.
const mostReceipts = 64

// block is units taken ahead. The zero block is none.
type block struct {
	serial        uint64 // tells the blocks of a shard apart; from 1
	granted, left int64
	reserved      int64   // spent for a group that the store has not decided yet
	asked         instant // before it was asked for
	expires       instant
	at            int64 // the store's clock at the grant, in microseconds since 1970
	first         int64 // no decision of the block was made at an earlier AtMicros
	mark          int64 // when the key is as new after the grant: it tells blocks apart
	end           int64 // of the window that it is charged to
	dead          bool
	wasted        int64 // what it held when it expired
}

// receipt is by what a decision of a block is known.
type receipt struct{ at, remaining, taken int64 }

// keep makes a block of units that the store granted, in the place of one that is empty,
// else of the older.
func (sh *shard) keep(e *entry, units int64, d *weir.Decision, asked instant) {
	expiry := e.terms.Expiry
	sh.serials++
	b := block{serial: sh.serials, granted: units, left: units, asked: asked, at: d.AtMicros, mark: d.AtMicros + d.ResetAfter.Microseconds(), end: math.MaxInt64}
	if e.limit.Algorithm() != weir.GCRA {
		period := e.limit.Period().Microseconds()
		left := period - d.AtMicros%period
		b.end = d.AtMicros + left
		expiry = min(expiry, time.Duration(left)*time.Microsecond)
	}
	b.expires = asked.add(expiry)
	e.stamp++ // its receipts are not those of the block before
	b.first = max(e.stamp, b.at)
	if e.blocks[0].empty() || !e.blocks[1].empty() {
		sh.counts.Wasted += uint64(e.blocks[0].left)
		e.blocks[0] = e.blocks[1]
	}
	e.blocks[1] = b
	if !e.blocks[0].live() {
		e.used = e.used[:0]
	}
	e.remaining = d.Remaining
	sh.counts.Granted += uint64(units)
}

// expire throws away what has expired.
func (sh *shard) expire(e *entry, now instant) {
	for i := range e.blocks {
		if b := &e.blocks[i]; b.live() && now.reached(b.expires) {
			sh.counts.Wasted += uint64(b.left)
			b.dead, b.left, b.wasted = true, 0, b.left
		}
	}
}

func (b *block) live() bool { return b.granted > 0 && !b.dead }

func (b *block) empty() bool { return !b.live() || b.left+b.reserved == 0 }

// dropBlocks throws away what the entry holds.
func (sh *shard) dropBlocks(e *entry) {
	sh.counts.Wasted += uint64(e.held())
	e.blocks = [2]block{}
	e.used = e.used[:0]
}

// held returns the units in the blocks.
func (e *entry) held() int64 { return e.blocks[0].left + e.blocks[1].left }

// kept returns the units that may yet be spent, those reserved included.
func (e *entry) kept() (units int64) {
	for i := range e.blocks {
		if b := &e.blocks[i]; b.live() {
			units += b.left + b.reserved
		}
	}
	return units
}

// spend serves a question from a block that holds all it asks. What has expired must have
// been thrown away.
func (e *entry) spend(ask *weir.Ask, now instant, d *weir.Decision) bool {
	for i := range e.blocks {
		b := &e.blocks[i]
		if b.left < ask.Cost {
			continue
		}
		stamp := max(b.at+now.since(b.asked).Microseconds(), e.stamp)
		if stamp >= b.end {
			continue
		}
		e.stamp, e.spent = stamp, b.serial
		b.left -= ask.Cost
		*d = weir.Decision{
			Allowed: true, Source: weir.FromLease, Taken: ask.Cost, AtMicros: stamp,
			Remaining:  min(e.remaining+e.held(), e.limit.Capacity()),
			ResetAfter: time.Duration(b.mark-stamp) * time.Microsecond,
		}
		if d.ResetAfter <= 0 { // earned again since the grant, but for what was just spent
			d.ResetAfter = max(earning(e.limit, ask.Cost), time.Microsecond)
		}
		return true
	}
	return false
}

// reserve keeps the block of the last spend, which may have to be undone, and returns its
// serial. A decision does not tell: blocks of one window are as new at the same moment.
func (e *entry) reserve(units int64) (serial uint64) {
	e.live(e.spent).reserved += units
	return e.spent
}

// release ends a reservation. It undoes the spend if it is to and the block is still live,
// and reports whether it did.
func (e *entry) release(serial uint64, units int64, undo bool) bool {
	b := e.live(serial)
	if b == nil {
		return false
	}
	b.reserved -= units
	if undo {
		b.left += units
		e.stamp++ // no later decision has the receipt of an earlier one
	}
	return undo
}

// live returns the live block of a serial, or nil.
func (e *entry) live(serial uint64) *block {
	for i := range e.blocks {
		if b := &e.blocks[i]; b.live() && b.serial == serial {
			return b
		}
	}
	return nil
}

// blockOf returns a live block that may have made a decision, or nil.
func (e *entry) blockOf(d *weir.Decision) *block {
	for i := range e.blocks {
		b := &e.blocks[i]
		if b.live() && d.AtMicros >= b.first && d.AtMicros <= e.stamp &&
			d.AtMicros+d.ResetAfter.Microseconds() == b.mark && d.Taken > 0 {
			return b
		}
	}
	return nil
}

// refund puts units of a decision back into its block, once, and returns how many.
func (e *entry) refund(units int64, d *weir.Decision) int64 {
	b := e.blockOf(d)
	if b == nil || b.left+b.reserved+d.Taken > b.granted || len(e.used) >= mostReceipts {
		return 0
	}
	r := receipt{d.AtMicros, d.Remaining, d.Taken}
	for _, u := range e.used {
		if u == r {
			return 0
		}
	}
	e.used = append(e.used, r)
	e.stamp++
	b.left += units
	return units
}

// blockSize returns how many units to take ahead now; 0 is none. A block is to last for
// one horizon. One that was used up in half of it was too small, one of which more than
// half expired too large.
func (s *Store) blockSize(at place, now instant) int64 {
	e := at.e
	if e.most < 1 || e.asks < hot || e.leasing || e.resets > 0 || e.denial.live(now) || !now.reached(e.direct) || at.sh.closed {
		return 0
	}
	size := int64(e.units)
	switch last := &e.blocks[1]; {
	case last.granted == 0:
	case last.wasted > last.granted/2:
		size = min(size, last.granted/2)
	case now.since(last.asked) < e.terms.horizon()/2:
		size = max(size, 2*last.granted)
	}
	return min(max(size, 1), e.most)
}

// refillSize is blockSize for a refill: 0 while the blocks hold enough.
func (s *Store) refillSize(at place, now instant) int64 {
	if !at.e.blocks[0].empty() && !at.e.blocks[1].empty() || float64(at.e.kept()) >= at.e.terms.Refill*float64(max(at.e.blocks[1].granted, 1)) {
		return 0
	}
	return s.blockSize(at, now)
}

// blockArrived returns a channel that is closed when the block that is being asked for
// has come or failed, or nil if none is.
func (e *entry) blockArrived() chan struct{} {
	if e.leasing && e.arrived == nil {
		e.arrived = make(chan struct{})
	}
	return e.arrived
}

// blockAsked ends the asking for a block.
func (e *entry) blockAsked() {
	e.leasing = false
	if e.arrived != nil {
		close(e.arrived)
		e.arrived = nil
	}
}
