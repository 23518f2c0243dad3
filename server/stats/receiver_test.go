package stats

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/event"
	statsd "github.com/prometheus/statsd_exporter/pkg/line"
)

// parse reads lines as a receiver that takes every dialect of tags for one.
func parse(t *testing.T, text string) (events event.Events, bad bool) {
	t.Helper()
	p := statsd.NewParser()
	p.EnableDogstatsdParsing()
	p.EnableInfluxdbParsing()
	p.EnableLibratoParsing()
	p.EnableSignalFXParsing()
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "failed"}, []string{"reason"})
	tags := prometheus.NewCounter(prometheus.CounterOpts{Name: "tags"})
	badTags := prometheus.NewCounter(prometheus.CounterOpts{Name: "bad_tags"})
	samples := prometheus.NewCounter(prometheus.CounterOpts{Name: "samples"})
	for one := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		events = append(events, p.LineToEvents(one, *failed, samples, badTags, tags, slog.New(slog.DiscardHandler))...)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(failed, badTags)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			bad = bad || m.GetCounter().GetValue() > 0
		}
	}
	return events, bad
}

// Whatever a client sends, a receiver gets one value with the tags that the operator wrote.
func FuzzReceiverReadsWhatWasCounted(f *testing.F) {
	f.Add("plain", uint16(3), true)
	f.Add("a:1|c\nother.metric:99|c", uint16(1), false)
	f.Add("a,zone=here;b#c=d[e=f]|#g:h", uint16(7), true)
	f.Add("\xff\x00ü @0.1|@0.5", uint16(65535), false)
	f.Fuzz(func(t *testing.T, value string, n uint16, dogstatsd bool) {
		if n == 0 || len(value) > 900 { // longer names are not kept
			return
		}
		l, err := newLines(Options{Statsd: !dogstatsd, Dogstatsd: dogstatsd, ExtraTags: map[string]string{"zone": "eu"}})
		if err != nil {
			t.Fatal(err)
		}
		r := New()
		r.onTiming(func(string) durations { return new(sample) })
		r.Counter("ratelimit.service.rate_limit.d.k_" + value + ".total_hits").Add(uint64(n))
		r.Timer("t." + value).Observe(1500 * time.Microsecond)
		var out strings.Builder
		if err := l.write(&out, r.read()); err != nil {
			t.Fatal(err)
		}
		events, bad := parse(t, out.String())
		if bad || len(events) != 2 {
			t.Fatalf("%q: got %d events, want 2, of\n%s", value, len(events), &out)
		}
		for i, want := range []float64{float64(n), 0.0015} {
			e := events[i]
			labels := e.Labels()
			switch {
			case e.Value() != want:
				t.Errorf("%q: got %v, want %v", value, e.Value(), want)
			case dogstatsd && (len(labels) != 1 || labels["zone"] != "eu"):
				t.Errorf("%q: got the tags %v, want zone:eu alone", value, labels)
			case !dogstatsd && (len(labels) != 0 || !strings.HasSuffix(e.MetricName(), ".__zone=eu")):
				t.Errorf("%q: got %s with the tags %v, want none", value, e.MetricName(), labels)
			}
		}
	})
}
