package storetest

import (
	"slices"
	"time"

	"weir.dev/weir"
)

// changeRows are what a key keeps when its limit changes.
var changeRows = []row{
	{name: "another count keeps what was used", of: counted, check: func(tr *trial) {
		tr.want("3 of 5", tr.take(tr.of(tr.limit(5), 3)), told{true, 3, 2})
		tr.want("raised to 10", tr.peek(tr.of(tr.limit(10), 0)), told{true, 0, 7})
		tr.want("cut to 2", tr.take(tr.of(tr.limit(2), 1)), told{false, 0, 0})
		tr.want("cut to 3", tr.take(tr.of(tr.limit(3), 1)), told{false, 0, 0})
		tr.want("cut to 0", tr.take(tr.of(tr.limit(0), 1)), told{false, 0, 0})
		tr.want("5 again", tr.take(tr.of(tr.limit(5), 2)), told{true, 2, 0})
	}},
	{name: "another rate or burst keeps what was used", of: rated, check: func(tr *trial) {
		tr.want("3 of 5", tr.take(tr.of(tr.limit(5), 3)), told{true, 3, 2})
		tr.want("twice the rate and burst", tr.peek(tr.of(tr.limit(10), 0)), told{true, 0, 4})
		tr.want("twice the burst", tr.peek(tr.of(tr.limit(5).Burst(10), 0)), told{true, 0, 7})
		tr.want("a burst of 2", tr.take(tr.of(tr.limit(5).Burst(2), 1)), told{false, 0, 0})
		tr.want("a limit of 0", tr.take(tr.of(tr.limit(0), 1)), told{false, 0, 0})
		tr.want("5 again", tr.take(tr.of(tr.limit(5), 2)), told{true, 2, 0})
	}},
	{name: "GCRA and LeakyBucket keep each other's state", of: rated, check: func(tr *trial) {
		for _, a := range []weir.Algorithm{weir.LeakyBucket, weir.GCRA} {
			if !slices.Contains(tr.all, a) {
				return
			}
		}
		tr.want("3 of 5", tr.take(tr.of(tr.limit(5), 3)), told{true, 3, 2})
		tr.want("by GCRA", tr.take(tr.of(tr.limit(5).By(weir.GCRA), 1)), told{true, 1, 1})
		tr.want("by LeakyBucket", tr.take(tr.of(tr.limit(5).By(weir.LeakyBucket), 1)), told{true, 1, 0})
		tr.want("by the first again", tr.take(tr.of(tr.limit(5), 1)), told{false, 0, 0})
	}},
	{name: "any other change of algorithm starts afresh and gives no second capacity on return", check: func(tr *trial) {
		tr.want("all 5", tr.take(tr.of(tr.limit(5), 5)), told{true, 5, 0})
		for _, a := range tr.all {
			if a == tr.algorithm || rated(a) && rated(tr.algorithm) {
				continue
			}
			tr.want("by "+a.String(), tr.peek(tr.of(tr.limit(5).By(a), 0)), told{true, 0, 5})
		}
		tr.want("by the first again", tr.take(tr.of(tr.limit(5), 1)), told{false, 0, 0})
	}},
	{name: "a denial does not outlive a raised limit", check: func(tr *trial) {
		tr.want("one of 1", tr.take(tr.of(tr.limit(1), 1)), told{true, 1, 0})
		tr.want("two of 1", tr.take(tr.of(tr.limit(1), 1)), told{false, 0, 0})
		raised := burst(tr.limit(100), 200)
		if d := tr.take(tr.of(raised, 1)); !d.Allowed {
			tr.Errorf("one of %v: got denied with %v to wait, want allowed at once", raised, d.RetryAfter)
		}
	}},
	{name: "limits that take turns give no more than one of them", check: func(tr *trial) {
		three, seven := tr.limit(3), tr.limit(7)
		var ofThree, ofSeven int64
		for range 20 {
			ofSeven += tr.take(tr.of(seven, 1)).Taken
			ofThree += tr.take(tr.of(three, 1)).Taken
		}
		used := max(ofThree, ofThree+ofSeven-4) * 7 // counts: 3 while 3 are used, 7 in all
		if rated(tr.algorithm) {
			used = ofThree*7 + ofSeven*3 // shares of the same year
		}
		if used > 21 || ofThree+ofSeven < 3 {
			tr.Errorf("limits of 3 and of 7 in turn: got %d and %d units, want no more than either allows", ofThree, ofSeven)
		}
	}},
	{name: "a faster limit frees a key that owes under a slow one", timed: true, check: func(tr *trial) {
		slow := weir.Per(1, 30*24*time.Hour).By(tr.algorithm)
		fast := weir.PerSecond(10).By(tr.algorithm)
		at := int64(day + 3)
		tr.want("one of the slow limit", tr.takeAt(at, tr.of(slow, 1)), told{true, 1, 0})
		d := tr.takeAt(at, tr.of(fast, 1))
		// The burst and the period are a second each; the third is for clocks that step back.
		if !d.Allowed && d.RetryAfter > 3*time.Second {
			tr.Errorf("one of %v: got %v to wait, want at most 3s", fast, d.RetryAfter)
		}
		if !d.Allowed && !tr.takeAt(at+micros(d.RetryAfter), tr.of(fast, 1)).Allowed {
			tr.Errorf("one of %v at retry_after: got denied, want allowed", fast)
		}
	}},
	{name: "a smaller burst must be earned first", of: rated, timed: true, check: func(tr *trial) {
		big, small := weir.PerSecond(10).By(tr.algorithm).Burst(20), weir.PerSecond(10).By(tr.algorithm).Burst(5)
		tr.want("all 20", tr.takeAt(day, tr.of(big, 20)), told{true, 20, 0})
		d := tr.takeAt(day, tr.of(small, 1))
		tr.want("one of 5", d, told{false, 0, 0})
		if want := 1600 * time.Millisecond; d.RetryAfter != want {
			tr.Errorf("one of 5 after 20: got retry after %v, want %v", d.RetryAfter, want)
		}
	}},
}
