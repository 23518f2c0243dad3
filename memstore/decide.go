package memstore

import (
	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// How many slots are swept at a new key, and how many more in its own shard, and then in
// some others, when it finds no room.
const (
	sweepNew    = 8
	sweepFull   = 16
	sweepOthers = 4
)

// change is what one decision took where, for undoing it.
type change struct {
	sh     *shard
	id     identity
	isNew  bool // there was no entry before
	before state
	dead   []int64 // what a log forgot
	taken  int64
}

// decideUndoably is decide for a group, which may be denied yet.
func (sh *shard) decideUndoably(e *entry, now int64, ask *weir.Ask) (weir.Decision, change) {
	var dead []int64
	if e.state.a&formMask == formLog {
		dead = sh.logs[e.state.logIndex()].Dead(now, ask)
	}
	d, c := sh.decide(e, now, ask)
	c.dead = dead
	return d, c
}

// decide decides one ask by the entry of its key.
func (sh *shard) decide(e *entry, now int64, ask *weir.Ask) (weir.Decision, change) {
	before := e.state
	s, d, _ := sh.step(before, false, now, ask)
	e.state = s
	return d, change{sh: sh, id: e.id, before: before, taken: d.Taken}
}

// decideNew decides one ask for a key without an entry, and reports whether there is
// room for one. Keys that were as new at idle are forgotten on the way; if there is no
// room, those that are now.
func (sh *shard) decideNew(id identity, now, idle int64, ask *weir.Ask) (weir.Decision, change, bool) {
	now = max(now, sh.swept)
	sh.sweep(idle, sweepNew)
	room := 1 + logRoom(ask.Limit)
	if !sh.bound.take(room) {
		sh.sweep(now, sweepFull)
		if !sh.bound.take(room) {
			return weir.Decision{}, change{}, false
		}
	}
	s, d, changed := sh.step(state{}, true, now, ask)
	if changed {
		sh.insert(entry{id, s}, idle)
	} else {
		sh.bound.give(room)
	}
	return d, change{sh: sh, id: id, isNew: true, taken: d.Taken}, true
}

// undo restores the state before the units were taken. A denial that cut short a state
// too far ahead for its limit stands: its RetryAfter counts on that.
func (c change) undo() {
	if c.taken == 0 {
		return
	}
	at := c.sh.search(c.id)
	if at < 0 { // as new since, and forgotten for the room
		return
	}
	if c.isNew {
		c.sh.drop(c.sh.slots[at].state)
		c.sh.remove(at)
		return
	}
	e := &c.sh.slots[at]
	if e.state.a&formMask == formLog {
		c.sh.logs[e.state.logIndex()].Untake(int(c.taken), c.dead)
	}
	e.state = c.before
}

// step returns the state after an ask, the decision, and whether the state changed.
func (sh *shard) step(s state, isNew bool, now int64, ask *weir.Ask) (state, weir.Decision, bool) {
	period := ask.Limit.Period().Microseconds()
	switch algorithm.KindOf(ask.Limit.Algorithm()) {
	case algorithm.KindWindow:
		w, v, changed := algorithm.TakeWindow(s.window(), now, ask)
		if changed {
			s = packWindow(w, period)
		}
		return s, algorithm.DescribeWindow(w, v, ask), changed
	case algorithm.KindSliding:
		w, v, changed := algorithm.TakeSliding(s.sliding(), now, ask)
		if changed {
			s = packSliding(w, period)
		}
		return s, algorithm.DescribeSliding(w, v, ask), changed
	case algorithm.KindLog:
		return sh.stepLog(s, isNew, now, ask)
	}
	t, v, changed := algorithm.TakeGCRA(s.tat(), now, ask)
	if changed {
		s = packTAT(t)
	}
	return s, algorithm.DescribeGCRA(t, v, ask), changed
}

func (sh *shard) stepLog(s state, isNew bool, now int64, ask *weir.Ask) (state, weir.Decision, bool) {
	if isNew {
		var l algorithm.Log
		v, changed := algorithm.TakeLog(&l, now, ask)
		if changed {
			s = packLog(sh.addLog(keptLog{l, logRoom(ask.Limit)}), logEnd(v, ask))
		}
		return s, algorithm.DescribeLog(&l, v, ask), changed
	}
	l := &sh.logs[s.logIndex()]
	v, changed := algorithm.TakeLog(&l.Log, now, ask)
	if changed {
		s = packLog(s.logIndex(), logEnd(v, ask))
		if more := logRoom(ask.Limit) - l.room; more > 0 { // the limit has grown
			sh.bound.give(-more)
			l.room += more
		}
	}
	return s, algorithm.DescribeLog(&l.Log, v, ask), changed
}

// logEnd returns when a log is as new after a verdict that took units.
func logEnd(v algorithm.Verdict, ask *weir.Ask) int64 {
	return v.At + ask.Limit.Period().Microseconds()
}

// describe answers an ask that would have passed, with nothing taken.
func (sh *shard) describe(id identity, now int64, ask *weir.Ask) weir.Decision {
	v := algorithm.Verdict{Allowed: true, At: now}
	var s state
	e := sh.find(id)
	if e != nil {
		s = e.state
	}
	switch algorithm.KindOf(ask.Limit.Algorithm()) {
	case algorithm.KindWindow:
		return algorithm.DescribeWindow(s.window(), v, ask)
	case algorithm.KindSliding:
		return algorithm.DescribeSliding(s.sliding(), v, ask)
	case algorithm.KindLog:
		if e == nil {
			return algorithm.DescribeLog(&algorithm.Log{}, v, ask)
		}
		return algorithm.DescribeLog(&sh.logs[s.logIndex()].Log, v, ask)
	}
	d := algorithm.DescribeGCRA(s.tat(), v, ask)
	d.Delay = 0
	return d
}
