package lease

import "time"

// Skew sets the clocks off, as a suspended machine's monotonic clock and a wall clock that
// is stepped are.
func (s *Store) Skew(mono, wall time.Duration) {
	for i := range s.shards {
		s.shards[i].mu.Lock()
		defer s.shards[i].mu.Unlock()
	}
	before := s.clock
	s.clock = func() instant {
		now := before()
		return instant{now.mono + int64(mono), now.wall + int64(wall)}
	}
}

// MostKeys is how many keys the store can watch.
func (s *Store) MostKeys() int { return len(s.shards) * s.shards[0].most }
