package rls

import (
	"context"
	"fmt"
	"math"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
)

// question is the one question that a request is for the store, and what was decided.
// Its steps are match, charge, ask, settle and answer.
type question struct {
	service   *Service
	rules     *ruleset
	request   *Request
	parts     []part // one for each descriptor
	charges   []charge
	decisions []weir.Decision // one for each charge
	apart     bool            // rules of quota_mode are charged by themselves
	refunds   bool            // some charges are
	denied    bool            // known from settle on
}

// part is what one descriptor adds: charges[first : first+count].
type part struct {
	rule         *rule
	first, count int
	hits         int64
	replaced     bool // other rules of the request leave none of its limits
	refund       bool
	over         bool // known from settle on: over a limit that enforces
}

// charge is a limit's part of the question.
type charge struct {
	limit   *limit
	limiter *weir.Limiter
	key     weir.Key
	cost    int64
	refund  bool
}

// match finds the rule for each descriptor. The error is ErrInvalid: a descriptor brings
// a limit that is none; or it is ctx's.
func (q *question) match(ctx context.Context) error {
	for i := range q.request.Descriptors {
		if err := now(ctx, i); err != nil {
			return err
		}
		d := &q.request.Descriptors[i]
		matched := q.rules.match(q.request.Domain, d.Entries)
		if d.Override != nil {
			var err error
			if matched, err = q.rules.override(q.request.Domain, d, matched); err != nil {
				return fmt.Errorf("%w: descriptor %d: %w", ErrInvalid, i, err)
			}
		}
		q.parts[i] = part{rule: matched, hits: q.request.hits(d), refund: d.Refund}
	}
	return nil
}

// hits is the cost of a descriptor: its own, where 0 is a peek, else the request's, where
// 0 is 1. More than any limit could hold is over every limit.
func (r *Request) hits(d *Descriptor) int64 {
	if d.Hits == nil {
		return int64(max(r.Hits, 1))
	}
	return int64(min(*d.Hits, weir.MaxUnits+1))
}

// now is ctx's error at every thousandth step of a long way: a request of very many
// descriptors may take more time than its proxy has.
func now(ctx context.Context, step int) error {
	if step%1000 == 999 {
		return ctx.Err()
	}
	return nil
}

// charge adds the charges of each descriptor's rule. The error is ctx's: then the proxy
// has left, and nobody is charged.
func (q *question) charge(ctx context.Context) error {
	replaced := q.replaced()
	q.apart = q.quotas() > 1
	for i := range q.parts {
		if err := now(ctx, i); err != nil {
			return err
		}
		p := &q.parts[i]
		p.first = len(q.charges)
		switch {
		case len(p.rule.limits) == 0:
		case p.refund && !p.rule.joint:
			// The protocol's refund does not say which decision it undoes, and a refund that
			// is not bound to one mints quota. Charging instead would be worse still.
			q.service.metrics.refunds.Inc()
		default:
			q.chargePart(p, q.request.Descriptors[i].Entries, replaced)
		}
	}
	return ctx.Err()
}

func (q *question) chargePart(p *part, entries []rules.Entry, replaced map[string]bool) {
	c := charge{key: p.rule.key(entries), cost: p.hits, refund: p.refund}
	q.refunds = q.refunds || p.refund
	for n := range p.rule.limits {
		c.limit = &p.rule.limits[n]
		if replaced[c.limit.name] {
			continue
		}
		c.limiter = c.limit.limiter
		if q.apart && p.rule.quota {
			c.limiter = c.limit.apart
		}
		q.charges = append(q.charges, c)
	}
	p.count = len(q.charges) - p.first
	p.replaced = p.count == 0
}

// replaced returns the names of the limits that do not count in this request, since it
// matches rules that replace them.
func (q *question) replaced() map[string]bool {
	if !q.rules.replaces {
		return nil
	}
	names := make(map[string]bool)
	for i := range q.parts {
		if r := q.parts[i].rule; r.Rule != nil {
			for _, name := range r.Replaces {
				names[name] = true
			}
		}
	}
	return names
}

// ask fills in the decisions.
func (q *question) ask(ctx context.Context) (err error) {
	if q.refunds {
		return q.askWithRefunds(ctx)
	}
	switch n := len(q.charges); {
	case n == 0:
		return nil
	case n == 1 && !q.charges[0].compared():
		d, err := q.charges[0].ask(ctx)
		q.decisions = []weir.Decision{d}
		return err
	}
	all := make([]weir.Charge, len(q.charges))
	for i, c := range q.charges {
		all[i] = c.limiter.For(c.key, c.cost)
	}
	_, each, err := weir.TakeAll(ctx, q.withCandidates(all)...)
	if err != nil {
		return err
	}
	q.decisions = each[:len(all)]
	q.compare(each[len(all):])
	return nil
}

// ask is the question of a single charge, which is cheaper than one of several. As in
// weir.TakeAll, a rule in shadow lets pass even what nothing could decide.
func (c *charge) ask(ctx context.Context) (d weir.Decision, err error) {
	if c.cost == 0 {
		d, err = c.limiter.Peek(ctx, c.key)
	} else {
		d, err = c.limiter.Take(ctx, c.key, c.cost)
	}
	if err != nil && c.limit.shadow {
		return weir.Decision{Allowed: true, Shadow: true, Cause: err}, nil
	}
	return d, err
}

// of returns the decisions about one descriptor.
func (q *question) of(p *part) []weir.Decision { return q.decisions[p.first : p.first+p.count] }

// answer puts the decisions into an answer, and counts them.
func (q *question) answer() *Answer {
	a := &Answer{Statuses: make([]Status, len(q.parts)), OverLimit: q.denied}
	for i := range q.parts {
		p, status := &q.parts[i], &a.Statuses[i]
		if p.count == 0 {
			if p.rule.unlimited {
				status.Remaining = math.MaxUint32
			}
			p.rule.series.count(allowed)
			continue
		}
		mine := q.of(p)
		n := tightest(mine)
		c := &q.charges[p.first+n]
		*status = statusOf(&mine[n], c.limit)
		status.OverLimit = p.over
		cost := c.cost
		if p.refund {
			cost = 0 // it takes nothing, and is not held back for that
		}
		p.rule.series.count(outcomeOf(&mine[n], cost))
		q.count(i, &mine[n], c.limit)
		for _, d := range mine {
			a.Delay = max(a.Delay, d.Delay)
		}
	}
	if a.OverLimit && q.service.opts.Shadow {
		a.OverLimit = false
		q.service.counts.shadowMode.Add(1)
	}
	q.explain(a)
	q.decorate(a)
	return a
}

// explain says who decided and, where it was not the store, why.
func (q *question) explain(a *Answer) {
	if len(q.decisions) == 0 {
		return
	}
	s := q.service
	source, cause := weir.FromStore, ""
	for i := range q.decisions {
		d := &q.decisions[i]
		source = max(source, d.Source)
		if d.Cause == nil {
			continue
		}
		class := s.classOf(d.Cause)
		s.metrics.fallbacks.WithLabelValues(class).Inc()
		if cause == "" {
			cause = class
		}
	}
	if s.opts.Compat == nil { // the original does not tell
		a.Source, a.Cause = source.String(), cause
	}
}

// decorate adds what answers carry on request: metadata and headers.
func (q *question) decorate(a *Answer) {
	if q.service.opts.Metadata {
		a.Metadata = q.metadata()
	}
	h := q.service.opts.Headers
	h.Draft11 = h.Draft11 || q.request.Draft11
	if h.Counts || h.Draft11 {
		a.Headers = q.headers(a, &h)
	}
}

// countFailed counts the descriptors for which nothing could decide.
func (q *question) countFailed() {
	for i := range q.parts {
		if p := &q.parts[i]; p.count > 0 {
			p.rule.series.count(failed)
			q.named(i).add(totalHits, p.hits)
		}
	}
}

// tightest returns which of a descriptor's decisions its status tells: of the denied the
// one to wait for longest, else the one with the fewest units left.
func tightest(decisions []weir.Decision) int {
	best := 0
	for i := 1; i < len(decisions); i++ {
		d, b := &decisions[i], &decisions[best]
		dDenied, bDenied := !d.Allowed || d.Shadow, !b.Allowed || b.Shadow
		switch {
		case dDenied != bDenied:
			if dDenied {
				best = i
			}
		case dDenied:
			if d.RetryAfter > b.RetryAfter {
				best = i
			}
		case d.Remaining < b.Remaining:
			best = i
		}
	}
	return best
}

func statusOf(d *weir.Decision, l *limit) Status {
	if d.Allowed && d.Source == weir.FromPolicy {
		return Status{} // nobody knows what is left
	}
	return Status{
		Limit:        l.named,
		Remaining:    uint32(min(d.Remaining, math.MaxUint32)),
		ResetSeconds: l.resetSeconds(d),
	}
}

// resetSeconds is how long a proxy tells its client to wait, in whole seconds, at least
// 1: rounded down or left out, clients would come back at once. What no waiting helps
// is told to wait a period. The original's counters always tell when their window ends.
func (l *limit) resetSeconds(d *weir.Decision) int64 {
	wait := waitFor(d)
	switch {
	case l.joint && d.ResetAfter > 0:
		wait = d.ResetAfter
	case wait == weir.Never:
		wait = l.limiter.Limit().Period()
	}
	return max(seconds(wait), 1)
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// outcomeOf is the outcome as metrics count it.
func outcomeOf(d *weir.Decision, cost int64) outcome {
	switch {
	case undecided(d):
		return failed
	case d.Shadow:
		return shadowed
	case !d.Allowed:
		return denied
	case d.Taken == 0 && cost > 0 && d.Source != weir.FromPolicy:
		return heldBack
	}
	return allowed
}

// undecided reports whether nothing decided, and a limit in shadow let it pass.
func undecided(d *weir.Decision) bool {
	return d.Shadow && d.AtMicros == 0 && d.Source != weir.FromFallback
}
