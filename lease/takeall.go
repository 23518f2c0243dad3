package lease

import (
	"context"

	"weir.dev/weir"
)

// TakeAll answers several questions: without a call if blocks and remembered denials
// answer them all, and otherwise by one question to the store about those that they do
// not. All are charged, or none of those that are not Alone.
func (s *Store) TakeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	if err := weir.ValidateAll(asks, decisions); err != nil {
		return err
	}
	clear(decisions)
	var few [8]uint64
	blocks := few[:] // the serials of those that decisions are from
	if len(asks) > len(blocks) {
		blocks = make([]uint64, len(asks))
	}
	open := 0       // those without an answer; some that are denied may have to be asked too
	settled := true // whether those that are not Alone have theirs
	for i := range asks {
		var ok bool
		if blocks[i], ok = s.answerOne(&asks[i], &decisions[i]); !ok {
			open++
			settled = settled && asks[i].Alone
		}
	}
	var err error
	if open > 0 {
		err = s.askRest(ctx, asks, decisions, settled)
	}
	if err != nil && settled && open < len(asks) {
		blame(err, decisions) // the store was asked for others, which fail nobody
		err = nil
	}
	denied := false
	for i := range asks {
		denied = denied || !asks[i].Alone && !decisions[i].Allowed && decisions[i].Cause == nil
	}
	for i := range asks {
		if decisions[i].Source == weir.FromLease {
			s.confirm(&asks[i], &decisions[i], blocks[i], err == nil && (!denied || asks[i].Alone))
		}
	}
	if err != nil {
		clear(decisions)
	}
	return err
}

// blame gives each decision that the store should have made its cause.
func blame(err error, decisions []weir.Decision) {
	for i := range decisions {
		if d := &decisions[i]; !d.Allowed && d.Source != weir.FromCache {
			*d = weir.Decision{Cause: err}
		}
	}
}

// answerOne answers one of several questions without a call, if it can, and returns the
// serial of the block that did, in which the units are reserved, or 0.
func (s *Store) answerOne(ask *weir.Ask, d *weir.Decision) (block uint64, ok bool) {
	id, sh := s.locate(ask.Name, ask.Key)
	now := s.clock()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.counts.Asks++
	e := s.entry(sh, id, ask, now)
	if e == nil {
		return 0, false
	}
	e.demand(now, ask.Cost)
	if !sh.answer(e, ask, now, d) {
		return 0, false
	}
	if d.Source == weir.FromLease {
		block = e.reserve(d.Taken)
	}
	at := place{sh, e}
	if size := s.refillSize(at, now); size > 0 {
		s.refill(at, *ask, size)
	}
	return block, true
}

// askRest asks the store, in one question, what blocks do not answer. A question that was
// denied from memory is asked again, so that the store sees the whole group but for what
// was taken ahead for it; not where the group is settled without the store.
func (s *Store) askRest(ctx context.Context, asks []weir.Ask, decisions []weir.Decision, settled bool) error {
	rest := make([]weir.Ask, 0, len(asks))
	changes := make([]uint64, 0, len(asks)) // of the rest
	isOpen := func(i int) bool {
		return !decisions[i].Allowed && !((asks[i].Alone || settled) && decisions[i].Source == weir.FromCache)
	}
	for i := range asks {
		if isOpen(i) {
			rest = append(rest, asks[i])
			changes = append(changes, s.reopen(&asks[i], &decisions[i], len(rest) == 1))
		}
	}
	answers := make([]weir.Decision, len(rest))
	if err := s.store.TakeAll(ctx, rest, answers); err != nil {
		return err
	}
	twice := askedTwice(rest)
	n := 0
	for i := range asks {
		if !isOpen(i) {
			continue
		}
		decisions[i] = answers[n]
		id, sh := s.locate(asks[i].Name, asks[i].Key)
		sh.mu.Lock()
		if e := sh.entries[id]; e != nil {
			// The denial of a key asked twice may be for what the other would have taken.
			s.see(place{sh, e}, asks[i], &decisions[i], e.changes == changes[n] && !twice(n))
		}
		sh.mu.Unlock()
		n++
	}
	return nil
}

// reopen counts a question as asked of the store after all, the first one as the call, and
// returns the changes that its entry has seen.
func (s *Store) reopen(ask *weir.Ask, d *weir.Decision, first bool) (changes uint64) {
	id, sh := s.locate(ask.Name, ask.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if first {
		sh.counts.Calls++
	}
	if d.Source == weir.FromCache {
		sh.counts.FromCache--
	}
	if e := sh.entries[id]; e != nil {
		changes = e.changes
	}
	return changes
}

// who is what a question is about.
type who struct {
	name string
	key  weir.Key
}

// mostCompared is up to how many questions are compared with each other; more are counted.
const mostCompared = 32

// askedTwice returns a function that reports whether another of the questions is about the
// same key as the n-th.
func askedTwice(asks []weir.Ask) func(n int) bool {
	if len(asks) <= mostCompared {
		return func(n int) bool {
			for i := range asks {
				if i != n && asks[i].Name == asks[n].Name && asks[i].Key == asks[n].Key {
					return true
				}
			}
			return false
		}
	}
	times := make(map[who]int, len(asks))
	for i := range asks {
		times[who{asks[i].Name, asks[i].Key}]++
	}
	return func(n int) bool { return times[who{asks[n].Name, asks[n].Key}] > 1 }
}

// confirm ends the reservation of what a block gave to a question, and puts it back if the
// question is held back.
func (s *Store) confirm(ask *weir.Ask, d *weir.Decision, block uint64, charged bool) {
	id, sh := s.locate(ask.Name, ask.Key)
	sh.mu.Lock()
	if e := sh.entries[id]; e != nil && e.limit == ask.Limit && e.release(block, d.Taken, !charged) {
		sh.counts.Returned += uint64(d.Taken)
	}
	sh.mu.Unlock()
	if !charged {
		d.Remaining = min(d.Remaining+d.Taken, ask.Limit.Capacity())
		d.Taken = 0
	}
}
