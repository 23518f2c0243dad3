package memstore

import (
	"context"
	"fmt"
	"math"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// CountersOptions of Counters. The zero value remembers up to DefaultMaxKeys.
type CountersOptions struct {
	MaxKeys        int  // the most counters at once, as Options.MaxKeys
	CalendarMonths bool // a window of 30 days is the month in UTC
	// StopWhenOver looks before it adds: if a question would put some counters over their
	// limits, only to those is added.
	StopWhenOver bool
}

// Counters is a weir.Store that counts as envoyproxy/ratelimit does: redisstore.Counters in
// the memory of one process, which says what that means. It is bounded as Store is, and
// safe for concurrent use. It never returns an error for a valid question.
type Counters struct {
	opts  CountersOptions
	store *Store // whose tables, bound and clock it has
}

// NewCounters returns counters at 0. The error says that an option is wrong.
func NewCounters(opts CountersOptions) (*Counters, error) {
	if opts.MaxKeys < 0 || opts.MaxKeys > mostKeys {
		return nil, fmt.Errorf("memstore.NewCounters: MaxKeys %d is outside 0 (%d) to %d", opts.MaxKeys, DefaultMaxKeys, mostKeys)
	}
	store, err := New(Options{MaxKeys: opts.MaxKeys})
	return &Counters{opts, store}, err
}

// Stats counts the counters.
func (c *Counters) Stats() Stats { return c.store.Stats() }

// Take answers one question.
func (c *Counters) Take(_ context.Context, ask weir.Ask) (weir.Decision, error) {
	now := c.store.now()
	h, err := c.hit(&ask, now)
	if err != nil {
		return weir.Decision{}, err
	}
	return c.add(&h, now, now, h.cost), nil
}

// TakeAll answers several questions, each by itself. The error says what is wrong with
// which question; then nothing was counted.
func (c *Counters) TakeAll(_ context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	now := c.store.now()
	return c.takeAll(now, now, asks, decisions)
}

// TakeAt is TakeAll at a time of the caller's, in microseconds since 1970. Counters are
// forgotten only when there is no room. Do not mix it with the verbs that read the clock.
func (c *Counters) TakeAt(_ context.Context, atMicros int64, asks []weir.Ask, decisions []weir.Decision) error {
	if atMicros < 0 || atMicros >= maxTime {
		return fmt.Errorf("a time of %d µs is outside 0 to %d (1970 to 2112)", atMicros, int64(maxTime)-1)
	}
	return c.takeAll(atMicros, -1, asks, decisions)
}

func (c *Counters) takeAll(now, idle int64, asks []weir.Ask, decisions []weir.Decision) error {
	if len(asks) != len(decisions) {
		return weir.ValidateAll(asks, decisions)
	}
	var few [8]hit
	hits := few[:0]
	for i := range asks {
		h, err := c.hit(&asks[i], now)
		if err != nil {
			return fmt.Errorf("question %d: %w", i, err)
		}
		hits = append(hits, h)
	}
	stop := false
	for i := range hits {
		h := &hits[i]
		h.over = c.opts.StopWhenOver && c.count(h) > h.ask.Limit.Units()-h.cost
		stop = stop || h.over
	}
	for i := range hits {
		cost := hits[i].cost
		if stop && !hits[i].over {
			cost = 0
		}
		decisions[i] = c.add(&hits[i], now, idle, cost)
	}
	return nil
}

// GiveBack takes ask.Cost off the counter, but never below 0, and says what is there then;
// it is always allowed. A counter that does not exist is not made.
func (c *Counters) GiveBack(_ context.Context, ask weir.Ask) (weir.Decision, error) {
	now := c.store.now()
	h, err := c.hit(&ask, now)
	if err != nil {
		return weir.Decision{}, err
	}
	count, _ := c.subtract(&h)
	d := algorithm.DescribeCounter(&ask, h.window, now, count, 0)
	d.Allowed, d.RetryAfter = true, 0
	return d, nil
}

// Refund takes ask.Cost off the counter of the window in which d was decided, and returns
// how much there was to take. Unlike Store's it does so once for each call: the counter
// does not know who added what.
func (c *Counters) Refund(_ context.Context, ask weir.Ask, d weir.Decision) (int64, error) {
	if ask.Cost > d.Taken {
		return 0, fmt.Errorf("limit %q: a refund of %d units of a decision that took %d: give back 0 to %[3]d", ask.Name, ask.Cost, d.Taken)
	}
	h, err := c.hit(&ask, max(d.AtMicros, 0))
	if err != nil || h.window.End*1_000_000 <= c.store.now() {
		return 0, err
	}
	_, back := c.subtract(&h)
	return back, nil
}

// Reset forgets the key's counters of this moment's second, minute, hour, day, week, month
// and year, whatever limit has the name; those of other periods remain.
func (c *Counters) Reset(_ context.Context, name string, key weir.Key) error {
	if _, ok := key.Text(); name == "" || !ok {
		return fmt.Errorf("limit %q: no name, or no key of text, to reset: say which limit, and make the key with Text", name)
	}
	for _, w := range algorithm.CounterWindows(c.store.now(), c.opts.CalendarMonths) {
		p := c.locate(key, w)
		p.sh.mu.Lock()
		if at := p.sh.search(p.id); at >= 0 {
			p.sh.drop(p.sh.slots[at].state)
			p.sh.remove(at)
		}
		p.sh.mu.Unlock()
	}
	return nil
}

// hit is an ask on its way to its counter.
type hit struct {
	place
	ask    *weir.Ask
	window algorithm.CounterWindow
	cost   int64
	over   bool // what it costs would put the counter over the limit
}

func (c *Counters) hit(ask *weir.Ask, at int64) (hit, error) {
	if _, err := algorithm.ValidateCounter(ask); err != nil {
		return hit{}, err
	}
	w := algorithm.CounterWindowAt(at, ask.Limit.Period(), c.opts.CalendarMonths)
	return hit{place: c.locate(ask.Key, w), ask: ask, window: w, cost: algorithm.CounterCost(ask)}, nil
}

// locate returns where the counter of a key's window lives. Like the keys of Redis it does
// not depend on the limit.
func (c *Counters) locate(key weir.Key, w algorithm.CounterWindow) place {
	sh, id := c.store.locate("", key, algorithm.KindWindow)
	if id.lo += uint64(w.Start) * 0x9e3779b97f4a7c15; id.lo == 0 {
		id.lo = 1
	}
	return place{sh, id}
}

// packCounter keeps a counter for a second after its window, for those who have read the
// clock before. It has the form of a theoretical arrival time, which knows its end too.
func packCounter(w algorithm.CounterWindow, count int64) state {
	return state{formTAT | uint64((w.End+1)*1_000_000), uint64(count)}
}

// count returns the counter of a hit.
func (c *Counters) count(h *hit) int64 {
	h.sh.mu.Lock()
	defer h.sh.mu.Unlock()
	if e := h.sh.find(h.id); e != nil {
		return int64(e.state.b)
	}
	return 0
}

// add adds to the counter of a hit and decides.
func (c *Counters) add(h *hit, now, idle, cost int64) weir.Decision {
	h.sh.mu.Lock()
	defer h.sh.mu.Unlock()
	count, fits := int64(0), true
	if e := h.sh.find(h.id); e != nil {
		count, fits = e.add(cost)
	} else if h.sh.makeRoom(c.store, now, idle) {
		h.sh.insert(entry{h.id, packCounter(h.window, cost)}, idle)
		count = cost
	} else {
		count, fits = c.addShared(h, now, cost)
	}
	if !fits {
		count = math.MaxInt64
	}
	return algorithm.DescribeCounter(h.ask, h.window, now, count, cost)
}

// add adds to a counter, and reports whether that was possible.
func (e *entry) add(cost int64) (count int64, fits bool) {
	count = int64(e.state.b)
	if cost > math.MaxInt64-count {
		return count, false
	}
	count += cost
	e.state.b = uint64(count)
	return count, true
}

// makeRoom takes room for a key of the shard, if need be of what is over.
func (sh *shard) makeRoom(s *Store, now, idle int64) bool {
	sh.sweep(idle, sweepNew)
	if sh.bound.take(1) {
		return true
	}
	sh.sweep(now, sweepFull)
	if sh.bound.take(1) {
		return true
	}
	s.sweepOthers(now)
	return sh.bound.take(1)
}

// addShared adds to the counter that the new keys of a limit's name share when there is
// no room.
func (c *Counters) addShared(h *hit, now, cost int64) (count int64, fits bool) {
	sh := &c.store.shared
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c.store.bound.shared.Add(1)
	at := c.locate(weir.Text(h.ask.Name), h.window)
	if e := sh.find(at.id); e != nil {
		return e.add(cost)
	}
	sh.sweep(now, sweepNew)
	sh.insert(entry{at.id, packCounter(h.window, cost)}, now)
	return cost, true
}

// subtract takes a hit's cost off its counter, and returns the counter and what came back.
func (c *Counters) subtract(h *hit) (count, back int64) {
	h.sh.mu.Lock()
	defer h.sh.mu.Unlock()
	e := h.sh.find(h.id)
	if e == nil {
		return 0, 0
	}
	count = int64(e.state.b)
	back = min(h.cost, count)
	e.state.b = uint64(count - back)
	return count - back, back
}
