package storetest

import (
	"fmt"

	"weir.dev/weir"
)

// takeAllRows are what questions about several limits owe.
var takeAllRows = []row{
	{name: "several limits are charged together", check: func(tr *trial) {
		a, b := tr.pair(5, 3)
		each := tr.takeAll(a, b)
		tr.want("first", each[0], told{true, 1, 4})
		tr.want("second", each[1], told{true, 1, 2})
		tr.want("first afterwards", tr.peek(a), told{true, 0, 4})
		tr.want("second afterwards", tr.peek(b), told{true, 0, 2})
	}},
	{name: "one denial holds all the others back", check: func(tr *trial) {
		a, b := tr.pair(5, 1)
		tr.want("the second is used up", tr.take(b), told{true, 1, 0})
		for _, asks := range [][]weir.Ask{{a, b}, {b, a}, {a, b, a}, {a, a, b}} {
			for range 10 {
				for i, d := range tr.takeAll(asks...) {
					if asks[i].Name == b.Name {
						tr.want("the one that denies", d, told{false, 0, 0})
						continue
					}
					tr.want("one that is held back", d, told{true, 0, 5})
					if d.Delay != 0 || d.ResetAfter != 0 {
						tr.Errorf("one that is held back: got a delay of %v and reset after %v, want those of an untouched key", d.Delay, d.ResetAfter)
					}
				}
			}
		}
		tr.want("held back, and then a peek", tr.peek(a), told{true, 0, 5})
		if r := tr.peek(b).RetryAfter; r <= 0 || r == weir.Never {
			tr.Errorf("the one that denies: got retry after %v, want a wait", r)
		}
	}},
	{name: "one denial holds the limits of all other keys back", check: func(tr *trial) {
		full := tr.of(tr.limit(1), 1)
		tr.want("one key is used up", tr.take(full), told{true, 1, 0})
		asks := []weir.Ask{full}
		for i := range 12 {
			ask := tr.of(tr.limit(5), int64(i%3))
			ask.Key = weir.Parts("other", fmt.Sprint(i))
			asks = append(asks, ask)
		}
		for range 3 {
			for i, d := range tr.takeAll(asks...) {
				if i == 0 {
					tr.want("the one that denies", d, told{false, 0, 0})
				} else {
					tr.want(fmt.Sprint("held back, key ", i), d, told{true, 0, 5})
				}
			}
		}
		for _, ask := range asks[1:] {
			tr.want("held back, and then a peek", tr.peek(ask), told{true, 0, 5})
		}
		tr.reset(full)
		for i, d := range tr.takeAll(asks...) {
			tr.want(fmt.Sprint("none denies, key ", i), d, told{true, asks[i].Cost, asks[i].Limit.Units() - asks[i].Cost})
		}
	}},
	{name: "a cost above the capacity holds the others back", check: func(tr *trial) {
		a, b := tr.pair(5, 1)
		b.Cost = 2
		each := tr.takeAll(a, b)
		tr.want("held back", each[0], told{true, 0, 5})
		tr.want("never allowed", each[1], told{false, 0, 1})
		if each[1].RetryAfter != weir.Never {
			tr.Errorf("2 of 1: got retry after %v, want Never", each[1].RetryAfter)
		}
		tr.want("held back, and then a peek", tr.peek(a), told{true, 0, 5})
	}},
	{name: "two asks about one key count together", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 3)
		each := tr.takeAll(ask, ask)
		tr.want("the first 3 of 5, held back", each[0], told{true, 0, 5})
		if each[1].Allowed || each[1].Taken != 0 {
			tr.Errorf("3 more of 5: got %+v, want denied", each[1])
		}
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 5})
		less := ask
		less.Cost = 2
		each = tr.takeAll(ask, less)
		tr.want("3 of 5", each[0], told{true, 3, 2})
		tr.want("and 2 more", each[1], told{true, 2, 0})
		tr.want("and then a peek", tr.peek(ask), told{false, 0, 0})
	}},
	{name: "an ask alone neither holds back nor is held back", check: func(tr *trial) {
		a, b := tr.pair(5, 1)
		a.Alone = true
		tr.want("one of the second", tr.take(b), told{true, 1, 0})
		each := tr.takeAll(a, b)
		tr.want("alone beside a denial", each[0], told{true, 1, 4})
		tr.want("the denial", each[1], told{false, 0, 0})
		tr.want("alone, and then a peek", tr.peek(a), told{true, 0, 4})

		a.Alone, b.Alone = false, true
		each = tr.takeAll(b, a)
		tr.want("alone and denied", each[0], told{false, 0, 0})
		tr.want("beside one alone that is denied", each[1], told{true, 1, 3})
		tr.want("and then a peek", tr.peek(a), told{true, 0, 3})
	}},
	{name: "asks alone about one key never take more than is there", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 2)
		alone := ask
		alone.Alone = true
		taken := int64(0)
		for _, d := range tr.takeAll(alone, ask, alone) {
			taken += d.Taken
		}
		if taken != 4 {
			tr.Errorf("three asks for 2 of 5: got %d taken, want 4", taken)
		}
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 1})
	}},
	{name: "a peek among others charges nothing and denies when nothing is there", check: func(tr *trial) {
		a, b := tr.pair(5, 1)
		b.Cost = 0
		each := tr.takeAll(a, b)
		tr.want("beside a peek", each[0], told{true, 1, 4})
		tr.want("the peek", each[1], told{true, 0, 1})
		b.Cost = 1
		tr.want("one", tr.take(b), told{true, 1, 0})
		b.Cost = 0
		each = tr.takeAll(a, b)
		tr.want("held back by a peek", each[0], told{true, 0, 4})
		tr.want("the peek that denies", each[1], told{false, 0, 0})
		tr.want("and then a peek", tr.peek(a), told{true, 0, 4})
	}},
	{name: "partial takes what is there among others too", check: func(tr *trial) {
		a, b := tr.pair(5, 3)
		b.Cost, b.Partial = 7, true
		each := tr.takeAll(a, b)
		tr.want("one of 5", each[0], told{true, 1, 4})
		tr.want("up to 7 of 3", each[1], told{true, 3, 0})
		each = tr.takeAll(a, b)
		tr.want("held back", each[0], told{true, 0, 4})
		tr.want("up to 7 of none", each[1], told{false, 0, 0})
	}},
	{name: "no questions have no answers", check: func(tr *trial) {
		if err := tr.store.TakeAll(tr.Context(), nil, nil); err != nil {
			tr.Errorf("take all of nothing: got the error %v, want none", err)
		}
		if err := tr.store.TakeAll(tr.Context(), []weir.Ask{}, []weir.Decision{}); err != nil {
			tr.Errorf("take all of nothing: got the error %v, want none", err)
		}
	}},
	{name: "room for too few answers is an error and changes nothing", check: func(tr *trial) {
		a, b := tr.pair(5, 5)
		for _, room := range []int{0, 1, 3} {
			if err := tr.store.TakeAll(tr.Context(), []weir.Ask{a, b}, make([]weir.Decision, room)); err == nil {
				tr.Errorf("two questions and room for %d answers: got no error, want one", room)
			}
		}
		tr.want("and then a peek", tr.peek(a), told{true, 0, 5})
		tr.want("and then a peek", tr.peek(b), told{true, 0, 5})
	}},
	{name: "every answer is in the place of its question", check: func(tr *trial) {
		var asks []weir.Ask
		for i := range int64(40) {
			ask := tr.of(weir.Per(50+i, year).By(tr.all[int(i)%len(tr.all)]), i%7)
			ask.Key = weir.Text(fmt.Sprint("key ", i))
			ask.Alone = i%5 == 0
			asks = append(asks, ask)
		}
		for i, d := range tr.takeAll(asks...) {
			tr.want(fmt.Sprintf("ask %d, %s", i, show(asks[i])), d, told{true, asks[i].Cost, asks[i].Limit.Units() - asks[i].Cost})
		}
	}},
}

// pair returns asks for one unit each of two limits of their own names.
func (tr *trial) pair(first, second int64) (a, b weir.Ask) {
	a, b = tr.of(tr.limit(first), 1), tr.of(tr.limit(second), 1)
	a.Name += "-first"
	b.Name += "-second"
	return a, b
}
