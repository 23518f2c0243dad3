package storetest

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"time"

	"weir.dev/weir"
)

// Event is one decision of a history.
type Event struct {
	AtMicros int64 // the store's clock at the decision, in microseconds since 1970
	Cost     int64 // units asked; 0 is a peek
	Taken    int64 // units charged
	Allowed  bool
	Unknown  bool // the answer was lost: the Cost may have been charged or not
}

// EventOf returns a decision as an event. A partial ask that was denied is one for one
// unit: not even that was there.
func EventOf(ask weir.Ask, d weir.Decision) Event {
	if ask.Partial && !d.Allowed {
		ask.Cost = min(ask.Cost, 1)
	}
	return Event{AtMicros: d.AtMicros, Cost: ask.Cost, Taken: d.Taken, Allowed: d.Allowed}
}

// Check returns nil if the history of one key, in the order of its decisions, can be
// that of the limit, and otherwise an error that names the first event which cannot:
// one admitted beyond the limit, or one denied though the limit admits it. Units whose
// charge is Unknown may have been taken, so they excuse denials and admit nothing.
//
// It keeps the books in rational arithmetic, independently of any store. For GCRA and
// LeakyBucket it is the linear check v = max(v, t) + cT, v - t <= BT; for FixedWindow,
// the count of each aligned window; for SlidingWindow, the two weighted counts; for
// SlidingLog, the units of the last period. To that it adds the most units in any
// rolling period: less than B+N, 2N, 2N-1 and N.
//
// Histories with refunds, resets, MaxWait or a changed limit are not for Check. From
// concurrent callers the order is not known: leave denials out and sort by [ByTime].
func Check(limit weir.Limit, history []Event) error {
	if err := limit.Validate(); err != nil {
		return err
	}
	if limit.IsUnlimited() {
		return fmt.Errorf("an unlimited limit admits every history")
	}
	least, most := newAccount(limit), newAccount(limit) // without and with what is unknown
	var charged []Event
	for i, e := range history {
		fault := func(format string, args ...any) error {
			return fmt.Errorf("event %d at %d µs, cost %d, taken %d: %s under %v", i, e.AtMicros, e.Cost, e.Taken, fmt.Sprintf(format, args...), limit)
		}
		switch units := max(e.Cost, 1); {
		case e.AtMicros < 0 || e.Cost < 0 || e.Taken < 0 || e.Taken > e.Cost:
			return fault("no such event")
		case e.Unknown:
			most.charge(e.AtMicros, e.Cost)
		case !e.Allowed && e.Taken > 0:
			return fault("denied and charged")
		case !e.Allowed && units <= limit.Capacity() && most.admits(e.AtMicros, units):
			return fault("denied though the limit admits it")
		case e.Allowed:
			if e.Taken > 0 {
				units = e.Taken
			}
			if units > limit.Capacity() || !least.admits(e.AtMicros, units) {
				return fault("admitted beyond the limit")
			}
			if more := e.Taken + 1; 0 < e.Taken && more <= min(e.Cost, limit.Capacity()) && most.admits(e.AtMicros, more) {
				return fault("given fewer than the limit admits")
			}
			if e.Taken > 0 {
				at := least.charge(e.AtMicros, e.Taken)
				most.charge(e.AtMicros, e.Taken)
				charged = append(charged, Event{AtMicros: at, Taken: e.Taken})
			}
		}
	}
	if got, want := mostIn(limit.Period(), charged), worstCase(limit); got > want {
		return fmt.Errorf("%d units admitted within one period of %v, want at most %d under %v", got, limit.Period(), want, limit)
	}
	return nil
}

// ByTime orders events by their time, for slices.SortStableFunc.
func ByTime(a, b Event) int { return cmp.Compare(a.AtMicros, b.AtMicros) }

// worstCase is the most units that a limit lets through in one rolling period.
func worstCase(l weir.Limit) int64 {
	switch l.Algorithm() {
	case weir.FixedWindow:
		return 2 * l.Units()
	case weir.SlidingWindow:
		return max(2*l.Units()-1, 0)
	case weir.SlidingLog:
		return l.Units()
	}
	return max(l.Capacity()+l.Units()-1, 0)
}

// mostIn returns the most units taken in any half-open interval of a period's length.
func mostIn(period time.Duration, charged []Event) int64 {
	charged = slices.Clone(charged)
	slices.SortStableFunc(charged, ByTime)
	var most, sum int64
	first := 0
	for _, e := range charged {
		sum += e.Taken
		for e.AtMicros-charged[first].AtMicros >= period.Microseconds() {
			sum -= charged[first].Taken
			first++
		}
		most = max(most, sum)
	}
	return most
}

// account is what one key has used, as the definition of an algorithm has it.
type account interface {
	admits(at, units int64) bool
	charge(at, units int64) int64 // the time it is charged to: not before what was seen
}

func newAccount(l weir.Limit) account {
	period := l.Period().Microseconds()
	switch l.Algorithm() {
	case weir.FixedWindow:
		return &windowAccount{period: period, limit: l.Units()}
	case weir.SlidingWindow:
		return &windowAccount{period: period, limit: l.Units(), weighted: true}
	case weir.SlidingLog:
		return &logAccount{period: period, limit: l.Units()}
	}
	return &rateAccount{
		units: big.NewInt(l.Units()), period: big.NewInt(period),
		tolerance: product(l.Capacity(), period), ahead: new(big.Int),
	}
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// rateAccount keeps the theoretical arrival time. Its unit of time is 1/N µs, in which
// every quantity is whole: a unit takes P, the tolerance is B P, a time t is N t.
type rateAccount struct{ units, period, tolerance, ahead *big.Int }

func (a *rateAccount) after(at, units int64) (now, ahead *big.Int) {
	now = new(big.Int).Mul(big.NewInt(at), a.units)
	ahead = new(big.Int).Mul(big.NewInt(units), a.period)
	if a.ahead.Cmp(now) > 0 {
		return now, ahead.Add(ahead, a.ahead)
	}
	return now, ahead.Add(ahead, now)
}

func (a *rateAccount) admits(at, units int64) bool {
	now, ahead := a.after(at, units)
	return a.units.Sign() > 0 && ahead.Sub(ahead, now).Cmp(a.tolerance) <= 0
}

func (a *rateAccount) charge(at, units int64) int64 {
	_, a.ahead = a.after(at, units)
	return at
}

// windowAccount counts in windows aligned to 1970: the current one, and where they are
// weighted the one before.
type windowAccount struct {
	period, limit    int64
	weighted         bool
	index, cur, prev int64
}

// at returns the account as it stands at a time, or at the start of its window if that is later.
func (a windowAccount) at(at int64) (windowAccount, int64) {
	at = max(at, a.index*a.period)
	switch index := at / a.period; {
	case index == a.index+1:
		a.index, a.prev, a.cur = index, a.cur, 0
	case index > a.index:
		a.index, a.prev, a.cur = index, 0, 0
	}
	return a, at
}

func (a *windowAccount) admits(at, units int64) bool {
	now, at := a.at(at)
	room := now.limit - now.cur - units
	if !a.weighted || room < 0 {
		return room >= 0
	}
	left := (now.index+1)*now.period - at
	return product(now.prev, left).Cmp(product(room, now.period)) <= 0
}

func (a *windowAccount) charge(at, units int64) int64 {
	*a, at = a.at(at)
	a.cur += units
	return at
}

// logAccount remembers each charge with the sum up to it.
type logAccount struct {
	period, limit int64
	entries       []struct{ at, sum int64 }
}

func (a *logAccount) last() (at, sum int64) {
	if len(a.entries) == 0 {
		return 0, 0
	}
	e := a.entries[len(a.entries)-1]
	return e.at, e.sum
}

func (a *logAccount) admits(at, units int64) bool {
	newest, sum := a.last()
	at = max(at, newest)
	if live := sort.Search(len(a.entries), func(i int) bool { return a.entries[i].at > at-a.period }); live > 0 {
		sum -= a.entries[live-1].sum
	}
	return sum+units <= a.limit
}

func (a *logAccount) charge(at, units int64) int64 {
	newest, sum := a.last()
	at = max(at, newest)
	a.entries = append(a.entries, struct{ at, sum int64 }{at, sum + units})
	return at
}
