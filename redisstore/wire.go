package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// storeEpoch is 0 of the scripts' clock, in microseconds since 1970: 1600000000 s.
// Counting from there keeps every time and every sum of the scripts below 2^53 until
// the year 2270, and so exact in Lua's doubles.
const storeEpoch = 1_600_000_000_000_000

// arguments of an ask, as the script of its kind takes them. They depend on nothing but
// the limit and the numbers of the ask, so they are made once for each such question.
type question struct {
	limit   weir.Limit
	cost    int64
	maxWait time.Duration // in whole µs, but that any bound below is 1 ns
	partial bool
}

func questionOf(ask *weir.Ask) question {
	maxWait := ask.MaxWait.Truncate(time.Microsecond)
	if maxWait == 0 && ask.MaxWait > 0 {
		maxWait = 1
	}
	return question{ask.Limit, ask.Cost, maxWait, ask.Partial && ask.Cost > 0}
}

// isPeek reports whether the ask changes nothing whatever the state: it looks, or it
// asks for more than there ever is.
func (q question) isPeek() bool {
	return q.cost == 0 || q.cost > q.limit.Capacity() && !q.partial
}

// arguments returns the question as the Lua of its kind reads it.
func (q question) arguments() []string {
	if algorithm.KindOf(q.limit.Algorithm()) == algorithm.KindTAT {
		return q.rateArguments()
	}
	period := q.limit.Period().Microseconds()
	cost := q.cost
	if q.isPeek() {
		cost = 0
	}
	args := []string{decimal(q.limit.Units()), decimal(cost), decimal(period), decimal(storeEpoch % period)}
	if q.limit.Algorithm() == weir.SlidingLog {
		args[3] = decimal(entryBytes(period))
	}
	if q.partial {
		args = append(args, "1")
	}
	return args
}

// entryBytes returns how many bytes a time needs so that a period does not wrap around.
func entryBytes(period int64) int64 {
	switch {
	case period < 1<<32:
		return 4
	case period < 1<<40:
		return 5
	}
	return 6
}

func (q question) rateArguments() []string {
	e := q.limit.Emission()
	units := q.cost
	if q.partial || q.isPeek() {
		units = 1
	}
	inc, incRem := e.Span(units)
	tol, tolRem := q.tolerance(e, units)
	bound := algorithm.Reach(&e, q.limit.Period().Microseconds())
	args := []string{decimal(inc), decimal(tol), decimal(bound)}
	if e.Den > 1 || q.partial {
		args = append(args, decimal(incRem), decimal(tolRem), decimal(e.Den), decimal(e.TolRem))
	}
	if q.partial {
		most := q.limit.Capacity()
		tol, tolRem := q.tolerance(e, most)
		args = append(args, decimal(min(q.cost, most)), decimal(tol), decimal(tolRem))
	}
	return args
}

// tolerance returns how far ahead of now the ask may leave the key.
func (q question) tolerance(e weir.Emission, units int64) (micros, rem int64) {
	return algorithm.Tolerance(&weir.Ask{Limit: q.limit, MaxWait: q.maxWait}, &e, units)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// verdict is what a script answered to one ask: x, y and z are the state after it, as
// the algorithm's Lua says.
type verdict struct {
	allowed  bool
	heldBack bool
	units    int64
	now      int64 // store time
	x, y, z  int64
}

var errGarbage = errors.New("the server's answer is not one of the script's")

// oneVerdict reads the reply to a single ask.
func oneVerdict(ask *weir.Ask, q question, reply []int64) (verdict, error) {
	if len(reply) < 2 || len(reply) > 5 {
		return verdict{}, fmt.Errorf("%w: got %d numbers, want 2 to 5", errGarbage, len(reply))
	}
	v := verdict{now: reply[0], x: reply[1]}
	if v.allowed = v.x >= 0; !v.allowed {
		v.x = -1 - v.x
	}
	at := func(i int) int64 {
		if i < len(reply) {
			return reply[i]
		}
		return 0
	}
	switch algorithm.KindOf(ask.Limit.Algorithm()) {
	case algorithm.KindTAT:
		v.y, v.units = at(2), ask.Cost
		if q.partial {
			v.units = at(3)
		}
	case algorithm.KindWindow:
		v.units = at(2)
	case algorithm.KindSliding:
		v.y, v.units = at(2), at(3)
	case algorithm.KindLog:
		v.y, v.z, v.units = at(2), at(3), at(4)
	}
	if !v.allowed || q.isPeek() {
		v.units = 0
	}
	return v, v.check(ask)
}

// severalVerdict reads the six numbers of one of several asks, answered at a clock.
func severalVerdict(ask *weir.Ask, q question, clock int64, row []int64) (verdict, error) {
	if len(row) != 6 || row[2] < 0 || row[2] > 1<<54 || clock < -1<<54 || clock > 1<<54 {
		return verdict{}, fmt.Errorf("%w: %v, want 6 numbers, the third not negative", errGarbage, row)
	}
	v := verdict{allowed: row[0] != 0, heldBack: row[0] == 2, units: row[1], now: clock + row[2], x: row[3], y: row[4], z: row[5]}
	if algorithm.KindOf(ask.Limit.Algorithm()) == algorithm.KindTAT && !q.partial && v.units != 0 {
		v.units = ask.Cost
	}
	if q.isPeek() || v.heldBack {
		v.units = 0
	}
	return v, v.check(ask)
}

// check refuses numbers that no script of ours answers, so that the arithmetic behind
// it meets only what it can hold.
func (v verdict) check(ask *weir.Ask) error {
	const far = 1 << 54
	count := func(n int64) bool { return n >= 0 && n <= weir.MaxUnits }
	moment := func(t int64) bool { return t >= -far && t <= far }
	ok := moment(v.now) && v.units >= 0 && v.units <= ask.Cost
	switch algorithm.KindOf(ask.Limit.Algorithm()) {
	case algorithm.KindTAT:
		ok = ok && v.x >= 0 && v.x <= far && v.y >= 0 && v.y < ask.Limit.Emission().Den
	case algorithm.KindWindow, algorithm.KindSliding:
		ok = ok && count(v.x) && count(v.y)
	case algorithm.KindLog:
		ok = ok && count(v.x) && moment(v.y) && moment(v.z)
	}
	if !ok {
		return fmt.Errorf("%w: %+v to a question of %d units", errGarbage, v, ask.Cost)
	}
	return nil
}

// decision puts a verdict into words, by the same functions as every store.
func (v verdict) decision(ask *weir.Ask, q question) weir.Decision {
	verdict := algorithm.Verdict{Allowed: v.allowed, Taken: v.units, At: v.now + storeEpoch}
	hopeless := q.isPeek() && q.cost > 0
	if hopeless {
		verdict.Allowed = false
	}
	var d weir.Decision
	period := ask.Limit.Period().Microseconds()
	switch algorithm.KindOf(ask.Limit.Algorithm()) {
	case algorithm.KindTAT:
		tat := algorithm.TAT{Micros: verdict.At + v.x, Rem: v.y, Den: ask.Limit.Emission().Den}
		d = algorithm.DescribeGCRA(tat, verdict, ask)
	case algorithm.KindWindow:
		d = algorithm.DescribeWindow(algorithm.Window{Start: verdict.At - verdict.At%period, Count: v.x}, verdict, ask)
	case algorithm.KindSliding:
		d = algorithm.DescribeSliding(algorithm.Sliding{Start: verdict.At - verdict.At%period, Cur: v.x, Prev: v.y}, verdict, ask)
	case algorithm.KindLog:
		facts := algorithm.LogFacts{Live: v.x, Newest: v.y + storeEpoch, Blocker: v.z + storeEpoch}
		d = facts.Describe(verdict, ask)
	}
	if v.heldBack {
		d.Delay = 0
	}
	return d
}

// refundArguments returns what the refund script needs of a decision and the units to
// give back of it.
func refundArguments(ask *weir.Ask, d weir.Decision) []string {
	kind := string(algorithm.KindOf(ask.Limit.Algorithm()))
	if ask.Limit.Algorithm() == weir.LeakyBucket {
		kind = "q"
	}
	e, period := ask.Limit.Emission(), ask.Limit.Period().Microseconds()
	mark := d.AtMicros - storeEpoch + d.ResetAfter.Microseconds()
	horizon := 2 * period
	if kind == "g" || kind == "q" {
		horizon = e.TolMicros + period
	}
	bucket := int64(1)
	for bucket*64 < horizon {
		bucket *= 2
	}
	receipt := fmt.Sprintf("%d:%d:%d:%d", d.AtMicros, d.ResetAfter.Microseconds(), d.Remaining, d.Taken)
	args := []string{kind, decimal(ask.Cost), receipt, decimal(d.AtMicros - storeEpoch), decimal(mark), decimal(horizon), decimal(bucket)}
	if kind == "g" || kind == "q" {
		return append(args, decimal(e.Micros), decimal(e.Rem), decimal(e.Den))
	}
	return append(args, decimal(period), decimal(storeEpoch%period))
}
