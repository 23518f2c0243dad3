package rls

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir.dev/weir"
)

// outcome is what became of one descriptor.
type outcome int

const (
	allowed  outcome = iota // charged, or no limit applied
	denied                  // over the limit
	shadowed                // over a limit that does not enforce yet
	heldBack                // within its limit, but not charged: another descriptor was denied
	failed                  // nothing could decide
)

var outcomes = [...]string{"allowed", "denied", "shadow", "held_back", "error"}

// metrics are the service's. Every label is from the configuration or from a list here:
// never an entry's value, nor a domain that the configuration does not have.
type metrics struct {
	decisions  *prometheus.CounterVec
	rejections *prometheus.CounterVec
	duration   prometheus.Histogram
	invalid    prometheus.Counter
	refunds    prometheus.Counter

	commands    prometheus.Histogram
	storeErrors *prometheus.CounterVec
}

// The slowest bucket that a proxy waits for by default is 20 ms.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .02, .05, .1, .25, 1}

func newMetrics() *metrics {
	labels := []string{"domain", "rule", "outcome"}
	return &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limit_decisions_total",
			Help: "Descriptors decided, by what became of them. The rule is empty where none matched, the domain where the configuration does not have it.",
		}, labels),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limit_rejections_total",
			Help: "Descriptors over their limit: denied, or let through by a rule in shadow.",
		}, labels),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "rate_limit_decision_duration_seconds",
			Help:    "Time to decide one request, whatever its descriptors.",
			Buckets: buckets,
		}),
		invalid: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limit_invalid_requests_total",
			Help: "Requests refused because they make no sense or are too large.",
		}),
		refunds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limit_ignored_refunds_total",
			Help: "Descriptors with is_negative_hits, which are answered OK and change nothing.",
		}),
		commands: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "rate_limit_command_duration_seconds",
			Help:    "Time of one question to the store.",
			Buckets: buckets,
		}),
		storeErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limit_store_errors_total",
			Help: "Questions that the store could not answer, by the class of the error.",
		}, []string{"class"}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	var errs []error
	for _, c := range []prometheus.Collector{m.decisions, m.rejections, m.duration, m.invalid, m.refunds, m.commands, m.storeErrors} {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// series are the counters of one rule. They are found once, when rules are loaded.
type series struct {
	domain, rule string
	decisions    [len(outcomes)]prometheus.Counter
	rejections   [len(outcomes)]prometheus.Counter // nil where the outcome is no rejection
}

func (m *metrics) series(domain, rule string) *series {
	s := &series{domain: strings.ToValidUTF8(domain, "�"), rule: strings.ToValidUTF8(rule, "�")}
	for i, name := range outcomes {
		s.decisions[i] = m.decisions.WithLabelValues(s.domain, s.rule, name)
		if o := outcome(i); o == denied || o == shadowed {
			s.rejections[i] = m.rejections.WithLabelValues(s.domain, s.rule, name)
		}
	}
	return s
}

func (s *series) count(o outcome) {
	s.decisions[o].Inc()
	if s.rejections[o] != nil {
		s.rejections[o].Inc()
	}
}

// forget drops the series of rules that next no longer has, so that reloads do not
// add up.
func (m *metrics) forget(old, next *ruleset) {
	type name struct{ domain, rule string }
	keep := make(map[name]bool)
	next.each(func(s *series) { keep[name{s.domain, s.rule}] = true })
	old.each(func(s *series) {
		if !keep[name{s.domain, s.rule}] {
			labels := prometheus.Labels{"domain": s.domain, "rule": s.rule}
			m.decisions.DeletePartialMatch(labels)
			m.rejections.DeletePartialMatch(labels)
		}
	})
}

func (rs *ruleset) each(visit func(*series)) {
	visit(rs.unknown.series)
	for _, r := range rs.unmatched {
		visit(r.series)
	}
	for _, r := range rs.rules {
		visit(r.series)
	}
}

// watchedStore measures the questions to a store.
type watchedStore struct {
	weir.Store
	metrics *metrics
	log     *slog.Logger
	class   func(error) string
	faults  sampler
}

func (w *watchedStore) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	start := time.Now()
	d, err := w.Store.Take(ctx, ask)
	w.metrics.commands.Observe(time.Since(start).Seconds())
	if err != nil || d.Cause != nil {
		w.note(errors.Join(err, d.Cause))
	}
	return d, err
}

func (w *watchedStore) TakeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	start := time.Now()
	err := w.Store.TakeAll(ctx, asks, decisions)
	w.metrics.commands.Observe(time.Since(start).Seconds())
	if fault := firstFault(decisions, err); fault != nil {
		w.note(fault)
	}
	return err
}

// firstFault returns why a question to the store had no answer, or a part of it none.
func firstFault(decisions []weir.Decision, err error) error {
	for i := 0; i < len(decisions) && err == nil; i++ {
		err = decisions[i].Cause
	}
	return err
}

// note counts a question without an answer. Clients can make as many as they like while
// a store is away, so the log has one a second.
func (w *watchedStore) note(err error) {
	class := w.classOf(err)
	w.metrics.storeErrors.WithLabelValues(class).Inc()
	if w.faults.ready(time.Now()) {
		w.log.Error("the store could not decide; others within a second are only counted", "class", class, "error", err)
	}
}

// classOf returns the store's own name for the kind of an error, where it has one.
func (w *watchedStore) classOf(err error) string {
	if w.class != nil {
		if class := w.class(err); class != "" {
			return class
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "other"
}

// sampler lets one event a second through.
type sampler struct{ next atomic.Int64 } // nanoseconds since 1970

func (s *sampler) ready(now time.Time) bool {
	next := s.next.Load()
	return now.UnixNano() >= next && s.next.CompareAndSwap(next, now.Add(time.Second).UnixNano())
}
