package stats

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

func TestOneNameIsOneCounter(t *testing.T) {
	t.Parallel()
	r := New()
	r.Counter("a").Add(2)
	r.Configured("a").Add(3)
	r.Counter("b").Add(1)
	if got := r.Counter("a").Value(); got != 5 {
		t.Errorf("a: got %d, want 5", got)
	}
	if got := r.Counter("b").Value(); got != 1 {
		t.Errorf("b: got %d, want 1", got)
	}
}

func TestNilRegistryCountsNothing(t *testing.T) {
	t.Parallel()
	var r *Registry
	r.Counter("a").Add(1)
	r.Configured("a").Add(1)
	r.Gauge("a").Set(1)
	r.Gauge("a").Add(1)
	r.Timer("a").Observe(time.Second)
	r.BeforeRead(func() { t.Error("called") })
	r.ServeHTTP(httptest.NewRecorder(), nil)
	count, sum := r.Timer("a").Total()
	if c, g := r.Counter("a").Value(), r.Gauge("a").Value(); c != 0 || g != 0 || count != 0 || sum != 0 {
		t.Errorf("got %d, %d, %d, %v, want zeros", c, g, count, sum)
	}
	sink, err := Open(r, Options{Statsd: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNamesBeyondTheBoundCountUnderOverflow(t *testing.T) {
	t.Parallel()
	r := New()
	r.Configured("configured").Add(1)
	for i := range MaxNames {
		r.Counter(fmt.Sprint("client.", i)).Add(1)
	}
	if got := r.Counter(Overflow).Value(); got != 0 {
		t.Fatalf("overflow before the bound: got %d, want 0", got)
	}
	r.Counter("one.more").Add(7)
	r.Counter("and.another").Add(1)
	r.Counter("client.0").Add(1)
	r.Gauge("gauge").Set(5)
	r.Timer("timer").Observe(time.Second)
	for name, want := range map[string]uint64{Overflow: 10, "client.0": 2, "configured": 1} {
		if got := r.Counter(name).Value(); got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
	r.Configured("new.rule").Add(3)
	if got := r.Counter("new.rule").Value(); got != 3 {
		t.Errorf("a configured name after the bound: got %d, want 3", got)
	}
	if got, want := len(r.read().counters), MaxNames+3; got != want { // and overflow itself
		t.Errorf("names kept: got %d, want %d", got, want)
	}
}

func TestTooLongNameCountsUnderOverflow(t *testing.T) {
	t.Parallel()
	r := New()
	r.Counter(strings.Repeat("x", MaxNameBytes)).Add(1)
	r.Counter(strings.Repeat("x", MaxNameBytes+1)).Add(2)
	r.Configured(strings.Repeat("x", MaxNameBytes+1)).Add(4)
	if got := r.Counter(Overflow).Value(); got != 6 {
		t.Errorf("overflow: got %d, want 6", got)
	}
}

func TestNoIncrementIsLostAmongManyCallers(t *testing.T) {
	t.Parallel()
	r := New()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 2000 {
				r.Counter(fmt.Sprint("name.", i%100)).Add(1)
				r.Timer("timer").Observe(time.Millisecond)
				if i%500 == 0 {
					r.ServeHTTP(httptest.NewRecorder(), nil)
				}
			}
		})
	}
	wg.Wait()
	var sum uint64
	for i := range 100 {
		sum += r.Counter(fmt.Sprint("name.", i)).Value()
	}
	if sum != 16000 {
		t.Errorf("got %d, want 16000", sum)
	}
	if count, took := r.Timer("timer").Total(); count != 16000 || took != 16*time.Second {
		t.Errorf("timer: got %d in %v, want 16000 in 16s", count, took)
	}
}

func TestTextHasAllNamesSorted(t *testing.T) {
	t.Parallel()
	r := New()
	r.Counter("ratelimit.service.rate_limit.d.k.total_hits").Add(3)
	r.Counter("ratelimit.service.config_load_success").Add(1)
	pool := r.Gauge("ratelimit.redis_pool.cx_active")
	r.BeforeRead(func() { pool.Set(-4) })
	r.Timer("ratelimit_server.ShouldRateLimit.response_time").Observe(250 * time.Microsecond)
	r.Timer("ratelimit_server.ShouldRateLimit.response_time").Observe(750 * time.Microsecond)
	r.Timer("unused").Total()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("GET", "/stats", nil))
	want := `ratelimit.redis_pool.cx_active: -4
ratelimit.service.config_load_success: 1
ratelimit.service.rate_limit.d.k.total_hits: 3
ratelimit.stats.overflow: 0
ratelimit_server.ShouldRateLimit.response_time: count 2, mean 0.500 ms
unused: count 0
`
	if got := w.Body.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := w.Header().Get("Content-Type"), "text/plain; charset=utf-8"; got != want {
		t.Errorf("content type: got %q, want %q", got, want)
	}
}

func TestNamesAreSafeForLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, kept, line string }{
		{"ratelimit.service.rate_limit.d.k_v.total_hits", "ratelimit.service.rate_limit.d.k_v.total_hits", "ratelimit.service.rate_limit.d.k_v.total_hits"},
		{"d.addr_2001:db8::1", "d.addr_2001_db8__1", "d.addr_2001_db8__1"},
		{"d.k_a|c\nother:1|c", "d.k_a_c_other_1_c", "d.k_a_c_other_1_c"},
		{"d.k_\xff\xfe", "d.k___", "d.k___"},
		{"d.k_ä b#t,u=v;w[x]", "d.k_ä b#t,u=v;w[x]", "d.k_ä_b_t_u=v_w_x_"},
		{"d./files/*", "d./files/*", "d./files/*"},
	} {
		kept := sanitize(c.name)
		if kept != c.kept || lineName(kept) != c.line {
			t.Errorf("%q: got %q and %q, want %q and %q", c.name, kept, lineName(kept), c.kept, c.line)
		}
	}
}

func FuzzNamesHoldNothingThatALineGivesAMeaning(f *testing.F) {
	f.Add("ratelimit.service.rate_limit.d.k_v.total_hits")
	f.Add("a:1|c\nb")
	f.Add("\xff\u202e\u0000#,;[]")
	f.Fuzz(func(t *testing.T, name string) {
		kept := sanitize(name)
		if !utf8.ValidString(kept) || strings.ContainsAny(kept, ":|\n\r\x00") {
			t.Errorf("%q is kept as %q", name, kept)
		}
		if again := sanitize(kept); again != kept {
			t.Errorf("%q: kept as %q, and that as %q", name, kept, again)
		}
		for _, part := range []string{lineName(name), lineTag(name)} {
			if !utf8.ValidString(part) || strings.ContainsAny(part, "|#,\n\r \t\x00") {
				t.Errorf("%q is written as %q", name, part)
			}
		}
		if line := lineName(name); strings.ContainsAny(line, ":;[]") {
			t.Errorf("%q is written as %q", name, line)
		}
		if m := metricName(name); strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") != "" {
			t.Errorf("%q is the metric %q", name, m)
		}
	})
}

func BenchmarkCounterByName(b *testing.B) {
	r := New()
	r.Counter("ratelimit.service.rate_limit.domain.key_value.total_hits")
	b.ReportAllocs()
	for b.Loop() {
		r.Counter("ratelimit.service.rate_limit.domain.key_value.total_hits").Add(1)
	}
}
