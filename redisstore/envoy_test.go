package redisstore

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"weir.dev/weir/internal/countercases"
	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/internal/testserver"
)

// envoyConfig is an Envoy whose redis_proxy listens on one port and asks a server on another.
const envoyConfig = `
static_resources:
  listeners:
  - name: redis
    address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: redis
          settings: {op_timeout: 5s}
          prefix_routes: {catch_all_route: {cluster: redis}}
  clusters:
  - name: redis
    type: STATIC
    load_assignment:
      cluster_name: redis
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %s}}}
`

// envoyBefore starts an Envoy before a server, and returns where it listens.
func envoyBefore(t *testing.T, server *redistest.Server) (addr string) {
	t.Helper()
	port, err := testserver.Port(0)
	if err != nil {
		t.Fatal(err)
	}
	_, to, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, envoyConfig, port, to), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := testserver.Find("envoy")
	if err != nil {
		t.Fatal(err)
	}
	envoy := &testserver.Process{Path: path, Args: []string{"-c", config, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"}}
	if err := envoy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(envoy.Kill)
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := testserver.Poll(func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	}); err != nil {
		t.Fatalf("%v\n%s", err, envoy.Output())
	}
	return addr
}

func TestCountersWorkThroughEnvoysRedisProxy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	through := Options{Addrs: []string{envoyBefore(t, server)}, RESP2: true}
	counts(t, through)
	through.Budget = time.Second
	c := openCounters(t, CountersOptions{Options: through})
	server.Kill()
	_, err := c.Take(ctx, countercases.AskOf("away", 5, time.Hour, 1))
	if class, _ := classOf(t, err); class != Timeout && class != Unreachable {
		t.Errorf("without the server: got %v, want timeout or unreachable", err)
	}
}
