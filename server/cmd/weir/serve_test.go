package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"weir.dev/weir/internal/redistest"
)

const shopRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 2}
`

func writeRules(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// localOptions are for a service on ports of the kernel's choice.
func localOptions(config ...string) serveOptions {
	return serveOptions{config: config, store: "memory:", grpc: "127.0.0.1:0", http: "127.0.0.1:0", debug: "127.0.0.1:0"}
}

// running is a service in this process.
type running struct {
	*server
	stop context.CancelFunc
	done chan error
}

func startServer(t *testing.T) *running {
	t.Helper()
	return startServerOn(t, "memory:")
}

func startServerOn(t *testing.T, store string) *running {
	t.Helper()
	opts := localOptions(writeRules(t, shopRules))
	opts.store = store
	s, err := newServer(opts, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return runServer(t, s)
}

// runServer runs a server until the test ends.
func runServer(t *testing.T, s *server) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &running{server: s, stop: stop, done: make(chan error, 1)}
	go func() { r.done <- s.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-r.done; err != nil {
			t.Errorf("run = %v, want nil", err)
		}
	})
	return r
}

func get(t *testing.T, l net.Listener, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + l.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestServiceAnswersOnEachListener(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	post := func() int {
		response, err := http.Post("http://"+s.http.Addr().String()+"/json", "application/json",
			strings.NewReader(`{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	if got := []int{post(), post(), post()}; !slices.Equal(got, []int{200, 200, 429}) {
		t.Errorf("POST /json = %d, want 200, 200, 429", got)
	}
	for _, tt := range []struct {
		listener net.Listener
		path     string
		code     int
		want     string
	}{
		{s.http, "/healthcheck", 200, "OK"},
		{s.http, "/metrics", 200, `rate_limit_rejections_total{domain="shop",outcome="denied",rule="user"} 1`},
		{s.http, "/metrics", 200, "rate_limit_decision_duration_seconds_count 3"},
		{s.http, "/metrics", 200, "rate_limit_command_duration_seconds_count 3"},
		{s.http, "/metrics", 200, "weir_build_info{"},
		{s.http, "/json", 405, ""},
		{s.http, "/debug/pprof/", 404, ""},
		{s.http, "/rlconfig", 404, ""},
		{s.debug, "/rlconfig", 200, "shop: user: 2 per"},
		{s.debug, "/debug/pprof/", 200, "goroutine"},
		{s.debug, "/debug/pprof/cmdline", 404, ""},
		{s.debug, "/", 200, "/rlconfig"},
	} {
		code, body := get(t, tt.listener, tt.path)
		if code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("GET %s = %d, want %d with %q:\n%.2000s", tt.path, code, tt.code, tt.want, body)
		}
	}
}

func dial(t *testing.T, l net.Listener) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestHealthIsKnownByThreeNames(t *testing.T) {
	t.Parallel()
	client := healthpb.NewHealthClient(dial(t, startServer(t).grpc))
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		got, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q = %v, %v, want SERVING", name, got, err)
		}
	}
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("health of another name: %v, want NotFound", err)
	}
}

func TestDrainTellsHealthFirstAndLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	watch, err := healthpb.NewHealthClient(dial(t, s.grpc)).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := watch.Recv(); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("before: %v, %v, want SERVING", got, err)
	}
	// A request under way: the service has its headers, and has asked for its body.
	conn, err := net.Dial("tcp", s.http.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const body = `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`
	fmt.Fprintf(conn, "POST /json HTTP/1.1\r\nHost: weir\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
	replies := bufio.NewReader(conn)
	if line, err := replies.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("%q, %v, want 100 Continue", line, err)
	}
	replies.ReadString('\n')

	s.stop()
	if got, err := watch.Recv(); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("draining: %v, %v, want NOT_SERVING", got, err)
	}
	watch.CloseSend()
	io.WriteString(conn, body)
	response, err := http.ReadResponse(replies, nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("the request under way: %v, %v, want 200", response, err)
	}
}

func TestWatchersOfHealthAreToldTheEndAndDoNotHoldItUp(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var watches []grpc.ServerStreamingClient[healthpb.HealthCheckResponse]
	for _, name := range []string{"", "unknown"} {
		watch, err := healthpb.NewHealthClient(dial(t, s.grpc)).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		watches = append(watches, watch)
	}
	s.stop()
	for _, watch := range watches {
		last := healthpb.HealthCheckResponse_UNKNOWN
		got, err := watch.Recv()
		for ; err == nil; got, err = watch.Recv() {
			last = got.GetStatus()
		}
		if last != healthpb.HealthCheckResponse_NOT_SERVING || status.Convert(err).Message() != "the service stops" {
			t.Errorf("got %v and then %v, want NOT_SERVING and that the service stops", last, err)
		}
	}
}

func TestHealthcheckFailsWhileDraining(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.beginDrain()
	if code, _ := get(t, s.http, "/healthcheck"); code != http.StatusServiceUnavailable {
		t.Errorf("GET /healthcheck = %d, want 503", code)
	}
}

func TestServeRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	good := writeRules(t, shopRules)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tt := range []struct {
		name  string
		spoil func(*serveOptions)
		want  string
	}{
		{"no rules", func(o *serveOptions) { o.config = nil }, "--config"},
		{"no such file", func(o *serveOptions) { o.config = []string{good + ".not"} }, good + ".not"},
		{"bad rules", func(o *serveOptions) { o.config = []string{writeRules(t, "domain: shop\nrules: 5\n")} }, "rules.yaml:2"},
		{"bad store", func(o *serveOptions) { o.store = "mysql://h" }, "memory:"},
		{"port taken", func(o *serveOptions) { o.grpc = taken.Addr().String() }, "--grpc"},
		{"bad address", func(o *serveOptions) { o.http = "nonsense" }, "--http"},
		{"negative wait", func(o *serveOptions) { o.drainWait = -time.Second }, "--drain-wait -1s"},
		{"empty address", func(o *serveOptions) { o.debug = "" }, "--debug"},
	} {
		opts := localOptions(good)
		tt.spoil(&opts)
		if _, err := newServer(opts, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}

func TestEnvironmentStandsInForFlags(t *testing.T) {
	t.Parallel()
	environment := map[string]string{
		"WEIR_CONFIG": "a.yaml" + string(os.PathListSeparator) + "b", "WEIR_STORE": "redis://h", "WEIR_GRPC": ":1", "WEIR_LOG_LEVEL": "warn",
	}
	lookup := func(name string) (string, bool) { v, ok := environment[name]; return v, ok }
	flags := newServeCommand().Flags()
	if err := flags.Parse([]string{"--grpc", ":2"}); err != nil {
		t.Fatal(err)
	}
	if err := setFromEnvironment(flags, lookup); err != nil {
		t.Fatal(err)
	}
	config, _ := flags.GetStringArray("config")
	store, _ := flags.GetString("store")
	grpc, _ := flags.GetString("grpc")
	level, _ := flags.GetString("log-level")
	got := fmt.Sprintf("%s %s %s %s", config, store, grpc, level)
	if want := "[a.yaml b] redis://h :2 warn"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLogNeverHasThePassword(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	opts := localOptions(writeRules(t, shopRules))
	opts.store = "redis://user:hunter2@127.0.0.1:1/0?budget=1ms"
	s, err := newServer(opts, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	response, err := http.Post("http://"+s.http.Addr().String()+"/json", "application/json",
		strings.NewReader(`{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("POST /json with the store away = %d, want 503", response.StatusCode)
	}
	stop()
	<-done
	if text := log.String() + string(body); strings.Contains(text, "hunter2") || !strings.Contains(text, "redis://127.0.0.1:1/0") {
		t.Errorf("the log should name the store without its password:\n%s", text)
	}
}

// commandStatus runs the command line and returns its output and exit status.
func commandStatus(t *testing.T, args ...string) (string, int) {
	t.Helper()
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	exit, ok := errors.AsType[exitError](err)
	switch {
	case err == nil:
		return out.String(), 0
	case ok:
		return out.String(), exit.status
	}
	return out.String(), 1
}

func TestAskPrintsTheAnswer(t *testing.T) {
	t.Parallel()
	addr := startServer(t).grpc.Addr().String()
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"user=a"}, 0, "allowed: 1 left of 2 per year"},
		{[]string{"user=a", "--hits", "0"}, 0, "allowed: 1 left of 2 per year"},
		{[]string{"user=a", "--hits", "2"}, 1, "over the limit: try again in"},
		{[]string{"user=a", "--json"}, 0, `"OK"`},
		{[]string{"user=a"}, 1, "over the limit"},
		{[]string{"else=a=b"}, 0, "allowed: no limit applies"},
		{[]string{"user"}, 2, "KEY=VALUE"},
		{[]string{}, 2, "no entries"},
		{[]string{"user=\xff"}, 2, "UTF-8"},
	} {
		out, status := commandStatus(t, append([]string{"ask", "--addr", addr, "--domain", "shop"}, tt.args...)...)
		if status != tt.status || !strings.Contains(out, tt.want) {
			t.Errorf("ask %q: status %d, want %d with %q:\n%s", tt.args, status, tt.status, tt.want, out)
		}
	}
	if out, status := commandStatus(t, "ask", "--addr", addr, "user=a"); status != 2 || !strings.Contains(out, "--domain") {
		t.Errorf("ask without a domain: status %d, want 2 with --domain:\n%s", status, out)
	}
	if out, status := commandStatus(t, "ask", "--addr", "127.0.0.1:1", "--domain", "shop", "user=a"); status != 2 {
		t.Errorf("ask where nobody listens: status %d, want 2:\n%s", status, out)
	}
}

func TestServicesOnOneRedisShareTheirCounters(t *testing.T) {
	t.Parallel()
	redis := "redis://" + redistest.Start(t, redistest.Redis7, redistest.Options{}).Addr + "?budget=5s"
	a, b := startServerOn(t, redis).grpc.Addr().String(), startServerOn(t, redis).grpc.Addr().String()
	for i, tt := range []struct {
		addr   string
		status int
	}{{a, 0}, {b, 0}, {a, 1}, {b, 1}} {
		if out, status := commandStatus(t, "ask", "--addr", tt.addr, "--domain", "shop", "user=a"); status != tt.status {
			t.Errorf("question %d: status %d, want %d:\n%s", i, status, tt.status, out)
		}
	}
}

func TestVersionNamesTheProgram(t *testing.T) {
	t.Parallel()
	if out, status := commandStatus(t, "version"); status != 0 || !strings.HasPrefix(out, "weir ") {
		t.Errorf("version: status %d, %q", status, out)
	}
}
