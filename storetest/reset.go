package storetest

import "weir.dev/weir"

// resetRows are what forgetting owes.
var resetRows = []row{
	{name: "reset forgets the key under every algorithm", check: func(tr *trial) {
		for _, units := range []int64{5, 7} {
			for _, a := range tr.all {
				ask := tr.of(weir.Per(units, year).By(a), 1)
				ask.Partial, ask.Cost = true, units
				tr.take(ask)
			}
			tr.reset(tr.of(tr.limit(units), 0))
			for _, a := range tr.all {
				d := tr.peek(tr.of(weir.Per(units, year).By(a), 0))
				tr.want("after a reset by "+a.String(), d, told{true, 0, units})
				if d.ResetAfter != 0 {
					tr.Errorf("after a reset by %v: got reset after %v, want 0", a, d.ResetAfter)
				}
			}
		}
	}},
	{name: "reset leaves other keys and other names alone", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 2)
		otherKey, otherName := ask, ask
		otherKey.Key = weir.Text("somebody else")
		otherName.Name += "-other"
		for _, a := range []weir.Ask{ask, otherKey, otherName} {
			tr.want("2 of 5", tr.take(a), told{true, 2, 3})
		}
		tr.reset(ask)
		tr.want("the key", tr.peek(ask), told{true, 0, 5})
		tr.want("the other key", tr.peek(otherKey), told{true, 0, 3})
		tr.want("the other name", tr.peek(otherName), told{true, 0, 3})
	}},
	{name: "a decision from before a reset gives nothing back", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 3)
		before := tr.take(ask)
		tr.reset(ask)
		ask.Cost = 2
		tr.take(ask)
		if back := tr.refund(ask, before, 3); back != 0 {
			tr.Errorf("a refund of 3 from before the reset: got %d, want 0", back)
		}
		tr.want("after a reset, 2 taken and a refund of what was before", tr.peek(ask), told{true, 0, 3})
	}},
	{name: "reset of a key never seen changes nothing", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 1)
		tr.reset(ask)
		tr.reset(ask)
		tr.want("and then one", tr.take(ask), told{true, 1, 4})
	}},
	{name: "reset of nobody is an error", check: func(tr *trial) {
		if err := tr.store.Reset(tr.Context(), tr.name, weir.Key{}); err == nil {
			tr.Errorf("reset of the zero key: got no error, want one")
		}
	}},
}
