package storetest

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"weir.dev/weir"
)

// refundRows are what giving back owes: once, and never more than if the units had not
// been taken.
var refundRows = []row{
	{name: "a refund gives back once", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 3)
		d := tr.take(ask)
		tr.want("3 of 5", d, told{true, 3, 2})
		tr.gives("all 3", ask, d, 3, 3)
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 5})
		tr.gives("all 3 again", ask, d, 3, 0)
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 5})
		tr.want("and then all 5", tr.take(tr.of(ask.Limit, 5)), told{true, 5, 0})
		tr.gives("all 3 once more", ask, d, 3, 0)
		tr.want("and then a peek", tr.peek(ask), told{false, 0, 0})
	}},
	{name: "a part of a decision is refunded once too", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 4)
		d := tr.take(ask)
		tr.gives("1 of 4", ask, d, 1, 1)
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 2})
		tr.gives("3 more of 4", ask, d, 3, 0)
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 2})
	}},
	{name: "each decision is refunded by itself", of: func(a weir.Algorithm) bool { return a != weir.LeakyBucket }, check: func(tr *trial) {
		ask := tr.of(tr.limit(9), 1)
		both := tr.takeAll(ask, ask) // of one microsecond
		more := tr.take(tr.of(ask.Limit, 3))
		tr.want("5 of 9", more, told{true, 3, 4})
		tr.gives("the first", ask, both[0], 1, 1)
		tr.gives("the last", ask, more, 3, 3)
		tr.gives("the second", ask, both[1], 1, 1)
		// By GCRA a refund moves no further than to its own clock, so the ninth unit may
		// be short of a few microseconds.
		if d := tr.peek(ask); d.Remaining < 8 || counted(tr.algorithm) && d.Remaining < 9 {
			tr.Errorf("after all came back: got %d remaining, want 9", d.Remaining)
		}
	}},
	{name: "only the last place of a queue is given back", of: only(weir.LeakyBucket), check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 1)
		first, last := tr.take(ask), tr.take(ask)
		tr.gives("the first place", ask, first, 1, 0)
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 3})
		tr.gives("the last place", ask, last, 1, 1)
		tr.gives("the last place again", ask, last, 1, 0)
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 4})
		d := tr.take(ask)
		tr.want("the place again", d, told{true, 1, 3})
		tr.about("its delay", d.Delay, year/5)
	}},
	{name: "never more comes back than was taken", check: func(tr *trial) {
		tr.want("2 that are kept", tr.take(tr.of(tr.limit(9), 2)), told{true, 2, 7})
		for _, units := range []int64{3, 1 << 40, math.MaxInt64, -1, math.MinInt64, 0} {
			ask := tr.of(tr.limit(9), 2)
			d := tr.take(ask)
			ask.Cost = units
			back, err := tr.store.Refund(tr.Context(), ask, d)
			if back < 0 || back > 2 || err != nil && back != 0 {
				tr.Errorf("refund of %d units of 2: got %d back and the error %v, want at most 2", units, back, err)
			}
			if got := tr.peek(ask).Remaining; got != 5+back {
				tr.Errorf("after %d units of 2 came back: got %d remaining, want %d", back, got, 5+back)
			}
			if back < 2 { // make room for the next
				tr.reset(ask)
				tr.want("2 that are kept", tr.take(tr.of(tr.limit(9), 2)), told{true, 2, 7})
			}
		}
	}},
	{name: "what took nothing gives nothing back", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 3)
		peeked := tr.peek(ask)
		tr.want("3 of 5", tr.take(ask), told{true, 3, 2})
		denied := tr.take(ask)
		for _, d := range []weir.Decision{peeked, denied, {}} {
			back, err := tr.store.Refund(tr.Context(), ask, d)
			if back != 0 {
				tr.Errorf("refund of a decision that took nothing, %+v: got %d back (and the error %v), want none", d, back, err)
			}
		}
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 2})
	}},
	{name: "a refund for another key or name gives nothing back", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 3)
		d := tr.take(ask)
		otherKey, otherName := ask, ask
		otherKey.Key = weir.Text("somebody else")
		otherName.Name += "-other"
		tr.gives("to another key", otherKey, d, 3, 0)
		tr.gives("to another name", otherName, d, 3, 0)
		tr.want("the other key", tr.take(tr.withCost(otherKey, 1)), told{true, 1, 4})
		tr.want("the other name", tr.take(tr.withCost(otherName, 1)), told{true, 1, 4})
		tr.want("the key", tr.peek(ask), told{true, 0, 2})
	}},
	{name: "a refund for nobody is an error", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 3)
		d := tr.take(ask)
		for what, spoil := range map[string]func(*weir.Ask){
			"the zero key": func(a *weir.Ask) { a.Key = weir.Key{} },
			"no limit":     func(a *weir.Ask) { a.Limit = weir.Limit{} },
		} {
			bad := ask
			spoil(&bad)
			if back, err := tr.store.Refund(tr.Context(), bad, d); err == nil || back != 0 {
				tr.Errorf("refund with %s: got %d back and the error %v, want an error", what, back, err)
			}
		}
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 2})
	}},
	{name: "a refund after a reset gives nothing back", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 3)
		d := tr.take(ask)
		tr.reset(ask)
		tr.gives("after a reset", ask, d, 3, 0)
		tr.want("and then all 5", tr.take(tr.of(ask.Limit, 5)), told{true, 5, 0})
	}},
	{name: "what has ended or was earned again is not given back", timed: true, check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 3)
		old := tr.takeAt(time.Now().UnixMicro()-micros(2*year+time.Hour), ask)
		tr.want("3 of 5, two periods ago", old, told{true, 3, 2})
		tr.want("2 of 5 now", tr.take(tr.of(ask.Limit, 2)), told{true, 2, 3})
		tr.gives("the 3", ask, old, 3, 0)
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 3})
	}},
	{name: "what was earned again in part is given back in part", of: only(weir.GCRA), timed: true, check: func(tr *trial) {
		ask := tr.of(tr.limit(10), 5)
		old := tr.takeAt(time.Now().UnixMicro()-micros(year/5), ask) // two intervals ago
		tr.want("6 of the 7 there are", tr.take(tr.of(ask.Limit, 6)), told{true, 6, 1})
		back := tr.refund(ask, old, 5)
		if d := tr.peek(ask); d.Remaining > 4 || d.Remaining < 3 {
			tr.Errorf("5 of which 2 were earned again, %d back: got %d remaining, want the 4 there would have been", back, d.Remaining)
		}
	}},
	{name: "random refunds never let more through than if their units had not been taken", check: func(tr *trial) {
		r := rand.New(rand.NewPCG(3, uint64(tr.algorithm)))
		for range 3 {
			for _, limit := range []weir.Limit{weir.Per(10, 20*time.Microsecond), weir.Per(10, 500*time.Microsecond), weir.Per(20, 5*time.Millisecond)} {
				tr.takesAndRefunds(r, limit.By(tr.algorithm), 400)
			}
		}
	}},
}

// gives refunds units, and reports it unless that many come back.
func (tr *trial) gives(what string, ask weir.Ask, d weir.Decision, units, want int64) {
	tr.Helper()
	if got := tr.refund(ask, d, units); got != want {
		tr.Errorf("refund of %s: got %d back, want %d", what, got, want)
	}
}

func (tr *trial) withCost(ask weir.Ask, cost int64) weir.Ask {
	ask.Cost = cost
	return ask
}

// takesAndRefunds takes and gives back at random on the store's clock. Whatever time
// passes meanwhile, the history without the units that came back must be admissible.
func (tr *trial) takesAndRefunds(r *rand.Rand, limit weir.Limit, steps int) {
	tr.Helper()
	ask := tr.of(limit, 1)
	ask.Key = weir.Text(show(ask))
	var history []Event
	var taken []weir.Decision // taken[i] is history[i]
	for range steps {
		if n := len(taken); n > 0 && r.IntN(3) == 0 {
			i := n - 1 - r.IntN(min(n, 6))
			units := 1 + r.Int64N(taken[i].Taken)
			back := tr.refund(ask, taken[i], units)
			history[i].Taken -= back
			history[i].Cost = history[i].Taken // as if no more had been asked
			continue
		}
		ask.Cost = 1 + r.Int64N(limit.Capacity())
		if d := tr.take(ask); d.Taken > 0 {
			history, taken = append(history, EventOf(ask, d)), append(taken, d)
		}
	}
	history = slices.DeleteFunc(history, func(e Event) bool { return e.Taken == 0 })
	if err := Check(limit, history); err != nil {
		tr.Errorf("without what came back: %v", err)
	}
}
