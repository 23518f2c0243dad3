package stats

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
)

// collector makes metrics for Prometheus of the names, by a mapping. Names that the mapping
// makes the same metric and labels of are one series, their sum. Values are read when
// Prometheus asks.
type collector struct {
	registry *Registry
	mapping  *mapper.MetricMapper
	labels   map[string]string // of every series
	unit     time.Duration     // in which durations are seen
	log      *slog.Logger

	mu       sync.Mutex // held for one name at a time: a new timer waits for it
	families map[string]*family
	all      []*series // only ever appended to

	collecting sync.Mutex // and what it guards, as all of a series but its observer
	counters   int        // how many of the Registry's have their series
	gauges     int
}

// family is all series of one metric.
type family struct {
	kind   string // counter, gauge, histogram or summary
	help   string
	series map[string]*series
}

// series is one metric with one set of labels: of counters their sum, of gauges the last,
// or of timers the observer.
type series struct {
	desc     *prometheus.Desc
	counters []scaled[Counter]
	gauge    scaled[Gauge]
	observer *observer

	ttl     time.Duration // how long it is shown after it changed, 0 is for ever
	was     uint64
	changed time.Time
}

type scaled[T any] struct {
	value *T
	scale float64
}

// observer sees the durations of timers.
type observer struct {
	prometheus.Metric
	prometheus.Observer
	scale float64 // of a second
	seen  atomic.Uint64
}

func (o *observer) add(d time.Duration) {
	o.Observe(d.Seconds() * o.scale)
	o.seen.Add(1)
}

// reserved begin the names of weir's own metrics, which stand beside these.
var reserved = []string{"rate_limit_", "weir_", "go_", "process_", "promhttp_"}

func newCollector(r *Registry, opts Options) (*collector, error) {
	file, text, err := opts.mapping()
	if err != nil {
		return nil, err
	}
	mapping, err := newMapping(file, text, opts.Log)
	if err != nil {
		return nil, err
	}
	c := &collector{
		registry: r,
		mapping:  mapping,
		labels:   make(map[string]string),
		unit:     time.Second,
		log:      opts.Log,
		families: make(map[string]*family),
	}
	if opts.Milliseconds {
		c.unit = time.Millisecond
	}
	for key, value := range opts.ExtraTags {
		label := metricName(key)
		switch {
		case key == "" || value == "":
		case label == "le" || label == "quantile" || strings.HasPrefix(label, "__"):
			return nil, fmt.Errorf("extra tag %q: label %q is Prometheus's own: write another key (EXTRA_TAGS)", key, label)
		default:
			c.labels[label] = underscore(value, unprintable)
		}
	}
	r.onTiming(c.timing)
	return c, nil
}

// Describe describes nothing: which metrics there are is not known beforehand.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends all series.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.collecting.Lock()
	defer c.collecting.Unlock()
	all := c.registry.read()
	for ; c.counters < len(all.counters); c.counters++ {
		n := all.counters[c.counters]
		if s, scale := c.place(n.name, mapper.MetricTypeCounter); s != nil {
			s.counters = append(s.counters, scaled[Counter]{n.value, scale})
		}
	}
	for ; c.gauges < len(all.gauges); c.gauges++ {
		n := all.gauges[c.gauges]
		if s, scale := c.place(n.name, mapper.MetricTypeGauge); s != nil {
			s.gauge = scaled[Gauge]{n.value, scale}
		}
	}
	c.mu.Lock()
	list := c.all
	c.mu.Unlock()
	now := time.Now()
	for _, s := range list {
		if m := s.read(now); m != nil {
			to <- m
		}
	}
}

// read returns the series as it is now, nil when it has not changed for its ttl.
func (s *series) read(now time.Time) prometheus.Metric {
	var is uint64
	var sum float64
	for _, c := range s.counters {
		n := c.value.Value()
		is += n
		sum += float64(n) * c.scale
	}
	if s.observer != nil {
		is = s.observer.seen.Load()
	}
	if s.changed.IsZero() || is != s.was {
		s.was, s.changed = is, now
	}
	switch {
	case s.gauge.value != nil:
		return prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(s.gauge.value.Value())*s.gauge.scale)
	case s.ttl > 0 && now.Sub(s.changed) > s.ttl:
		return nil
	case s.observer != nil:
		return s.observer.Metric
	}
	return prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, sum)
}

// timing returns the observer of a timer, which several timers may have in common.
func (c *collector) timing(name string) durations {
	s, _ := c.place(name, mapper.MetricTypeObserver)
	if s == nil {
		return nil
	}
	return s.observer
}

// place returns the series of a name and the scale of what is counted, as the mapping says.
// It returns nil if the mapping drops the name, or makes a metric of it that cannot be.
func (c *collector) place(name string, of mapper.MetricType) (*series, float64) {
	m, found, ok := c.mapping.GetMapping(name, of)
	if !ok {
		m = &mapper.MetricMapping{Name: name, HelpText: "Counted as " + name + ".", Ttl: c.mapping.Defaults.Ttl}
	}
	if m.Action == mapper.ActionTypeDrop {
		return nil, 0
	}
	labels := maps.Clone(c.labels)
	maps.Copy(labels, found)
	scale := 1.0
	if m.Scale.Set {
		scale = m.Scale.Val
	}
	s, why := c.find(metricName(m.Name), labels, m, of)
	if s == nil {
		c.log.Warn("a name has no metric", "name", name, "metric", metricName(m.Name), "because", why)
	}
	return s, scale
}

// find returns the series of a metric with those labels, and makes it if it is new; or it
// says why it cannot be.
func (c *collector) find(metric string, labels prometheus.Labels, m *mapper.MetricMapping, of mapper.MetricType) (_ *series, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := c.kind(m, of)
	f := c.families[metric]
	switch {
	case metric == "":
		return nil, "the mapping makes an empty name of it"
	case slices.ContainsFunc(reserved, func(p string) bool { return strings.HasPrefix(metric, p) }):
		return nil, "metrics of that name are others"
	case f == nil:
		f = &family{kind, m.HelpText, make(map[string]*series)}
		c.families[metric] = f
	case f.kind != kind:
		return nil, "the metric is a " + f.kind
	}
	key := labelKey(labels)
	if s := f.series[key]; s != nil {
		return s, ""
	}
	s := &series{desc: prometheus.NewDesc(metric, f.help, nil, labels), ttl: m.Ttl}
	if of == mapper.MetricTypeObserver {
		s.observer = c.observer(metric, f, labels, m)
	}
	f.series[key] = s
	c.all = append(c.all, s)
	return s, ""
}

func (c *collector) kind(m *mapper.MetricMapping, of mapper.MetricType) string {
	switch {
	case of != mapper.MetricTypeObserver:
		return string(of)
	case m.ObserverType != mapper.ObserverTypeDefault:
		return string(m.ObserverType)
	case c.mapping.Defaults.ObserverType != mapper.ObserverTypeDefault:
		return string(c.mapping.Defaults.ObserverType)
	}
	return string(mapper.ObserverTypeSummary)
}

// observer returns a histogram or a summary, as the mapping or its defaults say.
func (c *collector) observer(metric string, f *family, labels prometheus.Labels, m *mapper.MetricMapping) *observer {
	scale := float64(time.Second) / float64(c.unit)
	if m.Scale.Set {
		scale *= m.Scale.Val
	}
	if f.kind == string(mapper.ObserverTypeHistogram) {
		opts := prometheus.HistogramOpts{Name: metric, Help: f.help, ConstLabels: labels, Buckets: c.mapping.Defaults.HistogramOptions.Buckets}
		if own := m.HistogramOptions; own != nil {
			opts.NativeHistogramBucketFactor = own.NativeHistogramBucketFactor
			opts.NativeHistogramMaxBucketNumber = own.NativeHistogramMaxBuckets
			if len(own.Buckets) > 0 {
				opts.Buckets = own.Buckets
			}
		}
		h := prometheus.NewHistogram(opts)
		return &observer{Metric: h, Observer: h, scale: scale}
	}
	from := &c.mapping.Defaults.SummaryOptions
	if m.SummaryOptions != nil {
		from = m.SummaryOptions
	}
	opts := prometheus.SummaryOpts{
		Name: metric, Help: f.help, ConstLabels: labels,
		Objectives: make(map[float64]float64),
		MaxAge:     from.MaxAge, AgeBuckets: from.AgeBuckets, BufCap: from.BufCap,
	}
	for _, q := range from.Quantiles {
		opts.Objectives[q.Quantile] = q.Error
	}
	s := prometheus.NewSummary(opts)
	return &observer{Metric: s, Observer: s, scale: scale}
}

// metricName returns the text with an underscore for all that a metric's or label's name may
// not have.
func metricName(text string) string {
	if text != "" && text[0] >= '0' && text[0] <= '9' {
		text = "_" + text
	}
	return underscore(text, func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
}

// labelKey returns a text that only the same labels have. Names hold no equals sign, and
// values come quoted.
func labelKey(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%s=%q,", name, labels[name])
	}
	return b.String()
}
