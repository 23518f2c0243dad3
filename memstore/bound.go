package memstore

import (
	"sync/atomic"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// keyBytes is what a key takes of the heap, at most.
const keyBytes = 45

// bound counts the room that is used, in keys of 45 bytes. A nil bound has no end.
type bound struct {
	most   int64
	used   atomic.Int64
	shared atomic.Uint64 // see Stats.Shared
}

// take uses room for n keys, or reports that there is none.
func (b *bound) take(n int64) bool {
	if b == nil || b.used.Add(n) <= b.most {
		return true
	}
	b.used.Add(-n)
	return false
}

func (b *bound) give(n int64) {
	if b != nil {
		b.used.Add(-n)
	}
}

// logRoom is the room of a log beyond its slot: 8 bytes a unit.
func logRoom(limit weir.Limit) int64 {
	if limit.Algorithm() != weir.SlidingLog {
		return 0
	}
	return (limit.Units() + 3) / 4
}

// ledgerRoom is the room of a ledger with its place in the map, about 80 bytes.
func ledgerRoom(l *algorithm.Ledger) int64 { return (80 + int64(l.Size()) + keyBytes - 1) / keyBytes }

func (b *bound) full() bool { return b != nil && b.used.Load() >= b.most }
