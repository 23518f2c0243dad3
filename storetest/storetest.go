// Package storetest proves a [weir.Store]: a store is one when it passes [Run].
//
// What it asks for is what the documentation of weir promises: decisions exact to the
// unit and the microsecond, denials that change nothing, keys that never meet, refunds
// that mint nothing, questions about several limits that charge all or none, clocks
// that step back without gain. [Check] judges a history of decisions made elsewhere,
// such as by many processes on one key, or by a store that was cut off for a while.
//
// A store on a real clock shows no more than real time lets be seen. One that also has
// the method
//
//	TakeAt(ctx context.Context, atMicros int64, asks []weir.Ask, decisions []weir.Decision) error
//
// which is TakeAll at a time of the caller's, in microseconds since 1970, is held to
// the reference cases and to everything that depends on time, too.
package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir.dev/weir"
)

// Subject is the store to prove.
type Subject struct {
	// New returns a store. It is called many times, each with the *testing.T of the test
	// that asks the store, whose Cleanup is the place to close it. The stores may share
	// their memory: every test uses names that no other run has used.
	New func(t *testing.T) weir.Store
	// Algorithms are those that the store has; empty means all.
	Algorithms []weir.Algorithm
}

// Run proves the store, in subtests named for an algorithm and what must hold under it:
//
//	func TestMyStore(t *testing.T) {
//		storetest.Run(t, storetest.Subject{
//			New:        func(t *testing.T) weir.Store { return newMyStore(t) },
//			Algorithms: []weir.Algorithm{weir.GCRA, weir.FixedWindow},
//		})
//	}
func Run(t *testing.T, s Subject) {
	t.Helper()
	if s.New == nil {
		t.Fatal("storetest: Subject.New is nil: set it to a function that returns the store")
	}
	all := s.Algorithms
	if len(all) == 0 {
		all = []weir.Algorithm{weir.GCRA, weir.LeakyBucket, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog}
	}
	for _, algorithm := range all {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			shared := s.New(t)
			for _, r := range rows() {
				if r.of != nil && !r.of(algorithm) {
					continue
				}
				t.Run(strings.ReplaceAll(r.name, " ", "_"), func(t *testing.T) {
					tr := newTrial(t, shared, algorithm, all)
					if r.timed {
						if tr.clocked == nil {
							t.Skip("the store has no TakeAt, so it cannot be asked at given times")
						}
						tr.open = func() weir.Store { return s.New(t) }
						tr = tr.afresh()
					}
					r.check(tr)
				})
			}
		})
	}
}

// row is one promise and its proof.
type row struct {
	name  string                    // a sentence
	of    func(weir.Algorithm) bool // nil: every algorithm
	timed bool                      // needs TakeAt
	check func(*trial)
}

// rows returns every promise, the simplest first.
func rows() []row {
	return slices.Concat(caseRows, decisionRows, askRows, keyRows, takeAllRows, waitRows, refundRows, resetRows, changeRows, timeRows, concurrencyRows)
}

// rated says whether the algorithm keeps a rate and a burst; the others count.
func rated(a weir.Algorithm) bool { return a == weir.GCRA || a == weir.LeakyBucket }

func counted(a weir.Algorithm) bool { return !rated(a) }

func only(want weir.Algorithm) func(weir.Algorithm) bool {
	return func(a weir.Algorithm) bool { return a == want }
}

// clocked is a store that can be asked at given times.
type clocked interface {
	TakeAt(ctx context.Context, atMicros int64, asks []weir.Ask, decisions []weir.Decision) error
}

// reporter is what a proof needs of a *testing.T. The suite's own tests have another,
// to see faulty stores fail.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// trial is one promise being put to the test on a name that nobody else uses.
type trial struct {
	reporter
	store     weir.Store
	clocked   clocked // nil if the store has only its own clock
	algorithm weir.Algorithm
	all       []weir.Algorithm // that the store has
	name      string           // of the limit
	open      func() weir.Store
}

var (
	thisRun = fmt.Sprintf("storetest-%08x", rand.Uint32()) // a store may remember other runs
	trials  atomic.Int64
)

func newTrial(r reporter, store weir.Store, algorithm weir.Algorithm, all []weir.Algorithm) *trial {
	c, _ := store.(clocked)
	return &trial{reporter: r, store: store, clocked: c, algorithm: algorithm, all: all, name: newName()}
}

func newName() string { return fmt.Sprintf("%s-%d", thisRun, trials.Add(1)) }

// afresh returns the trial on a store and a name of its own. Given times may go on only
// forward from key to key: a store may take it that its clock does.
func (tr *trial) afresh() *trial {
	own := *tr
	own.store, own.name = tr.open(), newName()
	own.clocked = own.store.(clocked)
	return &own
}

// year is a period in which a test on a real clock sees no time pass.
const year = 366 * 24 * time.Hour

// day is a time at which an aligned window of every period that divides a day begins.
const day = 1_750_032_000_000_000

const second = 1_000_000 // in microseconds

var someone = weir.Text("someone")

// limit returns a limit of units a year by the trial's algorithm.
func (tr *trial) limit(units int64) weir.Limit { return weir.Per(units, year).By(tr.algorithm) }

// burst returns the limit with another burst where its algorithm has one.
func burst(l weir.Limit, units int64) weir.Limit {
	if rated(l.Algorithm()) {
		return l.Burst(units)
	}
	return l
}

// of returns someone's question about a limit.
func (tr *trial) of(limit weir.Limit, cost int64) weir.Ask {
	return weir.Ask{Name: tr.name, Key: someone, Limit: limit, Cost: cost}
}

// take asks the store on its own clock.
func (tr *trial) take(ask weir.Ask) weir.Decision {
	tr.Helper()
	d, err := tr.store.Take(tr.Context(), ask)
	if err != nil {
		tr.Fatalf("take %s: got the error %v, want a decision", show(ask), err)
	}
	tr.sane(ask, d)
	return d
}

// peek is take at no cost.
func (tr *trial) peek(ask weir.Ask) weir.Decision {
	tr.Helper()
	ask.Cost, ask.Partial, ask.MaxWait = 0, false, 0
	return tr.take(ask)
}

// takeAll asks the store several questions on its own clock. What is in decisions
// before must not be there afterwards.
func (tr *trial) takeAll(asks ...weir.Ask) []weir.Decision {
	tr.Helper()
	decisions := make([]weir.Decision, len(asks))
	for i := range decisions {
		decisions[i] = weir.Decision{Taken: -1, Remaining: -1, RetryAfter: -1, ResetAfter: -1, Delay: -1, AtMicros: -1}
	}
	if err := tr.store.TakeAll(tr.Context(), asks, decisions); err != nil {
		tr.Fatalf("take all of %d: got the error %v, want decisions", len(asks), err)
	}
	for i := range asks {
		tr.sane(asks[i], decisions[i])
	}
	return decisions
}

// takeAt asks the store at a given time.
func (tr *trial) takeAt(micros int64, ask weir.Ask) weir.Decision {
	tr.Helper()
	var d [1]weir.Decision
	if err := tr.clocked.TakeAt(tr.Context(), micros, []weir.Ask{ask}, d[:]); err != nil {
		tr.Fatalf("at %d µs take %s: got the error %v, want a decision", micros, show(ask), err)
	}
	tr.sane(ask, d[0])
	return d[0]
}

// peekAt is takeAt at no cost.
func (tr *trial) peekAt(micros int64, ask weir.Ask) weir.Decision {
	tr.Helper()
	ask.Cost, ask.Partial, ask.MaxWait = 0, false, 0
	return tr.takeAt(micros, ask)
}

// refund gives back units of a decision.
func (tr *trial) refund(ask weir.Ask, d weir.Decision, units int64) int64 {
	tr.Helper()
	ask.Cost = units
	got, err := tr.store.Refund(tr.Context(), ask, d)
	if err != nil {
		tr.Fatalf("refund %d of %d units: got the error %v, want none", units, d.Taken, err)
	}
	if got < 0 || got > d.Taken || got > units {
		tr.Errorf("refund %d of %d units: got %d back, want 0 to that", units, d.Taken, got)
	}
	return got
}

func (tr *trial) reset(ask weir.Ask) {
	tr.Helper()
	if err := tr.store.Reset(tr.Context(), ask.Name, ask.Key); err != nil {
		tr.Fatalf("reset: got the error %v, want none", err)
	}
}

// told is the part of a decision that does not depend on the time.
type told struct {
	allowed          bool
	taken, remaining int64
}

func (t told) String() string {
	if t.allowed {
		return fmt.Sprintf("allowed, %d taken, %d remaining", t.taken, t.remaining)
	}
	return fmt.Sprintf("denied, %d taken, %d remaining", t.taken, t.remaining)
}

// want reports a decision that differs.
func (tr *trial) want(what string, d weir.Decision, want told) {
	tr.Helper()
	if got := (told{d.Allowed, d.Taken, d.Remaining}); got != want {
		tr.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// sane reports what no decision may say, whatever was asked.
func (tr *trial) sane(ask weir.Ask, d weir.Decision) {
	tr.Helper()
	var faults []string
	hold := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	hold(d.Cause == nil, "cause %v, want none", d.Cause)
	hold(!d.Shadow, "in shadow, which is for the Limiter to say")
	hold(d.AtMicros > 0, "at %d µs, want the store's clock", d.AtMicros)
	hold(0 <= d.Remaining && d.Remaining <= ask.Limit.Capacity(), "%d remaining, want 0 to %d", d.Remaining, ask.Limit.Capacity())
	hold(0 <= d.Taken && d.Taken <= ask.Cost, "%d taken, want 0 to %d", d.Taken, ask.Cost)
	hold(d.ResetAfter >= 0, "reset after %v, want 0 or more", d.ResetAfter)
	hold(d.Delay >= 0, "a delay of %v, want 0 or more", d.Delay)
	hold(d.Taken == 0 || d.ResetAfter > 0, "%d taken and reset after 0, want more", d.Taken)
	if d.Allowed {
		hold(d.RetryAfter == 0, "allowed and retry after %v, want 0", d.RetryAfter)
	} else {
		hold(d.Taken == 0, "denied and %d taken, want 0", d.Taken)
		hold(d.Delay == 0, "denied and a delay of %v, want 0", d.Delay)
		hold(d.RetryAfter > 0, "denied and retry after %v, want more than 0", d.RetryAfter)
		wanted := max(ask.Cost, 1)
		if ask.Partial {
			wanted = 1
		}
		hold((d.RetryAfter == weir.Never) == (wanted > ask.Limit.Capacity()),
			"retry after %v where %d units of at most %d are asked", d.RetryAfter, wanted, ask.Limit.Capacity())
	}
	for _, f := range faults {
		tr.Errorf("%s: got %s", show(ask), f)
	}
}

// show returns what is asked, in short: a key may be a megabyte.
func show(ask weir.Ask) string {
	s := fmt.Sprintf("%d of %v", ask.Cost, ask.Limit)
	if ask.MaxWait > 0 {
		s += fmt.Sprintf(" waiting %v at most", ask.MaxWait)
	}
	if ask.Partial {
		s += " or fewer"
	}
	return s
}
