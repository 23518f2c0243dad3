package memstore

import (
	"math/bits"
	"slices"
	"sync"

	"weir.dev/weir/internal/algorithm"
)

// A table is an array probed linearly from a slot that is proportional to id.lo, so
// that growing copies in order. It is rebuilt 3/4 full when it is more than 17/20 full,
// or less than a quarter: at 32 bytes a slot that is 38 to 43 bytes a key.
const smallest = 8

// shard is a table with its lock and what does not fit into its slots. Shards are small,
// so that rebuilding one is a short pause, and padded to two cache lines.
type shard struct {
	mu    sync.Mutex
	index int
	bound *bound  // nil: no bound
	n     int     // entries in slots
	slots []entry // at least one is free
	hand  int     // where sweep goes on
	// swept is the latest time at which an entry was forgotten as if it were new. A new
	// key's time is not earlier, so that a clock read before the lock mints nothing.
	swept   int64
	logs    []keptLog // of SlidingLog, by index
	free    []int     // indices of logs that are free
	ledgers map[identity]*algorithm.Ledger
}

// keptLog is a log with the room that was set aside for it.
type keptLog struct {
	algorithm.Log
	room int64
}

func (sh *shard) home(i identity) int {
	hi, _ := bits.Mul64(i.lo, uint64(len(sh.slots)))
	return int(hi)
}

// search returns the index of i's entry, or -1.
func (sh *shard) search(i identity) int {
	slots := sh.slots
	if len(slots) == 0 {
		return -1
	}
	for at := sh.home(i); ; {
		switch slots[at].id {
		case i:
			return at
		case identity{}:
			return -1
		}
		if at++; at == len(slots) {
			at = 0
		}
	}
}

// find returns the entry of i, or nil. The pointer is good until the next insert,
// remove or sweep.
func (sh *shard) find(i identity) *entry {
	if at := sh.search(i); at >= 0 {
		return &sh.slots[at]
	}
	return nil
}

// insert adds an entry that is not there yet. It may forget keys that are as new at idle.
func (sh *shard) insert(e entry, idle int64) {
	if (sh.n+1)*20 > len(sh.slots)*17 {
		sh.rebuild(idle)
	}
	sh.put(e)
}

func (sh *shard) put(e entry) {
	at := sh.home(e.id)
	for sh.slots[at].id.lo != 0 {
		if at++; at == len(sh.slots) {
			at = 0
		}
	}
	sh.slots[at] = e
	sh.n++
}

// rebuild moves the entries that are not as new into a table a third larger than they.
func (sh *shard) rebuild(now int64) {
	old, live := sh.slots, 0
	for i := range old {
		if old[i].id.lo == 0 {
			continue
		}
		if old[i].state.fresh() > now {
			live++
			continue
		}
		sh.release(old[i].state, now)
		old[i].id = identity{}
	}
	slots := slices.Grow([]entry(nil), max((live+1)*4/3+1, smallest))
	sh.slots, sh.n, sh.hand = slots[:cap(slots)], 0, 0 // all of what was allocated
	for _, e := range old {
		if e.id.lo != 0 {
			sh.put(e)
		}
	}
}

// sweep looks at the next slots in turn, and forgets those whose state is as new.
func (sh *shard) sweep(now int64, slots int) {
	for range min(slots, len(sh.slots)) {
		if sh.hand >= len(sh.slots) {
			sh.hand = 0
		}
		e := &sh.slots[sh.hand]
		if e.id.lo == 0 || e.state.fresh() > now {
			sh.hand++
			continue
		}
		sh.release(e.state, now)
		sh.remove(sh.hand) // another entry may have moved here: look again
	}
	if len(sh.slots) > 16*smallest && sh.n < len(sh.slots)/4 {
		sh.rebuild(now)
	}
	sh.sweepLedgers(now, slots/4)
}

func (sh *shard) sweepLedgers(now int64, most int) {
	for i, l := range sh.ledgers { // from a random place
		if most--; most < 0 {
			return
		}
		before := ledgerRoom(l)
		if l.Forget(now); l.Size() > 0 {
			sh.bound.give(before - ledgerRoom(l))
			continue
		}
		sh.bound.give(before)
		delete(sh.ledgers, i)
	}
}

// release gives back the room of a state that is forgotten because it is as new at now.
func (sh *shard) release(s state, now int64) {
	sh.swept = max(sh.swept, now)
	sh.drop(s)
}

// drop gives back the room of a state.
func (sh *shard) drop(s state) {
	sh.bound.give(1)
	if s.a&formMask == formLog {
		i := s.logIndex()
		sh.bound.give(sh.logs[i].room)
		sh.logs[i] = keptLog{}
		sh.free = append(sh.free, i)
	}
}

// addLog keeps a log and returns its index.
func (sh *shard) addLog(l keptLog) int {
	if n := len(sh.free); n > 0 {
		i := sh.free[n-1]
		sh.free = sh.free[:n-1]
		sh.logs[i] = l
		return i
	}
	sh.logs = append(sh.logs, l)
	return len(sh.logs) - 1
}

// remove empties the slot at an index, and moves what had been pushed behind it.
func (sh *shard) remove(hole int) {
	slots := sh.slots
	for at := hole; ; {
		if at++; at == len(slots) {
			at = 0
		}
		if slots[at].id.lo == 0 {
			break
		}
		// The entry may move into the hole unless its home lies in (hole, at].
		home := sh.home(slots[at].id)
		if hole < at && hole < home && home <= at || at < hole && (hole < home || home <= at) {
			continue
		}
		slots[hole], hole = slots[at], at
	}
	slots[hole] = entry{}
	sh.n--
}
