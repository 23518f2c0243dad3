package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/redisstore"
)

// Of 8 a year, one of two instances serves 4 by itself.
const resilientRules = `
domain: shop
descriptors:
  - {key: local, rate_limit: {unit: year, requests_per_unit: 8}}
  - {key: allow, rate_limit: {unit: year, requests_per_unit: 1000000, on_store_error: allow}}
  - {key: deny, rate_limit: {unit: year, requests_per_unit: 8, on_store_error: deny}}
`

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startResilient runs one of two instances of a service on a Redis server.
func startResilient(t *testing.T, addr, parameters string) (*running, pb.RateLimitServiceClient, *lines) {
	t.Helper()
	opts := localOptions(writeRules(t, resilientRules))
	opts.store, opts.instances = "redis://"+addr+parameters, 2
	log := &lines{}
	s, err := newServer(opts, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r := runServer(t, s)
	return r, pb.NewRateLimitServiceClient(dial(t, s.grpc)), log
}

// reply is what became of a request: "OK by store", "OVER_LIMIT by policy", and the class
// of the cause.
type reply struct{ code, source, cause string }

func ask(ctx context.Context, client pb.RateLimitServiceClient, key, value string) (reply, error) {
	answer, err := client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}},
	}}})
	fields := answer.GetDynamicMetadata().GetFields()
	return reply{answer.GetOverallCode().String(), fields["source"].GetStringValue(), fields["cause"].GetStringValue()}, err
}

// until asks until it comes true: what a server of its own does takes its time.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after 30 s still not: %s", what)
		}
	}
}

// central waits until the service is asking its store.
func central(t *testing.T, client pb.RateLimitServiceClient) {
	t.Helper()
	until(t, "decided by the store", func() bool {
		got, err := ask(t.Context(), client, "allow", "poll")
		if err != nil {
			t.Fatal(err)
		}
		return got.source == "store"
	})
}

// expectPolicies asks each rule while the store is away, and returns how many of ten
// requests of one client passed by the fallback.
func expectPolicies(t *testing.T, client pb.RateLimitServiceClient, outage string) (passed int) {
	t.Helper()
	for range 10 {
		got, err := ask(t.Context(), client, "local", "x")
		if err != nil || got.source != "fallback" || got.cause == "" {
			t.Errorf("%s: local answers %v, %v, want an answer by the fallback and why", outage, got, err)
		}
		if got.code == "OK" {
			passed++
		}
		if got, err := ask(t.Context(), client, "allow", "x"); err != nil || got.code != "OK" || got.source != "policy" {
			t.Errorf("%s: allow answers %v, %v, want OK by policy", outage, got, err)
		}
		if got, err := ask(t.Context(), client, "deny", "x"); err != nil || got.code != "OVER_LIMIT" || got.source != "policy" {
			t.Errorf("%s: deny answers %v, %v, want OVER_LIMIT by policy", outage, got, err)
		}
	}
	return passed
}

// metric returns the value of a metric's first series, as text, or "".
func metric(t *testing.T, s *running, name string) string {
	t.Helper()
	_, body := get(t, s.http, "/metrics")
	match := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`).FindStringSubmatch(body)
	if match == nil {
		return ""
	}
	return match[1]
}

func TestServiceAnswersByPolicyThroughAHangAndACrashAndIsCentralAgainByItself(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s, client, log := startResilient(t, redis.Addr, "")
	central(t, client)

	redis.Pause()
	passed := expectPolicies(t, client, "stopped")
	if got := metric(t, s, "rate_limit_store_node_opened_total"); got == "" || got == "0" {
		t.Errorf("a node that hangs became avoided %q times, want once or more", got)
	}
	redis.Resume()
	central(t, client)

	redis.Kill()
	passed += expectPolicies(t, client, "killed")
	redis.Restart()
	central(t, client)

	if passed != 4 {
		t.Errorf("%d passed by the fallback in two outages, want the share of 4: flapping mints nothing", passed)
	}
	if got := metric(t, s, "rate_limit_fallback_activations_total"); got == "" {
		t.Error("no activation of a fallback was counted")
	}
	if got := log.String(); strings.Contains(got, "level=ERROR") == false || strings.Count(got, "\n") > 30 {
		t.Errorf("the log should tell of the outages, in a few lines:\n%s", got)
	}
}

func TestServiceStartsByPolicyWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	redis.Kill()
	s, client, _ := startResilient(t, redis.Addr, "")
	if out, status := commandStatus(t, "ask", "--addr", s.grpc.Addr().String(), "--domain", "shop", "allow=x"); status != 0 ||
		!strings.Contains(out, "allowed: what is left is not known\ndecided by the policy, for the store could not: unreachable") {
		t.Errorf("weir ask: status %d, want 0 and why:\n%s", status, out)
	}
	if passed := expectPolicies(t, client, "away from the start"); passed != 4 {
		t.Errorf("%d passed by the fallback, want the share of 4", passed)
	}
	redis.Restart()
	central(t, client)
}

// What is wrong with one key is not wrong with the node.
func TestStateThatIsNotOursIsDecidedByPolicyForItsKeyAlone(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s, client, _ := startResilient(t, redis.Addr, "?budget=30s")
	if got, err := ask(t.Context(), client, "deny", "x"); err != nil || got.source != "store" {
		t.Fatalf("got %v, %v, want an answer by the store", got, err)
	}
	keys, _ := redis.Do("KEYS", "*").([]any)
	if len(keys) != 1 {
		t.Fatalf("got the keys %v, want one", keys)
	}
	redis.Do("DEL", keys[0].(string))
	redis.Do("RPUSH", keys[0].(string), "not ours")
	for range 20 {
		if got, err := ask(t.Context(), client, "deny", "x"); err != nil || got != (reply{"OVER_LIMIT", "policy", "corrupt"}) {
			t.Fatalf("got %v, %v, want OVER_LIMIT by policy, because of corrupt state", got, err)
		}
		if got, err := ask(t.Context(), client, "allow", "x"); err != nil || got.source != "store" {
			t.Fatalf("another key: got %v, %v, want an answer by the store", got, err)
		}
	}
	if got := metric(t, s, "rate_limit_store_node_opened_total"); got != "0" {
		t.Errorf("the node became avoided %s times, want 0", got)
	}
	if got := metric(t, s, "rate_limit_fallback_activations_total"); got != "20" {
		t.Errorf("%s activations, want 20", got)
	}
}

// With a budget of 30 s nothing but the caller's deadline ends a question to a server that
// hangs. The first deadline is Envoy's; the longer ones are for a machine that is busy.
func TestProxysDeadlineIsMetByPolicy(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s, client, _ := startResilient(t, redis.Addr, "?budget=30s")
	central(t, client)
	redis.Pause()
	var seen []string
	met := false
	for wait := 20 * time.Millisecond; !met && wait <= 160*time.Millisecond; wait *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		got, err := ask(ctx, client, "local", "x")
		cancel()
		met = err == nil && got.code == "OK" && got.source == "fallback"
		seen = append(seen, fmt.Sprint(wait, ": ", got, " ", err))
		if err != nil && status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%v: got %v, want an answer", wait, err)
		}
	}
	if !met {
		t.Errorf("no caller got an answer by the fallback:\n%s", strings.Join(seen, "\n"))
	}
	until(t, "such callers make the service avoid the node", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		ask(ctx, client, "allow", "x") // what it answers is seen above
		n := metric(t, s, "rate_limit_store_node_opened_total")
		return n != "" && n != "0"
	})
}

func TestNodesThatComeAndGoAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := nodeWatch{log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))}
	start := time.Now()
	see := func(second int, a, b redisstore.State, timeouts int64) {
		w.see([]redisstore.Node{
			{Addr: "a:1", State: a, Failures: map[redisstore.Class]int64{redisstore.Timeout: timeouts, redisstore.Loading: 1}},
			{Addr: "b:2", State: b},
		}, start.Add(time.Duration(second)*time.Second))
	}
	see(0, redisstore.Healthy, redisstore.Healthy, 0)
	see(1, redisstore.Avoided, redisstore.Healthy, 5)
	see(2, redisstore.Tried, redisstore.Healthy, 6)
	see(3, redisstore.Avoided, redisstore.Healthy, 7)
	see(4, redisstore.Returning, redisstore.Healthy, 7)
	see(5, redisstore.Healthy, redisstore.Healthy, 7)
	want := `level=WARN msg="a node of the store fails and is avoided" node=a:1 class=timeout
level=INFO msg="a node of the store answers again" node=a:1 after=3s
`
	if got := log.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestBudgetAndInstancesAreReadAndChecked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		environment map[string]string
		want        string // of the error; "" is none
	}{
		{map[string]string{"WEIR_INSTANCES": "3", "WEIR_STORE_BUDGET": "15ms"}, ""},
		{map[string]string{"WEIR_INSTANCES": "0"}, "write a number from 1"},
		{map[string]string{"WEIR_INSTANCES": "many"}, "write a number from 1"},
		{map[string]string{"WEIR_INSTANCES": ""}, "write a number from 1"},
		{map[string]string{"WEIR_STORE_BUDGET": "15"}, "WEIR_STORE_BUDGET"},
	} {
		flags := newServeCommand().Flags()
		err := setFromEnvironment(flags, func(name string) (string, bool) { v, ok := test.environment[name]; return v, ok })
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%v: got %v, want %q", test.environment, err, test.want)
		}
		if test.want == "" {
			if got := fmt.Sprint(flags.Lookup("instances").Value, " ", flags.Lookup("store-budget").Value); got != "3 15ms" {
				t.Errorf("%v: got %s, want 3 15ms", test.environment, got)
			}
		}
	}
	for _, test := range []struct {
		url    string
		budget time.Duration
		want   string
	}{
		{"redis://h", -time.Second, "a budget of -1s"},
		{"redis://h", time.Hour, "a budget of 1h0m0s"},
		{"redis://h?budget=10ms", 15 * time.Millisecond, "leave one of them out"},
	} {
		if _, err := newStore(test.url, test.budget); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %v: got %v, want an error with %q", test.url, test.budget, err, test.want)
		}
	}
	opts := localOptions(writeRules(t, strings.Replace(resilientRules, "8}", "8, on_store_error: local}", 1)))
	if _, err := newServer(opts, slog.New(slog.NewTextHandler(io.Discard, nil))); err == nil || !strings.Contains(err.Error(), "rules.yaml:4:") || !strings.Contains(err.Error(), "WEIR_INSTANCES") {
		t.Errorf("local without instances: got %v, want an error with the line and WEIR_INSTANCES", err)
	}
}

// Two instances with leases on one window together let pass what it holds, but for the
// blocks that were never spent.
func TestLeasesOfTwoServicesKeepTheLimit(t *testing.T) {
	t.Parallel()
	const limit, instances, block = 1000, 2, 20
	rules := writeRules(t, fmt.Sprintf(`
domain: shop
descriptors:
  - {key: hot, rate_limit: {unit: year, requests_per_unit: %d, lease: {max: %d, expiry: 1s}}}
`, limit, block))
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	var services []*running
	var passed, leased atomic.Int64
	var asking sync.WaitGroup
	for range instances {
		opts := localOptions(rules)
		opts.store, opts.instances = "redis://"+redis.Addr+"?budget=30s", instances
		s, err := newServer(opts, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		services = append(services, runServer(t, s))
		client := pb.NewRateLimitServiceClient(dial(t, s.grpc))
		until(t, "decided by the store", func() bool {
			got, err := ask(t.Context(), client, "hot", "poll")
			return err == nil && got.source == "store"
		})
		for range 4 {
			asking.Go(func() {
				for range limit * 3 / 2 / (4 * instances) {
					got, err := ask(t.Context(), client, "hot", "x")
					if err != nil || got.cause != "" {
						t.Errorf("got %v, %v, want an answer by the store or by what was taken ahead", got, err)
						return
					}
					if got.code == "OK" {
						passed.Add(1)
						if got.source == "lease" {
							leased.Add(1)
						}
					}
				}
			})
		}
	}
	asking.Wait()
	// Near the end a block comes short, and each instance may hold one and a fifth of it.
	if got := passed.Load(); got > limit || got < limit-instances*block*6/5 || leased.Load() == 0 {
		t.Errorf("%d of %d passed, %d by leases; want all but the blocks left over, never more, and some by leases", got, limit, leased.Load())
	}
	for _, s := range services {
		if got := metric(t, s, "rate_limit_lease_store_calls_total"); got == "" || got == "0" {
			t.Errorf("%q calls to the store counted, want some", got)
		}
	}
}
