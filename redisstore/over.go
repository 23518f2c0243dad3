package redisstore

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
)

// overSet remembers which counters are over which limits until their windows end. It
// holds hashes under seeds of its own, so it is of a fixed size and no client can make
// keys that collide. The limit is in the hash: a counter over a low limit says nothing of
// a higher one. The methods that a question calls are those of no set at all for nil.
type overSet struct {
	seeds   [2]maphash.Seed
	mu      [64]sync.Mutex // of buckets, by their index modulo 64
	buckets []overBucket

	lookups, hits, evicted atomic.Int64
}

// overBucket is 4 places of 24 bytes, one and a half cache lines.
type overBucket [4]struct {
	hi, lo uint64
	end    int64 // Unix seconds
}

const overBucketBytes = 4 * 24

func newOverSet(bytes int64) *overSet {
	return &overSet{
		seeds:   [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		buckets: make([]overBucket, max(bytes/overBucketBytes, 1)),
	}
}

// locate returns the bucket of a hit, locked, and the hash.
func (s *overSet) locate(h *hit) (bucket *overBucket, unlock func(), hi, lo uint64) {
	limit := uint64(h.ask.Limit.Units())*0x9e3779b97f4a7c15 + uint64(h.window.End-h.window.Start)*0xbf58476d1ce4e5b9
	hi, lo = maphash.String(s.seeds[0], h.key)+limit, maphash.String(s.seeds[1], h.key)+limit
	at, _ := bits.Mul64(hi, uint64(len(s.buckets)))
	mu := &s.mu[at%uint64(len(s.mu))]
	mu.Lock()
	return &s.buckets[at], mu.Unlock, hi, lo
}

// has reports whether the counter of a hit is over its limit at a time in µs.
func (s *overSet) has(h *hit, at int64) bool {
	if s == nil {
		return false
	}
	s.lookups.Add(1)
	bucket, unlock, hi, lo := s.locate(h)
	defer unlock()
	for _, p := range bucket {
		if p.hi == hi && p.lo == lo && at/1_000_000 < p.end {
			s.hits.Add(1)
			return true
		}
	}
	return false
}

// add remembers at a time in µs that the counter of a hit is over its limit, in place of
// the counter of the bucket whose window ends first.
func (s *overSet) add(h *hit, at int64) {
	if s == nil {
		return
	}
	bucket, unlock, hi, lo := s.locate(h)
	defer unlock()
	first := 0
	for i, p := range bucket {
		if p.hi == hi && p.lo == lo {
			first = i
			break
		}
		if p.end < bucket[first].end {
			first = i
		}
	}
	p := &bucket[first]
	if p.end > at/1_000_000 && (p.hi != hi || p.lo != lo) {
		s.evicted.Add(1)
	}
	p.hi, p.lo, p.end = hi, lo, h.window.End
}

// remove forgets the counter of a hit under its limit.
func (s *overSet) remove(h *hit) {
	if s == nil {
		return
	}
	bucket, unlock, hi, lo := s.locate(h)
	defer unlock()
	for i, p := range bucket {
		if p.hi == hi && p.lo == lo {
			bucket[i].end = 0
		}
	}
}

// clear forgets all.
func (s *overSet) clear() {
	for i := range s.mu {
		s.mu[i].Lock()
		for at := i; at < len(s.buckets); at += len(s.mu) {
			s.buckets[at] = overBucket{}
		}
		s.mu[i].Unlock()
	}
}

// LocalCache is what the local cache of Counters holds and has done.
type LocalCache struct {
	Entries int   // counters remembered, of which some windows may have ended
	Lookups int64 // questions that it was asked about
	Hits    int64 // of them denied
	Evicted int64 // counters that others took the place of before their windows ended
}

// LocalCache counts; all are 0 if there is none. It locks a 64th of the cache at a time.
func (c *Counters) LocalCache() LocalCache {
	s := c.over
	if s == nil {
		return LocalCache{}
	}
	st := LocalCache{Lookups: s.lookups.Load(), Hits: s.hits.Load(), Evicted: s.evicted.Load()}
	for i := range s.mu {
		s.mu[i].Lock()
		for at := i; at < len(s.buckets); at += len(s.mu) {
			for _, p := range s.buckets[at] {
				if p.end != 0 {
					st.Entries++
				}
			}
		}
		s.mu[i].Unlock()
	}
	return st
}
