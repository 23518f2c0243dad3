package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"weir.dev/weir"
)

const callers = 64 // goroutines at once

// concurrencyRows are what callers at the same time get.
var concurrencyRows = []row{
	{name: "many callers of one key never share a unit", check: func(tr *trial) {
		const units, asks = 1000, 20
		limit := tr.limit(units)
		hot := tr.of(limit, 1)
		results := tr.atOnce(callers, func(i int, r *result) {
			for n := range asks {
				own := hot
				own.Key = weir.Text(fmt.Sprint("caller ", i))
				r.take(tr, own)
				r.take(tr, hot)
				if n%4 == 0 {
					peek := hot
					peek.Cost = 0
					r.take(tr, peek)
				}
			}
		})
		var history []Event
		taken := int64(0)
		for i, r := range results {
			own := int64(0)
			for _, a := range r.answers {
				if a.ask.Key != someone {
					own += a.d.Taken
				} else if taken += a.d.Taken; a.d.Taken > 0 {
					history = append(history, EventOf(a.ask, a.d))
				}
			}
			if own != asks {
				tr.Errorf("caller %d of its own key: got %d of %d units, want all", i, own, asks)
			}
		}
		if taken != units {
			tr.Errorf("%d asks for one of %d units: got %d taken, want %[2]d", callers*asks, units, taken)
		}
		tr.accepts(limit, history)
	}},
	{name: "many callers never get more than is earned meanwhile", check: func(tr *trial) {
		limit := weir.Per(20, 2*time.Millisecond).By(tr.algorithm)
		var history []Event
		for _, r := range tr.atOnce(callers, func(i int, r *result) {
			for n := range 50 {
				r.take(tr, tr.of(limit, int64(1+(i+n)%3)))
			}
		}) {
			for _, a := range r.answers {
				tr.sane(a.ask, a.d)
				if a.d.Taken > 0 {
					history = append(history, EventOf(a.ask, a.d))
				}
			}
		}
		tr.accepts(limit, history)
	}},
	{name: "callers of the same limits in different orders all get an answer", check: func(tr *trial) {
		const asks = 20
		a, b := tr.pair(100, 150)
		results := tr.atOnce(callers, func(i int, r *result) {
			for range asks {
				if i%2 == 0 {
					r.takeAll(tr, a, b)
				} else {
					r.takeAll(tr, b, a)
				}
			}
		})
		taken := map[string]int64{}
		for _, r := range results {
			for _, x := range r.answers {
				taken[x.ask.Name] += x.d.Taken
			}
		}
		if taken[a.Name] != 100 || taken[b.Name] != 100 {
			tr.Errorf("two limits of 100 and 150 asked together: got %d and %d taken, want 100 of each", taken[a.Name], taken[b.Name])
		}
		tr.want("the first and then a peek", tr.peek(a), told{false, 0, 0})
		tr.want("the second and then a peek", tr.peek(b), told{true, 0, 50})
	}},
	{name: "many refunds of one decision give back once", check: func(tr *trial) {
		ask := tr.of(tr.limit(100), 10)
		d := tr.take(ask)
		tr.want("10 of 100", d, told{true, 10, 90})
		tr.want("and 50 more", tr.take(tr.of(ask.Limit, 50)), told{true, 50, 40})
		most := int64(10)
		if tr.algorithm == weir.LeakyBucket {
			most = 0 // it is not the last place
		}
		results := tr.atOnce(callers, func(_ int, r *result) {
			back, err := tr.store.Refund(tr.Context(), ask, d)
			r.answers, r.err = append(r.answers, answer{ask, weir.Decision{Taken: back}}), err
		})
		back := int64(0)
		for _, r := range results {
			for _, a := range r.answers {
				back += a.d.Taken
			}
		}
		if back != most {
			tr.Errorf("%d refunds of 10 units: got %d back, want %d", callers, back, most)
		}
		tr.want("and then a peek", tr.peek(ask), told{true, 0, 40 + most})
	}},
}

// result is what one of several callers at once got.
type result struct {
	answers []answer
	err     error // the first
}

type answer struct {
	ask weir.Ask
	d   weir.Decision
}

func (r *result) take(tr *trial, ask weir.Ask) {
	d, err := tr.store.Take(tr.Context(), ask)
	r.add(ask, d, err)
}

func (r *result) takeAll(tr *trial, asks ...weir.Ask) {
	decisions := make([]weir.Decision, len(asks))
	err := tr.store.TakeAll(tr.Context(), asks, decisions)
	for i := range asks {
		r.add(asks[i], decisions[i], err)
	}
}

func (r *result) add(ask weir.Ask, d weir.Decision, err error) {
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		return
	}
	r.answers = append(r.answers, answer{ask, d})
}

// atOnce runs n callers and returns what each got.
func (tr *trial) atOnce(n int, call func(i int, r *result)) []result {
	tr.Helper()
	results := make([]result, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			call(i, &results[i])
		})
	}
	close(start)
	all.Wait()
	for i, r := range results {
		if r.err != nil {
			tr.Errorf("caller %d of %d at once: got the error %v, want none", i, n, r.err)
		}
	}
	return results
}

// accepts reports a history of charges in any order that the limit does not admit.
func (tr *trial) accepts(limit weir.Limit, history []Event) {
	tr.Helper()
	slices.SortStableFunc(history, ByTime)
	if err := Check(limit, history); err != nil {
		tr.Errorf("the history of %d charges: %v", len(history), err)
	}
}
