package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// CountersOptions of Counters. Addrs are required; the zero value of the rest is the
// default. The names in brackets are the settings of envoyproxy/ratelimit that say the same.
type CountersOptions struct {
	Options // the servers; the Budget is that of PerSecond too

	PerSecond        *Options      // other servers for limits of a second (REDIS_PERSECOND); nil: the same
	KeyPrefix        string        // before every key (CACHE_KEY_PREFIX)
	ExpirationJitter time.Duration // TTLs are longer by a random part of it, in whole seconds (EXPIRATION_JITTER_MAX_SECONDS, there 300 by default)
	CalendarMonths   bool          // a window of 30 days is the month in UTC (USE_CALENDAR_MONTH_RATE_LIMIT)
	// StopWhenOver looks before it adds: if a question would put some counters over their
	// limits, only to those is added. It costs a second round trip, and is not atomic.
	// (STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT)
	StopWhenOver bool
	// LocalCacheBytes is the memory for counters known to be over their limits, which are
	// not asked again in their windows: at most 1 GiB; 0: none. (LOCAL_CACHE_SIZE_IN_BYTES)
	LocalCacheBytes int64
}

// Counters is a weir.Store on the very keys of envoyproxy/ratelimit, so that instances of
// both count together. It is safe for concurrent use. That service's rules are its
// contract, which is another than Store's:
//
//   - A key is KeyPrefix, the text of the weir.Key, and the second in which the window
//     began by the caller's clock. The name of the limit is not in it, nor is the limit.
//   - Every question adds its cost (INCRBY) and sets the TTL (EXPIRE), one of cost 0 too,
//     in one round trip a request and node. There is no script, so that it works through
//     twemproxy; GiveBack and Refund alone need EVAL.
//   - It is denied if the counter is then above the limit. A denial is charged in full: of
//     its decision Taken is the part that was within the limit, and Remaining is 0. A cost
//     of 0 is allowed at a counter that stands at its limit.
//   - Every question is Alone, whatever it says, and none is Partial.
//   - ResetAfter is the rest of the window in whole seconds, rounded up, at least 1.
//
// Limits are by FixedWindow, of whole seconds. What was answered by the local cache is
// FromCache. A cost counts as at most [weir.MaxUnits]+1, which is above every limit; at a
// counter that adding would overflow it is denied. A counter that is no number, or below
// 0, is not decided: that decision has a Cause, the others stand.
type Counters struct {
	opts      CountersOptions
	link      *link
	perSecond *link    // link, if there is no other
	over      *overSet // nil: none
}

// NewCounters returns counters, and begins to connect in the background as New does. The
// error names every option that is wrong.
func NewCounters(opts CountersOptions) (*Counters, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts.Options = opts.Options.withDefaults()
	c := &Counters{opts: opts, link: newLink(opts.Options)}
	c.perSecond = c.link
	if opts.PerSecond != nil {
		c.perSecond = newLink(opts.PerSecond.withDefaults())
	}
	if opts.LocalCacheBytes > 0 {
		c.over = newOverSet(opts.LocalCacheBytes)
	}
	return c, nil
}

const mostCacheBytes = 1 << 30

func (o *CountersOptions) validate() error {
	errs := []error{o.Options.faults()}
	if o.PerSecond != nil {
		if err := o.PerSecond.faults(); err != nil {
			errs = append(errs, fmt.Errorf("PerSecond: %w", err))
		}
		if o.PerSecond.Budget != 0 {
			errs = append(errs, fmt.Errorf("PerSecond with a budget of %v: leave it out, the other one is for both", o.PerSecond.Budget))
		}
	}
	if o.ExpirationJitter < 0 || o.ExpirationJitter > weir.MaxPeriod || o.ExpirationJitter%time.Second != 0 {
		errs = append(errs, fmt.Errorf("an expiration jitter of %v is not in whole seconds from 0 to %v", o.ExpirationJitter, weir.MaxPeriod))
	}
	if o.LocalCacheBytes < 0 || o.LocalCacheBytes > mostCacheBytes {
		errs = append(errs, fmt.Errorf("a local cache of %d bytes is outside 0 (none) to %d", o.LocalCacheBytes, mostCacheBytes))
	}
	if len(o.KeyPrefix) > mostKeyBytes {
		errs = append(errs, fmt.Errorf("a key prefix of %d bytes: at most %d", len(o.KeyPrefix), mostKeyBytes))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("redisstore.NewCounters: %w", err)
	}
	return nil
}

// Close ends the connections. Questions in flight and later ones fail.
func (c *Counters) Close() error {
	c.link.close()
	if c.perSecond != c.link {
		c.perSecond.close()
	}
	return nil
}

// Nodes returns the servers that count, those of PerSecond last.
func (c *Counters) Nodes() []Node {
	list := c.link.nodes.list()
	if c.perSecond != c.link {
		list = append(list, c.perSecond.nodes.list()...)
	}
	return list
}

// Take answers one question.
func (c *Counters) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	asks, decisions := [1]weir.Ask{ask}, [1]weir.Decision{}
	if err := c.takeAll(ctx, time.Now().UnixMicro(), asks[:], decisions[:]); err != nil {
		return weir.Decision{}, err
	}
	if cause := decisions[0].Cause; cause != nil {
		return weir.Decision{}, cause
	}
	return decisions[0], nil
}

// TakeAll answers several questions, each by itself, in one round trip a node. What could
// not be decided has a Cause. The error says what is wrong with which question; then
// nothing was counted.
func (c *Counters) TakeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	return c.takeAll(ctx, time.Now().UnixMicro(), asks, decisions)
}

// TakeAt is TakeAll at a time of the caller's, in microseconds since 1970.
func (c *Counters) TakeAt(ctx context.Context, atMicros int64, asks []weir.Ask, decisions []weir.Decision) error {
	if atMicros < 0 || atMicros >= mostMicros {
		return fmt.Errorf("a time of %d µs is outside 0 to %d (1970 to 2267)", atMicros, int64(mostMicros)-1)
	}
	return c.takeAll(ctx, atMicros, asks, decisions)
}

// GiveBack takes ask.Cost off the counter, but never below 0, and says what is there then;
// it is always allowed. A counter that does not exist is not made. It is what
// is_negative_hits asks for, and an atomic script as there.
func (c *Counters) GiveBack(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	at := time.Now().UnixMicro()
	h, err := c.hit(&ask, at)
	if err != nil {
		return weir.Decision{}, err
	}
	count, _, err := c.subtract(ctx, &h)
	if err != nil {
		return weir.Decision{}, err
	}
	d := algorithm.DescribeCounter(&ask, h.window, at, count, 0)
	d.Allowed, d.RetryAfter = true, 0
	return d, nil
}

// Refund takes ask.Cost off the counter of the window in which d was decided, and returns
// how much there was to take. Unlike Store's it does so once for each call: the counter
// does not know who added what.
func (c *Counters) Refund(ctx context.Context, ask weir.Ask, d weir.Decision) (int64, error) {
	if err := validateRefund(&ask, d); err != nil {
		return 0, err
	}
	h, err := c.hit(&ask, d.AtMicros)
	if err != nil || ask.Cost == 0 || h.window.End <= time.Now().Unix() {
		return 0, err
	}
	_, back, err := c.subtract(ctx, &h)
	return back, err
}

// Reset deletes the key's counters of this moment's second, minute, hour, day, week, month
// and year, whatever limit has the name; those of other periods remain. What the local
// caches of other processes remember remains there until the window ends.
func (c *Counters) Reset(ctx context.Context, name string, key weir.Key) error {
	text, ok := key.Text()
	if name == "" || !ok {
		return fmt.Errorf("limit %q: no name, or no key of text, to reset: say which limit, and make the key with Text", name)
	}
	var all, perSecond []*plain
	for _, w := range algorithm.CounterWindows(time.Now().UnixMicro(), c.opts.CalendarMonths) {
		one := &plain{key: c.key(text, w), commands: []command{{verb: "DEL"}}}
		if c.linkOf(w) != c.link {
			perSecond = append(perSecond, one)
		} else {
			all = append(all, one)
		}
	}
	b, err := newBudget(ctx, c.opts.Budget)
	if err != nil {
		return err
	}
	defer b.end()
	c.exchange(b, all, perSecond)
	if c.over != nil {
		c.over.clear()
	}
	var errs []error
	for _, one := range append(all, perSecond...) {
		if one.err != nil && !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == one.err.Error() }) {
			errs = append(errs, one.err) // said once: the counters of one node fail alike
		}
	}
	return errors.Join(errs...)
}

// Answers returns nil if the servers answer, those of PerSecond too, and else why they do
// not. It asks how long a counter lives that is never there, and changes nothing.
func (c *Counters) Answers(ctx context.Context) error {
	b, err := newBudget(ctx, c.opts.Budget)
	if err != nil {
		return err
	}
	defer b.end()
	ask := func() []*plain {
		return []*plain{{key: c.opts.KeyPrefix + "weir_health_", commands: []command{{verb: "PTTL"}}}}
	}
	one, perSecond := ask(), []*plain(nil)
	if c.perSecond != c.link {
		perSecond = ask()
	}
	c.exchange(b, one, perSecond)
	errs := []error{one[0].err}
	for _, p := range perSecond {
		errs = append(errs, p.err)
	}
	return errors.Join(errs...)
}

// mostKeyBytes bounds the text of a key: what one could send is below what a server takes,
// and a question of many is not for long.
const mostKeyBytes = 1 << 20

// hit is an ask on its way to its counter.
type hit struct {
	plain
	ask    *weir.Ask
	window algorithm.CounterWindow
	cost   int64 // what it adds
	known  bool  // to be over, by the local cache
}

func (c *Counters) hit(ask *weir.Ask, at int64) (hit, error) {
	text, err := algorithm.ValidateCounter(ask)
	if err != nil {
		return hit{}, err
	}
	if len(text) > mostKeyBytes {
		return hit{}, fmt.Errorf("limit %q: a key of %d bytes: at most %d", ask.Name, len(text), mostKeyBytes)
	}
	w := algorithm.CounterWindowAt(at, ask.Limit.Period(), c.opts.CalendarMonths)
	return hit{plain: plain{key: c.key(text, w)}, ask: ask, window: w, cost: algorithm.CounterCost(ask)}, nil
}

func (c *Counters) key(text string, w algorithm.CounterWindow) string {
	return c.opts.KeyPrefix + text + decimal(w.Start)
}

// linkOf returns where the counters of a window are.
func (c *Counters) linkOf(w algorithm.CounterWindow) *link {
	if w.End-w.Start == 1 {
		return c.perSecond
	}
	return c.link
}

func (c *Counters) takeAll(ctx context.Context, at int64, asks []weir.Ask, decisions []weir.Decision) error {
	hits, err := c.hits(at, asks, decisions)
	if err != nil {
		return err
	}
	known := 0
	for i := range hits {
		if hits[i].known = c.over.has(&hits[i], at); hits[i].known {
			known++
		}
	}
	if known < len(hits) {
		b, err := newBudget(ctx, c.opts.Budget)
		if err != nil {
			return err
		}
		defer b.end()
		if c.opts.StopWhenOver {
			c.hold(b, hits, known > 0)
		}
		c.send(b, hits, c.addition)
	}
	for i := range hits {
		decisions[i] = c.decide(&hits[i], at)
	}
	return nil
}

func (c *Counters) hits(at int64, asks []weir.Ask, decisions []weir.Decision) ([]hit, error) {
	if len(asks) != len(decisions) {
		return nil, weir.ValidateAll(asks, decisions)
	}
	hits := make([]hit, len(asks))
	for i := range asks {
		h, err := c.hit(&asks[i], at)
		if err != nil && len(asks) > 1 {
			err = fmt.Errorf("question %d: %w", i, err)
		}
		if err != nil {
			return nil, err
		}
		hits[i] = h
	}
	return hits, nil
}

// addition adds a hit to its counter.
func (c *Counters) addition(h *hit) []command {
	ttl := h.window.TTL
	if jitter := int64(c.opts.ExpirationJitter / time.Second); jitter > 0 {
		ttl += rand.Int64N(jitter)
	}
	return []command{{"INCRBY", decimal(h.cost)}, {"EXPIRE", decimal(ttl)}}
}

// send sends the commands of each hit that the servers must be asked about and can be.
func (c *Counters) send(b *budget, hits []hit, commands func(*hit) []command) {
	all := make([]*plain, 0, len(hits))
	var perSecond []*plain
	for i := range hits {
		h := &hits[i]
		if h.known || h.err != nil {
			continue
		}
		h.commands, h.last = commands(h), nil
		if c.linkOf(h.window) != c.link {
			perSecond = append(perSecond, &h.plain)
		} else {
			all = append(all, &h.plain)
		}
	}
	c.exchange(b, all, perSecond)
}

// exchange asks both pools at the same time.
func (c *Counters) exchange(b *budget, all, perSecond []*plain) {
	var other sync.WaitGroup
	if len(perSecond) > 0 {
		other.Go(func() { c.perSecond.runPlain(b, perSecond) })
	}
	if len(all) > 0 {
		c.link.runPlain(b, all)
	}
	other.Wait()
}

// hold looks at the counters, unless one is known to be over, and if some would be over
// then leaves the others as they are.
func (c *Counters) hold(b *budget, hits []hit, over bool) {
	stop := over
	would := make([]bool, len(hits))
	if !over {
		c.send(b, hits, func(*hit) []command { return []command{{verb: "GET"}} })
		for i := range hits {
			count := int64(0)
			if hits[i].err == nil && !hits[i].reply.IsNil() {
				count, hits[i].err = hits[i].count()
			}
			would[i] = hits[i].err == nil && count > hits[i].ask.Limit.Units()-hits[i].cost
			stop = stop || would[i]
		}
	}
	for i := range hits {
		if stop && !would[i] {
			hits[i].cost = 0
		}
	}
}

// decide turns a reply into a decision.
func (c *Counters) decide(h *hit, at int64) weir.Decision {
	if h.known {
		d := algorithm.DescribeCounter(h.ask, h.window, at, h.ask.Limit.Units()+1, 0)
		d.Source = weir.FromCache
		return d
	}
	count, err := h.count()
	if err != nil && strings.Contains(err.Error(), "would overflow") {
		count, err = math.MaxInt64, nil
	}
	if err != nil {
		return weir.Decision{Cause: err}
	}
	d := algorithm.DescribeCounter(h.ask, h.window, at, count, h.cost)
	if !d.Allowed {
		c.over.add(h, at)
	}
	return d
}

// count returns the counter that a call was answered.
func (h *hit) count() (int64, error) {
	if h.err != nil {
		return 0, h.err
	}
	n, err := h.reply.AsInt64()
	if err != nil {
		return 0, &Error{Corrupt, true, fmt.Errorf("a counter that is no number: %w", err)}
	}
	if n < 0 {
		return 0, &Error{Corrupt, true, fmt.Errorf("a counter that stands at %d, below 0", n)}
	}
	return n, nil
}

// giveBack takes ARGV[1] off the counter KEYS[1], but no more than there is, and sets the
// TTL to ARGV[2] seconds. It returns the counter, or 2^53 for more than that, and what came
// back: Lua's numbers are exact up to there, and 2^63-1, which the original can count up to,
// would be returned below 0. It checks before it writes: DECRBY refuses what is no number.
var giveBack = newScript(`if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0} end
local left, back = redis.call('DECRBY', KEYS[1], ARGV[1]), tonumber(ARGV[1])
if left < 0 then
  left, back = 0, math.max(back + left, 0)
  redis.call('SET', KEYS[1], 0)
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return {math.min(left, 9007199254740992), back}`)

// subtract takes a hit's cost off its counter.
func (c *Counters) subtract(ctx context.Context, h *hit) (count, back int64, err error) {
	c.over.remove(h)
	b, err := newBudget(ctx, c.opts.Budget)
	if err != nil {
		return 0, 0, err
	}
	defer b.end()
	reply, err := c.linkOf(h.window).run(b, giveBack, []string{h.key}, []string{decimal(h.cost), c.addition(h)[1].arg})
	if err != nil {
		return 0, 0, err
	}
	var numbers [8]int64
	row, err := integers(reply, numbers[:0])
	if err == nil && (len(row) != 2 || row[0] < 0 || row[1] < 0 || row[1] > h.cost) {
		err = fmt.Errorf("%w: %v to %d given back", errGarbage, row, h.cost)
	}
	if err != nil {
		return 0, 0, classify(err)
	}
	return row[0], row[1], nil
}
