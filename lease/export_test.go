package lease

import "time"

// Suspend lets time pass for the wall clock alone, as when the machine is suspended.
func (s *Store) Suspend(d time.Duration) {
	before := s.clock
	s.clock = func() instant {
		now := before()
		now.wall += int64(d)
		return now
	}
}

// MostKeys is how many keys the store can watch.
func (s *Store) MostKeys() int { return len(s.shards) * s.shards[0].most }
