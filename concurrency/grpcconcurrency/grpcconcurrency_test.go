package grpcconcurrency_test

import (
	"context"
	"net"
	"runtime"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"weir.dev/weir/concurrency"
	"weir.dev/weir/concurrency/grpcconcurrency"
)

// dial serves the health service behind the interceptors.
func dial(t *testing.T, l *concurrency.Limiter, o grpcconcurrency.Options) healthpb.HealthClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	limit, err := grpcconcurrency.New(l, o)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn)
}

func one(t *testing.T) *concurrency.Limiter {
	t.Helper()
	l, err := concurrency.New(concurrency.Options{Initial: 1, Max: 1, Classes: []concurrency.ClassOptions{{Name: "health", Share: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRefusedCallIsUnavailableWithPushback(t *testing.T) {
	l := one(t)
	l.Acquire(t.Context())
	client := dial(t, l, grpcconcurrency.Options{})
	var trailer metadata.MD
	_, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer))
	pushback := trailer.Get("grpc-retry-pushback-ms")
	if status.Code(err) != codes.Unavailable || len(pushback) != 1 {
		t.Fatalf("got %v, pushback %v; want Unavailable and one pushback", err, pushback)
	}
	if millis, err := strconv.Atoi(pushback[0]); err != nil || millis < 1000 {
		t.Errorf("got a pushback of %q, want at least 1000", pushback[0])
	}
}

func TestCallReleasesItsPlace(t *testing.T) {
	l := one(t)
	client := dial(t, l, grpcconcurrency.Options{})
	for range 3 {
		if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStreamHoldsItsPlaceUntilTheCallerLeaves(t *testing.T) {
	l := one(t)
	client := dial(t, l, grpcconcurrency.Options{})
	ctx, leave := context.WithCancel(t.Context())
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("beside a stream in the only place: got %v, want Unavailable", err)
	}
	leave()
	for l.Stats().InFlight > 0 {
		runtime.Gosched()
	}
	if got := l.Stats(); got.Ignored != 1 {
		t.Errorf("got %d ignored, want the stream whose caller left", got.Ignored)
	}
}

func TestBypassAndClassAreAskedByMethod(t *testing.T) {
	l := one(t)
	l.Acquire(t.Context())
	class, _ := l.Class("health")
	for name, o := range map[string]grpcconcurrency.Options{
		"bypass": {Bypass: func(method string) bool { return method == healthpb.Health_Check_FullMethodName }},
		"class":  {Class: func(string) *concurrency.Class { return class }},
	} {
		if _, err := dial(t, l, o).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("%s: got %v, want an answer", name, err)
		}
	}
}

func TestInterceptorWithoutALimiterIsAnError(t *testing.T) {
	if _, err := grpcconcurrency.New(nil, grpcconcurrency.Options{}); err == nil {
		t.Error("got no error")
	}
}
