package envoytest

import (
	"fmt"
	"path/filepath"
	"testing"

	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/internal/testserver"
)

// A ping is a frame of 17 bytes.
func TestEnvoysPingsKeepAnIdleConnection(t *testing.T) {
	t.Parallel()
	s := startService(t, serve("testdata/rules.yaml", "memory:"))
	e := startEnvoy(t, listener{Name: "pinged", Service: s.grpc, Filter: patient, HTTP2: "connection_keepalive: {interval: 0.1s, timeout: 60s}"})
	c := e.at("pinged")
	c.expect(t, []int{200}, "/", "x-rule", "two", "x-user", "bob")
	const pings = 10
	start := e.stat(t, "cluster.pinged.upstream_cx_tx_bytes_total")
	wait(t, "ten pings", func() error {
		if err := e.wantStat(t, "cluster.pinged.upstream_cx_close_notify", 0); err != nil {
			return testserver.Permanent{Err: err} // the service has had enough
		}
		if sent := e.stat(t, "cluster.pinged.upstream_cx_tx_bytes_total") - start; sent < pings*17 {
			return fmt.Errorf("%d bytes sent, want %d", sent, pings*17)
		}
		return nil
	})
	c.expect(t, []int{200, 429}, "/", "x-rule", "two", "x-user", "bob")
	for name, want := range map[string]int{"upstream_cx_total": 1, "upstream_cx_close_notify": 0, "upstream_cx_destroy": 0} {
		if err := e.wantStat(t, "cluster.pinged."+name, want); err != nil {
			t.Error(err)
		}
	}
}

// healthCheck is how a cluster asks for the health of a service by a name.
func healthCheck(name string) []string {
	return []string{"health_checks: [{timeout: 60s, interval: 0.1s, no_traffic_interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1, " +
		fmt.Sprintf("grpc_health_check: {service_name: %q}}]", name)}
}

func TestHealthIsToldByEachNameThatProxiesAskFor(t *testing.T) {
	t.Parallel()
	s := startService(t, serve("testdata/rules.yaml", "memory:"))
	var known []string
	listeners := []listener{{Name: "other", Service: s.grpc, Filter: patient, Cluster: healthCheck("other")}}
	for i, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		known = append(known, fmt.Sprint("known", i))
		listeners = append(listeners, listener{Name: known[i], Service: s.grpc, Filter: patient, Cluster: healthCheck(name)})
	}
	e := startEnvoy(t, listeners...)
	untilHealthy := func(want int) {
		t.Helper()
		for _, name := range known {
			wait(t, "health", func() error { return e.wantStat(t, "cluster."+name+".membership_healthy", want) })
		}
	}
	untilHealthy(1)
	e.at(known[0]).expect(t, []int{200}, "/", "x-rule", "two", "x-user", "bob")
	wait(t, "a check by another name", func() error {
		if got := e.stat(t, "cluster.other.health_check.failure"); got == 0 {
			return fmt.Errorf("no check has failed")
		}
		return nil
	})
	if got := e.stat(t, "cluster.other.membership_healthy"); got != 0 {
		t.Errorf("by a name that the service does not know %d hosts are healthy, want 0", got)
	}
	s.Terminate()
	untilHealthy(0)
	s.restart(t)
	untilHealthy(1)
	e.at(known[0]).expect(t, []int{200}, "/", "x-rule", "two", "x-user", "bob")
}

func TestServiceOnAUnixSocket(t *testing.T) {
	t.Parallel()
	socket := "unix:" + filepath.Join(t.TempDir(), "weir.sock")
	s := startService(t, func(s *service) {
		s.grpc = socket
		serve("testdata/rules.yaml", "memory:")(s)
	})
	e := startEnvoy(t, listener{Name: "local", Service: s.grpc, Filter: patient})
	e.at("local").expect(t, twice, "/", "x-rule", "two", "x-user", "bob")
}

func TestTwoServicesOnOneRedisKeepTheLimitTogether(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t, redistest.Redis7)
	var listeners []listener
	for _, name := range []string{"left", "right"} {
		s := startService(t, serve("testdata/rules.yaml", "redis://"+redis.Addr+"?budget=30s"))
		listeners = append(listeners, listener{Name: name, Service: s.grpc, Filter: patient})
	}
	e := startEnvoy(t, listeners...)
	crowd := fresh("crowd")
	if passed, denied := crush(t, 200, crowd, e.at("left"), e.at("right")); passed != 50 || denied != 150 {
		t.Errorf("%d passed and %d were denied, want 50 and 150", passed, denied)
	}
}

// Envoy asks a service that stops until it has seen that, and its workers know. The wait
// is long for what Envoy needs, because the machine may be busy.
func TestServiceThatStopsIsLeftWithoutAnError(t *testing.T) {
	t.Parallel()
	rules, store := "testdata/rules.yaml", "memory:"
	stopping := startService(t, serve(rules, store, "--drain-wait", "8s"))
	staying := startService(t, serve(rules, store))
	e := startEnvoy(t, listener{Name: "both", Service: stopping.grpc, Second: staying.grpc, Filter: patient, Cluster: healthCheck("ratelimit")})
	wait(t, "both services", func() error { return e.wantStat(t, "cluster.both.membership_healthy", 2) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stopping.Terminate()
	}()
	for requests := 1; ; requests++ {
		if got := e.at("both").get(t, "/", "x-rule", "two", "x-user", fresh("bob")).status; got != 200 {
			t.Fatalf("request %d: status %d, want 200", requests, got)
		}
		select {
		case <-ended:
			e.at("both").expect(t, []int{200, 200}, "/", "x-rule", "two", "x-user", fresh("bob"))
			return
		default:
		}
	}
}
