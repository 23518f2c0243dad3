package lease

import (
	"testing"
	"time"

	"weir.dev/weir"
)

// Blocks of one window are as new at the same moment, so a decision does not tell which of
// them it is from. Here a unit of the newer one is reserved, a third block takes the place of
// the older one, and then the unit comes back.
func TestUnitsThatAreHeldBackReturnToTheBlockThatTheyAreFrom(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []weir.Algorithm{weir.GCRA, weir.FixedWindow, weir.SlidingWindow} {
		limit := weir.PerHour(1000).By(algorithm)
		sh := &shard{}
		e := &entry{limit: limit, terms: &Terms{Expiry: time.Second}}
		granted := weir.Decision{Allowed: true, Remaining: 900, AtMicros: 1_700_000_000_000_000, ResetAfter: time.Minute}
		ask := weir.Ask{Name: "api", Key: weir.Text("a"), Limit: limit, Cost: 1}
		var now instant
		spend := func() (d weir.Decision) {
			if !e.spend(&ask, now, &d) {
				t.Fatalf("%v: got no unit, want one of the blocks", algorithm)
			}
			return d
		}
		sh.keep(e, 1, &granted, now)
		spend()
		sh.keep(e, 5, &granted, now)
		d := spend()
		serial := e.reserve(d.Taken)
		sh.keep(e, 5, &granted, now)
		if !e.release(serial, d.Taken, true) || e.held() != 10 {
			t.Errorf("%v: got %d units held after one came back, want 10", algorithm, e.held())
		}
	}
}
