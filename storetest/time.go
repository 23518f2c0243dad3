package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"weir.dev/weir"
)

// rates returns limits whose intervals are whole, fractional, very long and very short,
// those that the trial's algorithm can count.
func (tr *trial) rates() []weir.Limit {
	var limits []weir.Limit
	for _, l := range []weir.Limit{
		weir.PerSecond(1),
		weir.PerSecond(3),
		weir.PerSecond(100),
		weir.PerMinute(7),
		burst(weir.PerMinute(60).By(tr.algorithm), 5),
		burst(weir.PerHour(1000).By(tr.algorithm), 1),
		weir.Per(10, 30*time.Second),
		weir.Per(1_234_567, 24*time.Hour),
		weir.PerSecond(10_000_000),
		weir.Per(1, 30*24*time.Hour),
		weir.Per(5, 3*time.Microsecond),
	} {
		if l = l.By(tr.algorithm); l.Validate() == nil {
			limits = append(limits, l)
		}
	}
	return limits
}

// each calls check for every rate, on a store of its own.
func (tr *trial) each(check func(tr *trial, limit weir.Limit)) {
	for _, limit := range tr.rates() {
		check(tr.afresh(), limit)
	}
}

// micros returns a wait in whole microseconds.
func micros(d time.Duration) int64 { return d.Microseconds() }

// timeRows are what depends on the time.
var timeRows = []row{
	{name: "retry_after is exact to the microsecond", timed: true, check: func(tr *trial) {
		tr.each(func(tr *trial, limit weir.Limit) {
			at, capacity := int64(day+12_345_678), limit.Capacity()
			tr.want("all of a fresh key", tr.takeAt(at, tr.of(limit, capacity)), told{true, capacity, 0})
			for _, cost := range []int64{1, capacity, capacity/2 + 1, 0, capacity/3 + 1} {
				d := tr.takeAt(at, tr.of(limit, cost))
				if d.Allowed {
					continue // the wait before has earned it
				}
				at += micros(d.RetryAfter)
				if early := tr.takeAt(at-1, tr.of(limit, cost)); early.Allowed || early.RetryAfter != time.Microsecond {
					tr.Errorf("%d of %v 1 µs before retry_after of %v: got allowed %v, retry after %v, want denied and 1µs", cost, limit, d.RetryAfter, early.Allowed, early.RetryAfter)
				}
				if !tr.takeAt(at, tr.of(limit, cost)).Allowed {
					tr.Errorf("%d of %v at retry_after of %v: got denied, want allowed", cost, limit, d.RetryAfter)
				}
				tr.takeAt(at, partial(tr.of(limit, capacity))) // leave nothing
			}
		})
	}},
	{name: "a key is remembered until reset_after and indistinguishable from a fresh one then", timed: true, check: func(tr *trial) {
		tr.each(func(tr *trial, limit weir.Limit) {
			capacity := limit.Capacity()
			at := int64(day + 98_765)
			for i, cost := range []int64{1, capacity, capacity/2 + 1} {
				d := tr.takeAt(at, tr.of(limit, cost))
				tr.want("of a fresh key", d, told{true, cost, capacity - cost})
				at += micros(d.ResetAfter)
				if got := tr.peekAt(at-1, tr.of(limit, 0)).ResetAfter; got != time.Microsecond {
					tr.Errorf("%v, 1 µs before reset_after of %v: got reset after %v, want 1µs", limit, d.ResetAfter, got)
				}
				idle := tr.peekAt(at, tr.of(limit, 0))
				fresh := tr.of(limit, 0)
				fresh.Key = weir.Text(fmt.Sprint("fresh ", i))
				if want := tr.peekAt(at, fresh); idle != want {
					tr.Errorf("%v, idle for reset_after of %v: got %+v, want that of a fresh key, %+v", limit, d.ResetAfter, idle, want)
				}
			}
		})
	}},
	{name: "an idle key earns at most one capacity", timed: true, check: func(tr *trial) {
		tr.each(func(tr *trial, limit weir.Limit) {
			at := int64(day + 7)
			tr.takeAt(at, tr.of(limit, 1))
			for range 3 {
				at += min(1000*micros(limit.Period()), 10*micros(year))
				tr.want("all after a rest", tr.takeAt(at, tr.of(limit, limit.Capacity())), told{true, limit.Capacity(), 0})
				if d := tr.takeAt(at, tr.of(limit, 1)); d.Allowed {
					tr.Errorf("%v, one more after a rest: got allowed, want denied", limit)
				}
			}
		})
	}},
	{name: "a history of random asks is that of the limit", timed: true, check: func(tr *trial) {
		r := rand.New(rand.NewPCG(1, uint64(tr.algorithm)))
		tr.each(func(tr *trial, limit weir.Limit) {
			period := micros(limit.Period())
			steps := []int64{0, 0, 0, 1, period/limit.Units() - 1, period / limit.Units(), period/limit.Units() + 1, period / 7, period / 2, period - 1, period, 3 * period}
			at := int64(day) - period
			var history []Event
			for range 120 {
				at += max(steps[r.IntN(len(steps))], 0)
				a := tr.of(limit, 1+r.Int64N(1+limit.Capacity()/max(1, r.Int64N(8))))
				a.Partial = r.IntN(4) == 0
				history = append(history, EventOf(a, tr.takeAt(at, a)))
			}
			if err := Check(limit, history); err != nil {
				tr.Errorf("%v", err)
			}
		})
	}},
	{name: "time that steps back mints nothing", timed: true, check: func(tr *trial) {
		for _, limit := range []weir.Limit{
			burst(weir.PerSecond(1).By(tr.algorithm), 2),
			weir.PerSecond(3).By(tr.algorithm),
			weir.PerMinute(5).By(tr.algorithm),
			weir.Per(10, time.Millisecond).By(tr.algorithm),
		} {
			for _, back := range []int64{1, second / 2, second, 2 * second} {
				if back > second+micros(limit.Period()) {
					continue // further than is promised
				}
				for _, inTurn := range []bool{true, false} {
					tr := tr.afresh()
					taken := int64(0)
					for n := range 40 {
						at := int64(day + 10*second)
						if inTurn && n%2 == 1 || !inTurn && n >= 20 {
							at -= back
						}
						taken += tr.takeAt(at, tr.of(limit, 1)).Taken
					}
					if taken != limit.Capacity() {
						tr.Errorf("%v, asked at two times %d µs apart (in turn: %v): got %d units, want %d", limit, back, inTurn, taken, limit.Capacity())
					}
				}
			}
		}
	}},
	{name: "two clocks a second apart earn no more than one", timed: true, check: func(tr *trial) {
		for _, limit := range []weir.Limit{weir.PerSecond(5).By(tr.algorithm), burst(weir.PerMinute(60).By(tr.algorithm), 3)} {
			tr := tr.afresh()
			ask := tr.of(limit, 1)
			var history []Event
			for n := range int64(400) {
				history = append(history, EventOf(ask, tr.takeAt(day+n*50_000-n%2*second, ask)))
			}
			if err := Check(limit, history); err != nil {
				tr.Errorf("%v", err)
			}
		}
	}},
	{name: "no second of the clock is special", timed: true, check: func(tr *trial) {
		limit := weir.PerSecond(10).By(tr.algorithm)
		for _, at := range aroundPowersOfTwo() {
			if at > 1<<51 && !tr.afresh().answersAt(at+3*second) {
				continue // later than 2041: it may be refused, but not miscounted
			}
			tr := tr.afresh()
			tr.want(fmt.Sprintf("first at %d µs", at), tr.takeAt(at, tr.of(limit, 1)), told{true, 1, 9})
			tr.want(fmt.Sprintf("9 more at %d µs", at), tr.takeAt(at, tr.of(limit, 9)), told{true, 9, 0})
			d := tr.takeAt(at, tr.of(limit, 9))
			tr.want(fmt.Sprintf("9 again at %d µs", at), d, told{false, 0, 0})
			if tr.takeAt(at+micros(d.RetryAfter)-1, tr.of(limit, 9)).Allowed {
				tr.Errorf("9 of 10 1 µs before retry_after, %v after %d µs: got allowed, want denied", d.RetryAfter, at)
			}
			if !tr.takeAt(at+micros(d.RetryAfter), tr.of(limit, 9)).Allowed {
				tr.Errorf("9 of 10 at retry_after, %v after %d µs: got denied, want allowed", d.RetryAfter, at)
			}
		}
	}},
	{name: "a caller below the rate is never denied", timed: true, check: func(tr *trial) {
		ask := tr.of(weir.PerSecond(5).By(tr.algorithm), 1)
		for n := range int64(30) {
			if d := tr.takeAt(day+n*second/2, ask); !d.Allowed {
				tr.Errorf("ask %d of two a second under 5 a second: got denied, want allowed", n)
			}
		}
	}},
	{name: "a caller above the rate gets the rate", timed: true, check: func(tr *trial) {
		ask := tr.of(weir.PerSecond(3).By(tr.algorithm), 1)
		taken := int64(0)
		for n := range int64(50) {
			taken += tr.takeAt(day+n*second/10, ask).Taken
		}
		if taken < 10 || taken > 3+3*5 {
			tr.Errorf("ten asks a second for 5 s under 3 a second: got %d units, want 10 to 18", taken)
		}
	}},
	{name: "a window ends at its end and never comes back", timed: true, of: only(weir.FixedWindow), check: func(tr *trial) {
		ask := tr.of(weir.PerMinute(5).By(tr.algorithm), 5)
		tr.want("all, 1 µs before the end", tr.takeAt(day-1, ask), told{true, 5, 0})
		if d := tr.takeAt(day-1, ask); d.RetryAfter != time.Microsecond || d.ResetAfter != time.Microsecond {
			tr.Errorf("again, 1 µs before the end: got retry after %v, reset after %v, want 1µs", d.RetryAfter, d.ResetAfter)
		}
		tr.want("all, at the end", tr.takeAt(day, ask), told{true, 5, 0})
		tr.want("before the end again", tr.takeAt(day-1, ask), told{false, 0, 0})
		tr.want("1 µs before the next end", tr.takeAt(day+60*second-1, ask), told{false, 0, 0})
		tr.want("all, at the next end", tr.takeAt(day+60*second, ask), told{true, 5, 0})
	}},
	{name: "an entry counts for exactly one period", timed: true, of: only(weir.SlidingLog), check: func(tr *trial) {
		ask := tr.of(weir.PerSecond(2).By(tr.algorithm), 1)
		tr.want("one", tr.takeAt(day, ask), told{true, 1, 1})
		tr.want("another 1 µs later", tr.takeAt(day+1, ask), told{true, 1, 0})
		tr.want("a period less 1 µs later", tr.takeAt(day+second-1, ask), told{false, 0, 0})
		tr.want("a period later", tr.takeAt(day+second, ask), told{true, 1, 0})
		tr.want("again a period later", tr.takeAt(day+second, ask), told{false, 0, 0})
		tr.want("a period after the second", tr.takeAt(day+second+1, ask), told{true, 1, 0})
	}},
	{name: "questions asked together are answered at one time", timed: true, check: func(tr *trial) {
		asks := make([]weir.Ask, 20)
		for i := range asks {
			asks[i] = tr.of(tr.limit(5), 1)
			asks[i].Key = weir.Text(fmt.Sprint("key ", i))
			asks[i].Alone = i%3 == 0
		}
		ds := make([]weir.Decision, len(asks))
		if err := tr.clocked.TakeAt(tr.Context(), day+4321, asks, ds); err != nil {
			tr.Fatalf("got the error %v, want decisions", err)
		}
		for i, d := range ds {
			tr.want(fmt.Sprint("ask ", i), d, told{true, 1, 4})
			if d.AtMicros != day+4321 {
				tr.Errorf("ask %d: got decided at %d µs, want %d", i, d.AtMicros, int64(day+4321))
			}
		}
	}},
}

// aroundPowersOfTwo returns times, in microseconds, at and beside those where seconds or
// microseconds need another bit, up to what a double holds exactly.
func aroundPowersOfTwo() []int64 {
	var times []int64
	for _, at := range []int64{second << 28, second << 30, second << 31, second << 32, 1 << 50, 1 << 51, 1 << 52, 1 << 53} {
		times = append(times, at-second, at-1, at, at+1, at+second)
	}
	return times
}

// answersAt reports whether the store answers at a time.
func (tr *trial) answersAt(micros int64) bool {
	var d [1]weir.Decision
	return tr.clocked.TakeAt(tr.Context(), micros, []weir.Ask{tr.of(weir.PerSecond(10).By(tr.algorithm), 1)}, d[:]) == nil
}

func partial(a weir.Ask) weir.Ask {
	a.Partial = true
	return a
}
