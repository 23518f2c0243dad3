package lease

import (
	"sync"
	"time"

	"weir.dev/weir"
)

// hot is the demand from which a key is leased: questions in one horizon.
const hot = 3

// evictLooks is how many keys are looked at for one whose place a new key may have.
const evictLooks = 8

// identity is 128 bits of a limit's name and a key under seeds of this store.
type identity struct{ hi, lo uint64 }

// shard is a part of the keys. Its lock guards its entries and all that is in them.
type shard struct {
	mu      sync.Mutex
	entries map[identity]*entry
	order   []*entry // in no order; hand goes round it
	hand    int
	most    int
	closed  bool
	serials uint64 // that blocks have got
	counts  Stats
	_       [64]byte // apart from the next shard's lock
}

// entry is what is known of one key under one limit.
type entry struct {
	id    identity
	limit weir.Limit
	terms *Terms  // of the limit
	most  int64   // the largest block; 0: not leased
	asks  float64 // demand: the questions of about one horizon
	units float64 // and the units they asked for
	last  instant // when it was asked last

	blocks    [2]block      // the older first
	spent     uint64        // the serial of the one that was spent from last
	remaining int64         // what the store had left at the last grant
	stamp     int64         // the latest AtMicros of a block's decisions
	used      []receipt     // of refunds into the blocks
	leasing   bool          // a block is being asked for
	arrived   chan struct{} // closed when that has ended; nil if nobody waits
	direct    instant       // no block is asked for before: the last such call failed
	resets    int           // that are under way

	denial  denial
	changes uint64 // refunds and resets: a denial from before is not remembered after

	calls   int       // to the store under way, for combined callers or a block
	waiting []*caller // for the next one
	batch   uint64    // counts the groups of waiting
	timer   *time.Timer
}

// place is an entry and the shard whose lock guards it.
type place struct {
	sh *shard
	e  *entry
}

// entry returns the entry of a key for a question, or nil if the question goes straight
// to the store: there is no room, another limit of the key is in use, or there is nothing
// to gain.
func (s *Store) entry(sh *shard, id identity, ask *weir.Ask, now instant) *entry {
	if ask.Limit.Units() == 0 || sh.closed {
		return nil
	}
	e := sh.entries[id]
	switch {
	case e == nil && ask.Cost == 0:
		return nil
	case e == nil:
		if e = s.newEntry(sh, now); e == nil {
			return nil
		}
		e.id = id
		sh.entries[id] = e
	case e.limit == ask.Limit:
		return e
	case ask.Cost == 0 || s.busy(sh, e, now):
		return nil
	default:
		s.clear(sh, e)
	}
	if e.terms = s.named[ask.Name]; e.terms == nil {
		e.terms = &s.terms
	}
	e.limit, e.most = ask.Limit, largestBlock(ask.Limit, e.terms, s.opts.Instances)
	e.last = now
	return e
}

// newEntry returns an empty entry: a new one, or that of a key that nobody asks for, or
// nil.
func (s *Store) newEntry(sh *shard, now instant) *entry {
	if len(sh.order) < sh.most {
		e := new(entry)
		sh.order = append(sh.order, e)
		return e
	}
	for range min(evictLooks, len(sh.order)) {
		e := sh.order[sh.hand]
		sh.hand = (sh.hand + 1) % len(sh.order)
		if now.since(e.last) > e.terms.horizon() && !s.busy(sh, e, now) {
			delete(sh.entries, e.id)
			s.clear(sh, e)
			return e
		}
	}
	return nil
}

// busy reports whether the entry holds what its limit's questions still need.
func (s *Store) busy(sh *shard, e *entry, now instant) bool {
	sh.expire(e, now)
	return e.calls > 0 || len(e.waiting) > 0 || e.resets > 0 || e.kept() > 0 || e.denial.live(now)
}

// clear empties an entry that is not busy.
func (s *Store) clear(sh *shard, e *entry) {
	sh.dropBlocks(e)
	*e = entry{id: e.id, terms: e.terms, batch: e.batch, changes: e.changes, used: e.used[:0], waiting: e.waiting[:0]}
}

// demand adds a question to the demand, which fades over one horizon: at a steady rate it
// is what is asked in one.
func (e *entry) demand(now instant, units int64) {
	horizon := e.terms.horizon()
	if gone := now.since(e.last); gone >= horizon {
		e.asks, e.units = 0, 0
	} else if gone > 0 {
		stays := 1 - float64(gone)/float64(horizon)
		e.asks *= stays
		e.units *= stays
	}
	if units > 0 {
		e.asks++
	}
	e.units += float64(units)
	e.last = now
}

// answer answers a question without a call, if it can.
func (sh *shard) answer(e *entry, ask *weir.Ask, now instant, d *weir.Decision) bool {
	if ask.Cost == 0 {
		return false
	}
	sh.expire(e, now)
	if e.spend(ask, now, d) {
		sh.counts.FromLease++
		sh.counts.Spent += uint64(d.Taken)
		return true
	}
	if e.denial.deny(ask, now, d) {
		sh.counts.FromCache++
		return true
	}
	return false
}
