package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// plain is the simplest store: a lock and a map over the arithmetic, with refunds as the
// documentation defines them. Each faulty store of these tests is plain with one fault.
type plain struct {
	fault  string // empty: none
	mu     sync.Mutex
	states map[string]state // by place
	used   map[receipt]bool
	moved  map[string][]refunded // by place
	resets map[string]int64      // by place: when
}

// state is what one key has of one kind.
type state struct {
	tat     algorithm.TAT
	window  algorithm.Window
	sliding algorithm.Sliding
	log     []charge
	until   int64 // when it is as new
	limit   weir.Limit
}

type charge struct{ at, units int64 }

type receipt struct {
	place                       string
	at, taken, remaining, reset int64
}

type refunded struct{ at, micros int64 }

func newPlain(fault string) *plain {
	return &plain{fault: fault, states: map[string]state{}, used: map[receipt]bool{}, moved: map[string][]refunded{}, resets: map[string]int64{}}
}

// place is where a key's state is.
func (p *plain) place(name string, key weir.Key, kind algorithm.Kind) string {
	switch p.fault {
	case "names and keys joined ambiguously":
		return fmt.Sprintf("%c%s_%s", kind, name, key)
	case "addresses taken for texts":
		return fmt.Sprintf("%c%s %s", kind, name, strings.TrimPrefix(key.String(), "@"))
	case "keys without regard to case":
		return fmt.Sprintf("%c%s %s", kind, name, strings.ToLower(key.String()))
	case "long keys cut off":
		return fmt.Sprintf("%c%s %.63s", kind, name, key)
	}
	return fmt.Sprintf("%c%s %s", kind, name, key)
}

func (p *plain) at(ask *weir.Ask) string {
	return p.place(ask.Name, ask.Key, algorithm.KindOf(ask.Limit.Algorithm()))
}

func (p *plain) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	d := make([]weir.Decision, 1)
	err := p.TakeAll(ctx, []weir.Ask{ask}, d)
	return d[0], err
}

func (p *plain) TakeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	return p.TakeAt(ctx, time.Now().UnixMicro(), asks, decisions)
}

func (p *plain) TakeAt(_ context.Context, now int64, asks []weir.Ask, decisions []weir.Decision) error {
	if len(asks) != len(decisions) {
		return errors.New("as many decisions as asks, please")
	}
	for i := range asks {
		if err := asks[i].Validate(); err != nil && p.fault != "bad questions answered" {
			return err
		}
	}
	if p.fault == "gives up under contention" && !p.mu.TryLock() {
		return errors.New("ten tries were not enough")
	} else if p.fault != "gives up under contention" {
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	tentative, denied := map[string]state{}, false
	for i := range asks {
		at := p.at(&asks[i])
		tentative[at] = p.states[at]
	}
	if p.fault == "nothing held back" {
		tentative = p.states
	}
	for i, ask := range asks {
		if !ask.Alone || p.fault == "alone ignored" {
			decisions[i] = p.decide(tentative, now, ask)
			denied = denied || !decisions[i].Allowed
		}
	}
	if !denied {
		maps.Copy(p.states, tentative)
	}
	for i, ask := range asks {
		switch {
		case ask.Alone && p.fault != "alone ignored":
			decisions[i] = p.decide(p.states, now, ask)
		case denied && !decisions[i].Allowed:
			if cut, v := take(p.states[p.at(&ask)], now, ask); !v.Allowed && p.fault != "a limit that shrank locks keys out" {
				p.states[p.at(&ask)] = cut // as a limit that has shrunk does
			}
		case denied && p.fault != "nothing held back":
			decisions[i] = describe(p.states[p.at(&ask)], algorithm.Verdict{Allowed: true, At: decisions[i].AtMicros}, &ask)
		}
	}
	return nil
}

// decide answers one ask from the states and keeps the new one there.
func (p *plain) decide(states map[string]state, now int64, ask weir.Ask) weir.Decision {
	at := p.at(&ask)
	s, now, asked := p.spoil(states[at], now, ask)
	if p.fault == "gives up under contention" {
		runtime.Gosched() // holding the lock
	}
	if p.fault == "read, then write" {
		p.mu.Unlock()
		runtime.Gosched()
		p.mu.Lock()
	}
	next, v := take(s, now, asked)
	d := describe(next, v, &asked)
	next.until, next.limit = v.At+d.ResetAfter.Microseconds(), ask.Limit
	if v.Taken > 0 || asked.Cost > 0 {
		states[at] = p.spoilState(s, next, &asked, v)
	}
	return p.spoilDecision(d, &ask)
}

func take(s state, now int64, ask weir.Ask) (state, algorithm.Verdict) {
	var v algorithm.Verdict
	switch algorithm.KindOf(ask.Limit.Algorithm()) {
	case algorithm.KindWindow:
		s.window, v, _ = algorithm.TakeWindow(s.window, now, &ask)
	case algorithm.KindSliding:
		s.sliding, v, _ = algorithm.TakeSliding(s.sliding, now, &ask)
	case algorithm.KindLog:
		v, _ = algorithm.TakeLog(logOf(s, &ask), now, &ask)
		if v.Taken > 0 {
			gone := v.At - ask.Limit.Period().Microseconds()
			s.log = slices.DeleteFunc(slices.Clone(s.log), func(c charge) bool { return c.at <= gone })
			s.log = append(s.log, charge{v.At, v.Taken})
		}
	default:
		s.tat, v, _ = algorithm.TakeGCRA(s.tat, now, &ask)
	}
	return s, v
}

func describe(s state, v algorithm.Verdict, ask *weir.Ask) weir.Decision {
	switch algorithm.KindOf(ask.Limit.Algorithm()) {
	case algorithm.KindWindow:
		return algorithm.DescribeWindow(s.window, v, ask)
	case algorithm.KindSliding:
		return algorithm.DescribeSliding(s.sliding, v, ask)
	case algorithm.KindLog:
		return algorithm.DescribeLog(logOf(s, ask), v, ask)
	}
	return algorithm.DescribeGCRA(s.tat, v, ask)
}

// logOf writes the log anew: the algorithm's own changes in place.
func logOf(s state, ask *weir.Ask) *algorithm.Log {
	var l algorithm.Log
	room := weir.Per(weir.MaxLogUnits, ask.Limit.Period()).By(weir.SlidingLog)
	for _, c := range s.log {
		algorithm.TakeLog(&l, c.at, &weir.Ask{Limit: room, Cost: c.units})
	}
	return &l
}

func (p *plain) Refund(_ context.Context, ask weir.Ask, d weir.Decision) (int64, error) {
	if err := ask.Validate(); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at, now := p.at(&ask), max(time.Now().UnixMicro(), d.AtMicros)
	r := receipt{at, d.AtMicros, d.Taken, d.Remaining, d.ResetAfter.Microseconds()}
	s, known := p.states[at]
	if reset, ok := p.resets[at]; ok && d.AtMicros <= reset && p.fault != "refunds what was before a reset" {
		return 0, nil
	}
	if !known || p.fault == "no refunds" || p.used[r] && p.fault != "refunds twice" {
		return 0, nil
	}
	units := min(ask.Cost, d.Taken)
	if p.fault == "refunds what was never taken" {
		units = ask.Cost
	}
	back := p.giveBack(&s, now, units, &ask, d)
	if back > 0 {
		p.states[at], p.used[r] = s, true
	}
	return back, nil
}

func (p *plain) giveBack(s *state, now, units int64, ask *weir.Ask, d weir.Decision) int64 {
	period := ask.Limit.Period().Microseconds()
	start := now - now%period
	taken := d.AtMicros - d.AtMicros%period
	var count *int64
	switch algorithm.KindOf(ask.Limit.Algorithm()) {
	case algorithm.KindTAT:
		return p.giveBackTime(s, now, units, ask, d)
	case algorithm.KindWindow:
		if taken == start {
			count = &s.window.Count
		}
	case algorithm.KindSliding:
		fromStart := algorithm.Sliding{Start: s.sliding.Start, Cur: s.sliding.Cur, Prev: s.sliding.Prev}
		switch {
		case taken == fromStart.Start && taken >= start-period:
			count = &s.sliding.Cur
		case taken == fromStart.Start-period && taken >= start-period:
			count = &s.sliding.Prev
		}
	case algorithm.KindLog:
		s.log = slices.Clone(s.log)
		for i := range s.log {
			if s.log[i].at == d.AtMicros && s.log[i].units > 0 && d.AtMicros > now-period {
				count = &s.log[i].units
			}
		}
	}
	if p.fault == "refunds what has ended" && count == nil {
		return units
	}
	if count == nil {
		return 0
	}
	back := min(units, *count)
	*count -= back
	return back
}

// giveBackTime moves the arrival time back, by at most what is ahead of the clock.
func (p *plain) giveBackTime(s *state, now, units int64, ask *weir.Ask, d weir.Decision) int64 {
	e := ask.Limit.Emission()
	us, _ := e.Span(units)
	mark := d.AtMicros + d.ResetAfter.Microseconds()
	by := us
	if ask.Limit.Algorithm() == weir.LeakyBucket {
		if p.fault != "refunds any place in the queue" && s.tat.Micros != mark {
			return 0
		}
		by = min(us, mark-now)
	} else if p.fault != "refunds what was earned again" {
		moved := int64(0)
		for _, m := range p.moved[p.at(ask)] {
			if m.at > d.AtMicros && p.fault != "refunds mint together" {
				moved += m.micros
			}
		}
		by = min(us, max(us-(now-d.AtMicros), mark-now-moved, 0))
	}
	if by = min(by, s.tat.Micros-now); by <= 0 {
		return 0
	}
	s.tat.Micros -= by
	p.moved[p.at(ask)] = append(p.moved[p.at(ask)], refunded{now, by})
	unit := max(e.Micros, 1)
	return min((by+unit-1)/unit, units)
}

func (p *plain) Reset(_ context.Context, name string, key weir.Key) error {
	if name == "" || key.IsZero() {
		return errors.New("reset of nobody")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, kind := range algorithm.Kinds {
		delete(p.states, p.place(name, key, kind))
		p.resets[p.place(name, key, kind)] = time.Now().UnixMicro()
		if p.fault == "reset of one kind only" {
			return nil
		}
	}
	return nil
}
