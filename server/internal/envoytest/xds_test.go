package envoytest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	controlplane "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/internal/testserver"
)

// gateway is a management server, as Envoy Gateway has one for its rate limit service.
type gateway struct {
	cache cache.SnapshotCache
	addr  string
	stop  func()

	mu       sync.Mutex
	refusals []string // why clients have refused what they were sent
}

const (
	nodeID = "envoy-ratelimit"
	year   = config.RateLimitUnit(6) // which the package is too old to name
)

// startGateway runs a server on an address that asks its clients for certificates.
func startGateway(t *testing.T, addr string, creds *tls.Config) *gateway {
	t.Helper()
	g := &gateway{cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil)}
	callbacks := controlplane.CallbackFuncs{StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
		if detail := r.GetErrorDetail(); detail != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.refusals = append(g.refusals, detail.GetMessage())
		}
		return nil
	}}
	var l net.Listener
	wait(t, "the management server's port", func() (err error) {
		l, err = net.Listen("tcp", addr) // somebody may use it just now, as the near end of a connection
		return err
	})
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(creds)))
	discovery.RegisterAggregatedDiscoveryServiceServer(server, controlplane.NewServer(context.Background(), g.cache, callbacks))
	go server.Serve(l)
	g.addr, g.stop = l.Addr().String(), server.Stop
	t.Cleanup(g.stop)
	return g
}

// send makes the server send a configuration that lets a user do so many a year.
func (g *gateway) send(t *testing.T, version string, requests uint32, unit config.RateLimitUnit) {
	t.Helper()
	resources := map[resource.Type][]types.Resource{resource.RateLimitConfigType: {&config.RateLimitConfig{
		Name: "gateway", Domain: "envoy",
		Descriptors: []*config.RateLimitDescriptor{{
			Key: "user", RateLimit: &config.RateLimitPolicy{Unit: unit, RequestsPerUnit: requests},
		}},
	}}}
	snapshot, err := cache.NewSnapshot(version, resources)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cache.SetSnapshot(t.Context(), nodeID, snapshot); err != nil {
		t.Fatal(err)
	}
}

// credentialsOf are a server's that asks for certificates of the authority.
func credentialsOf(t *testing.T, a *authority, certFile, keyFile string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: a.Pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

// The environment is the one that Envoy Gateway gives its rate limit deployment, but for
// addresses, files and waits.
func TestEnvoyGatewaysEnvironmentStartsTheServiceWhichFollowsItsServer(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	local := func() *x509.Certificate {
		return &x509.Certificate{IPAddresses: []net.IP{{127, 0, 0, 1}}, DNSNames: []string{"localhost"}}
	}
	serverCert, serverKey := ca.issue(t, "gateway", local())
	cert, key := ca.issue(t, "ratelimit", local())
	creds := credentialsOf(t, ca, serverCert, serverKey)
	g := startGateway(t, "127.0.0.1:0", creds)

	port, err := testserver.Port(0)
	if err != nil {
		t.Fatal(err)
	}
	metrics := fmt.Sprint("127.0.0.1:", port)

	redis := redistest.Shared(t, redistest.Redis7)
	s := startService(t, original(t.TempDir(), "", redis.Addr,
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+g.addr, "CONFIG_GRPC_XDS_NODE_ID="+nodeID,
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+cert, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+key,
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+ca.file, "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+cert, "GRPC_SERVER_TLS_KEY="+key, "GRPC_SERVER_TLS_CA_CERT="+ca.file,
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR="+metrics, "PROMETHEUS_PATH=/metrics", "TRACING_ENABLED=false",
		"CACHE_KEY_PREFIX="+fresh("gateway"), "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL=50ms",
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=50ms", "XDS_CLIENT_BACKOFF_MAX_INTERVAL=50ms"))
	e := startEnvoy(t, listener{Name: "gateway", Service: s.grpc, Filter: patient, Cluster: ca.overTLS("", "")})
	c, bob := e.at("gateway"), []string{"x-user", "bob"}
	c.expect(t, []int{500}, "/user", bob...) // Envoy is told to deny without an answer

	g.send(t, "1", 1, year)
	c.untilLimit(t, 1)
	c.expect(t, once, "/user", bob...)

	g.send(t, "2", 2, config.RateLimitUnit_UNKNOWN)
	wait(t, "a refusal", func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !strings.Contains(strings.Join(g.refusals, "\n"), "unit") {
			return fmt.Errorf("refusals %q, want one of the unit", g.refusals)
		}
		return nil
	})
	c.expect(t, []int{429}, "/user", bob...)
	c.untilLimit(t, 1)

	g.stop()
	c.expect(t, []int{429}, "/user", bob...) // the last good configuration is kept
	g = startGateway(t, g.addr, creds)
	g.send(t, "3", 9, year)
	c.untilLimit(t, 9)

	text, err := page(metrics, "/metrics")
	if want := `ratelimit_service_rate_limit_over_limit{domain="envoy",key1="user"} 3`; err != nil || !strings.Contains(text, want) {
		t.Errorf("metrics: %v, want %s in:\n%s", err, want, text)
	}
}
