package rls

import (
	"testing"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/stats"
)

const counted = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: detail, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: open, rate_limit: {unlimited: true}}
  - key: level
    value_to_metric: true
    descriptors:
      - {key: path, value: "/a*", rate_limit: {unit: hour, requests_per_unit: 10}}
`

// expectCounts holds the counters of one name to those that are wanted; others are 0.
func expectCounts(t testing.TB, r *stats.Registry, key string, want map[string]uint64) {
	t.Helper()
	for _, name := range countNames {
		if got := r.Counter(perRule + key + "." + name).Value(); got != want[name] {
			t.Errorf("%s.%s is %d, want %d", key, name, got, want[name])
		}
	}
}

func startCounted(t testing.TB, opts Options) (*fixture, *stats.Registry) {
	opts.Stats = stats.New()
	return startWith(t, inMemory(t), counted, opts), opts.Stats
}

func TestHitsAreSplitAtTheThresholdsAsInTheOriginal(t *testing.T) {
	t.Parallel()
	f, r := startCounted(t, Options{Compat: &Compat{Counters: counters(t)}})
	for _, step := range []struct {
		hits uint64
		want map[string]uint64
	}{
		{5, map[string]uint64{"total_hits": 5, "within_limit": 5}},
		{4, map[string]uint64{"total_hits": 9, "within_limit": 9, "near_limit": 1}},                   // from 5 to 9, of which 8 is the threshold
		{0, map[string]uint64{"total_hits": 9, "within_limit": 9, "near_limit": 1}},                   // a peek
		{3, map[string]uint64{"total_hits": 12, "within_limit": 9, "near_limit": 2, "over_limit": 2}}, // from 9 to 12, of which 10 is the limit
		{4, map[string]uint64{"total_hits": 16, "within_limit": 9, "near_limit": 2, "over_limit": 6}},
	} {
		f.ask(t, withHits(descriptor("user=a"), step.hits))
		expectCounts(t, r, "shop.user", step.want)
	}
	f.ask(t, withHits(descriptor("user=b"), 12)) // from 0 to 12
	expectCounts(t, r, "shop.user", map[string]uint64{"total_hits": 28, "within_limit": 9, "near_limit": 4, "over_limit": 8})
}

func TestRefundsHaveACountOfTheirOwn(t *testing.T) {
	t.Parallel()
	f, r := startCounted(t, Options{Compat: &Compat{Counters: counters(t)}})
	d := withHits(descriptor("user=a"), 3)
	d.IsNegativeHits = true
	f.ask(t, d)
	expectCounts(t, r, "shop.user", map[string]uint64{"total_negative_hits": 3})
}

func TestShadowCountsWhatItLetsPass(t *testing.T) {
	t.Parallel()
	for name, compat := range map[string]*Compat{"compat": {Counters: counters(t)}, "weir's own way": nil} {
		f, r := startCounted(t, Options{Compat: compat})
		f.ask(t, withHits(descriptor("trial=a"), 2))
		f.ask(t, descriptor("trial=a"))
		want := map[string]uint64{"total_hits": 3, "within_limit": 2, "near_limit": 1, "over_limit": 1, "shadow_mode": 1}
		t.Log(name)
		expectCounts(t, r, "shop.trial", want)
	}
}

func TestWeirCountsDenialsAsOver(t *testing.T) {
	t.Parallel()
	f, r := startCounted(t, Options{NearLimitRatio: 0.5})
	f.ask(t, withHits(descriptor("user=a"), 6))
	f.ask(t, withHits(descriptor("user=a"), 5))
	expectCounts(t, r, "shop.user", map[string]uint64{"total_hits": 11, "within_limit": 6, "near_limit": 1, "over_limit": 5})
	f.ask(t, withHits(descriptor("user=a"), 1<<64-1)) // counted as the least that is over every limit
	expectCounts(t, r, "shop.user", map[string]uint64{"total_hits": 12 + 1<<32, "within_limit": 6, "near_limit": 1, "over_limit": 6 + 1<<32})
}

func TestNamesOfCountsAreTheOriginals(t *testing.T) {
	t.Parallel()
	f, r := startCounted(t, Options{})
	f.ask(t, descriptor("detail=10.1.2.3"), descriptor("level=x|y", "path=/a:1"), descriptor("open=x"))
	f.ask(t, withLimit(descriptor("user=a", "b="), 5, typev3.RateLimitUnit_HOUR))
	hit := map[string]uint64{"total_hits": 1, "within_limit": 1}
	expectCounts(t, r, "shop.detail_10_1_2_3", hit)
	expectCounts(t, r, "shop.level_x_y.path_/a*", hit)
	expectCounts(t, r, "shop.user_a.b", hit)
	expectCounts(t, r, "shop.open", nil)
	request := oneDescriptor(descriptor("a=b"))
	request.Domain = "else:where"
	if _, err := f.client.ShouldRateLimit(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if got := r.Counter(perRule + "else_where.domain_not_found").Value(); got != 1 {
		t.Errorf("domain_not_found is %d, want 1", got)
	}
}

func TestNameOfARequestHasPatternsInPlaceOfSharedValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ flags, want string }{
		{"", "d.k_a*.l"},
		{"value_to_metric: true", "d.k_abc.l"},
		{"share_threshold: true", "d.k_a*.l"},
		{"value_to_metric: true, share_threshold: true", "d.k_a*.l"},
		{"detailed", "d.k_abc.l_"},
		{"detailed, value_to_metric: true", "d.k_abc.l_"},
		{"detailed, share_threshold: true", "d.k_a*.l"},
	} {
		flags, detail := tt.flags, ""
		if len(flags) >= 8 && flags[:8] == "detailed" {
			flags, detail = flags[8:], ", detailed_metric: true"
		}
		if flags != "" && flags[0] != ',' {
			flags = ", " + flags
		}
		config := parse(t, `domain: d
descriptors:
  - {key: k, value: "a*"`+flags+`, descriptors: [{key: l`+detail+`, rate_limit: {unit: hour, requests_per_unit: 1}}]}`)
		rule := config.Rules()[0]
		got := configName(rule)
		if namedByRequest(rule) {
			got = requestName(rule, []rules.Entry{{Key: "k", Value: "abc"}, {Key: "l"}})
		}
		if got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.flags, got, tt.want)
		}
	}
}

func TestCallsAreCounted(t *testing.T) {
	t.Parallel()
	r := stats.New()
	f := startWith(t, inMemory(t), counted, Options{Stats: r, Shadow: true, Budget: time.Second, Compat: &Compat{Counters: lostCounters{counters(t)}}})
	f.ask(t, descriptor("open=x"))
	for _, request := range []string{"", "shop"} {
		q := oneDescriptor(descriptor("user=a"))
		q.Domain = request
		f.client.ShouldRateLimit(t.Context(), q) // errors are counted
	}
	for name, want := range map[string]uint64{
		"ratelimit.service.call.should_rate_limit.redis_error":   1,
		"ratelimit.service.call.should_rate_limit.service_error": 1,
		"ratelimit_server.ShouldRateLimit.total_requests":        3,
	} {
		if got := r.Counter(name).Value(); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}

func TestGlobalShadowIsCounted(t *testing.T) {
	t.Parallel()
	f, r := startCounted(t, Options{Shadow: true})
	f.ask(t, withHits(descriptor("user=a"), 11))
	if got := r.Counter("ratelimit.service.global_shadow_mode").Value(); got != 1 {
		t.Errorf("global_shadow_mode is %d, want 1", got)
	}
}

func TestLocalCacheIsCountedApart(t *testing.T) {
	t.Parallel()
	r := stats.New()
	s, err := New(inMemory(t), Options{Stats: r})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetRules(parse(t, counted)); err != nil {
		t.Fatal(err)
	}
	rule := s.current.Load().rules[s.Rules().Rules()[0]]
	c := counts{found: rule.found}
	c.decided(3, &weir.Decision{Source: weir.FromCache, AtMicros: 1}, &rule.limits[0])
	expectCounts(t, r, "shop.user", map[string]uint64{"total_hits": 3, "over_limit": 3, "over_limit_with_local_cache": 3})
}
