// Package lease is a weir.Store in front of another, which it asks less often. It does
// three things:
//
//   - It combines. Callers of one key that come while a call about it is under way share
//     the next one, which asks for as many units as there are callers. Each gets the
//     decision, and the receipt, that it would have got one after the other: combining
//     is exact and has no bound to state.
//   - It leases. For a key that proves hot it takes a block of units ahead of use, as
//     many as the key needs in 100 ms, and spends them without a call. The next block is
//     asked for in the background when little is left.
//   - It remembers denials. A denied question is denied again without a call until it
//     could pass, for at most a second.
//
// # What leases cost
//
// Units that were charged to the store earlier are spent now, so the processes together
// may let through more in an interval of length d than the limit's B + r d, for a burst
// B and a rate r. With N processes, blocks of up to b units, a refill below a share h and
// an expiry E they let through at most
//
//	B + r d + min(N b (1 + h), r E)
//
// by GCRA: [Bound] computes the last term. The first form holds because no process ever
// has more than b + h b units; the second because a unit that is spent now was charged
// less than E ago, whatever N is. Blocks are cut so that the first is at most a twentieth
// of B; a limit where that is less than one unit a block is not leased. A block of
// FixedWindow and SlidingWindow dies with the window it was charged to, so there is no
// such term. SlidingLog and LeakyBucket are never leased, for a lease breaks what they
// promise.
//
// These rest on four rules. A block's time begins before it is asked for, is read on the
// monotonic clock and on the wall clock, and is over when either says so: a process that
// was stopped, or a machine that was suspended, spends nothing that has expired, unless its
// wall clock was stepped back in the life of the block too. What expires is thrown away, never refunded. A call whose outcome is not known granted
// nothing. A process that dies takes what it held with it, at most b + h b units.
//
// Leases also make a process late to see what others do: Remaining is the block and what
// the store last said. Near the limit a block comes short; then the process denies until
// the rest of the block has been earned, so it is never locked out for longer than b units
// take to earn. Reset and Refund reach the blocks and denials of other processes as these
// end. A system in which every unit matters uses no leases: Block 0 combines and
// remembers only.
package lease

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"time"

	"weir.dev/weir"
)

// Defaults of Options.
const (
	DefaultRefill  = 0.2
	DefaultExpiry  = 500 * time.Millisecond
	DefaultBudget  = 50 * time.Millisecond
	DefaultMaxKeys = 1 << 16
)

// Options of a Store. The zero value combines callers and remembers denials, and leases
// nothing.
type Options struct {
	// Block is the most units taken ahead of use for one key; 0 is no leases. What a
	// limit gets may be less: see Bound.
	Block int64
	// Instances is how many processes share each limit; required with a Block.
	Instances int
	// Refill is the share of a block below which the next one is asked for, above 0 and
	// below 1. Default 0.2.
	Refill float64
	// Expiry is how long a block may be spent, up to 1 s. Default 500 ms.
	Expiry time.Duration
	// Named holds other terms for limits by name.
	Named map[string]Terms
	// Budget is the longest that callers wait for a call they share, and the longest
	// that a refill takes; what a caller asks alone is bounded by its own context and by
	// the store. Default 50 ms.
	Budget time.Duration
	// MaxKeys is the most keys that are watched at once, each in up to 700 bytes. Others
	// go straight to the store. Default 65,536.
	MaxKeys int
}

// Terms are the fields of Options that a limit may have of its own, with the same
// defaults: a Block of 0 leases nothing.
type Terms struct {
	Block  int64
	Refill float64
	Expiry time.Duration
}

// For returns the options that hold for the named limit, as Bound takes them.
func (o Options) For(name string) Options {
	if own, ok := o.Named[name]; ok {
		o.Block, o.Refill, o.Expiry = own.Block, own.Refill, own.Expiry
	}
	return o
}

func (o Options) validate() error {
	errs := []error{Terms{o.Block, o.Refill, o.Expiry}.validate(o.Instances)}
	if o.Instances < 0 {
		errs = append(errs, fmt.Errorf("%d instances: say how many processes share the limits, 1 or more", o.Instances))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Named)) {
		if err := o.Named[name].validate(o.Instances); err != nil {
			errs = append(errs, fmt.Errorf("limit %.80q: %w", name, err))
		}
	}
	if o.Budget < 0 || o.Budget > time.Minute {
		errs = append(errs, fmt.Errorf("a budget of %v is outside 0 (%v) to 1m", o.Budget, DefaultBudget))
	}
	if o.MaxKeys < 0 || o.MaxKeys > 1<<30 {
		errs = append(errs, fmt.Errorf("%d keys are outside 0 (%d) to %d", o.MaxKeys, DefaultMaxKeys, 1<<30))
	}
	return errors.Join(errs...)
}

func (t Terms) validate(instances int) error {
	var errs []error
	if t.Block < 0 || t.Block > weir.MaxUnits {
		errs = append(errs, fmt.Errorf("a block of %d units is outside 0 (no leases) to %d", t.Block, int64(weir.MaxUnits)))
	}
	if t.Block > 0 && instances == 0 {
		errs = append(errs, fmt.Errorf("blocks of %d units with 0 instances: say how many processes share the limits, 1 or more", t.Block))
	}
	if t.Refill != 0 && !(t.Refill > 0 && t.Refill < 1) {
		errs = append(errs, fmt.Errorf("a refill at a share of %v: write one above 0 and below 1, or 0 for %v", t.Refill, DefaultRefill))
	}
	if t.Expiry < 0 || t.Expiry > time.Second {
		errs = append(errs, fmt.Errorf("an expiry of %v is outside 0 (%v) to 1s", t.Expiry, DefaultExpiry))
	}
	return errors.Join(errs...)
}

func (t Terms) withDefaults() Terms {
	if t.Refill == 0 {
		t.Refill = DefaultRefill
	}
	if t.Expiry == 0 {
		t.Expiry = DefaultExpiry
	}
	return t
}

// horizon is how long a block is to last.
func (t *Terms) horizon() time.Duration { return min(100*time.Millisecond, t.Expiry/2) }

// Store is a weir.Store that asks another. It is safe for concurrent use. Its decisions
// are FromLease where a block served them, FromCache where a denial was remembered, and
// otherwise the store's own.
type Store struct {
	store   weir.Store
	opts    Options
	terms   Terms
	named   map[string]*Terms
	seeds   [2]maphash.Seed
	shards  []shard // a power of two
	clock   func() instant
	refills sync.WaitGroup
	callers sync.Pool
}

// New returns a store in front of another. It does no I/O. The error names every argument
// that is wrong.
func New(store weir.Store, opts Options) (*Store, error) {
	err := opts.validate()
	if store == nil {
		err = errors.Join(errors.New("no store: pass one from redisstore or memstore"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("lease.New: %w", err)
	}
	if opts.Budget == 0 {
		opts.Budget = DefaultBudget
	}
	if opts.MaxKeys == 0 {
		opts.MaxKeys = DefaultMaxKeys
	}
	s := &Store{
		store:  store,
		opts:   opts,
		terms:  Terms{opts.Block, opts.Refill, opts.Expiry}.withDefaults(),
		named:  make(map[string]*Terms, len(opts.Named)),
		seeds:  [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		shards: make([]shard, 1<<(bits.Len(uint(max(min(opts.MaxKeys/64, 64), 1)))-1)),
		clock:  newClock(),
	}
	for name, own := range opts.Named {
		own = own.withDefaults()
		s.named[name] = &own
	}
	for i := range s.shards {
		s.shards[i].entries = make(map[identity]*entry)
		s.shards[i].most = (opts.MaxKeys + len(s.shards) - 1) / len(s.shards)
	}
	return s, nil
}

// Take answers one question: from the key's block, from a remembered denial, by a call
// that several callers share, or by a call of its own. The first two allocate nothing.
//
// Questions of one unit without MaxWait and Partial are combined and make a key hot. The
// others are served from a block that holds all they ask, and otherwise go to the store.
// A peek goes to the store, and is told of the block too.
func (s *Store) Take(ctx context.Context, ask weir.Ask) (d weir.Decision, err error) {
	if err = ask.Validate(); err != nil {
		return d, err
	}
	id, sh := s.locate(ask.Name, ask.Key)
	now := s.clock()
	sh.mu.Lock()
	sh.counts.Asks++
	e := s.entry(sh, id, &ask, now)
	if e == nil {
		sh.counts.Calls++
		sh.mu.Unlock()
		return s.store.Take(ctx, ask)
	}
	e.demand(now, ask.Cost)
	at := place{sh, e}
	switch {
	case sh.answer(e, &ask, now, &d):
		if size := s.refillSize(at, now); size > 0 {
			s.refill(at, ask, size)
		}
		sh.mu.Unlock()
		return d, nil
	case !combines(&ask):
		return s.askAlone(ctx, at, ask)
	case e.calls > 0:
		return s.join(ctx, at, ask, now)
	}
	return s.askFirst(ctx, at, ask, now)
}

// Refund gives back ask.Cost of the units that d took, and ends a remembered denial of
// the key. What a block served goes back into that block, if it is still live and was
// not given back before, else nothing; everything else goes to the store.
func (s *Store) Refund(ctx context.Context, ask weir.Ask, d weir.Decision) (int64, error) {
	if err := ask.Validate(); err != nil {
		return 0, err
	}
	id, sh := s.locate(ask.Name, ask.Key)
	if d.Source != weir.FromLease {
		back, err := s.store.Refund(ctx, ask, d)
		if back > 0 || err != nil {
			sh.mu.Lock()
			if e := sh.entries[id]; e != nil {
				e.forgetDenial()
			}
			sh.mu.Unlock()
		}
		return back, err
	}
	if ask.Cost > d.Taken {
		return 0, fmt.Errorf("limit %q: a refund of %d units of a decision that took %d: give back 0 to %[3]d", ask.Name, ask.Cost, d.Taken)
	}
	now := s.clock()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[id]
	if e == nil || e.limit != ask.Limit || ask.Cost == 0 {
		return 0, nil
	}
	sh.expire(e, now)
	back := e.refund(ask.Cost, &d)
	sh.counts.Returned += uint64(back)
	return back, nil
}

// Reset forgets what the key has used of the named limit, in the store, and its block and
// denial here. It first waits for a block of the key that is being asked for, at most as
// long as ctx and the budget last.
func (s *Store) Reset(ctx context.Context, name string, key weir.Key) error {
	if key.IsZero() {
		return fmt.Errorf("limit %q: no key to reset: make one with Text, Parts or Addr", name)
	}
	id, sh := s.locate(name, key)
	sh.mu.Lock()
	e := sh.entries[id]
	if e == nil {
		sh.mu.Unlock()
		return s.store.Reset(ctx, name, key)
	}
	e.resets++ // no block is asked for, and none is kept, until it is done
	arrived := e.blockArrived()
	sh.mu.Unlock()
	if arrived != nil {
		select {
		case <-arrived:
		case <-ctx.Done():
		}
	}
	err := s.store.Reset(ctx, name, key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e.resets--
	sh.dropBlocks(e)
	e.forgetDenial()
	return err
}

// Close ends leasing: it waits for the refills under way, at most the budget, and throws
// away what blocks hold. Later questions go straight to the store, which stays open.
func (s *Store) Close() error {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.closed = true
		for _, e := range sh.entries {
			sh.dropBlocks(e)
		}
		sh.mu.Unlock()
	}
	s.refills.Wait()
	return nil
}

// Stats is what a store has done since New, and holds now. Granted + Returned is Spent +
// Wasted + Outstanding.
type Stats struct {
	Asks      uint64 // questions asked of this store
	Calls     uint64 // questions it asked of the store below, refills included
	FromLease uint64 // answers from a block
	FromCache uint64 // answers from a remembered denial
	Shared    uint64 // answers from a call for several callers

	Granted     uint64 // units taken ahead
	Spent       uint64 // of them, spent
	Returned    uint64 // of those, refunded into their block
	Wasted      uint64 // units that expired, or were thrown away by Reset and Close
	Outstanding int64  // units that blocks hold
	Blocks      int    // blocks that hold units
	Keys        int    // keys watched
}

// Saved returns how many calls to the store were saved; it is negative where blocks were
// taken for nothing.
func (st Stats) Saved() int64 { return int64(st.Asks - st.Calls) }

// Stats counts. It locks the shards one after the other.
func (s *Store) Stats() Stats {
	var total Stats
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		now := s.clock()
		for _, e := range sh.entries {
			sh.expire(e, now)
			for j := range e.blocks {
				if e.blocks[j].left > 0 {
					total.Blocks++
				}
			}
			total.Outstanding += e.held()
		}
		c := &sh.counts
		total.Keys += len(sh.entries)
		total.Asks += c.Asks
		total.Calls += c.Calls
		total.FromLease += c.FromLease
		total.FromCache += c.FromCache
		total.Shared += c.Shared
		total.Granted += c.Granted
		total.Spent += c.Spent
		total.Returned += c.Returned
		total.Wasted += c.Wasted
		sh.mu.Unlock()
	}
	return total
}

// locate returns what a limit's name and a key are known by, and the shard they are in.
func (s *Store) locate(name string, key weir.Key) (identity, *shard) {
	hi, lo := key.Hash(s.seeds[0], s.seeds[1])
	h := maphash.String(s.seeds[0], name)
	id := identity{hi + bits.RotateLeft64(h, 16), lo + bits.RotateLeft64(h, 48)}
	return id, &s.shards[id.hi&uint64(len(s.shards)-1)]
}
