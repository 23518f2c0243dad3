package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"weir.dev/weir"
)

// about reports a wait that is not want less what a test may have taken since.
func (tr *trial) about(what string, got, want time.Duration) {
	tr.Helper()
	if got > want || got < want-time.Hour {
		tr.Errorf("%s: got %v, want %v less the little that has passed", what, got, want)
	}
}

// waitRows are what callers who will wait get.
var waitRows = []row{
	{name: "places ahead are sold once and each for its own time", of: only(weir.GCRA), check: func(tr *trial) {
		limit := tr.limit(5)
		const unit = year / 5
		tr.want("all 5", tr.take(tr.of(limit, 5)), told{true, 5, 0})
		for n := range time.Duration(5) {
			ask := tr.of(limit, 1)
			ask.MaxWait = n * unit // as far as those sold
			if n > 0 {
				d := tr.take(ask)
				tr.want(fmt.Sprintf("waiting at most %d intervals", n), d, told{true, 1, 0})
				tr.about("its delay", d.Delay, n*unit)
			}
			again := tr.take(ask)
			tr.want("the same place again", again, told{false, 0, 0})
			tr.about("its wait for the next", again.RetryAfter, unit)
			without := tr.take(tr.of(limit, 1))
			tr.want("without waiting", without, told{false, 0, 0})
			tr.about("its wait", without.RetryAfter, (n+1)*unit)
		}
		far := tr.of(limit, 1)
		far.MaxWait = year
		tr.want("the last place of a period", tr.take(far), told{true, 1, 0})
		tr.want("one place too many", tr.take(far), told{false, 0, 0})
	}},
	{name: "who will wait as long as needed still has no delay while units are there", of: only(weir.GCRA), check: func(tr *trial) {
		limit := tr.limit(5)
		for left := int64(4); left >= 0; left-- {
			ask := tr.of(limit, 1)
			ask.MaxWait = year
			d := tr.take(ask)
			tr.want("one", d, told{true, 1, left})
			if d.Delay != 0 {
				tr.Errorf("one while %d are left: got a delay of %v, want 0", left+1, d.Delay)
			}
		}
	}},
	{name: "units leave a queue one interval apart", of: only(weir.LeakyBucket), check: func(tr *trial) {
		limit := tr.limit(5)
		const unit = year / 5
		for n := range int64(5) {
			d := tr.take(tr.of(limit, 1))
			tr.want("one", d, told{true, 1, 4 - n})
			tr.about("its delay", d.Delay, time.Duration(n)*unit)
		}
		d := tr.take(tr.of(limit, 1))
		tr.want("one of a full queue", d, told{false, 0, 0})
		tr.about("its wait", d.RetryAfter, unit)
	}},
	{name: "who will not wait for a place in the queue takes none", of: only(weir.LeakyBucket), check: func(tr *trial) {
		limit := tr.limit(5)
		const unit = year / 5
		ask := tr.of(limit, 1)
		ask.MaxWait = unit
		tr.want("first", tr.take(ask), told{true, 1, 4})
		d := tr.take(ask)
		tr.want("second", d, told{true, 1, 3})
		tr.about("its delay", d.Delay, unit)
		for range 20 {
			d = tr.take(ask)
			tr.want("third, which waits two intervals", d, told{false, 0, 3})
		}
		tr.about("its wait", d.RetryAfter, unit)
		d = tr.take(tr.of(limit, 3))
		tr.want("three who will wait", d, told{true, 3, 0})
		tr.about("their delay", d.Delay, 2*unit)
	}},
	{name: "less than a microsecond is a bound of the wait too", of: only(weir.LeakyBucket), check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 1)
		ask.MaxWait = time.Nanosecond
		tr.want("first", tr.take(ask), told{true, 1, 4})
		tr.want("second, which would wait", tr.take(ask), told{false, 0, 4})
	}},
	{name: "a cost above the capacity is never allowed, however long the wait", check: func(tr *trial) {
		ask := tr.of(tr.limit(5), 6)
		ask.MaxWait = year
		tr.want("6 of 5", tr.take(ask), told{false, 0, 5})
	}},
	{name: "windows and the log sell nothing ahead", of: counted, check: func(tr *trial) {
		ask := tr.of(tr.limit(2), 1)
		ask.MaxWait = year
		for _, want := range []told{{true, 1, 1}, {true, 1, 0}, {false, 0, 0}} {
			d := tr.take(ask)
			tr.want("one", d, want)
			if d.Delay != 0 {
				tr.Errorf("got a delay of %v, want 0", d.Delay)
			}
		}
	}},
	{name: "retry_after is exact for those who will wait", of: rated, timed: true, check: func(tr *trial) {
		tr.each(func(tr *trial, limit weir.Limit) {
			for _, wait := range []time.Duration{time.Microsecond, limit.Period() / 3, limit.Period()} {
				if wait = wait.Truncate(time.Microsecond); wait == 0 {
					continue
				}
				for _, cost := range []int64{1, limit.Capacity()/2 + 1} {
					tr, at := tr.afresh(), int64(day+5)
					a := tr.of(limit, cost)
					a.MaxWait = wait
					d := tr.takeAt(at, a)
					for n := 0; d.Allowed && n < 2000; n++ { // until the places are sold
						a.Cost = limit.Capacity()/2 + 1
						d = tr.takeAt(at, a)
					}
					if d.Allowed {
						tr.Fatalf("%s: got 2000 places for half the capacity, want the last refused", show(a))
					}
					at += micros(d.RetryAfter)
					tr.want(show(a)+" 1 µs early", tr.takeAt(at-1, a), told{false, 0, tr.peekAt(at-1, a).Remaining})
					d = tr.takeAt(at, a)
					if !d.Allowed || d.Delay > wait {
						tr.Errorf("%s at retry_after: got allowed %v with a delay of %v, want allowed within the wait", show(a), d.Allowed, d.Delay)
					}
				}
			}
		})
	}},
	{name: "starts after the delay keep to the rate", of: rated, timed: true, check: func(tr *trial) {
		r := rand.New(rand.NewPCG(2, uint64(tr.algorithm)))
		tr.each(func(tr *trial, limit weir.Limit) {
			interval := micros(limit.Period()) / limit.Units()
			at := int64(day)
			var starts []Event
			for range 80 {
				at += r.Int64N(2*interval + 2)
				a := tr.of(limit, 1)
				a.MaxWait = time.Duration(r.Int64N(micros(limit.Period())+1)) * time.Microsecond
				d := tr.takeAt(at, a)
				if !d.Allowed {
					continue
				}
				if d.Delay > a.MaxWait && a.MaxWait > 0 {
					tr.Errorf("%s: got a delay of %v", show(a), d.Delay)
				}
				start := Event{AtMicros: at + micros(d.Delay), Cost: 1, Taken: 1, Allowed: true}
				if n := len(starts); n > 0 && tr.algorithm == weir.LeakyBucket && start.AtMicros-starts[n-1].AtMicros < interval {
					tr.Errorf("%s: got a start %d µs after the one before, want %d", show(a), start.AtMicros-starts[n-1].AtMicros, interval)
				}
				starts = append(starts, start)
			}
			if err := Check(limit.By(weir.GCRA), starts); err != nil {
				tr.Errorf("starts: %v", err)
			}
		})
	}},
}
