//go:build unix

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	controlplane "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/server/xds"
)

// denied are rules of the domain lab for which each value of a key is over the limit.
func denied(key string) string {
	return "domain: lab\ndescriptors:\n  - key: " + key + "\n    rate_limit: {unit: hour, requests_per_unit: 0}\n"
}

// start runs a service in weir's own mode until the test ends.
func start(t *testing.T, opts serveOptions) (*running, *lines) {
	t.Helper()
	log := &lines{}
	s, err := newServer(opts, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return runServer(t, s), log
}

// expectLog checks that the log has each text.
func expectLog(t *testing.T, log fmt.Stringer, texts ...string) {
	t.Helper()
	for _, want := range texts {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

// expectMetrics checks that a service's own metrics have each line.
func expectMetrics(t *testing.T, s *running, lines ...string) {
	t.Helper()
	_, metrics := get(t, s.http, "/metrics")
	for _, want := range lines {
		if !strings.Contains(metrics, "\n"+want+"\n") {
			t.Errorf("the metrics lack %q", want)
		}
	}
}

func TestChangedRulesAreInForceAndBadOnesNever(t *testing.T) {
	t.Parallel()
	file := writeRules(t, denied("a"))
	s, log := start(t, localOptions(file))
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := askLab(t, s, "a", "x"); got != "OVER_LIMIT" {
		t.Fatalf("at first: %s, want OVER_LIMIT", got)
	}
	write(denied("b"))
	until(t, "the new rules", func() bool { return askLab(t, s, "b", "x") == "OVER_LIMIT" })
	if got := askLab(t, s, "a", "x"); got != "OK" {
		t.Errorf("a rule that is gone: %s, want OK", got)
	}
	write("domain: lab\ndescriptors:\n  - key: c\n    rate_limit: {unit: fortnight, requests_per_unit: 0}\n")
	until(t, "the fault in the log", func() bool { return strings.Contains(log.String(), file+":4:24") })
	expectLog(t, log, `fault="unknown unit \"fortnight\"`, "those before stay in force")
	if got := askLab(t, s, "b", "x"); got != "OVER_LIMIT" {
		t.Errorf("after bad rules: %s, want OVER_LIMIT by those before", got)
	}
	write(denied("c"))
	until(t, "the rules made good", func() bool { return askLab(t, s, "c", "x") == "OVER_LIMIT" })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	until(t, "the missing file in the log", func() bool { return strings.Contains(log.String(), "no such file") })
	if got := askLab(t, s, "c", "x"); got != "OVER_LIMIT" {
		t.Errorf("without the file: %s, want OVER_LIMIT by the rules before", got)
	}
}

func TestLoadsAreCountedByTheOriginalsNamesToo(t *testing.T) {
	t.Parallel()
	root := runtimeOf(t, denied("a"))
	s, log := startCompat(t, "RUNTIME_ROOT", root)
	if err := os.WriteFile(filepath.Join(root, "config", "more"), []byte("nonsense"), 0o600); err != nil { // any name counts there
		t.Fatal(err)
	}
	until(t, "the fault in the log", func() bool { return strings.Contains(log.String(), "more:1:1") })
	if err := os.Remove(filepath.Join(root, "config", "more")); err != nil {
		t.Fatal(err)
	}
	until(t, "the rules without it", func() bool { return s.counts.Counter("ratelimit.service.config_load_success").Value() == 2 })
	if got := s.counts.Counter("ratelimit.service.config_load_error").Value(); got != 1 {
		t.Errorf("config_load_error %d, want 1", got)
	}
	expectMetrics(t, s, `rate_limit_rules_loads_total{outcome="success"} 2`, `rate_limit_rules_loads_total{outcome="error"} 1`)
}

func TestCompatLimitsNothingUntilThereAreRules(t *testing.T) {
	t.Parallel()
	root, redis := t.TempDir(), redistest.Start(t, redistest.Redis7, redistest.Options{})
	s, log := startCompat(t, onRedis(redis, "RUNTIME_ROOT", root)...)
	if got := askLab(t, s, "a", "x"); got != "OK" {
		t.Errorf("without rules: %s, want OK", got)
	}
	expectLog(t, log, "there are no rules, so nothing is limited")
	writeConfig(t, root, denied("a"))
	until(t, "the first rules", func() bool { return askLab(t, s, "a", "x") == "OVER_LIMIT" })
	if err := os.RemoveAll(filepath.Join(root, "config")); err != nil {
		t.Fatal(err)
	}
	until(t, "the missing rules in the log", func() bool { return strings.Contains(log.String(), "those before stay in force") })
	if got := askLab(t, s, "a", "x"); got != "OVER_LIMIT" {
		t.Errorf("without rules again: %s, want OVER_LIMIT by those before", got)
	}
}

func TestAHangupReadsTheRulesAgain(t *testing.T) {
	t.Parallel()
	p := startProgram(t, "ratelimit", "USE_STATSD=false", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "LOG_LEVEL=info", "RUNTIME_ROOT="+runtimeOf(t, denied("a")))
	if got, want := strings.Count(p.log.String(), "rules loaded"), 1; got != want {
		t.Fatalf("rules loaded %d times, want %d", got, want)
	}
	p.Process.Signal(syscall.SIGHUP)
	until(t, "rules loaded again", func() bool { return strings.Count(p.log.String(), "rules loaded") == 2 })
}

// management is a management server.
type management struct {
	cache    cache.SnapshotCache
	addr     string
	refusals chan string
}

// startManagement runs one until the test ends.
func startManagement(t *testing.T) *management {
	t.Helper()
	m := &management{cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil), refusals: make(chan string, 100)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.addr = l.Addr().String()
	g := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(g, controlplane.NewServer(context.Background(), m.cache, controlplane.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			if why := r.GetErrorDetail(); why != nil {
				m.refusals <- why.GetMessage()
			}
			return nil
		},
	}))
	go g.Serve(l)
	t.Cleanup(g.Stop)
	return m
}

// set gives the rules of a domain to a node: those that deny a key, in an hour or in the unit.
func (m *management) set(t *testing.T, node, version, key string, unit config.RateLimitUnit) {
	t.Helper()
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: {
		&config.RateLimitConfig{Name: "eg/lab", Domain: "lab", Descriptors: []*config.RateLimitDescriptor{
			{Key: "other"}, {Key: key, RateLimit: &config.RateLimitPolicy{Unit: unit}},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cache.SetSnapshot(context.Background(), node, snapshot); err != nil {
		t.Fatal(err)
	}
}

func TestRulesComeFromAManagementServer(t *testing.T) {
	t.Parallel()
	m := startManagement(t)
	opts := localOptions()
	opts.xds = "grpc://" + m.addr + "?node=weir-1"
	s, log := start(t, opts)
	expectHealth(t, s, healthpb.HealthCheckResponse_NOT_SERVING, 503)
	m.set(t, "weir-1", "1", "a", config.RateLimitUnit_HOUR)
	until(t, "the first rules", func() bool { return askLab(t, s, "a", "x") == "OVER_LIMIT" })
	expectHealth(t, s, healthpb.HealthCheckResponse_SERVING, 200)
	m.set(t, "weir-1", "2", "b", 9)
	const fault = `eg/lab: descriptors[1].rate_limit.unit: unknown unit "9"`
	if got := <-m.refusals; !strings.HasPrefix(got, fault) {
		t.Errorf("refused with %q, want %q", got, fault)
	}
	expectLog(t, log, `at="eg/lab: descriptors[1].rate_limit.unit"`, "those before stay in force")
	if got := askLab(t, s, "a", "x"); got != "OVER_LIMIT" {
		t.Errorf("after bad rules: %s, want OVER_LIMIT by those before", got)
	}
	m.set(t, "weir-1", "3", "c", 7)
	until(t, "the rules made good", func() bool { return askLab(t, s, "c", "x") == "OVER_LIMIT" })
	expectMetrics(t, s, "rate_limit_xds_connected 1", `rate_limit_rules_loads_total{outcome="success"} 2`, `rate_limit_rules_loads_total{outcome="error"} 1`)
}

func TestTheOriginalsSettingsReachTheManagementServer(t *testing.T) {
	t.Parallel()
	m := startManagement(t)
	m.set(t, "envoy-ratelimit", "1", "a", config.RateLimitUnit_HOUR)
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s, _ := startCompat(t, onRedis(redis, "CONFIG_TYPE", "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL", m.addr, "CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit")...)
	until(t, "the first rules", func() bool { return askLab(t, s, "a", "x") == "OVER_LIMIT" })
	expectHealth(t, s, healthpb.HealthCheckResponse_SERVING, 200)
	if got := s.counts.Counter("ratelimit.service.config_load_success").Value(); got != 1 {
		t.Errorf("config_load_success %d, want 1", got)
	}
}

func TestTheURLOfAManagementServerSaysHowToReachIt(t *testing.T) {
	t.Parallel()
	target, opts, err := parseXDSURL("grpcs://xds.example:18001?node=n&ca=a.pem&cert=c.pem&key=k.pem&server_name=s")
	if err != nil {
		t.Fatal(err)
	}
	if want := (xds.TLS{CA: "a.pem", Cert: "c.pem", Key: "k.pem", Name: "s"}); target != "xds.example:18001" || opts.NodeID != "n" || opts.TLS == nil || *opts.TLS != want {
		t.Errorf("got %q, node %q and TLS %+v, want xds.example:18001, n and %+v", target, opts.NodeID, opts.TLS, want)
	}
	if _, opts, err := parseXDSURL("grpc://[::1]:18000"); err != nil || opts.TLS != nil {
		t.Errorf("without TLS: got %+v, %v", opts.TLS, err)
	}
	for text, want := range map[string]string{
		"xds.example:18000":                 "no URL of a management server",
		"http://xds.example:18000":          "no URL of a management server",
		"grpc://xds.example:18000/path":     "no URL of a management server",
		"grpc://xds.example":                "write HOST:PORT",
		"grpc://:18000":                     "write HOST:PORT",
		"grpc://xds.example:1?ca=a.pem":     `unknown parameter "ca"`,
		"grpcs://xds.example:1?nodes=1&x=2": `unknown parameter "nodes"`,
		"grpc://xds.example:1?node=%zz":     "invalid URL escape",
	} {
		if _, _, err := parseXDSURL(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the error %v, want one that says %q", text, err, want)
		}
	}
	both := localOptions("rules.yaml")
	both.xds = "grpc://xds.example:18000"
	missing := localOptions()
	missing.xds = "grpcs://xds.example:18000?ca=" + filepath.Join(t.TempDir(), "none.pem")
	for opts, want := range map[*serveOptions]string{&both: "--config and --xds are both here", &missing: "none.pem"} {
		if _, err := newServer(*opts, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one that says %q", err, want)
		}
	}
}

func FuzzXDSURL(f *testing.F) {
	f.Add("grpcs://xds.example:18001?node=n&ca=a.pem&cert=c.pem&key=k.pem&server_name=s")
	f.Add("grpc://[::1]:18000?")
	f.Fuzz(func(t *testing.T, text string) {
		target, opts, err := parseXDSURL(text)
		if err != nil {
			return
		}
		if host, port, err := net.SplitHostPort(target); err != nil || host == "" || port == "" {
			t.Errorf("%q: got the target %q, want HOST:PORT", text, target)
		}
		if secure := strings.HasPrefix(strings.ToLower(text), "grpcs:"); secure != (opts.TLS != nil) {
			t.Errorf("%q: got TLS %+v, want it where the URL begins with grpcs:", text, opts.TLS)
		}
	})
}
