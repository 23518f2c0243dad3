package rls

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"weir.dev/weir/lease"
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
	candidates *prometheus.CounterVec
	duration   prometheus.Histogram
	invalid    prometheus.Counter
	refunds    prometheus.Counter

	commands    prometheus.Histogram
	storeErrors *prometheus.CounterVec
	fallbacks   *prometheus.CounterVec
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
		candidates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limit_candidate_decisions_total",
			Help: "Charges decided by a limit and by its candidate, by how the two agree. The limit is its number in the rule.",
		}, []string{"domain", "rule", "limit", "verdict"}),
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
		fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limit_fallback_activations_total",
			Help: "Limits decided without the store, by the class of the error for which it did not decide.",
		}, []string{"reason"}),
	}
}

func (m *metrics) register(r prometheus.Registerer, leases prometheus.Collector) error {
	var errs []error
	for _, c := range []prometheus.Collector{
		m.decisions, m.rejections, m.candidates, m.duration, m.invalid, m.refunds, m.commands, m.storeErrors, m.fallbacks, leases,
	} {
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
		if keep[name{s.domain, s.rule}] {
			return
		}
		for _, outcome := range outcomes { // a partial match would look at the series of all rules
			m.decisions.DeleteLabelValues(s.domain, s.rule, outcome)
			m.rejections.DeleteLabelValues(s.domain, s.rule, outcome)
		}
	})
	m.forgetCandidates(old, next)
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

// leaseMetrics are what the stores in front of the store count, pulled when somebody asks.
type leaseMetrics struct{ backing *backing }

var (
	leaseQuestions = prometheus.NewDesc("rate_limit_lease_questions_total",
		"Questions about limits, by what answered: the store by itself or for several callers, units taken ahead, or a remembered denial.", []string{"by"}, nil)
	leaseCalls = prometheus.NewDesc("rate_limit_lease_store_calls_total",
		"Questions that the store was asked for them, those for units ahead included.", nil, nil)
	leaseUnits = prometheus.NewDesc("rate_limit_lease_units_total",
		"Units taken ahead, and what became of them.", []string{"fate"}, nil)
	leaseOutstanding = prometheus.NewDesc("rate_limit_lease_units_outstanding",
		"Units taken ahead and not yet spent.", nil, nil)
	leaseKeys = prometheus.NewDesc("rate_limit_lease_keys", "Keys watched, to find the hot ones.", nil, nil)
)

func (leaseMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leaseQuestions, leaseCalls, leaseUnits, leaseOutstanding, leaseKeys} {
		to <- d
	}
}

func (l leaseMetrics) Collect(to chan<- prometheus.Metric) {
	st := l.backing.stats()
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	counter(leaseQuestions, st.Asks-st.FromLease-st.FromCache-st.Shared, "store")
	counter(leaseQuestions, st.Shared, "shared")
	counter(leaseQuestions, st.FromLease, "lease")
	counter(leaseQuestions, st.FromCache, "cache")
	counter(leaseCalls, st.Calls)
	counter(leaseUnits, st.Granted, "granted")
	counter(leaseUnits, st.Spent, "spent")
	counter(leaseUnits, st.Returned, "returned")
	counter(leaseUnits, st.Wasted, "wasted")
	to <- prometheus.MustNewConstMetric(leaseOutstanding, prometheus.GaugeValue, float64(st.Outstanding))
	to <- prometheus.MustNewConstMetric(leaseKeys, prometheus.GaugeValue, float64(st.Keys))
}

// stats adds up what the stores in front of the store have done.
func (b *backing) stats() lease.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	total := b.past
	for _, f := range b.fronts {
		total = sum(total, f.Stats())
	}
	return total
}

func sum(a, b lease.Stats) lease.Stats {
	a.Asks += b.Asks
	a.Calls += b.Calls
	a.FromLease += b.FromLease
	a.FromCache += b.FromCache
	a.Shared += b.Shared
	a.Granted += b.Granted
	a.Spent += b.Spent
	a.Returned += b.Returned
	a.Wasted += b.Wasted
	a.Outstanding += b.Outstanding
	a.Keys += b.Keys
	return a
}
