package rls

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/lease"
	"weir.dev/weir/server/rules"
)

// backing is what decides limits: the store, behind what asks it less often, and what
// answers in its place. It outlives every configuration.
type backing struct {
	store     weir.Store
	counters  *watchedStore // of Compat, or nil
	fallback  weir.Store    // nil: none
	instances int           // 0: as the rules say
	budget    time.Duration
	alone     bool // each descriptor is charged by itself
	log       *slog.Logger

	mu     sync.Mutex
	fronts fronts
	past   lease.Stats // of those that are closed
}

// fronts are the stores in front of the store, by how many instances share what they
// lease. The limits of a domain have one in common, so that those of a request are one
// question.
type fronts map[int]*front

type front struct {
	*lease.Store
	terms map[string]lease.Terms // by the limit's name
}

// frontsFor returns what limits of the configuration ask: those there are, where their
// terms are the same, with all that they hold. A store in memory is asked itself: it is
// faster than what would save it a question.
func (b *backing) frontsFor(config *rules.Config) (fronts, error) {
	next := make(fronts)
	if b.budget == 0 {
		return next, nil
	}
	terms := make(map[int]map[string]lease.Terms)
	for _, r := range config.Rules() {
		if b.counters != nil && joint(r) {
			continue
		}
		for i := range r.Limits {
			l := &r.Limits[i]
			n := l.InstancesOf(b.instances)
			if terms[n] == nil {
				terms[n] = make(map[string]lease.Terms)
			}
			if l.Lease != (rules.Lease{}) {
				terms[n][l.StateName] = termsOf(l)
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, named := range terms {
		if f := b.fronts[n]; f != nil && maps.Equal(f.terms, named) {
			next[n] = f
			continue
		}
		store, err := lease.New(b.store, lease.Options{Instances: n, Named: named, Budget: b.budget})
		if err != nil {
			return nil, err
		}
		next[n] = &front{store, named}
	}
	return next, nil
}

func termsOf(l *rules.Limit) lease.Terms {
	return lease.Terms{Block: l.Lease.Max, Refill: l.Lease.Refill, Expiry: l.Lease.Expiry}
}

// use makes next the fronts, and closes those that are not among them.
func (b *backing) use(next fronts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, f := range b.fronts {
		if next[n] != f {
			f.Close() // it has nothing to fail at
			st := f.Stats()
			st.Keys = 0
			b.past = sum(b.past, st)
		}
	}
	b.fronts = next
}

// limiter returns who decides a limit: joint ones the counters, others the store. It adds
// to opts what happens when that cannot.
func (b *backing) limiter(l *rules.Limit, joint bool, opts weir.Options, all fronts) (*weir.Limiter, error) {
	store := b.store
	if f := all[l.InstancesOf(b.instances)]; joint {
		store = b.counters
	} else if f != nil {
		store = f
	}
	without := opts
	switch policy := l.Fallback(b.instances); {
	case b.counters != nil && l.OnStoreError == rules.Unsaid: // an error, as in the original
	case policy == rules.Local:
		if b.fallback != nil {
			opts.Fallback, opts.Instances = b.fallback, l.InstancesOf(b.instances)
		}
	case policy == rules.Allow:
		opts.OnFailure = weir.FailOpen
	case policy == rules.Deny:
		opts.OnFailure = weir.FailClosed
	}
	limiter, err := weir.New(store, l.StateName, l.Limit, opts)
	if err != nil && opts.Fallback != nil {
		// A request's own limit may be one that cannot be shared; those of rules are
		// checked. With the store there it is as good as any.
		return weir.New(store, l.StateName, l.Limit, without)
	}
	return limiter, err
}

// LeaseBound returns how many units more than the limit itself the instances of the
// service may let pass because of the limit's lease, in any interval, and whether it is
// leased at all: a limit that is small for so many is not.
func LeaseBound(l *rules.Limit, instances int) (more int64, leased bool) {
	n, terms := l.InstancesOf(instances), termsOf(l)
	if terms.Block == 0 || n == 0 {
		return 0, false
	}
	opts := lease.Options{Block: terms.Block, Refill: terms.Refill, Expiry: terms.Expiry, Instances: n}
	// Whether there are leases depends on the capacity alone, but only by GCRA do they
	// have a bound to state.
	alike := weir.Per(l.Units(), l.Period()).Burst(l.Capacity())
	return lease.Bound(l.Limit, opts), lease.Bound(alike, opts) > 0
}

// warnOfLeases logs which leases of the rules have no effect.
func (b *backing) warnOfLeases(config *rules.Config) {
	for _, r := range config.Rules() {
		for i := range r.Limits {
			l := &r.Limits[i]
			if l.Lease == (rules.Lease{}) {
				continue
			}
			if b.budget == 0 {
				b.log.Warn("a lease has no effect: the store is in memory", "limit", l.StateName)
			} else if _, ok := LeaseBound(l, b.instances); !ok {
				b.log.Warn("a lease has no effect: a twentieth of the limit is less than a unit for each instance", "limit", l.StateName,
					"instances", l.InstancesOf(b.instances))
			}
		}
	}
}

// shorten returns ctx with the deadline of a request's questions to the store: no later
// than leaves time for an answer without it, and, where there are several, no later than
// the budget, which each of them may use up. The fallback, in memory, does not look at it.
func (b *backing) shorten(ctx context.Context, several bool) (context.Context, context.CancelFunc) {
	now := time.Now()
	latest := now.Add(b.budget)
	if deadline, ok := ctx.Deadline(); ok {
		if early := deadline.Add(-roomIn(deadline.Sub(now))); early.Before(latest) {
			return endingAt(ctx, early)
		}
	}
	if b.budget > 0 && several {
		return endingAt(ctx, latest)
	}
	return ctx, func() {}
}

// early is a context that ends before its parent. The store looks at its Deadline, and has
// a clock of its own; one that ends by itself is made for those who wait for it to end.
type early struct {
	context.Context // the parent
	at              time.Time
	mu              sync.Mutex
	ending          context.Context // nil until it is asked for
	cancel          context.CancelFunc
}

func endingAt(parent context.Context, at time.Time) (context.Context, context.CancelFunc) {
	e := &early{Context: parent, at: at}
	return e, e.end
}

// Deadline implements context.Context.
func (e *early) Deadline() (time.Time, bool) { return e.at, true }

// Done implements context.Context.
func (e *early) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ending == nil {
		e.ending, e.cancel = context.WithDeadline(e.Context, e.at)
	}
	return e.ending.Done()
}

// Err implements context.Context.
func (e *early) Err() error {
	e.mu.Lock()
	ending := e.ending
	e.mu.Unlock()
	switch {
	case ending != nil:
		return ending.Err()
	case e.Context.Err() != nil:
		return e.Context.Err()
	case !time.Now().Before(e.at):
		return context.DeadlineExceeded
	}
	return nil
}

func (e *early) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cancel != nil {
		e.cancel()
	}
}

// roomIn returns how much of the time that a caller has is kept for the answer:
// 15 %, but at least 3 ms, of which the network takes its part, and at most half. Of the
// 20 ms that a proxy waits by default the store has 17.
func roomIn(left time.Duration) time.Duration {
	return min(max(left*15/100, 3*time.Millisecond), max(left/2, 0))
}
