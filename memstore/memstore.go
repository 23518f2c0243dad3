// Package memstore is a weir.Store in the memory of one process: bounded, without
// allocation on the decision path, and without a goroutine. [Counters] are another, by the
// rules of envoyproxy/ratelimit.
package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// DefaultMaxKeys is how many keys a store remembers unless told otherwise: 2^20, in at
// most 45 MiB.
const DefaultMaxKeys = 1 << 20

// mostKeys bounds Options.MaxKeys.
const mostKeys = 1 << 30

// Options of a Store. The zero value remembers up to DefaultMaxKeys.
type Options struct {
	// MaxKeys is the most keys that are remembered at once, 1 to 2^30; 0 is
	// DefaultMaxKeys. One takes up to 45 bytes of the heap, so MaxKeys bounds memory
	// too. What a key has beyond its 45 bytes counts as further keys: by SlidingLog of N
	// units N/4 of them, and after refunds 3 to 1,000, until what they gave back would have
	// been earned again.
	MaxKeys int
}

// Store remembers and decides in this process. It is safe for concurrent use, never
// returns an error for a valid question, and needs no Close.
//
// A key that owes is never forgotten. One that is as new (its ResetAfter is 0) is, a few
// at each new key that comes. When there are MaxKeys and none of those that a new key
// looks at is as new, it shares one counter with the other such keys of its limit's name:
// they are limited together until there is room again, and nobody passes uncounted. What
// the shared counter took is not refunded.
//
// The clock is the wall clock of New and the monotonic time since: a step of the wall
// clock never reaches the store.
type Store struct {
	seeds      [2]maphash.Seed
	shards     []shard // a power of two
	shared     shard   // counters that new keys of a name share when there is no room
	bound      bound
	hand       atomic.Uint32 // the shard to sweep next for a new key of another
	base       time.Time
	baseMicros int64
}

// New returns an empty store. The error says that an option is wrong.
func New(opts Options) (*Store, error) {
	if opts.MaxKeys < 0 || opts.MaxKeys > mostKeys {
		return nil, fmt.Errorf("memstore.New: MaxKeys %d is outside 0 (%d) to %d", opts.MaxKeys, DefaultMaxKeys, mostKeys)
	}
	if opts.MaxKeys == 0 {
		opts.MaxKeys = DefaultMaxKeys
	}
	now := time.Now()
	s := &Store{
		seeds:      [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		shards:     make([]shard, shardsFor(opts.MaxKeys)),
		base:       now,
		baseMicros: min(max(now.UnixMicro(), 0), maxTime/2),
	}
	s.bound.most = int64(opts.MaxKeys)
	for i := range s.shards {
		s.shards[i].bound, s.shards[i].index = &s.bound, i
	}
	return s, nil
}

// shardsFor returns how many shards a store has, a power of two: up to 64 of at least 64
// keys each, then as many as keep them at 4,096 keys, so that none takes long to rebuild.
func shardsFor(keys int) int {
	n := max(min(keys/64, 64), keys/4096, 1)
	return 1 << min(bits.Len(uint(n-1)), 16)
}

// Take answers one question. It allocates nothing for a key that is remembered. The
// error says what is wrong with the question.
func (s *Store) Take(_ context.Context, ask weir.Ask) (d weir.Decision, err error) {
	if err := ask.Validate(); err != nil {
		return d, err
	}
	now := s.now()
	kind := algorithm.KindOf(ask.Limit.Algorithm())
	sh, id := s.locate(ask.Name, ask.Key, kind)
	sh.mu.Lock()
	if kind == algorithm.KindTAT {
		if e := sh.find(id); e != nil {
			if t, ok := algorithm.AdmitGCRA(e.state.tat(), now, &ask, &d); ok {
				e.state = packTAT(t)
				sh.mu.Unlock()
				return d, nil
			}
		}
	}
	g := group{store: s, now: now, idle: now}
	d, _ = g.decide(place{sh, id}, &ask)
	g.unlockShared()
	sh.mu.Unlock()
	return d, nil
}

// Reset forgets what the key has used of the named limit, under every algorithm. What
// the counter shared by new keys has is not the key's, and stays.
func (s *Store) Reset(_ context.Context, name string, key weir.Key) error {
	if key.IsZero() {
		return fmt.Errorf("limit %q: no key to reset: make one with Text, Parts or Addr", name)
	}
	now := s.now()
	sh, ledgerID := s.locate(name, key, algorithm.KindRefunds)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	until := s.removeStates(sh, name, key)
	l := sh.ledgers[ledgerID]
	if l == nil && until <= now {
		return nil
	}
	if l == nil {
		l = &algorithm.Ledger{}
	} else {
		sh.bound.give(ledgerRoom(l))
	}
	l.Reset(now, until)
	sh.keep(ledgerID, l)
	return nil
}

// Forget removes what TakeAt wrote of a key, for the end of a replay. Unlike after Reset,
// nothing is left to tell that a decision is from before.
func (s *Store) Forget(_ context.Context, name string, key weir.Key) error {
	if key.IsZero() {
		return fmt.Errorf("limit %q: no key to forget: make one with Text, Parts or Addr", name)
	}
	sh, ledgerID := s.locate(name, key, algorithm.KindRefunds)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s.removeStates(sh, name, key)
	if l := sh.ledgers[ledgerID]; l != nil {
		sh.bound.give(ledgerRoom(l))
		delete(sh.ledgers, ledgerID)
	}
	return nil
}

// removeStates removes a key's states of every kind from their shard, and returns when the
// last of them would have been as new.
func (s *Store) removeStates(sh *shard, name string, key weir.Key) (until int64) {
	for _, kind := range algorithm.Kinds {
		_, id := s.locate(name, key, kind)
		if at := sh.search(id); at >= 0 {
			until = max(until, sh.slots[at].state.fresh())
			sh.drop(sh.slots[at].state)
			sh.remove(at)
		}
	}
	return until
}

// Stats is what a store holds.
type Stats struct {
	Keys   int    // remembered
	Room   int    // how many more may be
	Shared uint64 // questions that were decided by a counter shared by new keys, since New
}

// Stats counts. It locks the shards one after the other.
func (s *Store) Stats() Stats {
	var st Stats
	for i := range s.shards {
		s.shards[i].mu.Lock()
		st.Keys += s.shards[i].n
		s.shards[i].mu.Unlock()
	}
	st.Room = int(max(s.bound.most-s.bound.used.Load(), 0))
	st.Shared = s.bound.shared.Load()
	return st
}

// now returns microseconds since 1970.
func (s *Store) now() int64 { return s.baseMicros + int64(time.Since(s.base)/time.Microsecond) }

// locate returns where the state of a kind lives: all kinds of one key in one shard.
func (s *Store) locate(name string, key weir.Key, kind algorithm.Kind) (*shard, identity) {
	hi, lo := key.Hash(s.seeds[0], s.seeds[1])
	h := maphash.String(s.seeds[0], name)
	i := identity{hi + bits.RotateLeft64(h, 16), lo + bits.RotateLeft64(h, 48) + uint64(kind)*0x9e3779b97f4a7c15}
	if i.lo == 0 {
		i.lo = 1
	}
	return &s.shards[i.hi&uint64(len(s.shards)-1)], i
}
