package lease

import (
	"sync/atomic"
	"time"
)

// Skewable makes the store's clocks such that the function it returns sets them off, as a
// suspended machine's monotonic clock and a wall clock that is stepped are. Nobody may be
// using the store yet.
func (s *Store) Skewable() (skew func(mono, wall time.Duration)) {
	clock := s.clock
	var mono, wall atomic.Int64
	s.clock = func() instant {
		now := clock()
		return instant{now.mono + mono.Load(), now.wall + wall.Load()}
	}
	return func(m, w time.Duration) {
		mono.Add(int64(m))
		wall.Add(int64(w))
	}
}

// MostKeys is how many keys the store can watch.
func (s *Store) MostKeys() int { return len(s.shards) * s.shards[0].most }

// Settle waits for the blocks that are being asked for.
func (s *Store) Settle() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		var arriving []chan struct{}
		for _, e := range sh.entries {
			if arrived := e.blockArrived(); arrived != nil {
				arriving = append(arriving, arrived)
			}
		}
		sh.mu.Unlock()
		for _, arrived := range arriving {
			<-arrived
		}
	}
}
