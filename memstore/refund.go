package memstore

import (
	"context"
	"fmt"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// Refund gives back ask.Cost of the units that d took and returns how many came back:
// each decision once, and never more than if they had not been taken. Nothing comes
// back of a decision whose units have been earned again, that a shared counter made, or
// while there is no room to remember the refund. The error says that the question or
// the decision is not one that this store can have seen.
func (s *Store) Refund(_ context.Context, ask weir.Ask, d weir.Decision) (int64, error) {
	if err := ask.Validate(); err != nil {
		return 0, err
	}
	switch {
	case ask.Cost > d.Taken:
		return 0, fmt.Errorf("limit %q: a refund of %d units of a decision that took %d: give back 0 to %[3]d", ask.Name, ask.Cost, d.Taken)
	case d.AtMicros < 0 || d.AtMicros >= maxTime || d.ResetAfter < 0:
		return 0, fmt.Errorf("limit %q: a refund of a decision made at %d µs with a reset after %v: pass back the decision as it was returned", ask.Name, d.AtMicros, d.ResetAfter)
	case ask.Cost == 0:
		return 0, nil
	}
	now := s.now()
	sh, id := s.locate(ask.Name, ask.Key, algorithm.KindOf(ask.Limit.Algorithm()))
	_, ledgerID := s.locate(ask.Name, ask.Key, algorithm.KindRefunds)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.sweep(now, sweepNew)
	e := sh.find(id)
	if e == nil || sh.bound.full() {
		return 0, nil
	}
	l := sh.ledgers[ledgerID]
	if l == nil {
		l = &algorithm.Ledger{}
	} else {
		sh.bound.give(ledgerRoom(l))
	}
	back := sh.refund(e, l, now, &ask, &d)
	sh.keep(ledgerID, l)
	return back, nil
}

// keep remembers a ledger and takes its room, unless it is empty.
func (sh *shard) keep(id identity, l *algorithm.Ledger) {
	if l.Size() == 0 {
		delete(sh.ledgers, id)
		return
	}
	if sh.ledgers == nil {
		sh.ledgers = make(map[identity]*algorithm.Ledger)
	}
	sh.ledgers[id] = l
	sh.bound.give(-ledgerRoom(l))
}

// refund changes an entry and a ledger, and returns how many units came back.
func (sh *shard) refund(e *entry, l *algorithm.Ledger, now int64, ask *weir.Ask, d *weir.Decision) (back int64) {
	period := ask.Limit.Period().Microseconds()
	switch algorithm.KindOf(ask.Limit.Algorithm()) {
	case algorithm.KindWindow:
		var w algorithm.Window
		if w, back = l.RefundWindow(e.state.window(), now, ask, d); back > 0 {
			e.state = packWindow(w, period)
		}
	case algorithm.KindSliding:
		var w algorithm.Sliding
		if w, back = l.RefundSliding(e.state.sliding(), now, ask, d); back > 0 {
			e.state = packSliding(w, period)
		}
	case algorithm.KindLog:
		back = l.RefundLog(&sh.logs[e.state.logIndex()].Log, now, ask, d)
	default:
		var t algorithm.TAT
		if t, back = l.RefundGCRA(e.state.tat(), now, ask, d); back > 0 {
			e.state = packTAT(t)
		}
	}
	return back
}
