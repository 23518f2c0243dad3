package rls

import (
	"context"
	"errors"
	"strings"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
)

// Compat makes a service answer as envoyproxy/ratelimit does: each descriptor is charged
// by itself, an addend of 0 at a full limit passes, is_negative_hits gives back, key and
// value match joined by "_", and errors have its codes.
type Compat struct {
	// Counters are what the service shares with the original, by the text of its keys:
	// they decide the limits for which nothing names an algorithm. Rules that name one
	// are decided by the service's own store.
	Counters Counters
}

// Counters count as the original does: redisstore.Counters and memstore.Counters.
type Counters interface {
	weir.Store
	// GiveBack takes ask.Cost off a counter, but not below 0, and says what is there then.
	GiveBack(ctx context.Context, ask weir.Ask) (weir.Decision, error)
}

// joint reports whether the limits of a rule are counted together with the original.
// Several limits would share one counter there, and so would those without whole seconds.
func joint(r *rules.Rule) bool {
	if len(r.Limits) != 1 {
		return false
	}
	l := &r.Limits[0]
	return l.ByDefault && l.Period()%time.Second == 0
}

// jointKey returns who a descriptor is, as the original's key says it up to the time.
func jointKey(r *rules.Rule, entries []rules.Entry) weir.Key {
	var b strings.Builder
	n := len(r.Domain) + 1
	for _, e := range entries {
		n += len(e.Key) + len(e.Value) + 2
	}
	b.Grow(n)
	b.WriteString(r.Domain)
	b.WriteByte('_')
	for i, e := range entries {
		value := e.Value
		if i < len(r.Shared) && r.Shared[i] != "" {
			value = r.Shared[i]
		}
		b.WriteString(e.Key)
		b.WriteByte('_')
		b.WriteString(value)
		b.WriteByte('_')
	}
	return weir.Text(b.String())
}

// askWithRefunds is ask where some charges give back what is_negative_hits says. These go
// first; they are always allowed.
func (q *question) askWithRefunds(ctx context.Context) error {
	q.decisions = make([]weir.Decision, len(q.charges))
	rest := question{}
	var at []int // in q.charges
	for i, c := range q.charges {
		if !c.refund {
			rest.charges, at = append(rest.charges, c), append(at, i)
			continue
		}
		var err error
		if q.decisions[i], err = q.service.giveBack(ctx, &c); err != nil {
			return err
		}
	}
	if err := rest.ask(ctx); err != nil {
		return err
	}
	for n, i := range at {
		q.decisions[i] = rest.decisions[n]
	}
	return nil
}

// giveBack is the question of a refund, measured as watchedStore measures the others.
func (s *Service) giveBack(ctx context.Context, c *charge) (weir.Decision, error) {
	start := time.Now()
	ask := weir.Ask{Name: c.limiter.Name(), Key: c.key, Limit: c.limiter.Limit(), Cost: c.cost}
	d, err := s.opts.Compat.Counters.GiveBack(ctx, ask)
	s.metrics.commands.Observe(time.Since(start).Seconds())
	if err == nil {
		return d, nil
	}
	s.backing.counters.note(ctx, err)
	if errors.Is(ctx.Err(), context.Canceled) {
		return d, err
	}
	return c.limit.refundWithout(err)
}

// refundWithout answers a refund that the store has not taken as the limit says for all that
// the store cannot decide, or with the error, as the original does, where it says nothing. A
// share of the limit has none of its units to take back.
func (l *limit) refundWithout(cause error) (weir.Decision, error) {
	switch {
	case l.shadow:
		return weir.Decision{Allowed: true, Shadow: true, Cause: cause}, nil
	case l.onStoreError == rules.Unsaid:
		return weir.Decision{}, cause
	case l.onStoreError == rules.Deny:
		return weir.Decision{RetryAfter: time.Second, Source: weir.FromPolicy, Cause: cause}, nil
	}
	return weir.Decision{Allowed: true, Source: weir.FromPolicy, Cause: cause}, nil
}
