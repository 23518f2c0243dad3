package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"weir.dev/weir"
)

// decisionRows are what every single decision owes.
var decisionRows = []row{
	{name: "a fresh key allows its capacity and no more", check: func(tr *trial) {
		for _, n := range []int64{1, 2, 5} {
			ask := tr.of(tr.limit(n), 1)
			ask.Name = fmt.Sprintf("%s-%d", tr.name, n)
			for left := n - 1; left >= 0; left-- {
				tr.want("one of a fresh key", tr.take(ask), told{true, 1, left})
			}
			for range 3 {
				tr.want("one more", tr.take(ask), told{false, 0, 0})
			}
		}
	}},
	{name: "a cost is taken whole or not at all", check: func(tr *trial) {
		limit := tr.limit(5)
		tr.want("3 of 5", tr.take(tr.of(limit, 3)), told{true, 3, 2})
		tr.want("3 of the 2 left", tr.take(tr.of(limit, 3)), told{false, 0, 2})
		tr.want("2 of the 2 left", tr.take(tr.of(limit, 2)), told{true, 2, 0})
	}},
	{name: "a denial changes nothing, whatever its cost", check: func(tr *trial) {
		limit := tr.limit(5)
		tr.want("2 of 5", tr.take(tr.of(limit, 2)), told{true, 2, 3})
		for range 50 {
			for _, cost := range []int64{4, 5, 6, 1 << 40} {
				tr.want("too many", tr.take(tr.of(limit, cost)), told{false, 0, 3})
			}
		}
		tr.want("the 3 left", tr.take(tr.of(limit, 3)), told{true, 3, 0})
		for range 50 {
			tr.want("one of none", tr.take(tr.of(limit, 1)), told{false, 0, 0})
		}
	}},
	{name: "a cost above the capacity is never allowed and remaining stays true", check: func(tr *trial) {
		limit := tr.limit(5)
		for used := range int64(6) {
			for _, cost := range []int64{6, math.MaxInt32, 1 << 53, math.MaxInt64} {
				d := tr.take(tr.of(limit, cost))
				tr.want(fmt.Sprintf("%d of 5 with %d used", cost, used), d, told{false, 0, 5 - used})
				if d.RetryAfter != weir.Never {
					tr.Errorf("%d of 5: got retry after %v, want Never", cost, d.RetryAfter)
				}
			}
			if used < 5 {
				tr.want("one of 5", tr.take(tr.of(limit, 1)), told{true, 1, 4 - used})
			}
		}
	}},
	{name: "a peek changes nothing and says whether one unit would pass", check: func(tr *trial) {
		limit := tr.limit(2)
		for left := int64(2); left >= 0; left-- {
			for range 20 {
				d := tr.peek(tr.of(limit, 0))
				tr.want("peek", d, told{left > 0, 0, left})
				if (d.ResetAfter == 0) != (left == 2) {
					tr.Errorf("peek with %d of 2 left: got reset after %v, want 0 exactly when nothing is taken", left, d.ResetAfter)
				}
			}
			tr.want("one", tr.take(tr.of(limit, 1)), told{left > 0, min(left, 1), max(left-1, 0)})
		}
	}},
	{name: "partial takes what is there and at least one", check: func(tr *trial) {
		limit := tr.limit(5)
		some := func(cost int64) weir.Decision {
			ask := tr.of(limit, cost)
			ask.Partial = true
			return tr.take(ask)
		}
		tr.want("up to 2 of 5", some(2), told{true, 2, 3})
		tr.want("up to 10 of 3", some(10), told{true, 3, 0})
		for _, cost := range []int64{1, 5, 10, math.MaxInt64} {
			tr.want("up to some of none", some(cost), told{false, 0, 0})
		}
		tr.reset(tr.of(limit, 0))
		tr.want("up to very many of 5", some(math.MaxInt64), told{true, 5, 0})
	}},
	{name: "a limit of zero denies everybody for ever", check: func(tr *trial) {
		limit := tr.limit(0)
		for cost := range int64(4) {
			for range 50 {
				for _, partial := range []bool{false, true} {
					ask := tr.of(limit, cost)
					ask.Partial = partial
					d := tr.take(ask)
					tr.want("of a limit of 0", d, told{})
					if d.RetryAfter != weir.Never || d.ResetAfter != 0 {
						tr.Errorf("%d of a limit of 0: got retry after %v, reset after %v, want Never and 0", cost, d.RetryAfter, d.ResetAfter)
					}
				}
			}
		}
	}},
	{name: "the largest limits are counted exactly", check: func(tr *trial) {
		for i, limit := range []weir.Limit{
			weir.Per(10_000_000, year).By(tr.algorithm),
			weir.Per(1, year).By(tr.algorithm),
			burst(weir.Per(1, year).By(tr.algorithm), 34), // 34 years until it is as new
			weir.Per(weir.MaxLogUnits, year).By(tr.algorithm),
		} {
			if limit.Validate() != nil {
				continue // more than the algorithm can count
			}
			ask := tr.of(limit, limit.Capacity())
			ask.Name = fmt.Sprintf("%s-%d", tr.name, i)
			tr.want(limit.String(), tr.take(ask), told{true, ask.Cost, 0})
			ask.Cost = 1
			// A hundredth of a percent may have been earned since.
			if d := tr.take(ask); d.Allowed && limit.Units() < 1000 {
				tr.Errorf("%v: got one more than the capacity, want none", limit)
			}
		}
	}},
	{name: "coming back after retry_after is allowed", check: func(tr *trial) {
		if tr.clocked != nil {
			return // proved to the microsecond elsewhere
		}
		ask := tr.of(burst(weir.Per(1, 50*time.Millisecond).By(tr.algorithm), 1), 1)
		for range 3 {
			if d := tr.take(ask); !d.Allowed {
				time.Sleep(d.RetryAfter)
				if d := tr.take(ask); !d.Allowed {
					tr.Errorf("at retry_after: got denied with %v more to wait, want allowed", d.RetryAfter)
				}
			}
		}
	}},
}

// askRows are what becomes of questions that cannot be answered.
var askRows = []row{
	{name: "what is wrong with a question is an error and changes nothing", check: func(tr *trial) {
		good := tr.of(tr.limit(5), 1)
		tr.want("one of 5", tr.take(good), told{true, 1, 4})
		for what, spoil := range map[string]func(*weir.Ask){
			"no name":              func(a *weir.Ask) { a.Name = "" },
			"the zero key":         func(a *weir.Ask) { a.Key = weir.Key{} },
			"no limit":             func(a *weir.Ask) { a.Limit = weir.Limit{} },
			"unlimited":            func(a *weir.Ask) { a.Limit = weir.Unlimited() },
			"a negative limit":     func(a *weir.Ask) { a.Limit = tr.limit(-1) },
			"a period of 0":        func(a *weir.Ask) { a.Limit = weir.Per(5, 0).By(tr.algorithm) },
			"no such algorithm":    func(a *weir.Ask) { a.Limit = weir.Per(5, year).By(200) },
			"a cost of -1":         func(a *weir.Ask) { a.Cost = -1 },
			"the least cost":       func(a *weir.Ask) { a.Cost = math.MinInt64 },
			"a wait of -1 ns":      func(a *weir.Ask) { a.MaxWait = -1 },
			"a wait over a period": func(a *weir.Ask) { a.MaxWait = year + 1 },
			"the longest wait":     func(a *weir.Ask) { a.MaxWait = math.MaxInt64 },
		} {
			bad := good
			spoil(&bad)
			if d, err := tr.store.Take(tr.Context(), bad); err == nil || d.Allowed {
				tr.Errorf("%s: got the decision %+v and the error %v, want an error and nothing allowed", what, d, err)
			}
			two := make([]weir.Decision, 2)
			if err := tr.store.TakeAll(tr.Context(), []weir.Ask{good, bad}, two); err == nil {
				tr.Errorf("%s beside a good question: got the decisions %+v, want an error", what, two)
			}
			tr.want(what+", and then a peek", tr.peek(good), told{true, 0, 4})
		}
	}},
	{name: "a caller who has already left is told so and not charged or answered in full", check: func(tr *trial) {
		ctx, leave := context.WithCancel(tr.Context())
		leave()
		ask := tr.of(tr.limit(5), 2)
		left := int64(5)
		outcome := func(what string, taken int64, err error) {
			switch {
			case err == nil:
				left -= taken
			case !errors.Is(err, context.Canceled):
				tr.Errorf("%s: got the error %v, want context.Canceled or none", what, err)
			}
			tr.want(what+", and then a peek", tr.peek(ask), told{left > 0, 0, left})
		}
		d, err := tr.store.Take(ctx, ask)
		outcome("take", d.Taken, err)
		both := make([]weir.Decision, 1)
		err = tr.store.TakeAll(ctx, []weir.Ask{ask}, both)
		outcome("take all", both[0].Taken, err)
	}},
}

// keyRows are who is who.
var keyRows = []row{
	{name: "keys never meet, whatever their kind and bytes", check: func(tr *trial) {
		keys := awkwardKeys()
		limit := tr.limit(1)
		for round, want := range []told{{true, 1, 0}, {false, 0, 0}} {
			for i, key := range keys {
				ask := tr.of(limit, 1)
				ask.Key = key
				tr.want(fmt.Sprintf("round %d, key %d (%.60s)", round, i, key), tr.take(ask), want)
			}
		}
	}},
	{name: "the forms of one address are one key", check: func(tr *trial) {
		limit := tr.limit(9)
		left := int64(9)
		for _, form := range []string{"1.2.3.4", "::ffff:1.2.3.4", "::ffff:102:304"} {
			left--
			ask := tr.of(limit, 1)
			ask.Key = addr(form)
			tr.want(form, tr.take(ask), told{true, 1, left})
		}
		ask := tr.of(limit, 1)
		ask.Key = addr("::ffff:9.9.9.9")
		tr.want("another mapped address", tr.take(ask), told{true, 1, 8})
	}},
	{name: "a name and a key never run into each other", check: func(tr *trial) {
		limit := tr.limit(1)
		names := []string{"a", "a:b", "a:b:c", "a_b", "a/b", "a~", "a@", "A", "a:g", "a,b", "a|b", "a*", "a[b", "'a'", "a:", ":a"}
		keys := []string{"c", "b:c", "b", "b_c", "_b", ":b", "a", "", "g", ":", "{", "}", "~", "@"}
		for round, want := range []told{{true, 1, 0}, {false, 0, 0}} {
			for _, name := range names {
				for _, key := range keys {
					ask := weir.Ask{Name: tr.name + name, Key: weir.Text(key), Limit: limit, Cost: 1}
					tr.want(fmt.Sprintf("round %d, name %q, key %q", round, name, key), tr.take(ask), want)
				}
			}
		}
	}},
	{name: "the longest name is a name", check: func(tr *trial) {
		ask := tr.of(tr.limit(1), 1)
		for i, want := range []told{{true, 1, 0}, {false, 0, 0}} {
			for _, end := range []string{"a", "b"} {
				ask.Name = tr.name + strings.Repeat("n", weir.MaxNameLen-1-len(tr.name)) + end
				tr.want(fmt.Sprintf("ask %d", i), tr.take(ask), want)
			}
		}
	}},
}
