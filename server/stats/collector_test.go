package stats

import (
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// collect opens Prometheus as the sink, beside metrics of weir's own.
func collect(t *testing.T, r *Registry, opts Options) *prometheus.Registry {
	t.Helper()
	opts.Prometheus = true
	sink, err := Open(r, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close(t.Context()) })
	registry := prometheus.NewRegistry()
	registry.MustRegister(sink.Collector(), prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rate_limit_decisions_total"}, nil))
	return registry
}

// mapped opens Prometheus with a mapping of the test's own.
func mapped(t *testing.T, r *Registry, mapping string) *prometheus.Registry {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(file, []byte(mapping), 0o600); err != nil {
		t.Fatal(err)
	}
	return collect(t, r, Options{MapperFile: file})
}

// scrape returns what a Prometheus server reads.
func scrape(t *testing.T, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// samples returns name{label="value",...} value for each series with that prefix.
func samples(t *testing.T, g prometheus.Gatherer, prefix string) []string {
	t.Helper()
	var all []string
	for name, f := range scrape(t, g) {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			series := name + "{" + strings.Join(labels, ",") + "} "
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				series += fmt.Sprint(m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				series += fmt.Sprint("gauge ", m.GetGauge().GetValue())
			case dto.MetricType_HISTOGRAM:
				series += fmt.Sprintf("histogram %d %g", m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum())
			case dto.MetricType_SUMMARY:
				series += fmt.Sprintf("summary %d %g", m.GetSummary().GetSampleCount(), m.GetSummary().GetSampleSum())
			}
			all = append(all, series)
		}
	}
	slices.Sort(all)
	return all
}

// count adds one to each counter of those names, two to the second, and so on.
func count(r *Registry, names ...string) {
	for i, name := range names {
		r.Counter(name).Add(uint64(i + 1))
	}
}

func TestBuiltInMappingMakesTheOriginalsMetrics(t *testing.T) {
	t.Parallel()
	const rule = "ratelimit.service.rate_limit."
	for _, c := range []struct{ name, want string }{
		{rule + "d.k_v.total_hits", `ratelimit_service_rate_limit_total_hits{domain="d",key1="k_v"}`},
		{rule + "d.k_v.over_limit", `ratelimit_service_rate_limit_over_limit{domain="d",key1="k_v"}`},
		{rule + "d.k_v.near_limit", `ratelimit_service_rate_limit_near_limit{domain="d",key1="k_v"}`},
		{rule + "d.k_v.within_limit", `ratelimit_service_rate_limit_within_limit{domain="d",key1="k_v"}`},
		{rule + "d.k_v.shadow_mode", `ratelimit_service_rate_limit_shadow_mode{domain="d",key1="k_v"}`},
		{rule + "d.k_v.sub.over_limit", `ratelimit_service_rate_limit_over_limit{domain="d",key1="k_v",key2="sub"}`},
		{rule + "d.k_v.sub_x.third_y.over_limit", `ratelimit_service_rate_limit_over_limit{domain="d",key1="k_v",key2="sub_x"}`},
		{rule + "api.example.com.k.over_limit", `ratelimit_service_rate_limit_over_limit{domain="api",key1="example",key2="com"}`},
		{rule + "eg/http.httproute/default/x/rule/0/match/0/*_httproute/default/x/rule/0/match/0/*.masked_remote_address_0_0_0_0/0.over_limit",
			`ratelimit_service_rate_limit_over_limit{domain="eg/http",key1="httproute/default/x/rule/0/match/0/*_httproute/default/x/rule/0/match/0/*",key2="masked_remote_address_0_0_0_0/0"}`},
		// These are metrics of their own name for each rule and domain in the original.
		{rule + "d.k_v.over_limit_with_local_cache", `ratelimit_service_rate_limit_over_limit_with_local_cache{domain="d",key1="k_v"}`},
		{rule + "d.k_v.sub.over_limit_with_local_cache", `ratelimit_service_rate_limit_over_limit_with_local_cache{domain="d",key1="k_v",key2="sub"}`},
		{rule + "d.k_v.total_negative_hits", `ratelimit_service_rate_limit_total_negative_hits{domain="d",key1="k_v"}`},
		{rule + "api.example.com.domain_not_found", `ratelimit_service_rate_limit_domain_not_found{domain="api.example.com"}`},
		{"ratelimit.service.call.should_rate_limit.redis_error", `ratelimit_service_should_rate_limit_error{err_type="redis_error"}`},
		{"ratelimit.service.config_load_success", `ratelimit_service_config_load_success{}`},
		{"ratelimit.service.config_load_error", `ratelimit_service_config_load_error{}`},
		{"ratelimit_server.ShouldRateLimit.total_requests", `ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}`},
		{"ratelimit.service.global_shadow_mode", `ratelimit_service_global_shadow_mode{}`},
		{"ratelimit.redis_pool.cx_total", `ratelimit_redis_pool_cx_total{}`},
	} {
		r := New()
		g := collect(t, r, Options{})
		r.Counter(c.name).Add(3)
		got := slices.DeleteFunc(samples(t, g, ""), func(s string) bool { return strings.HasPrefix(s, "ratelimit_stats_overflow") })
		if want := c.want + " 3"; len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %q, want %q", c.name, got, want)
		}
	}
}

func TestNamesOfOneSeriesAddUp(t *testing.T) {
	t.Parallel()
	r := New()
	g := collect(t, r, Options{})
	count(r, "ratelimit.service.rate_limit.d.a.b.c.total_hits", "ratelimit.service.rate_limit.d.a.b.e.total_hits", "ratelimit.service.rate_limit.d.a.b.total_hits")
	want := []string{`ratelimit_service_rate_limit_total_hits{domain="d",key1="a",key2="b"} 6`}
	for range 2 { // a second scrape does not count again
		if got := samples(t, g, "ratelimit_service_rate"); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// dashboards are selectors in dashboards and alerts that people have published, and what the
// names in the test make of them.
func TestPublishedDashboardsFindTheirSeries(t *testing.T) {
	t.Parallel()
	r := New()
	g := collect(t, r, Options{})
	for _, stat := range []string{"total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode"} {
		count(r, "ratelimit.service.rate_limit.production-ratelimit.PATH_/api."+stat,
			"ratelimit.service.rate_limit.production-ratelimit.route_a.masked_remote_address_0_0_0_0/0."+stat)
	}
	count(r, "ratelimit.service.call.should_rate_limit.redis_error", "ratelimit.service.call.should_rate_limit.service_error",
		"ratelimit.service.config_load_success", "ratelimit.service.config_load_error", "ratelimit_server.ShouldRateLimit.total_requests")
	r.Timer("ratelimit_server.ShouldRateLimit.response_time").Observe(3 * time.Millisecond)
	families := scrape(t, g)
	for _, s := range []struct {
		metric string
		labels map[string]string
		series int
	}{
		{"ratelimit_service_rate_limit_over_limit", map[string]string{"domain": "production-ratelimit"}, 2},
		{"ratelimit_service_rate_limit_over_limit", map[string]string{"key2": "masked_remote_address_0_0_0_0/0"}, 1},
		{"ratelimit_service_rate_limit_over_limit", map[string]string{"domain": "production-ratelimit", "key1": "PATH_/api"}, 1},
		{"ratelimit_service_rate_limit_near_limit", map[string]string{"key1": "PATH_/api"}, 1},
		{"ratelimit_service_rate_limit_within_limit", map[string]string{"key1": "PATH_/api", "key2": ""}, 1},
		{"ratelimit_service_rate_limit_total_hits", nil, 2},
		{"ratelimit_service_rate_limit_shadow_mode", nil, 2},
		{"ratelimit_service_should_rate_limit_error", map[string]string{"err_type": "redis_error"}, 1},
		{"ratelimit_service_should_rate_limit_error", nil, 2},
		{"ratelimit_service_total_requests", map[string]string{"grpc_method": "ShouldRateLimit"}, 1},
		{"ratelimit_service_response_time_seconds", map[string]string{"grpc_method": "ShouldRateLimit"}, 1},
		{"ratelimit_service_config_load_success", nil, 1},
		{"ratelimit_service_config_load_error", nil, 1},
	} {
		found := 0
		for _, m := range families[s.metric].GetMetric() {
			has := make(map[string]string)
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			matches := true
			for k, v := range s.labels {
				matches = matches && has[k] == v
			}
			if matches {
				found++
			}
		}
		if found != s.series {
			t.Errorf("%s%v: got %d series, want %d", s.metric, s.labels, found, s.series)
		}
	}
}

func TestResponseTimeHasSecondsAndTheOriginalsBuckets(t *testing.T) {
	t.Parallel()
	r := New()
	g := collect(t, r, Options{})
	timer := r.Timer("ratelimit_server.ShouldRateLimit.response_time")
	timer.Observe(200 * time.Microsecond)
	timer.Observe(20 * time.Millisecond)
	h := scrape(t, g)["ratelimit_service_response_time_seconds"].GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 2 || math.Abs(h.GetSampleSum()-0.0202) > 1e-12 {
		t.Errorf("got %d with a sum of %v, want 2 with 0.0202", h.GetSampleCount(), h.GetSampleSum())
	}
	counts := make(map[float64]uint64)
	for _, b := range h.GetBucket() {
		counts[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	for _, b := range prometheus.DefBuckets {
		want := uint64(1)
		if b >= 0.02 {
			want = 2
		}
		if got, ok := counts[b]; !ok || got != want {
			t.Errorf("bucket %v: got %d, want %d", b, got, want)
		}
	}
	if got := counts[0.0001]; got != 0 {
		t.Errorf("bucket of 100 us: got %d, want 0", got)
	}
}

func TestMillisecondsKeepTheNameOfSeconds(t *testing.T) {
	t.Parallel()
	r := New()
	timer := r.Timer("ratelimit_server.ShouldRateLimit.response_time") // made before the sink
	g := collect(t, r, Options{Milliseconds: true})
	timer.Observe(1500 * time.Microsecond)
	want := []string{`ratelimit_service_response_time_seconds{grpc_method="ShouldRateLimit"} histogram 1 1.5`}
	if got := samples(t, g, "ratelimit_service"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestExtraTagsAreLabels(t *testing.T) {
	t.Parallel()
	r := New()
	g := collect(t, r, Options{ExtraTags: map[string]string{"app.kubernetes.io/name": "edge: 1", "domain": "not this one", "empty": ""}})
	count(r, "ratelimit.service.rate_limit.d.k.total_hits", "some.other")
	want := []string{
		`ratelimit_service_rate_limit_total_hits{app_kubernetes_io_name="edge: 1",domain="d",key1="k"} 1`,
		`ratelimit_stats_overflow{app_kubernetes_io_name="edge: 1",domain="not this one"} 0`,
		`some_other{app_kubernetes_io_name="edge: 1",domain="not this one"} 2`,
	}
	if got := append(samples(t, g, "ratelimit"), samples(t, g, "some")...); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMappingOfAUserReplacesTheBuiltInOne(t *testing.T) {
	t.Parallel()
	r := New()
	g := mapped(t, r, `
defaults:
  timer_type: histogram
  buckets: [1, 2]
mappings:
- match: "ratelimit.service.rate_limit.*.*.over_limit"
  name: "over_$1"
  timer_type: "histogram"
  labels: {key: "$2", static: x}
- match: 'ratelimit\.service\.rate_limit\.([^.]+)\.path_(.*)\.total_hits'
  match_type: regex
  match_metric_type: counter
  name: hits_by_path
  scale: 0.5
  help: Hits by path.
  labels: {path: "$2"}
- match: "ratelimit_server.*.response_time"
  match_metric_type: timer
  name: took
  observer_type: summary
  quantiles: [{quantile: 0.5, error: 0.1}]
- match: "gone.*"
  name: gone
  action: drop
- match: "."
  match_type: regex
  match_metric_type: gauge
  name: all_gauges
`)
	count(r, "ratelimit.service.rate_limit.d.k.over_limit", "ratelimit.service.rate_limit.d.path_/a.b.total_hits", "gone.x", "ratelimit.service.rate_limit.d.k.near-limit")
	r.Gauge("gone.y").Set(1)
	r.Gauge("g").Set(7)
	r.Timer("ratelimit_server.X.response_time").Observe(2 * time.Second)
	r.Timer("other").Observe(2 * time.Second)
	want := []string{
		`all_gauges{} gauge 7`,
		`hits_by_path{path="/a.b"} 1`,
		`other{} histogram 1 2`,
		`over_d{key="k",static="x"} 1`,
		`ratelimit_service_rate_limit_d_k_near_limit{} 4`,
		`ratelimit_stats_overflow{} 0`,
		`took{} summary 1 2`,
	}
	if got := samples(t, g, ""); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSeriesEndsAfterItsTTL(t *testing.T) {
	t.Parallel()
	r := New()
	g := mapped(t, r, "defaults: {ttl: 1m}\nmappings: [{match: forever, name: forever, ttl: 1000h}]")
	synctest.Test(t, func(t *testing.T) {
		count(r, "a", "forever")
		r.Timer("t").Observe(time.Second)
		check := func(want ...string) {
			t.Helper()
			want = append(want, "forever{} 2")
			slices.Sort(want)
			got := slices.DeleteFunc(samples(t, g, ""), func(s string) bool { return strings.HasPrefix(s, "ratelimit_stats") })
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		check("a{} 1", "t{} summary 1 1")
		time.Sleep(time.Minute)
		check("a{} 1", "t{} summary 1 1")
		r.Timer("t").Observe(time.Second)
		time.Sleep(time.Second)
		check("t{} summary 2 2")
		count(r, "a")
		check("a{} 2", "t{} summary 2 2")
	})
}

func TestMappingThatContradictsItselfSpoilsNoScrape(t *testing.T) {
	t.Parallel()
	r := New()
	var log strings.Builder
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(file, []byte(`
mappings:
- {match: "a.*", name: same, help: one}
- {match: "b.*", name: same, help: two, labels: {label: "$1"}}
- {match: "c.*", name: "rate_limit_$1"}
- {match: "(x?)d", match_type: regex, name: "$1"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	g := collect(t, r, Options{MapperFile: file, Log: slog.New(slog.NewTextHandler(&log, nil))})
	count(r, "a.x", "b.x", "c.decisions_total", "d")
	r.Gauge("a.y").Set(1)
	want := []string{`same{label="x"} 2`, `same{} 1`}
	for range 2 {
		if got := samples(t, g, "same"); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		r.Timer("b.y").Observe(1)
	}
	if got := strings.Count(log.String(), "a name has no metric"); got != 4 {
		t.Errorf("got %d warnings, want 4:\n%s", got, &log)
	}
}

func TestBadMappingIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mapping, want string }{
		{"mappings: [{match: a.*}]", "name"},
		{"mappings: [{match: 'a..b', name: x}]", "invalid match"},
		{"mappings: [{match: '(', match_type: regex, name: x}]", "missing closing"},
		{"mappings: [{match: a, name: x, labels: {le: x}}]", `label "le" is Prometheus's own`},
		{"mappings: [{match: a, name: x, labels: {__name__: x}}]", `label "__name__" is Prometheus's own`},
		{"mappings: [{match: a, name: x, observer_type: histogram, histogram_options: {buckets: [2, 1]}}]", "write numbers that rise"},
		{"defaults: {histogram_options: {buckets: [1, .nan]}}", "write numbers that rise"},
		{"mappings: [{match: a, name: x, observer_type: summary, summary_options: {max_age: 1ns, age_buckets: 4000000000, buf_cap: 4000000000}}]", "write at most 1000"},
		{"defaults: {summary_options: {quantiles: [{quantile: 2, error: 0}]}}", "write numbers from 0 to 1"},
		{"mappings: [{match: a, name: x, ttl: -1s}]", "write a time above zero"},
		{"mappings: 5", "cannot unmarshal"},
		{"a\tb: :", "yaml"},
	} {
		_, err := newMapping("f.yaml", c.mapping, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "f.yaml") {
			t.Errorf("%s: got %v, want f.yaml and %q", c.mapping, err, c.want)
		}
	}
}

func TestMisspeltFieldOfAMappingIsLogged(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	if _, err := newMapping("f.yaml", "mappings: [{match: a, name: x, label: {a: b}}]", slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "field label not found") {
		t.Errorf("got %q, want the field", log.String())
	}
	log.Reset()
	if _, err := newMapping("built in", defaultMapping, slog.New(slog.NewTextHandler(&log, nil))); err != nil || log.Len() > 0 {
		t.Errorf("the built-in mapping: %v, %s", err, &log)
	}
}

func TestScrapesAndCallersDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	r := New()
	g := collect(t, r, Options{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 300 {
				r.Counter(fmt.Sprintf("ratelimit.service.rate_limit.d.k_%d.total_hits", j)).Add(1)
				r.Timer(fmt.Sprintf("ratelimit_server.M%d.response_time", j%7)).Observe(time.Millisecond)
				if j%100 == i {
					if _, err := g.Gather(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	var sum float64
	for _, m := range scrape(t, g)["ratelimit_service_rate_limit_total_hits"].GetMetric() {
		sum += m.GetCounter().GetValue()
	}
	if sum != 1200 {
		t.Errorf("got %v, want 1200", sum)
	}
}

func FuzzMappingEndsInMetricsOrAnError(f *testing.F) {
	f.Add(defaultMapping, "ratelimit.service.rate_limit.d.k_v.total_hits")
	f.Add("mappings: [{match: 'a.*', name: 'x_$1', labels: {ab: '$2${1}'}}]", "a.b")
	f.Add("mappings: [{match: '(.*)', match_type: regex, name: '$1', scale: 2, ttl: 1s}]", "a.b--c")
	f.Add("defaults: {observer_type: histogram, quantiles: [], buckets: [1]}\nmappings: [{match: '*', name: x, quantiles: [{quantile: 0.5}]}]", "a")
	f.Add("mappings: [{match: a, name: a, timer_type: histogram, histogram_options: {native_histogram_bucket_factor: 1.1}}]", "a")
	f.Fuzz(func(t *testing.T, mapping, name string) {
		m, err := newMapping("f", mapping, slog.New(slog.DiscardHandler))
		if err != nil {
			return
		}
		r := New()
		c := &collector{registry: r, mapping: m, unit: time.Second, log: slog.New(slog.DiscardHandler), families: make(map[string]*family), labels: map[string]string{"a": "b"}}
		r.onTiming(c.timing)
		r.Counter(name).Add(1)
		r.Counter(name + ".total_hits").Add(1)
		r.Gauge(name).Set(1)
		r.Timer(name).Observe(time.Second)
		r.Timer(name + ".response_time").Observe(time.Second)
		registry := prometheus.NewRegistry()
		registry.MustRegister(c)
		if _, err := registry.Gather(); err != nil {
			t.Errorf("%q of %q: %v", name, mapping, err)
		}
	})
}
