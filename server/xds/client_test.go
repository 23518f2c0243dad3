package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	controlplane "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"weir.dev/weir/server/internal/testca"
	"weir.dev/weir/server/rules"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// next returns what comes next.
func next[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

// quick are waits for tests.
var quick = Options{NodeID: "weir", ConnectRetry: 5 * time.Millisecond, BackoffInitial: 5 * time.Millisecond, BackoffMax: 20 * time.Millisecond}

// running is a Client that runs, and the domains of each configuration that it took or, in
// brackets, why it did not.
type running struct {
	*Client
	news chan string
}

// run runs a client whose user takes what rules.Parse takes.
func run(t *testing.T, target string, opts Options) *running {
	t.Helper()
	c, err := New(target, opts)
	if err != nil {
		t.Fatal(err)
	}
	c.pauses = pauses{time.Millisecond, 5 * time.Millisecond}
	r := &running{c, make(chan string, 1000)}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx, r.use)
	}()
	t.Cleanup(func() {
		stop()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("Run does not end with its context")
		}
	})
	return r
}

func (r *running) use(u *Update, err error) error {
	var config *rules.Config
	if err == nil {
		config, err = rules.Parse(u.Files...)
	}
	if err != nil {
		r.news <- "[" + err.Error() + "]"
		return err
	}
	r.news <- strings.Join(config.Domains(), " ")
	return nil
}

// tells waits for the next news.
func (r *running) tells(t *testing.T, want string) {
	t.Helper()
	if got := next(t, r.news, want); got != want && !(strings.HasPrefix(want, "[") && strings.HasPrefix(got, want)) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// server is a real ADS server, and what it is sent.
type server struct {
	cache    cache.SnapshotCache
	requests chan *discovery.DiscoveryRequest
	headers  chan metadata.MD
	grpc     *grpc.Server
}

// serve starts a server that stops with the test, if not before.
func serve(t *testing.T, listener net.Listener, opts ...grpc.ServerOption) *server {
	t.Helper()
	s := &server{
		cache:    cache.NewSnapshotCache(true, cache.IDHash{}, nil),
		requests: make(chan *discovery.DiscoveryRequest, 1000),
		headers:  make(chan metadata.MD, 1000),
		grpc:     grpc.NewServer(opts...),
	}
	callbacks := controlplane.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
			md, _ := metadata.FromIncomingContext(ctx)
			s.headers <- md
			return nil
		},
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			s.requests <- r
			return nil
		},
	}
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, controlplane.NewServer(context.Background(), s.cache, callbacks))
	go s.grpc.Serve(listener)
	t.Cleanup(s.grpc.Stop)
	return s
}

// set gives the server's clients a configuration.
func (s *server) set(t *testing.T, version string, configs ...*pb.RateLimitConfig) {
	t.Helper()
	var resources []types.Resource
	for _, c := range configs {
		resources = append(resources, c)
	}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{typeURL: resources})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cache.SetSnapshot(context.Background(), "weir", snapshot); err != nil {
		t.Fatal(err)
	}
}

// answered waits for the answer to a version that was sent: ACK or NACK with a reason.
func (s *server) answered(t *testing.T, version, reason string) {
	t.Helper()
	for {
		r := next(t, s.requests, "an answer to version "+version)
		switch {
		case r.GetResponseNonce() == "":
			continue // a new call
		case reason == "" && (r.GetErrorDetail() != nil || r.GetVersionInfo() != version):
			t.Fatalf("got %v, want an ACK of %s", r, version)
		case r.GetVersionInfo() != version || !strings.Contains(r.GetErrorDetail().GetMessage(), reason):
			t.Fatalf("got %v, want version %q and the reason %q", r, version, reason)
		}
		return
	}
}

// domain is a configuration for a domain, with one limit.
func domain(name string) *pb.RateLimitConfig {
	return &pb.RateLimitConfig{Name: name, Domain: name, Descriptors: []*pb.RateLimitDescriptor{{Key: "k", RateLimit: limit(5, rules.UnitMinute)}}}
}

func bad(name string) *pb.RateLimitConfig {
	c := domain(name)
	c.Descriptors[0].RateLimit.Unit = 9
	return c
}

// listen listens on a socket that nobody else takes when the server is away.
func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func socket(t *testing.T) (path, target string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "xds") // t.TempDir may be longer than a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return filepath.Join(folder, "s"), "unix://" + filepath.Join(folder, "s")
}

func TestEachConfigurationIsTakenAndAcknowledged(t *testing.T) {
	t.Parallel()
	path, target := socket(t)
	s := serve(t, listen(t, path))
	opts := quick
	opts.Metadata = map[string]string{"zone": "a", "pod": "b"}
	opts.Headers = map[string]string{"Authorization": "Bearer x"}
	c := run(t, target, opts)
	first := next(t, s.requests, "the first request")
	if got, want := first.GetNode().GetId(), "weir"; got != want {
		t.Errorf("got the node %q, want %q", got, want)
	}
	if got, want := fmt.Sprint(first.GetNode().GetMetadata().AsMap()), "map[pod:b zone:a]"; got != want {
		t.Errorf("got the metadata %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(next(t, s.headers, "the call").Get("authorization")), "[Bearer x]"; got != want {
		t.Errorf("got the header %s, want %s", got, want)
	}
	if first.GetVersionInfo() != "" || first.GetTypeUrl() != typeURL || first.GetErrorDetail() != nil || len(first.GetResourceNames()) > 0 {
		t.Errorf("got %v, want a request for all resources of the type", first)
	}
	s.set(t, "1", domain("b"), domain("a"), gateway())
	c.tells(t, "a b envoy-gateway/eg/http")
	s.answered(t, "1", "")
	s.set(t, "2", domain("b"))
	c.tells(t, "b") // what the server no longer has is gone
	s.answered(t, "2", "")
	s.set(t, "3", domain("b"))
	s.answered(t, "3", "") // but nothing is new
	s.set(t, "4")
	c.tells(t, "")
	s.answered(t, "4", "")
	if !c.Connected() {
		t.Error("not connected")
	}
}

func TestABadConfigurationIsRefusedWithThePlaceAndTheReason(t *testing.T) {
	t.Parallel()
	path, target := socket(t)
	s := serve(t, listen(t, path))
	c := run(t, target, quick)
	s.set(t, "1", domain("a"))
	c.tells(t, "a")
	s.answered(t, "1", "")
	s.set(t, "2", domain("a"), bad("b"))
	c.tells(t, "[b:5:11: unknown unit")
	for range 5 { // this server sends the same again at once
		s.answered(t, "1", `b: descriptors[0].rate_limit.unit: unknown unit "9"`)
	}
	s.set(t, "3", domain("b"))
	c.tells(t, "b") // told of the bad one once
}

func TestTheServerMayComeLateAndGoAndComeAgain(t *testing.T) {
	t.Parallel()
	path, target := socket(t)
	c := run(t, target, quick)
	if c.Connected() {
		t.Error("connected to nobody")
	}
	for i, want := range []string{"a", "b", "c"} {
		s := serve(t, listen(t, path))
		s.set(t, "1", domain(want)) // the same version each time, as of a server that counts from 1
		c.tells(t, want)
		s.answered(t, "1", "")
		if i%2 == 0 {
			s.grpc.Stop()
		} else {
			go s.grpc.GracefulStop() // GOAWAY; the call itself goes on
			s.set(t, "2", domain("late"))
			c.tells(t, "late")
			s.grpc.Stop()
		}
	}
	s := serve(t, listen(t, path))
	s.set(t, "9", domain("c"))
	s.answered(t, "9", "")
	s.set(t, "10", domain("d"))
	c.tells(t, "d") // and c was not told of again
}

// authority keeps what it has signed in a folder.
type authority struct {
	*testca.Authority
	t      *testing.T
	folder string
	file   string // its own certificate
}

func newAuthority(t *testing.T) *authority {
	a := &authority{Authority: testca.New(t), t: t, folder: t.TempDir()}
	a.file = a.write("authority", a.PEM)
	return a
}

func (a *authority) write(name string, text []byte) string {
	file := filepath.Join(a.folder, name+".pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// leaf makes a certificate of a server or client with a name, and returns the file of it and
// its key.
func (a *authority) leaf(name string) string {
	cert, key := a.Sign(a.t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return a.write(name, append(cert, key...))
}

// config returns how a server called xds.example speaks TLS with clients of the authority.
func (a *authority) config(auth tls.ClientAuthType) *tls.Config {
	file := a.leaf("xds.example")
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: a.Pool, ClientAuth: auth}
}

func TestServerAndClientKnowEachOtherByTheirCertificates(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t), newAuthority(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, listener, grpc.Creds(credentials.NewTLS(ca.config(tls.RequireAndVerifyClientCert))))
	s.set(t, "1", domain("a"))
	mine, theirs := ca.leaf("weir"), stranger.leaf("weir")
	for _, c := range []struct {
		name string
		tls  *TLS
		ok   bool
	}{
		{"all as it should be", &TLS{CA: ca.file, Cert: mine, Key: mine, Name: "xds.example"}, true},
		{"without TLS", nil, false},
		{"without a certificate", &TLS{CA: ca.file, Name: "xds.example"}, false},
		{"with a certificate of another authority", &TLS{CA: ca.file, Cert: theirs, Key: theirs, Name: "xds.example"}, false},
		{"to a server of another authority", &TLS{CA: stranger.file, Cert: mine, Key: mine, Name: "xds.example"}, false},
		{"to a server of another name", &TLS{CA: ca.file, Cert: mine, Key: mine, Name: "other.example"}, false},
		{"to a server whose name is not the host's", &TLS{CA: ca.file, Cert: mine, Key: mine}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := quick
			opts.TLS = c.tls
			client, err := New(listener.Addr().String(), opts)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(context.Background(), patience)
			defer stop()
			end := client.call(ctx, func(*Update, error) error {
				stop()
				return nil
			})
			if end.took != c.ok {
				t.Errorf("got %+v, want success: %v", end, c.ok)
			}
			if !c.ok && ctx.Err() != nil {
				t.Error("there is no end to it")
			}
		})
	}
}

func TestTheClientsCertificateIsReadForEachConnection(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t), newAuthority(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan struct{}, 1000)
	config := ca.config(tls.VerifyClientCertIfGiven)
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 { // a client sends none of an authority that the server does not name
			refused <- struct{}{}
			return errors.New("no certificate")
		}
		return nil
	}
	s := serve(t, listener, grpc.Creds(credentials.NewTLS(config)))
	s.set(t, "1", domain("a"))
	mine := stranger.leaf("weir")
	opts := quick
	opts.TLS = &TLS{CA: ca.file, Cert: mine, Key: mine, Name: "xds.example"}
	c := run(t, listener.Addr().String(), opts)
	next(t, refused, "a connection")
	if err := os.Rename(ca.leaf("weir"), mine); err != nil {
		t.Fatal(err)
	}
	c.tells(t, "a")
}

// hostile is a server that does as it is told.
type hostile struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	calls  chan struct{}
	behave func(discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error
}

func (h *hostile) StreamAggregatedResources(s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	h.calls <- struct{}{}
	return h.behave(s)
}

// faces runs a client of a hostile server.
func faces(t *testing.T, opts Options, behave func(discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error) (*hostile, *running) {
	t.Helper()
	path, target := socket(t)
	h := &hostile{calls: make(chan struct{}, 1000), behave: behave}
	g := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(g, h)
	go g.Serve(listen(t, path))
	t.Cleanup(g.Stop)
	return h, run(t, target, opts)
}

type stream = discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer

func TestACallThatEndsIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, status.Error(codes.Unimplemented, "no"), status.Error(codes.PermissionDenied, "no"), status.Error(codes.Internal, "no")} {
		h, _ := faces(t, quick, func(stream) error { return err })
		for range 4 {
			next(t, h.calls, "a call")
		}
	}
}

func TestAMessageThatIsTooLargeEndsTheCall(t *testing.T) {
	t.Parallel()
	opts := quick
	opts.MaxMessageBytes = 1000
	large := domain("large")
	large.Name = strings.Repeat("x", 1000)
	h, c := faces(t, opts, func(s stream) error {
		if err := s.Send(response(t, "1", domain("a"))); err != nil {
			return err
		}
		if err := s.Send(response(t, "2", large)); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	})
	c.tells(t, "a")
	for range 3 {
		next(t, h.calls, "a call")
	}
}

func TestOtherTypesAreIgnored(t *testing.T) {
	t.Parallel()
	_, c := faces(t, quick, func(s stream) error {
		other := response(t, "1", domain("a"))
		other.TypeUrl = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
		untyped := response(t, "2", domain("b"))
		untyped.TypeUrl = ""
		for _, r := range []*discovery.DiscoveryResponse{other, untyped} {
			if err := s.Send(r); err != nil {
				return err
			}
		}
		s.Recv() // the subscription
		r, err := s.Recv()
		if err == nil && (r.GetTypeUrl() != typeURL || r.GetResponseNonce() != "n2") {
			t.Errorf("got the answer %v, want one to the second response", r)
		}
		<-s.Context().Done()
		return nil
	})
	c.tells(t, "b")
}

func TestWhatIsNoConfigurationIsRefusedAndToldOnce(t *testing.T) {
	t.Parallel()
	answers := make(chan *discovery.DiscoveryRequest, 10)
	_, c := faces(t, quick, func(s stream) error {
		s.Recv()
		for range 3 {
			if err := s.Send(response(t, "1", &discovery.DiscoveryRequest{})); err != nil {
				return err
			}
			r, err := s.Recv()
			if err != nil {
				return err
			}
			answers <- r
		}
		s.Send(response(t, "2", domain("a")))
		<-s.Context().Done()
		return nil
	})
	c.tells(t, "[resource 0: it is a")
	for range 3 {
		r := next(t, answers, "an answer")
		if r.GetVersionInfo() != "" || !strings.Contains(r.GetErrorDetail().GetMessage(), "resource 0: it is a") || r.GetErrorDetail().GetCode() != int32(codes.InvalidArgument) {
			t.Errorf("got %v, want a refusal", r)
		}
	}
	c.tells(t, "a")
}

func TestAServerThatHangsDoesNotKeepTheClientFromEnding(t *testing.T) {
	t.Parallel()
	h, _ := faces(t, quick, func(s stream) error {
		<-s.Context().Done()
		return nil
	})
	next(t, h.calls, "a call")
	listener, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	run(t, listener.Addr().String(), quick)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
} // run's clean-up sees that Run ends

func TestALongReasonIsCut(t *testing.T) {
	t.Parallel()
	if got, want := shorten(strings.Repeat("é", maxReason)), strings.Repeat("é", maxReason/2)+"…"; got != want {
		t.Errorf("got %d bytes, want %d", len(got), len(want))
	}
}

func TestWaitsGrowAndSpread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		failures int
		want     time.Duration
	}{{0, 10 * time.Second}, {1, 20 * time.Second}, {2, 40 * time.Second}, {3, time.Minute}, {math.MaxInt32, time.Minute}} {
		if got := backoff(10*time.Second, time.Minute, c.failures); got != c.want {
			t.Errorf("after %d failures: got %v, want %v", c.failures, got, c.want)
		}
	}
	for _, c := range []struct {
		part, random float64
		want         time.Duration
	}{{0, 0.9, 10 * time.Second}, {0.5, 0, 5 * time.Second}, {0.5, 0.5, 10 * time.Second}, {0.5, 1, 15 * time.Second}, {1, 0, 0}} {
		if got := spread(10*time.Second, c.part, c.random); got != c.want {
			t.Errorf("%v of it with %v: got %v, want %v", c.part, c.random, got, c.want)
		}
	}
}

func TestEveryBadOptionIsNamed(t *testing.T) {
	t.Parallel()
	_, err := New("", Options{
		ConnectRetry: -1, BackoffInitial: time.Hour, BackoffMax: time.Minute, Jitter: 2, MaxMessageBytes: -1,
		Headers: map[string]string{"grpc-timeout": "1", "a b": "", "x": "\n"},
		TLS:     &TLS{CA: filepath.Join(t.TempDir(), "none.pem")},
	})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{
		"address is empty", "connect retry interval of -1ns", "initial backoff of 1h0m0s is longer than the longest of 1m0s",
		"random factor of 2", "largest message of -1 bytes", `header name "grpc-timeout"`, `header name "a b"`, "header x: the value", "none.pem",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want also %q", err, want)
		}
	}
}

func TestDefaultsFillWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ give, want Options }{
		{Options{}, Options{ConnectRetry: 3 * time.Second, BackoffInitial: time.Second, BackoffMax: 30 * time.Second, Jitter: 0.5, MaxMessageBytes: 16 << 20}},
		{Options{BackoffInitial: time.Hour, NoJitter: true}, Options{ConnectRetry: 3 * time.Second, BackoffInitial: time.Hour, BackoffMax: time.Hour, MaxMessageBytes: 16 << 20}},
		{Options{BackoffMax: time.Millisecond, Jitter: 1}, Options{ConnectRetry: 3 * time.Second, BackoffInitial: time.Millisecond, BackoffMax: time.Millisecond, Jitter: 1, MaxMessageBytes: 16 << 20}},
	} {
		client, err := New("localhost:18000", c.give)
		if err != nil {
			t.Fatal(err)
		}
		got := client.opts
		if got.ConnectRetry != c.want.ConnectRetry || got.BackoffInitial != c.want.BackoffInitial || got.BackoffMax != c.want.BackoffMax || got.Jitter != c.want.Jitter || got.MaxMessageBytes != c.want.MaxMessageBytes {
			t.Errorf("%+v: got %+v, want %+v", c.give, got, c.want)
		}
	}
}

func TestARefusalIsForgottenOnceSomethingElseWasTaken(t *testing.T) {
	t.Parallel()
	c, err := New("localhost:18000", Options{})
	if err != nil {
		t.Fatal(err)
	}
	verdict := errors.New("no")
	used := 0
	use := func(*Update, error) error {
		used++
		return verdict
	}
	for i, want := range []struct {
		response *discovery.DiscoveryResponse
		verdict  error
		used     int
	}{
		{response(t, "1", domain("a")), errors.New("no"), 1},
		{response(t, "1", domain("a")), nil, 1}, // refused as before, unasked
		{response(t, "2", domain("b")), nil, 2},
		{response(t, "3", domain("a")), nil, 3},
		{response(t, "4", domain("a")), errors.New("no"), 3}, // taken already
	} {
		verdict = want.verdict
		c.take(want.response, use)
		if used != want.used {
			t.Errorf("response %d: used %d times, want %d", i, used, want.used)
		}
	}
	if got, want := c.version, "4"; got != want {
		t.Errorf("got the version %q, want %q", got, want)
	}
}
