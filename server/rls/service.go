// Package rls answers Envoy's rate limit protocol, envoy.service.ratelimit.v3: over
// gRPC, and as protobuf JSON over HTTP.
//
// A request is decoded, each of its descriptors is matched to a rule, and the limits of
// all those rules are one question to the store, all or nothing: a request that one of
// them denies is charged to none. With Options.Compat it is as in envoyproxy/ratelimit:
// each descriptor is charged by itself, whatever becomes of the others.
package rls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/stats"
)

// ErrInvalid is in every error that is the request's own fault: it would fail again.
var ErrInvalid = errors.New("the request cannot be answered")

var (
	errNoRules       = errors.New("no rate limit configuration loaded")
	errNoDomain      = fmt.Errorf("%w: rate limit domain must not be empty: name a domain of the configuration", ErrInvalid)
	errNoDescriptors = fmt.Errorf("%w: rate limit descriptor list must not be empty: send at least one", ErrInvalid)
)

// Service decides requests by rules. It is safe for concurrent use.
type Service struct {
	opts    Options
	backing *backing
	log     *slog.Logger
	metrics *metrics
	counts  serviceCounts
	classOf func(error) string
	setting sync.Mutex // rules
	current atomic.Pointer[ruleset]
	faults  sampler // of the log
}

// Options of a Service.
type Options struct {
	Registry prometheus.Registerer // where its metrics are registered; nil: nowhere
	Log      *slog.Logger          // nil: no log
	// Stats are where requests are counted by the original's names; nil counts nothing.
	Stats *stats.Registry
	// NearLimitRatio is the share of a limit from which hits are counted as near it, 0 to
	// 1. 0 is 0.8.
	NearLimitRatio float32
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

	// Compat makes the service answer as envoyproxy/ratelimit does; nil: it does not.
	Compat *Compat
	// Shadow lets every request pass, whatever its descriptors' codes say, and charges
	// each descriptor by itself.
	Shadow bool
	// Quota makes every rule one of quota_mode.
	Quota bool
	// Metadata makes answers carry the request, and the metadata of the rules that it
	// passed, as dynamic metadata.
	Metadata bool
	// Headers are those that answers carry.
	Headers Headers
}

// New returns a service that keeps its counters in store. Until SetRules it can decide
// nothing. The error says which options are wrong, or that the metrics cannot be
// registered.
func New(store weir.Store, opts Options) (*Service, error) {
	if err := opts.fill(); err != nil {
		return nil, fmt.Errorf("rls.New: %w", err)
	}
	m := newMetrics()
	s := &Service{opts: opts, log: opts.Log, metrics: m, classOf: func(err error) string { return classOf(err, opts.StoreErrorClass) }}
	s.counts = newServiceCounts(opts.Stats)
	s.backing = &backing{
		store:     s.watch(store),
		fallback:  opts.Fallback,
		instances: opts.Instances,
		budget:    opts.Budget,
		alone:     opts.Shadow || opts.Compat != nil,
		log:       opts.Log,
	}
	if opts.Compat != nil {
		s.backing.counters = s.watch(opts.Compat.Counters)
	}
	if opts.Registry != nil {
		if err := m.register(opts.Registry, leaseMetrics{s.backing}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// fill puts defaults in the place of what is zero. The error says what is wrong.
func (o *Options) fill() error {
	var errs []error
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.NearLimitRatio == 0 {
		o.NearLimitRatio = 0.8
	}
	if !(o.NearLimitRatio > 0 && o.NearLimitRatio <= 1) {
		errs = append(errs, fmt.Errorf("a near limit ratio of %v: write a share above 0 and up to 1, such as 0.8", o.NearLimitRatio))
	}
	if o.Compat != nil && o.Compat.Counters == nil {
		errs = append(errs, errors.New("compat without counters: pass the store that shares them with the original"))
	}
	return errors.Join(append(errs, o.Headers.fill()...)...)
}

// SetRules makes the service decide by config from now on. Requests under way end by the
// rules that they began with. The error is rules.Faults where limits need to know how
// many instances share them; after an error the rules are what they were.
func (s *Service) SetRules(config *rules.Config) error {
	s.setting.Lock()
	defer s.setting.Unlock()
	next, err := s.compile(config)
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
	answer, _, err := s.timed(ctx, r)
	return answer, err
}

// timed is Decide, and how long it took.
func (s *Service) timed(ctx context.Context, r *Request) (*Answer, time.Duration, error) {
	start := time.Now()
	answer, err := s.decide(ctx, r)
	took := time.Since(start)
	s.metrics.duration.Observe(took.Seconds())
	if err != nil {
		s.noteFailure(ctx, err)
	}
	return answer, took, err
}

// noteFailure counts a request that got no answer. Requests can fail as fast as clients
// send them, so the log has one a second; the store's own failures are logged there.
func (s *Service) noteFailure(ctx context.Context, err error) {
	switch {
	case errors.Is(err, ErrInvalid):
		s.metrics.invalid.Inc()
		s.counts.serviceError.Add(1)
	case errors.Is(err, errNoRules):
		s.counts.serviceError.Add(1)
		return
	case !errors.Is(ctx.Err(), context.Canceled):
		s.counts.redisError.Add(1)
		return
	default:
		return
	}
	if s.faults.ready(time.Now()) {
		s.log.Warn("a request was refused; others within a second are only counted", "error", err)
	}
}

func (s *Service) decide(ctx context.Context, r *Request) (*Answer, error) {
	rs := s.current.Load()
	switch {
	case r.Domain == "":
		return nil, errNoDomain
	case len(r.Descriptors) == 0:
		return nil, errNoDescriptors
	case rs == nil:
		return nil, errNoRules
	}
	q := question{service: s, rules: rs, request: r, parts: make([]part, len(r.Descriptors))}
	if err := q.match(ctx); err != nil {
		return nil, err
	}
	if err := q.charge(ctx); err != nil {
		return nil, err
	}
	early, end := s.backing.shorten(ctx, len(q.charges) > 1)
	defer end()
	if err := q.ask(early); err != nil {
		q.countFailed()
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		return nil, err
	}
	q.settle(early)
	return q.answer(), nil
}
