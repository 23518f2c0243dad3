package rls

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/lease"
	"weir.dev/weir/server/rules"
)

// backing is what decides limits: the store, behind what asks it less often, and what
// answers in its place. It outlives every configuration, so what it remembers does too.
type backing struct {
	store     weir.Store
	fallback  weir.Store // nil: none
	instances int        // 0: as the rules say
	budget    time.Duration
	log       *slog.Logger

	mu     sync.Mutex
	leases map[leaseOf]*lease.Store
}

// leaseOf says which limits one lease.Store serves: those of the same lease, or of none.
type leaseOf struct {
	rules.Lease
	instances int
}

// limiter returns who decides a limit.
func (b *backing) limiter(l *rules.Limit, shadow bool) (*weir.Limiter, error) {
	store, err := b.storeOf(l)
	if err != nil {
		return nil, err
	}
	opts := weir.Options{Shadow: shadow}
	switch l.Fallback(b.instances) {
	case rules.Local:
		if b.fallback != nil {
			opts.Fallback, opts.Instances = b.fallback, l.InstancesOf(b.instances)
		}
	case rules.Allow:
		opts.OnFailure = weir.FailOpen
	case rules.Deny:
		opts.OnFailure = weir.FailClosed
	}
	limiter, err := weir.New(store, l.StateName, l.Limit, opts)
	if err != nil && opts.Fallback != nil {
		// A request's own limit may be one that cannot be shared; those of rules are
		// checked. With the store there it is as good as any.
		return weir.New(store, l.StateName, l.Limit, weir.Options{Shadow: shadow})
	}
	return limiter, err
}

// storeOf returns the store that a limit asks. A store in memory is asked itself: it is
// faster than what would save it a question.
func (b *backing) storeOf(l *rules.Limit) (weir.Store, error) {
	if b.budget == 0 {
		return b.store, nil
	}
	of := leaseOf{Lease: l.Lease}
	if l.Lease != (rules.Lease{}) {
		of.instances = l.InstancesOf(b.instances)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.leases[of]; ok {
		return known, nil
	}
	store, err := lease.New(b.store, of.options(b.budget))
	if err != nil {
		return nil, err
	}
	// It is kept when no rule needs it any more: there are as many as different leases
	// were ever configured.
	b.leases[of] = store
	return store, nil
}

func (of leaseOf) options(budget time.Duration) lease.Options {
	return lease.Options{Block: of.Max, Instances: of.instances, Refill: of.Refill, Expiry: of.Expiry, Budget: budget}
}

// LeaseBound returns how many units more than the limit itself the instances of the
// service may let pass because of the limit's lease, in any interval, and whether it is
// leased at all: a limit that is small for so many is not.
func LeaseBound(l *rules.Limit, instances int) (more int64, leased bool) {
	of := leaseOf{l.Lease, l.InstancesOf(instances)}
	if of.Max == 0 || of.instances == 0 {
		return 0, false
	}
	// Whether there are leases depends on the capacity alone, but only by GCRA do they
	// have a bound to state.
	alike := weir.Per(l.Units(), l.Period()).Burst(l.Capacity())
	return lease.Bound(l.Limit, of.options(0)), lease.Bound(alike, of.options(0)) > 0
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

// close throws away what is leased.
func (b *backing) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.leases {
		l.Close() // it has nothing to fail at
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
			return context.WithDeadline(ctx, early)
		}
	}
	if b.budget > 0 && several {
		return context.WithDeadline(ctx, latest)
	}
	return ctx, func() {}
}

// roomIn returns how much of the time that a caller has is kept for the answer:
// 15 %, but at least 3 ms, of which the network takes its part, and at most half. Of the 20 ms that a proxy waits by default the store has 17.
func roomIn(left time.Duration) time.Duration {
	return min(max(left*15/100, 3*time.Millisecond), max(left/2, 0))
}
