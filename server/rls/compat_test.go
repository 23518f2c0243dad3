package rls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/memstore"
	"weir.dev/weir/redisstore"
)

const original = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: user, value: vip, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: path, value: "/files/*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: smooth, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: gcra}}
  - {key: allow, on_store_error: allow, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: deny, on_store_error: deny, rate_limit: {unit: hour, requests_per_unit: 3}}
  - key: several
    limits: [{unit: minute, requests_per_unit: 3}, {unit: hour, requests_per_unit: 3}]
`

func counters(t testing.TB) *memstore.Counters {
	t.Helper()
	c, err := memstore.NewCounters(memstore.CountersOptions{MaxKeys: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func startCompat(t testing.TB) *fixture {
	t.Helper()
	return startWith(t, inMemory(t), original, Options{Compat: &Compat{Counters: counters(t)}})
}

func TestCompatChargesEachDescriptorByItself(t *testing.T) {
	t.Parallel()
	f := startCompat(t)
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0, OK 2", descriptor("none=x"), descriptor("user=a"))
	f.expect(t, "OK: OK 1, OK 0", descriptor("user=a"), descriptor("user=a"))
}

func TestCompatCountsDenialsInFull(t *testing.T) {
	t.Parallel()
	f := startCompat(t)
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", withHits(descriptor("user=a"), 5))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", descriptor("user=a"))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", withHits(descriptor("user=b"), 1<<64-1))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", withHits(descriptor("user=b"), 1<<63-1))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", descriptor("user=b")) // where there it would overflow
}

func TestCompatLetsAPeekAtAFullLimitPass(t *testing.T) {
	t.Parallel()
	f := startCompat(t)
	f.expect(t, "OK: OK 0", withHits(descriptor("user=a"), 3))
	f.expect(t, "OK: OK 0", withHits(descriptor("user=a"), 0))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", descriptor("user=a"))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", withHits(descriptor("user=a"), 0))
	f.expect(t, "OK: OK 0", withHits(descriptor("none=a"), 0))
}

func TestCompatGivesBackButNeverMoreThanThereIs(t *testing.T) {
	t.Parallel()
	f := startCompat(t)
	refund := func(user string, hits uint64) *common.RateLimitDescriptor {
		d := withHits(descriptor("user="+user), hits)
		d.IsNegativeHits = true
		return d
	}
	f.expect(t, "OK: OK 3", refund("a", 2)) // of nothing
	f.expect(t, "OK: OK 0", withHits(descriptor("user=a"), 3))
	f.expect(t, "OK: OK 2, OK 2", refund("a", 2), descriptor("user=b"))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", withHits(descriptor("user=a"), 9)) // now at 10
	f.expect(t, "OK: OK 0", refund("a", 2))                                    // at 8, and OK nevertheless
	f.expect(t, "OK: OK 3", refund("a", 100))
	f.expect(t, "OK: OK 2", descriptor("user=a"))
	if got := f.count(t, "rate_limit_decisions_total", "user", "held_back"); got != 0 {
		t.Errorf("%v descriptors held back, want none", got)
	}
}

func TestCompatMatchesKeyAndValueJoined(t *testing.T) {
	t.Parallel()
	f := startCompat(t)
	f.expect(t, "OK: OK 99", descriptor("user=vip"))
	f.expect(t, "OK: OK 99", descriptor("user_vip="))
}

func TestCompatLeavesRulesThatNameAnAlgorithmToTheStore(t *testing.T) {
	t.Parallel()
	f := startCompat(t)
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 3", withHits(descriptor("smooth=a"), 4)) // which charges no denial
	f.expect(t, "OK: OK 2", descriptor("smooth=a"))
	f.expect(t, "OK: OK 2", descriptor("several=a")) // in one counter they would be charged twice
	f.expect(t, "OK: OK 1, OK 2", descriptor("smooth=a"), descriptor("user=a"))
}

func TestCompatLetsShadowPassWithNothingLeft(t *testing.T) {
	t.Parallel()
	f := startCompat(t)
	f.expect(t, "OK: OK 0", descriptor("trial=a"))
	f.expect(t, "OK: OK 0", descriptor("trial=a"))
}

func TestCompatTellsTheEndOfTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(600*time.Second + 400*time.Millisecond)
		s := compat(t, inMemory(t), counters(t), Options{})
		if err := s.SetRules(parse(t, original)); err != nil {
			t.Fatal(err)
		}
		for _, d := range []Descriptor{
			{Entries: entriesOf("user=a"), Hits: new(uint64)},
			{Entries: entriesOf("user=a")},
			{Entries: entriesOf("none=a")},
		} {
			a, err := s.Decide(t.Context(), &Request{Domain: "shop", Descriptors: []Descriptor{d}})
			if err != nil {
				t.Fatal(err)
			}
			if got := a.Statuses[0].ResetSeconds; got != 3000 {
				t.Errorf("%v: %d s, want the 3000 s that the hour has left", d.Entries, got)
			}
		}
	})
}

// TestMixedFleetCountsTogether writes the original's keys as that service does.
func TestMixedFleetCountsTogether(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	shared, err := redisstore.NewCounters(redisstore.CountersOptions{
		Options: redisstore.Options{Addrs: []string{redis.Addr}, Budget: 10 * time.Second}, KeyPrefix: "prefix_",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shared.Close() })
	f := startWith(t, inMemory(t), original, Options{Budget: 10 * time.Second, Compat: &Compat{Counters: shared}})
	window := func(period int64) int64 { return time.Now().Unix() / period * period }
	hour, day := window(3600), window(86400)
	user := fmt.Sprintf("prefix_shop_user_a_%d", hour)
	redis.Do("INCRBY", user, "2")
	redis.Do("EXPIRE", user, "3600")
	files := fmt.Sprintf("prefix_shop_path_/files/*_%d", day)
	redis.Do("INCRBY", files, "1")
	if window(3600) != hour {
		t.Skip("the hour ended meanwhile")
	}
	f.expect(t, "OK: OK 0, OK 0", descriptor("user=a"), descriptor("path=/files/1"))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0, OVER_LIMIT 0", descriptor("user=a"), descriptor("path=/files/2"))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", withLimit(descriptor("user=a"), 3, typev3.RateLimitUnit_HOUR)) // the same key, as there
	for key, want := range map[string]string{user: "5", files: "3"} {
		if got := fmt.Sprint(redis.Do("GET", key)); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
}

func TestCompatHasTheOriginalsVerdicts(t *testing.T) {
	t.Parallel()
	gone := &lostCounters{counters(t)}
	f := startWith(t, inMemory(t), original, Options{Budget: time.Second, Compat: &Compat{Counters: gone}})
	for _, tt := range []struct {
		name    string
		request *pb.RateLimitRequest
		code    codes.Code
		want    string
	}{
		{"no domain", &pb.RateLimitRequest{Descriptors: []*common.RateLimitDescriptor{descriptor("user=a")}}, codes.Unknown, "domain must not be empty"},
		{"no descriptors", &pb.RateLimitRequest{Domain: "shop"}, codes.Unknown, "descriptor list must not be empty"},
		{"no store", oneDescriptor(descriptor("user=a")), codes.Unknown, "no route"},
		{"unit 0", oneDescriptor(withLimit(descriptor("user=a"), 5, 0)), codes.InvalidArgument, "unit 0"},
	} {
		_, err := f.client.ShouldRateLimit(t.Context(), tt.request)
		if status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %v with %q", tt.name, err, tt.code, tt.want)
		}
	}
	f.expect(t, "OK: OK -", descriptor("allow=a"))
	f.expect(t, "OK: OK 0", descriptor("trial=a"))

	s := compat(t, inMemory(t), gone, Options{})
	_, err := s.Decide(t.Context(), &Request{Domain: "shop", Descriptors: make([]Descriptor, 1)})
	if err == nil || s.codeOf(err) != codes.Unknown || !strings.Contains(err.Error(), "no rate limit configuration loaded") {
		t.Errorf("without rules: got %v, want Unknown", err)
	}
}

// lostCounters cannot be reached.
type lostCounters struct{ Counters }

var errLost = errors.New("no route to the counters")

func (lostCounters) Take(context.Context, weir.Ask) (weir.Decision, error) {
	return weir.Decision{}, errLost
}

func (lostCounters) TakeAll(context.Context, []weir.Ask, []weir.Decision) error { return errLost }

func (lostCounters) GiveBack(context.Context, weir.Ask) (weir.Decision, error) {
	return weir.Decision{}, errLost
}

func TestCompatRefundsAsTheRuleSaysWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), original, Options{Budget: time.Second, Compat: &Compat{Counters: lostCounters{counters(t)}}})
	refund := func(entry string) *common.RateLimitDescriptor {
		d := descriptor(entry)
		d.IsNegativeHits = true
		return d
	}
	f.expect(t, "OK: OK -", refund("allow=a"))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", refund("deny=a"))
	f.expect(t, "OK: OK 0", refund("trial=a"))
	if _, err := f.client.ShouldRateLimit(t.Context(), oneDescriptor(refund("user=a"))); status.Code(err) != codes.Unknown {
		t.Errorf("where the rule says nothing: got %v, want Unknown", err)
	}
}

func TestCompatAnswersJSONOfAnyMethod(t *testing.T) {
	t.Parallel()
	s := compat(t, inMemory(t), counters(t), Options{})
	if err := s.SetRules(parse(t, original)); err != nil {
		t.Fatal(err)
	}
	gone := compat(t, inMemory(t), lostCounters{counters(t)}, Options{})
	if err := gone.SetRules(parse(t, original)); err != nil {
		t.Fatal(err)
	}
	const user = `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`
	for _, tt := range []struct {
		service      *Service
		method, body string
		want         int
	}{
		{s, "POST", user, 200},
		{s, "GET", user, 200},
		{s, "DELETE", user, 200},
		{s, "PUT", user, 429},
		{s, "GET", "", 400},
		{s, "POST", `{"domain":"shop","unknown":1}`, 400},
		{s, "POST", `{"domain":"shop"}`, 400},
		{s, "POST", strings.Repeat(" ", MaxMessageBytes+1), 400},
		{gone, "POST", user, 400},
	} {
		w := httptest.NewRecorder()
		tt.service.ServeHTTP(w, httptest.NewRequest(tt.method, "/json", strings.NewReader(tt.body)))
		if w.Code != tt.want {
			t.Errorf("%s %.80q: got %d %s, want %d", tt.method, tt.body, w.Code, w.Body, tt.want)
		}
		if want := "application/json"; w.Code != http.StatusBadRequest && w.Header().Get("Content-Type") != want {
			t.Errorf("content-type is %q, want %q", w.Header().Get("Content-Type"), want)
		}
	}
}

func TestCompatAnswersBeforeItsCallersDeadlineThoughRedisHangs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	shared, err := redisstore.NewCounters(redisstore.CountersOptions{Options: redisstore.Options{Addrs: []string{redis.Addr}, Budget: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shared.Close() })
	s := compat(t, inMemory(t), shared, Options{Budget: time.Second})
	if err := s.SetRules(parse(t, original)); err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context, d Descriptor) error {
		_, err := s.Decide(ctx, &Request{Domain: "shop", Descriptors: []Descriptor{d, {Entries: entriesOf("user=b")}}})
		return err
	}
	if err := ask(t.Context(), Descriptor{Entries: entriesOf("user=a")}); err != nil {
		t.Fatal(err)
	}
	redis.Pause()
	defer redis.Resume()
	for _, refund := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := ask(ctx, Descriptor{Entries: entriesOf("user=a"), Refund: refund})
		if err == nil || ctx.Err() != nil || s.codeOf(err) != codes.Unknown {
			t.Errorf("refund %v: got %v with the caller gone: %v, want Unknown in time", refund, err, ctx.Err() != nil)
		}
		cancel()
	}
}

func TestCompatTellsNothingThatTheOriginalDoesNot(t *testing.T) {
	t.Parallel()
	f := startCompat(t)
	if got := f.ask(t, descriptor("user=a"), descriptor("smooth=a")); got.DynamicMetadata != nil || got.ResponseHeadersToAdd != nil {
		t.Errorf("got %v, want statuses alone", got)
	}
	f = startWith(t, inMemory(t), original, Options{Compat: &Compat{Counters: counters(t)}, Metadata: true})
	expectMetadata(t, f.ask(t, descriptor("user=a")), `{"domain": "shop", "descriptors": [{"entries": ["user=a"]}]}`)
}
