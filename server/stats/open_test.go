package stats

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

func TestBadOptionsAreAllNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		opts Options
		want []string
	}{
		{Options{Statsd: true, Prometheus: true}, []string{"USE_STATSD and USE_PROMETHEUS are on"}},
		{Options{Statsd: true, Dogstatsd: true, Prometheus: true, Port: -1, Network: "sctp", FlushInterval: -1},
			[]string{"USE_STATSD and USE_DOG_STATSD and USE_PROMETHEUS are on", "port -1", `protocol "sctp": write tcp or udp`, "flush interval -1ns"}},
		{Options{Dogstatsd: true, Network: "tcp"}, []string{"dogstatsd has UDP alone"}},
		{Options{Dogstatsd: true, Mogrifiers: []Mogrifier{{Label: "X"}}}, []string{"DOG_STATSD_MOGRIFIER_X_PATTERN is empty"}},
		{Options{Prometheus: true, MapperFile: "testdata/none.yaml"}, []string{"PROMETHEUS_MAPPER_YAML", "testdata/none.yaml"}},
		{Options{Prometheus: true, ExtraTags: map[string]string{"le": "x"}}, []string{`extra tag "le"`}},
	} {
		sink, err := Open(New(), c.opts)
		if err == nil {
			sink.Close(t.Context())
			t.Errorf("%+v: got no error, want %q", c.opts, c.want)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got %v, want %q in it", c.opts, err, want)
			}
		}
	}
}

func TestDisabledHasNoSinkWhateverElseIsSaid(t *testing.T) {
	t.Parallel()
	sink, err := Open(New(), Options{Statsd: true, Prometheus: true, Disabled: true})
	if err != nil {
		t.Fatal(err)
	}
	if c := sink.Collector(); c != nil {
		t.Errorf("got the collector %v, want none", c)
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSecondSinkIsRefused(t *testing.T) {
	t.Parallel()
	r := New()
	if _, err := Open(r, Options{Prometheus: true}); err != nil {
		t.Fatal(err)
	}
	r.Timer("t").Observe(1)
	if _, err := Open(r, Options{Statsd: true}); err == nil || !strings.Contains(err.Error(), "has a sink already") {
		t.Errorf("got %v, want an error", err)
	}
}

func TestOpenConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	l := listenTCP(t)
	r := New()
	dial := CountConns(r, "ratelimit.redis_pool", func(ctx context.Context, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	})
	check := func(active int64, total, closed uint64) {
		t.Helper()
		a, n, c := r.Gauge("ratelimit.redis_pool.cx_active").Value(), r.Counter("ratelimit.redis_pool.cx_total").Value(), r.Counter("ratelimit.redis_pool.cx_local_close").Value()
		if a != active || n != total || c != closed {
			t.Errorf("got %d active, %d in total, %d closed, want %d, %d, %d", a, n, c, active, total, closed)
		}
	}
	var conns []net.Conn
	for range 2 {
		conn, err := dial(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	check(2, 2, 0)
	conns[0].Close()
	conns[0].Close()
	check(1, 2, 1)
	conns[1].Close()
	check(0, 2, 2)
	l.Close()
	if conn, err := dial(t.Context(), l.Addr().String()); err == nil {
		conn.Close()
		t.Skip("another process has taken the port")
	}
	check(0, 2, 2)
}

// The sink here is a socket that prints what comes.
func Example() {
	agent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer agent.Close()

	registry := New()
	sink, err := Open(registry, Options{
		Dogstatsd: true,
		Host:      "127.0.0.1",
		Port:      agent.LocalAddr().(*net.UDPAddr).Port,
		ExtraTags: map[string]string{"zone": "eu"},
	})
	if err != nil {
		panic(err)
	}
	registry.Configured("ratelimit.service.rate_limit.shop.path_/pay.total_hits").Add(2)
	registry.Timer("ratelimit_server.ShouldRateLimit.response_time").Observe(340 * time.Microsecond)
	if err := sink.Close(context.Background()); err != nil { // or every FlushInterval
		panic(err)
	}

	datagram := make([]byte, 1500)
	n, _, err := agent.ReadFrom(datagram)
	if err != nil {
		panic(err)
	}
	fmt.Print(string(datagram[:n]))
	// Output:
	// ratelimit.service.rate_limit.shop.path_/pay.total_hits:2|c|#zone:eu
	// ratelimit_server.ShouldRateLimit.response_time:0.34|ms|#zone:eu
}
