package memstore

import (
	"context"
	"fmt"
	"slices"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// place is where a key's state of one kind lives.
type place struct {
	sh *shard
	id identity
}

// group decides several asks under the locks of their shards. Locks are taken in the
// order of the shards, that of the shared counters last and only when needed.
type group struct {
	store        *Store
	now          int64
	idle         int64 // keys that were as new at this time may be forgotten
	lockedShared bool
	undoable     bool // what is decided may be undone
}

func (g *group) unlockShared() {
	if g.lockedShared {
		g.store.shared.mu.Unlock()
	}
}

// TakeAll answers several questions in order, at one time: all of those that are not
// Alone are charged, or none of them. One that is held back by another is Allowed with
// Taken 0. The error says what is wrong with which question; then nothing was decided.
func (s *Store) TakeAll(_ context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	now := s.now()
	return s.takeAll(now, now, asks, decisions)
}

// TakeAt is TakeAll at a time of the caller's, in microseconds since 1970, to replay
// what was recorded on a store of its own. Times may step back, and where a key has been
// asked at a later time, that is taken; so keys are forgotten only when there is no
// room. Do not mix it with the verbs that read the clock.
func (s *Store) TakeAt(_ context.Context, atMicros int64, asks []weir.Ask, decisions []weir.Decision) error {
	if atMicros < 0 || atMicros >= maxTime {
		return fmt.Errorf("a time of %d µs is outside 0 to %d (1970 to 2112)", atMicros, int64(maxTime)-1)
	}
	return s.takeAll(atMicros, -1, asks, decisions)
}

func (s *Store) takeAll(now, idle int64, asks []weir.Ask, decisions []weir.Decision) error {
	if err := weir.ValidateAll(asks, decisions); err != nil {
		return err
	}
	var few [8]place
	var fewShards [8]*shard
	places := few[:0]
	shards := fewShards[:0]
	for i := range asks {
		sh, id := s.locate(asks[i].Name, asks[i].Key, algorithm.KindOf(asks[i].Limit.Algorithm()))
		places, shards = append(places, place{sh, id}), append(shards, sh)
	}
	slices.SortFunc(shards, func(a, b *shard) int { return a.index - b.index })
	shards = slices.Compact(shards)
	for _, sh := range shards {
		sh.mu.Lock()
	}
	g := group{store: s, now: now, idle: idle}
	g.decideAll(asks, places, decisions)
	g.unlockShared()
	for _, sh := range shards {
		sh.mu.Unlock()
	}
	return nil
}

// decideAll decides the asks that are not Alone on a tentative state, which it restores
// if one of them is denied, then those that are.
func (g *group) decideAll(asks []weir.Ask, places []place, decisions []weir.Decision) {
	var few [8]change
	changes := few[:0]
	denied := false
	g.undoable = len(asks) > 1
	for i := range asks {
		if asks[i].Alone {
			continue
		}
		d, c := g.decide(places[i], &asks[i])
		decisions[i], changes = d, append(changes, c)
		denied = denied || !d.Allowed
	}
	if denied {
		for _, c := range slices.Backward(changes) {
			c.undo()
		}
		holdBack(asks, decisions, changes)
	}
	g.undoable = false
	for i := range asks {
		if asks[i].Alone {
			decisions[i], _ = g.decide(places[i], &asks[i])
		}
	}
}

// holdBack answers those that would have passed but for another: they took nothing, and
// the rest is of the untouched state. The changes are those of the asks that are not
// Alone, undone.
func holdBack(asks []weir.Ask, decisions []weir.Decision, changes []change) {
	for i := range asks {
		if asks[i].Alone {
			continue
		}
		c := changes[0]
		changes = changes[1:]
		if decisions[i].Allowed {
			decisions[i] = c.sh.describe(c.id, decisions[i].AtMicros, &asks[i])
		}
	}
}

// decide decides one ask where its key lives or, for a new key without room, by the
// counter that the new keys of its name share.
func (g *group) decide(at place, ask *weir.Ask) (weir.Decision, change) {
	if e := at.sh.find(at.id); e != nil {
		return g.decideBy(at.sh, e, ask)
	}
	d, c, ok := at.sh.decideNew(at.id, g.now, g.idle, ask)
	if !ok {
		g.store.sweepOthers(g.now)
		d, c, ok = at.sh.decideNew(at.id, g.now, g.idle, ask)
	}
	if ok {
		return d, c
	}
	shared := &g.store.shared
	if !g.lockedShared {
		shared.mu.Lock()
		g.lockedShared = true
	}
	g.store.bound.shared.Add(1)
	_, id := g.store.locate(ask.Name, weir.Key{}, algorithm.KindOf(ask.Limit.Algorithm()))
	if e := shared.find(id); e != nil {
		return g.decideBy(shared, e, ask)
	}
	d, c, _ = shared.decideNew(id, g.now, g.idle, ask)
	return d, c
}

func (g *group) decideBy(sh *shard, e *entry, ask *weir.Ask) (weir.Decision, change) {
	if g.undoable {
		return sh.decideUndoably(e, g.now, ask)
	}
	return sh.decide(e, g.now, ask)
}

// sweepOthers sweeps some shards in turn. Those that are locked, as the caller's are, it
// leaves out.
func (s *Store) sweepOthers(now int64) {
	for range min(sweepOthers, len(s.shards)) {
		sh := &s.shards[s.hand.Add(1)&uint32(len(s.shards)-1)]
		if sh.mu.TryLock() {
			sh.sweep(now, sweepFull)
			sh.mu.Unlock()
		}
	}
}
