package lease

import (
	"context"
	"time"

	"weir.dev/weir"
)

// patience is the part of the budget that callers wait for a call under way before they
// start theirs beside it.
const patience = 5

// caller is somebody who waits for a call.
type caller struct {
	ask     weir.Ask
	since   instant
	d       weir.Decision
	err     error
	done    chan struct{}
	settled bool // d or err is final
	left    bool // nobody waits any more
	self    [1]*caller
}

func (s *Store) newCaller(ask weir.Ask, now instant) *caller {
	c, ok := s.callers.Get().(*caller)
	if !ok {
		c = &caller{done: make(chan struct{}, 1)}
	}
	c.ask, c.since, c.self[0] = ask, now, c
	return c
}

// answerOf returns the answer of a caller who is done, who is then another's.
func (s *Store) answerOf(c *caller) (weir.Decision, error) {
	d, err := c.d, c.err
	*c = caller{done: c.done}
	s.callers.Put(c)
	return d, err
}

// call is one question to the store: a unit for each caller, and a block.
type call struct {
	place
	ask     weir.Ask // of one caller
	callers []*caller
	block   int64
	asked   instant
	changes uint64
}

// combines reports whether questions like this one may be asked together. Places in a
// queue are told apart only where they are whole microseconds long.
func combines(ask *weir.Ask) bool {
	return ask.Cost == 1 && ask.MaxWait == 0 && !ask.Partial && !ask.Alone &&
		(ask.Limit.Algorithm() != weir.LeakyBucket || ask.Limit.Emission().Rem == 0)
}

// askFirst asks for one caller, in its own context, and for a block if the key is hot. It
// unlocks the shard.
func (s *Store) askFirst(ctx context.Context, at place, ask weir.Ask, now instant) (weir.Decision, error) {
	c := s.newCaller(ask, now)
	q := call{place: at, ask: ask, callers: c.self[:]}
	s.begin(&q, now)
	at.sh.mu.Unlock()
	s.run(ctx, &q)
	<-c.done
	return s.answerOf(c)
}

// join waits for the next call with the other callers of the key. It unlocks the shard.
func (s *Store) join(ctx context.Context, at place, ask weir.Ask, now instant) (weir.Decision, error) {
	c := s.newCaller(ask, now)
	e := at.e
	e.waiting = append(e.waiting, c)
	if len(e.waiting) == 1 {
		group := e.batch
		e.timer = time.AfterFunc(s.opts.Budget/patience, func() {
			at.sh.mu.Lock()
			defer at.sh.mu.Unlock()
			if e.batch == group && len(e.waiting) > 0 {
				s.launch(at, s.clock())
			}
		})
	}
	at.sh.mu.Unlock()
	select {
	case <-c.done:
		return s.answerOf(c)
	case <-ctx.Done():
	}
	at.sh.mu.Lock()
	if c.settled { // at the same moment
		at.sh.mu.Unlock()
		<-c.done
		return s.answerOf(c)
	}
	c.left = true
	for i, w := range e.waiting {
		if w == c {
			e.waiting = append(e.waiting[:i], e.waiting[i+1:]...)
			if len(e.waiting) == 0 {
				e.endGroup()
			}
			break
		}
	}
	at.sh.mu.Unlock()
	return weir.Decision{}, ctx.Err()
}

// launch asks for those who wait. The shard is locked.
func (s *Store) launch(at place, now instant) {
	e := at.e
	q := &call{place: at, ask: e.waiting[0].ask, callers: e.waiting}
	deadline := s.opts.Budget - now.since(e.waiting[0].since)
	e.waiting = nil
	e.endGroup()
	s.begin(q, now)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		s.run(ctx, q)
	}()
}

// refill asks for a block in the background. The shard is locked.
func (s *Store) refill(at place, ask weir.Ask, size int64) {
	ask.Cost, ask.Partial, ask.MaxWait, ask.Alone = 1, false, 0, false
	q := &call{place: at, ask: ask}
	s.beginBlock(q, size)
	s.refills.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.opts.Budget)
		defer cancel()
		s.run(ctx, q)
	})
}

// begin counts a call as under way, and makes it ask for a block if one is due.
func (s *Store) begin(q *call, now instant) {
	var size int64
	if q.e.kept() == 0 {
		size = s.blockSize(q.place, now)
	}
	s.beginBlock(q, size)
}

func (s *Store) beginBlock(q *call, size int64) {
	q.block = size
	q.changes = q.e.changes
	q.e.calls++
	q.e.leasing = q.e.leasing || size > 0
}

// run asks the store until every caller has an answer: more than once only where it
// granted fewer units than were asked and does not say how long the others must wait.
func (s *Store) run(ctx context.Context, q *call) {
	for again := true; again; {
		ask := q.ask
		ask.Cost = int64(len(q.callers)) + q.block
		ask.Partial = ask.Cost > 1
		q.asked = s.clock()
		d, err := s.store.Take(ctx, ask)
		var surplus weir.Decision
		again, surplus = s.settle(q, ask.Cost, d, err)
		if surplus.Taken > 0 { // of callers who left
			ask.Cost, ask.Partial = surplus.Taken, false
			s.store.Refund(ctx, ask, surplus) // best effort: lost, the key was charged too much
		}
	}
}

// settle hands out what the store granted: to the callers in the order they came, then to
// the block. It reports whether the rest of the callers, which are now those of the call,
// must ask again, and returns a receipt for what nobody has.
func (s *Store) settle(q *call, asked int64, d weir.Decision, err error) (again bool, surplus weir.Decision) {
	now := s.clock()
	sh, e := q.sh, q.e
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.counts.Calls++
	waiting := stillThere(q.callers)
	if len(q.callers) > 1 {
		sh.counts.Shared += uint64(len(waiting))
	}
	switch limit := q.ask.Limit; {
	case err != nil, d.Cause != nil, d.Allowed && d.Taken == 0, d.Taken > asked:
		if q.block > 0 {
			e.direct = now.add(e.terms.horizon())
		}
		answerAll(waiting, d, err)
	case !d.Allowed:
		answerAll(waiting, s.note(q, d, q.block, now), nil)
	default:
		e.denial = denial{} // its wait has changed
		served := min(d.Taken, int64(len(waiting)))
		for i, c := range waiting[:served] {
			c.answer(part(limit, &d, int64(i), d.Taken), nil)
		}
		ahead := min(d.Taken-served, q.block)
		if ahead > 0 {
			sh.keep(e, ahead, &d, q.asked)
		}
		if e.resets > 0 || sh.closed {
			sh.dropBlocks(e)
		}
		surplus = d
		surplus.Taken -= served + ahead
		waiting = waiting[served:]
		if wait, known := waitAfter(limit, &d); d.Taken < asked && known {
			denied := weir.Decision{AtMicros: d.AtMicros, Remaining: d.Remaining, RetryAfter: wait, ResetAfter: d.ResetAfter}
			answerAll(waiting, s.note(q, denied, min(asked-d.Taken, q.block), now), nil)
		} else if len(waiting) > 0 {
			q.callers = waiting
			again = true
		}
	}
	if q.block > 0 {
		q.block = 0
		e.blockAsked()
	}
	if !again {
		e.calls--
		s.serveWaiting(q.place, now)
	}
	return again, surplus
}

// note remembers a denial of one unit and returns what to tell of it. Where so many units
// of a block did not come, it lasts until they have been earned: asked for one by one,
// they cost a call each.
func (s *Store) note(q *call, d weir.Decision, missing int64, now instant) weir.Decision {
	if q.e.changes != q.changes {
		return d
	}
	if missing > 1 && q.ask.Limit.Algorithm() == weir.GCRA && d.RetryAfter != weir.Never {
		d.RetryAfter += earning(q.ask.Limit, missing-1)
	}
	q.e.remember(&q.ask, &d, now)
	return d
}

// serveWaiting answers those who wait from what has come, and asks for the others.
func (s *Store) serveWaiting(at place, now instant) {
	e := at.e
	served := 0
	for _, c := range e.waiting {
		var d weir.Decision
		if !at.sh.answer(e, &c.ask, now, &d) {
			break
		}
		c.answer(d, nil)
		served++
	}
	e.waiting = e.waiting[served:]
	switch {
	case len(e.waiting) > 0:
		s.launch(at, now)
	case served > 0:
		e.endGroup()
	}
}

// endGroup makes the next caller who waits the first of a group.
func (e *entry) endGroup() {
	e.batch++
	e.timer.Stop()
}

func (c *caller) answer(d weir.Decision, err error) {
	c.d, c.err, c.settled = d, err, true
	c.done <- struct{}{}
}

func answerAll(waiting []*caller, d weir.Decision, err error) {
	for _, c := range waiting {
		c.answer(d, err)
	}
}

// stillThere returns the callers who have not left.
func stillThere(all []*caller) []*caller {
	here := all[:0]
	for _, c := range all {
		if !c.left {
			here = append(here, c)
		}
	}
	return here
}

// part returns the decision that the i-th of so many units would have got, had each been
// taken by itself at the moment when the store granted them together. Its ResetAfter may
// be 1 µs short where units are not whole microseconds long.
func part(limit weir.Limit, d *weir.Decision, i, units int64) weir.Decision {
	own, later := *d, units-1-i
	own.Taken = 1
	own.Remaining += later
	switch limit.Algorithm() {
	case weir.LeakyBucket:
		own.Delay += earning(limit, i)
		fallthrough
	case weir.GCRA:
		own.ResetAfter = max(own.ResetAfter-earning(limit, later), time.Microsecond)
	}
	return own
}

// askAlone asks the store one question as it is. It unlocks the shard.
func (s *Store) askAlone(ctx context.Context, at place, ask weir.Ask) (weir.Decision, error) {
	e, id, changes := at.e, at.e.id, at.e.changes
	at.sh.counts.Calls++
	at.sh.mu.Unlock()
	d, err := s.store.Take(ctx, ask)
	if err != nil {
		return d, err
	}
	at.sh.mu.Lock()
	defer at.sh.mu.Unlock()
	if e.id == id && e.limit == ask.Limit && !s.spendAfter(at, ask, &d) {
		s.see(at, ask, &d, e.changes == changes)
	}
	return d, nil
}

// spendAfter serves a question that the store denied from what the block has.
func (s *Store) spendAfter(at place, ask weir.Ask, d *weir.Decision) bool {
	e, now := at.e, s.clock()
	at.sh.expire(e, now)
	if ask.Partial {
		ask.Cost = min(ask.Cost, max(e.blocks[0].left, e.blocks[1].left))
	}
	if d.Allowed || ask.Cost == 0 || d.Cause != nil || !e.spend(&ask, now, d) {
		return false
	}
	at.sh.counts.FromLease++
	at.sh.counts.Spent += uint64(d.Taken)
	return true
}

// see takes note of the store's own answer to a question, of a denial only if it is to be
// remembered, and adds to it what the blocks hold. For a key that is hot it asks for a
// block.
func (s *Store) see(at place, ask weir.Ask, d *weir.Decision, remember bool) {
	e, now := at.e, s.clock()
	if e.limit != ask.Limit || d.Cause != nil {
		return
	}
	at.sh.expire(e, now)
	switch {
	case d.Taken > 0:
		e.denial = denial{} // its wait has changed
	case !d.Allowed && ask.Cost > 0 && remember:
		e.remember(&ask, d, now)
	}
	e.view(&ask, d)
	if size := s.refillSize(at, now); size > 0 && ask.Cost > 0 {
		s.refill(at, ask, size)
	}
}

// view adds what the blocks hold to what the store said is there.
func (e *entry) view(ask *weir.Ask, d *weir.Decision) {
	held := e.held()
	if held == 0 {
		return
	}
	d.Remaining = min(d.Remaining+held, ask.Limit.Capacity())
	if ask.Cost == 0 {
		d.Allowed, d.RetryAfter = true, 0
	}
}
