package httpretry

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestEveryDraftIsRead(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	h := func(pairs ...string) http.Header {
		header := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			header.Add(pairs[i], pairs[i+1])
		}
		return header
	}
	s := time.Second
	tests := []struct {
		name   string
		header http.Header
		want   []quota
	}{
		{"draft 11", h("RateLimit", `"api";r=12;t=5, "daily";r=4100;t=32400`, "RateLimit-Policy", `"api";q=100;w=60;weir-burst=20, "daily";q=5000;w=86400`),
			[]quota{{"api", 12, 100, 5 * s}, {"daily", 4100, 5000, 32400 * s}}},
		{"field lines join", h("RateLimit", `"api";r=12;t=5`, "RateLimit", `"daily";r=4;t=9`), []quota{{"api", 12, 0, 5 * s}, {"daily", 4, 0, 9 * s}}},
		{"partition key", h("RateLimit", `"api";r=1;t=5;pk=:YWxpY2U=:`, "RateLimit-Policy", `"api";q=10`), []quota{{"api\x00alice", 1, 10, 5 * s}}},
		{"no window", h("RateLimit", `"api";r=1`), []quota{{"api", 1, 0, 0}}},
		{"an item without r is no quota", h("RateLimit", `"api";t=5, "b";r=2`), []quota{{"b", 2, 0, 0}}},
		{"wrong types are no quota", h("RateLimit", `"api";r="1";t=5, "b";r=1.5, "c";r=-1, 5;r=1, "d";r`), nil},
		{"the last of equal parameters counts", h("RateLimit", `"api";r=1;r=2`), []quota{{"api", 2, 0, 0}}},
		{"unknown parameters are ignored", h("RateLimit", `"api";x=?1;y=1.25;z=tok/en;*a=:AA==:;r=3;t=1`), []quota{{"api", 3, 0, s}}},
		{"proposed letters and tokens", h("RateLimit", `api;a=12;w=5;c=1`, "RateLimit-Policy", `api;q=100;w=60`), []quota{{"api", 12, 100, 5 * s}}},
		{"draft 07", h("RateLimit", "limit=100, remaining=50, reset=30", "RateLimit-Policy", "100;w=60"), []quota{{"", 50, 100, 30 * s}}},
		{"draft 07 without a limit", h("RateLimit", "remaining=0,reset=30"), []quota{{"", 0, 0, 30 * s}}},
		{"draft 06", h("RateLimit-Limit", "100, 100;w=60", "RateLimit-Remaining", "12", "RateLimit-Reset", "5"), []quota{{"", 12, 100, 5 * s}}},
		{"custom, delta", h("X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "5"), []quota{{"", 0, 5, 5 * s}}},
		{"custom, Unix time", h("X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1800000042"), []quota{{"", 0, 60, 42 * s}}},
		{"custom, Unix time in ms", h("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1800000042500"), []quota{{"", 0, 0, 42500 * time.Millisecond}}},
		{"custom, two centuries ahead", h("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "8000000000"), []quota{{"", 0, 0, forever}}},
		{"custom, past", h("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1700000000"), []quota{{"", 0, 0, 0}}},
		{"custom, with another hyphen", h("X-Rate-Limit-Remaining", "3", "X-Rate-Limit-Reset", "9"), []quota{{"", 3, 0, 9 * s}}},
		{"the standard field goes first", h("RateLimit", `"api";r=1;t=2`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "900"), []quota{{"api", 1, 0, 2 * s}}},
		{"a broken one gives way", h("RateLimit", `"api";r=`, "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "9"), []quota{{"", 7, 0, 9 * s}}},
		{"a date is no reset", h("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "Mon, 30 Nov 2026 10:41:29 UTC"), nil},
		{"negative remaining", h("X-RateLimit-Remaining", "-1", "X-RateLimit-Reset", "9"), nil},
		{"fields given twice", h("X-RateLimit-Remaining", "1", "X-RateLimit-Remaining", "2", "X-RateLimit-Reset", "9"), nil},
		{"NaN", h("RateLimit", `"api";r=NaN;t=5`, "RateLimit-Policy", `"api";q=NaN`), nil},
		{"NaN in separate fields", h("X-RateLimit-Limit", "NaN", "X-RateLimit-Remaining", "NaN", "X-RateLimit-Reset", "NaN"), nil},
		{"16 digits", h("RateLimit", `"api";r=1;t=1000000000000000`), nil},
		{"15 digits", h("RateLimit", `"api";r=999999999999999;t=999999999999999`), []quota{{"api", 999999999999999, 0, forever}}},
		{"huge policy", h("RateLimit", `"api";r=1;t=1`, "RateLimit-Policy", `"api";q=99999999999999999999`), []quota{{"api", 1, 0, s}}},
		{"huge reset", h("RateLimit-Remaining", "0", "RateLimit-Reset", "999999999999999999999"), nil},
	}
	for _, tt := range tests {
		if got := quotas(tt.header, now); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
		if len(tt.want) > 0 && !statesQuota(tt.header) {
			t.Errorf("%s: statesQuota is false, want true", tt.name)
		}
	}
}

func TestFieldCutShortAnywhereNeverMisleads(t *testing.T) {
	t.Parallel()
	const whole = `"api";r=12;t=5;pk=:YWxpY2U=:, "daily";r=4100;t=32400`
	for i := range whole {
		for _, q := range quotas(http.Header{"Ratelimit": {whole[:i]}}, time.Time{}) {
			if q.policy != "api" && q.policy != "api\x00alice" && q.policy != "daily" {
				t.Errorf("%q: got policy %q", whole[:i], q.policy)
			}
			if q.window > 32400*time.Second || q.remaining > 4100 {
				t.Errorf("%q: got %+v, more than the whole field says", whole[:i], q)
			}
		}
	}
}

func TestMalformedFieldIsIgnoredWhole(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		`"a`, `"a\`, `"a\x"`, "\"a\x01\"", "\"\xff\"", `"a",`, `"a" "b"`, `"a";`, `"a";R=1`, `"a";r=`, `"a";r=-`, `"a";r=1.`, `"a";r=1.2345`,
		`"a";r=:x`, `"a";r=:!:`, `"a";r=?2`, `"a";r=?`, `("a" "b");r=1`, `,`, `=1`, `"a";r=@1`, `"a";r=1e3`, "\"a\"\n", strings.Repeat(`"a",`, 2000) + `"a"`,
	} {
		if got, ok := parseField(s); ok {
			t.Errorf("%.40q: got %+v, want it refused", s, got)
		}
	}
}

func TestJitterStaysInItsInterval(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	edge := 1 - 1e-9
	tests := []struct {
		jitter    Jitter
		n         int
		previous  time.Duration
		low, high time.Duration
	}{
		{FullJitter, 1, 0, 0, 100 * ms},
		{FullJitter, 3, 0, 0, 400 * ms},
		{FullJitter, 8, 0, 0, 10000 * ms},
		{FullJitter, 1 << 40, 0, 0, 10000 * ms},
		{EqualJitter, 1, 0, 50 * ms, 100 * ms},
		{EqualJitter, 4, 0, 400 * ms, 800 * ms},
		{EqualJitter, 99, 0, 5000 * ms, 10000 * ms},
		{DecorrelatedJitter, 1, 0, 100 * ms, 300 * ms},
		{DecorrelatedJitter, 2, 200 * ms, 100 * ms, 600 * ms},
		{DecorrelatedJitter, 9, 10000 * ms, 100 * ms, 10000 * ms},
		{DecorrelatedInside, 2, 200 * ms, 100 * ms, 600 * ms},
		{DecorrelatedInside, 9, 10000 * ms, 100 * ms, 10000 * ms},
		{DecorrelatedInside, 9, 1<<63 - 1, 100 * ms, 10000 * ms},
	}
	for _, tt := range tests {
		b := Backoff{Jitter: tt.jitter}
		low, high := b.Draw(tt.n, tt.previous, 0), b.Draw(tt.n, tt.previous, edge)
		if low != tt.low || tt.high-high > ms || high > tt.high {
			t.Errorf("jitter %d, retry %d after %v: got %v to %v, want %v to %v", tt.jitter, tt.n, tt.previous, low, high, tt.low, tt.high)
		}
	}
	long := Backoff{Base: 1 << 61, Cap: 1<<63 - 1}
	for n := range 10 {
		if d := long.Draw(n+1, 1<<62, edge); d < 0 {
			t.Errorf("retry %d of a base of %v: got %v, want no overflow", n+1, long.Base, d)
		}
	}
}

func TestOnlyTheTextbookFormPilesUpAtTheCap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		jitter    Jitter
		low, high float64 // share of the 40th waits that are exactly the cap
	}{{DecorrelatedJitter, 0.25, 0.33}, {DecorrelatedInside, 0, 0.001}, {FullJitter, 0, 0.001}, {EqualJitter, 0, 0.001}} {
		b := Backoff{Jitter: tt.jitter, Base: 50 * time.Millisecond}
		u, at, runs := uniform(7), 0, 20000
		for range runs {
			var s time.Duration
			for n := range 40 {
				s = b.Draw(n+1, s, u())
			}
			if s == 10*time.Second {
				at++
			}
		}
		if share := float64(at) / float64(runs); share < tt.low || share > tt.high {
			t.Errorf("jitter %d: got a share of %.3f at the cap, want %v to %v", tt.jitter, share, tt.low, tt.high)
		}
	}
}

func TestOriginsAreBoundedAndIdleOnesGoFirst(t *testing.T) {
	t.Parallel()
	born := time.Now()
	s := &origins{born: born}
	busy := s.of(&url.URL{Scheme: "http", Host: "busy"})
	busy.begin(&Options{Random: uniform(1)}, attempt{now: born})
	for i := range 3 * maxOrigins {
		s.of(&url.URL{Scheme: "http", Host: fmt.Sprint(i)})
	}
	if len(s.known) > maxOrigins {
		t.Errorf("got %d origins, want at most %d", len(s.known), maxOrigins)
	}
	if s.of(&url.URL{Scheme: "http", Host: "busy"}) != busy {
		t.Error("the origin in use was forgotten")
	}
}

func TestPoliciesOfAnOriginAreBounded(t *testing.T) {
	t.Parallel()
	var p paces
	opts := Options{}.withDefaults()
	now := time.Now()
	for i := range 1000 {
		p.learn("", quota{policy: fmt.Sprint(i), window: time.Duration(1000-i) * time.Second}, now, &opts)
	}
	if len(p) != maxPaces {
		t.Errorf("got %d paces, want %d", len(p), maxPaces)
	}
}

func FuzzQuotas(f *testing.F) {
	for _, s := range []string{`"api";r=12;t=5`, "limit=100, remaining=50, reset=30", `api;a=1;w=999999999999999`, `"a";r=1;pk=:AA==:`, `"a\"";r=0`} {
		f.Add(s, `"api";q=100;w=60`, "100, 100;w=60", "12", "1800000042")
	}
	f.Fuzz(func(t *testing.T, rateLimit, policy, limit, remaining, reset string) {
		now := time.Unix(1_800_000_000, 0)
		opts := Options{}.withDefaults()
		for _, h := range []http.Header{
			{"Ratelimit": {rateLimit}, "Ratelimit-Policy": {policy}},
			{"X-Ratelimit-Limit": {limit}, "X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {reset}},
		} {
			var p paces
			for _, q := range quotas(h, now) {
				if q.remaining < 0 || q.limit < 0 || q.window < 0 || q.window > forever {
					t.Fatalf("%q: got %+v", h, q)
				}
				p.learn("", q, now, &opts)
			}
			if wait := p.turn(attempt{now: now}, &opts); wait < 0 || wait > opts.MaxWait+opts.Backoff.Cap {
				t.Fatalf("%q: got a wait of %v", h, wait)
			}
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"-5", "0", "1e12", "1000000000000", "Thu, 01 Jan 1970 00:00:00 GMT", "NaN", "4", "Fri, 31 Dec 9999 23:59:59 GMT", ""} {
		f.Add(s, "")
		f.Add(s, "Sat, 01 Jan 2000 01:00:00 GMT")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		d, ok := retryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, time.Unix(1_800_000_000, 0))
		if ok != (d > 0) {
			t.Fatalf("%q: got %v, %v", value, d, ok)
		}
		b := Backoff{}.withDefaults()
		if wait := min(d, 10*time.Minute) + b.spread(1, min(d, 10*time.Minute), 0.999); ok && wait < min(d, 10*time.Minute) {
			t.Fatalf("%q: a wait of %v is shorter than the hint of %v", value, wait, d)
		}
	})
}

// uniform is a small generator for tests (xorshift64*).
func uniform(seed uint64) func() float64 {
	x := seed*0x9E3779B97F4A7C15 + 1
	return func() float64 {
		x ^= x >> 12
		x ^= x << 25
		x ^= x >> 27
		return float64(x*0x2545F4914F6CDD1D>>11) / (1 << 53)
	}
}
