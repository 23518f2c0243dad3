// Package rls answers Envoy's rate limit protocol, envoy.service.ratelimit.v3: over
// gRPC, and as protobuf JSON over HTTP.
//
// A request is decoded, each of its descriptors is matched to a rule, and the limits of
// all those rules are one question to the store, all or nothing: a request that one of
// them refuses is charged to none.
package rls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
)

// ErrInvalid is in every error that is the request's own fault: it would fail again.
var ErrInvalid = errors.New("the request cannot be answered")

// Service decides requests by rules. It is safe for concurrent use.
type Service struct {
	backing *backing
	log     *slog.Logger
	metrics *metrics
	classOf func(error) string
	setting sync.Mutex // rules
	current atomic.Pointer[ruleset]
	faults  sampler // of the log
}

// Options of a Service.
type Options struct {
	Registry prometheus.Registerer // where its metrics are registered; nil: nowhere
	Log      *slog.Logger          // nil: no log
	// StoreErrorClass names the kind of a store's error, for metrics; the names are a
	// closed set, and "" is one that it does not know. Nil knows none.
	StoreErrorClass func(error) string

	// Budget is the longest that the store takes for one question. Where it is 0 the
	// store is in memory: it cannot fail, and nothing is put in front of it. Else
	// callers of one key share questions, denials are remembered, rules may have leases,
	// and a caller's deadline leaves time for an answer without the store.
	Budget time.Duration
	// Fallback decides what the store cannot, for rules that say local or nothing: a
	// store in memory. It lives as long as the service, so that nothing is granted twice
	// to a store that comes and goes.
	Fallback weir.Store
	// Instances is how many instances of the service share the limits, in place of what
	// the rules say; 0 is not known.
	Instances int
}

// New returns a service that keeps its counters in store. Until SetRules it can decide
// nothing. The error says that the metrics cannot be registered.
func New(store weir.Store, opts Options) (*Service, error) {
	m := newMetrics()
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{log: opts.Log, metrics: m, classOf: func(err error) string { return classOf(err, opts.StoreErrorClass) }}
	s.backing = &backing{
		store:     &watchedStore{Store: store, metrics: m, log: opts.Log, classOf: s.classOf},
		fallback:  opts.Fallback,
		instances: opts.Instances,
		budget:    opts.Budget,
		log:       opts.Log,
	}
	if opts.Registry != nil {
		if err := m.register(opts.Registry, leaseMetrics{s.backing}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// SetRules makes the service decide by config from now on. Requests under way end by the
// rules that they began with. The error is rules.Faults where limits need to know how
// many instances share them; after an error the rules are what they were.
func (s *Service) SetRules(config *rules.Config) error {
	s.setting.Lock()
	defer s.setting.Unlock()
	next, err := compile(config, s.backing, s.metrics)
	if err != nil {
		return err
	}
	s.backing.warnOfLeases(config)
	defer s.backing.use(next.fronts)
	if old := s.current.Swap(next); old != nil {
		s.metrics.forget(old, next)
	}
	return nil
}

// Close ends what works in the background, and throws away what is leased. Requests may
// still come.
func (s *Service) Close() { s.backing.use(nil) }

// Rules returns the rules by which the service decides, or nil before SetRules.
func (s *Service) Rules() *rules.Config {
	if rs := s.current.Load(); rs != nil {
		return rs.config
	}
	return nil
}

// Decide answers one request. The error says why nothing could be decided: ErrInvalid is
// in it if the request is at fault, and ctx's error if ctx ended first; then nothing was
// charged as far as is known.
func (s *Service) Decide(ctx context.Context, r *Request) (*Answer, error) {
	start := time.Now()
	answer, err := s.decide(ctx, r)
	s.metrics.duration.Observe(time.Since(start).Seconds())
	if err != nil {
		s.noteFailure(err)
	}
	return answer, err
}

// noteFailure counts a request that got no answer. Requests can fail as fast as clients
// send them, so the log has one a second; the store's own failures are logged there.
func (s *Service) noteFailure(err error) {
	if !errors.Is(err, ErrInvalid) {
		return
	}
	s.metrics.invalid.Inc()
	if s.faults.ready(time.Now()) {
		s.log.Warn("a request was refused; others within a second are only counted", "error", err)
	}
}

func (s *Service) decide(ctx context.Context, r *Request) (*Answer, error) {
	rs := s.current.Load()
	switch {
	case rs == nil:
		return nil, errors.New("no rules are loaded yet")
	case r.Domain == "":
		return nil, fmt.Errorf("%w: its domain is empty: name a domain of the configuration", ErrInvalid)
	case len(r.Descriptors) == 0:
		return nil, fmt.Errorf("%w: it has no descriptors: send at least one", ErrInvalid)
	}
	q := question{parts: make([]part, len(r.Descriptors))}
	for i := range r.Descriptors {
		if err := s.prepare(rs, r, i, &q); err != nil {
			return nil, fmt.Errorf("%w: descriptor %d: %w", ErrInvalid, i, err)
		}
	}
	if err := ctx.Err(); err != nil { // the proxy has left: charge nobody
		return nil, err
	}
	early, end := s.backing.shorten(ctx, len(q.charges) > 1)
	defer end()
	decisions, err := q.ask(early)
	if err != nil {
		q.countFailed()
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		return nil, err
	}
	answer := q.answer(decisions)
	s.explain(answer, decisions)
	return answer, nil
}

// explain says who decided and, where it was not the store, why.
func (s *Service) explain(a *Answer, decisions []weir.Decision) {
	if len(decisions) == 0 {
		return
	}
	source := weir.FromStore
	for i := range decisions {
		d := &decisions[i]
		source = max(source, d.Source)
		if d.Cause == nil {
			continue
		}
		class := s.classOf(d.Cause)
		s.metrics.fallbacks.WithLabelValues(class).Inc()
		if a.Cause == "" {
			a.Cause = class
		}
	}
	a.Source = source.String()
}

// prepare matches descriptor i and adds the charges of its rule to the question.
func (s *Service) prepare(rs *ruleset, r *Request, i int, q *question) error {
	d := &r.Descriptors[i]
	matched := rs.match(r.Domain, d.Entries)
	if d.Override != nil {
		var err error
		if matched, err = rs.override(r.Domain, d, matched); err != nil {
			return err
		}
	}
	p := &q.parts[i]
	p.rule, p.first = matched, len(q.charges)
	if d.Refund {
		// The protocol's refund does not say which decision it undoes, and a refund that
		// is not bound to one mints quota. Charging instead would be worse still.
		s.metrics.refunds.Inc()
		return nil
	}
	if len(matched.limits) == 0 {
		return nil
	}
	key, cost := matched.Key(d.Entries), hits(r, d)
	for n := range matched.limits {
		q.charges = append(q.charges, charge{limiter: matched.limits[n].limiter, key: key, cost: cost, shadow: matched.Shadow})
	}
	p.count = len(matched.limits)
	return nil
}

// hits is the cost of a descriptor: its own, where 0 is a peek, else the request's,
// where 0 is 1. More than any limit could hold is over every limit.
func hits(r *Request, d *Descriptor) int64 {
	if d.Hits != nil {
		return int64(min(*d.Hits, math.MaxInt64))
	}
	return int64(max(r.Hits, 1))
}

// question is the one question that a request is for the store.
type question struct {
	parts   []part // one for each descriptor
	charges []charge
}

// part is what one descriptor adds: charges[first : first+count].
type part struct {
	rule         *rule
	first, count int
}

type charge struct {
	limiter *weir.Limiter
	key     weir.Key
	cost    int64
	shadow  bool
}

// ask returns the decision for each charge.
func (q *question) ask(ctx context.Context) ([]weir.Decision, error) {
	switch len(q.charges) {
	case 0:
		return nil, nil
	case 1:
		d, err := q.charges[0].ask(ctx)
		if err != nil {
			return nil, err
		}
		return []weir.Decision{d}, nil
	}
	all := make([]weir.Charge, len(q.charges))
	for i, c := range q.charges {
		all[i] = c.limiter.For(c.key, c.cost)
	}
	_, each, err := weir.TakeAll(ctx, all...)
	return each, err
}

// ask is the question of a single charge, which is cheaper than one of several. As in
// weir.TakeAll, a rule in shadow lets pass even what nothing could decide.
func (c *charge) ask(ctx context.Context) (d weir.Decision, err error) {
	if c.cost == 0 {
		d, err = c.limiter.Peek(ctx, c.key)
	} else {
		d, err = c.limiter.Take(ctx, c.key, c.cost)
	}
	if err != nil && c.shadow {
		return weir.Decision{Allowed: true, Shadow: true, Cause: err}, nil
	}
	return d, err
}

// answer puts the decisions into an answer, and counts them.
func (q *question) answer(decisions []weir.Decision) *Answer {
	a := &Answer{Statuses: make([]Status, len(q.parts))}
	for i, p := range q.parts {
		status := &a.Statuses[i]
		if p.count == 0 {
			if p.rule.unlimited {
				status.Remaining = math.MaxUint32
			}
			p.rule.series.count(allowed)
			continue
		}
		mine := decisions[p.first : p.first+p.count]
		n := tightest(mine)
		*status = statusOf(&mine[n], &p.rule.limits[n])
		p.rule.series.count(outcomeOf(&mine[n], q.charges[p.first].cost))
		a.OverLimit = a.OverLimit || status.OverLimit
		for _, d := range mine {
			a.Delay = max(a.Delay, d.Delay)
		}
	}
	return a
}

// countFailed counts the descriptors for which nothing could decide.
func (q *question) countFailed() {
	for _, p := range q.parts {
		if p.count > 0 {
			p.rule.series.count(failed)
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
		OverLimit:    !d.Allowed,
		Limit:        l.named,
		Remaining:    uint32(min(d.Remaining, math.MaxUint32)),
		ResetSeconds: resetSeconds(d, l.limiter.Limit()),
	}
}

// resetSeconds is how long a proxy tells its client to wait, in whole seconds, at least
// 1: rounded down or left out, clients would come back at once. What no waiting helps
// is told to wait a period.
func resetSeconds(d *weir.Decision, limit weir.Limit) int64 {
	wait := d.ResetAfter
	if !d.Allowed || d.Shadow {
		wait = d.RetryAfter
	}
	if wait == weir.Never {
		wait = limit.Period()
	}
	return max(int64((wait+time.Second-1)/time.Second), 1)
}

// outcomeOf is the outcome as metrics count it.
func outcomeOf(d *weir.Decision, cost int64) outcome {
	switch {
	case d.Shadow && d.AtMicros == 0 && d.Source != weir.FromFallback: // nothing decided, and shadow let it pass
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
