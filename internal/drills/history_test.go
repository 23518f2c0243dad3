package drills

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/redisstore"
	"weir.dev/weir/storetest"
)

// call is one answer that a worker got.
type call struct {
	key     int           // which of the crew's keys
	name    string        // of the limit
	asked   time.Duration // since the crew began
	took    time.Duration
	d       weir.Decision
	class   redisstore.Class // why the store did not decide, or ""
	unknown bool             // the store may have charged it all the same
	err     error            // nothing decided
}

func newCall(key int, name string, asked, took time.Duration, d weir.Decision, err error) call {
	c := call{key: key, name: name, asked: asked, took: took, d: d, err: err}
	var failure *redisstore.Error
	if errors.As(cmp.Or(err, d.Cause), &failure) {
		c.class, c.unknown = failure.Class, failure.Executed
	}
	c.d.Cause = nil // long, and said by class
	return c
}

func (c call) ended() time.Duration { return c.asked + c.took }
func (c call) central() bool        { return c.err == nil && c.d.Source == weir.FromStore }
func (c call) local() bool          { return c.err == nil && c.d.Source == weir.FromFallback }

// history is what a crew was answered.
type history []call

func (h history) where(keep func(call) bool) history {
	var kept history
	for _, c := range h {
		if keep(c) {
			kept = append(kept, c)
		}
	}
	return kept
}

func (h history) of(key int) history {
	return h.where(func(c call) bool { return c.key == key })
}

func (h history) named(name string) history {
	return h.where(func(c call) bool { return c.name == name })
}

// between keeps what was asked and answered within a span.
func (h history) between(from, to time.Duration) history {
	return h.where(func(c call) bool { return c.asked >= from && c.ended() <= to })
}

func (h history) central() history { return h.where(call.central) }
func (h history) local() history   { return h.where(call.local) }

func (h history) notCentral() history {
	return h.where(func(c call) bool { return !c.central() })
}

func (h history) taken() (units int64) {
	for _, c := range h {
		units += c.d.Taken
	}
	return units
}

// classes counts the reasons why the store did not decide.
func (h history) classes() map[redisstore.Class]int {
	count := map[redisstore.Class]int{}
	for _, c := range h {
		if c.class != "" {
			count[c.class]++
		}
	}
	return count
}

func (h history) longest() (took time.Duration) {
	for _, c := range h {
		took = max(took, c.took)
	}
	return took
}

// percentile returns the time within which that part of the calls was answered.
func (h history) percentile(part float64) time.Duration {
	if len(h) == 0 {
		return 0
	}
	var times []time.Duration
	for _, c := range h {
		times = append(times, c.took)
	}
	slices.Sort(times)
	return times[int(float64(len(times)-1)*part)]
}

// byStore sorts by the deciding clocks. Of two answers of one microsecond a denial is the
// later: a charge after it would have been denied too.
func (h history) byStore() history {
	sorted := slices.Clone(h)
	slices.SortStableFunc(sorted, func(a, b call) int {
		if a.d.AtMicros == b.d.AtMicros && a.d.Allowed != b.d.Allowed {
			if a.d.Allowed {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.d.AtMicros, b.d.AtMicros)
	})
	return sorted
}

// check holds the central answers about one key and name against the definition of the
// limit: nothing beyond it, and where the store answered every call, nothing denied that
// it admits.
func (h history) check(limit weir.Limit) error {
	unknown := slices.ContainsFunc(h, func(c call) bool { return c.unknown })
	var events []storetest.Event
	for _, c := range h.central().byStore() {
		held := c.d.Allowed && c.d.Taken == 0 // by the other limit of the question
		if held || unknown && !c.d.Allowed {
			continue
		}
		events = append(events, storetest.Event{AtMicros: c.d.AtMicros, Cost: 1, Taken: c.d.Taken, Allowed: c.d.Allowed})
	}
	return storetest.Check(limit, events)
}

// over returns by how many units the calls about one key and name went beyond the limit
// in the worst of all spans of time, whoever admitted them: for GCRA beyond burst + rate x
// span, for the window beyond the count of one window. at gives the time of a call.
func (h history) over(limit weir.Limit, at func(call) int64) int64 {
	sorted := h.where(func(c call) bool { return c.d.Taken > 0 })
	slices.SortStableFunc(sorted, func(a, b call) int { return cmp.Compare(at(a), at(b)) })
	var most int64
	if limit.Algorithm() == weir.FixedWindow {
		windows := map[int64]int64{}
		for _, c := range sorted {
			n := at(c) / limit.Period().Microseconds()
			windows[n] += c.d.Taken
			most = max(most, windows[n]-limit.Units())
		}
		return most
	}
	interval := limit.Emission().Micros // the drills' rates take whole microseconds a unit
	var arrival int64
	for _, c := range sorted {
		arrival = max(arrival, at(c)) + c.d.Taken*interval
		beyond := arrival - at(c) - limit.Capacity()*interval
		most = max(most, (beyond+interval-1)/interval)
	}
	return most
}

// byDecider is the time of a call by the clock of who decided it.
func byDecider(c call) int64 { return c.d.AtMicros }

// outageBound is how far both halves of a crew together may go beyond the limit: what the
// fallbacks admit, a burst and the rate for as long as they answered.
func (h history) outageBound(limit weir.Limit) int64 {
	local := h.local()
	if len(local) == 0 {
		return 0
	}
	first, last := local[0].d.AtMicros, local[0].d.AtMicros
	for _, c := range local {
		first, last = min(first, c.d.AtMicros), max(last, c.d.AtMicros)
	}
	return limit.Capacity() + (last-first)*limit.Units()/limit.Period().Microseconds() + 1
}

// mostWithin returns the most units taken in any span of so many microseconds.
func (h history) mostWithin(micros int64) (most int64) {
	sorted, first, sum := h.byStore(), 0, int64(0)
	for _, c := range sorted {
		sum += c.d.Taken
		for c.d.AtMicros-sorted[first].d.AtMicros >= micros {
			sum -= sorted[first].d.Taken
			first++
		}
		most = max(most, sum)
	}
	return most
}

// gap returns the longest time between two calls that ended, of those in order.
func (h history) gap() (longest time.Duration) {
	var ends []time.Duration
	for _, c := range h {
		ends = append(ends, c.ended())
	}
	slices.Sort(ends)
	for i := 1; i < len(ends); i++ {
		longest = max(longest, ends[i]-ends[i-1])
	}
	return longest
}

// losses counts how often the state of one key and name was forgotten: more was left than
// before, and time had not earned it.
func (h history) losses(limit weir.Limit) (n int64) {
	const slack = 20 // units, for the order within a microsecond and rounding
	var before *call
	for _, c := range h.central().byStore() {
		if before != nil {
			earned := (c.d.AtMicros - before.d.AtMicros) * limit.Units() / limit.Period().Microseconds()
			if c.d.Remaining+c.d.Taken > before.d.Remaining+earned+slack {
				n++
			}
		}
		before = &c
	}
	return n
}

// names returns the limits' names that occur.
func (h history) names() []string {
	var names []string
	for _, c := range h {
		if !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	return names
}

func (h history) String() string {
	return fmt.Sprintf("%d calls, %d central, %d local, reasons %v", len(h), len(h.central()), len(h.local()), h.classes())
}
