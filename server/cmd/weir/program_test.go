//go:build unix

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/server/internal/testca"
)

// program is this binary as a process of its own, under another name.
type program struct {
	*exec.Cmd
	addresses map[string]string // by listener
	log       *lines
	ended     chan error
}

// startProgram starts the program and waits until it serves. Nothing of this process'
// environment is in the program's.
func startProgram(t *testing.T, name string, environment ...string) *program {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(os.Args[0], path); err != nil {
		t.Fatal(err)
	}
	p := &program{Cmd: exec.Command(path), log: &lines{}, ended: make(chan error, 1)}
	p.Env = append(environment, "WEIR_TEST_AS_PROGRAM=1")
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() }) // an error says that it has ended
	out := bufio.NewReader(io.TeeReader(stderr, p.log))
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("%s ended: %v\n%s", name, p.Wait(), p.log)
		}
		if strings.Contains(line, "msg=serving") {
			p.addresses = addressesIn(line)
			break
		}
	}
	go func() {
		io.Copy(io.Discard, out)
		p.ended <- p.Wait()
	}()
	return p
}

var listener = regexp.MustCompile(`(\w+)=(?:\[::\]|[\d.]+):(\d+)`)

// addressesIn reads where the program listens from what it logs.
func addressesIn(line string) map[string]string {
	all := make(map[string]string)
	for _, m := range listener.FindAllStringSubmatch(line, -1) {
		all[m[1]] = "127.0.0.1:" + m[2]
	}
	return all
}

// envoyGateway is the environment of the deployment that Envoy Gateway makes, with what
// differs here: the ports and paths of this test, and a management server that is away.
func envoyGateway(redis, certs string) []string {
	return []string{
		"RUNTIME_ROOT=/data",
		"RUNTIME_SUBDIRECTORY=ratelimit",
		"RUNTIME_IGNOREDOTFILES=true",
		"RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info",
		"USE_STATSD=false",
		"CONFIG_TYPE=GRPC_XDS_SOTW",
		"CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:1", // envoy-gateway:18001
		"CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"GRPC_SERVER_USE_TLS=true",
		"GRPC_SERVER_TLS_CERT=" + certs + "/tls.crt",
		"GRPC_SERVER_TLS_KEY=" + certs + "/tls.key",
		"GRPC_SERVER_TLS_CA_CERT=" + certs + "/ca.crt",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + certs + "/tls.crt",
		"CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + certs + "/tls.key",
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + certs + "/ca.crt",
		"FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"REDIS_SOCKET_TYPE=tcp",
		"REDIS_URL=" + redis,
		"USE_PROMETHEUS=true",
		"PROMETHEUS_ADDR=:0", // :19001
		"PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
		"TRACING_ENABLED=true",
		"TRACING_SERVICE_NAME=envoy-ratelimit",
		"TRACING_SERVICE_NAMESPACE=envoy-gateway-system",
		"TRACING_SERVICE_INSTANCE_ID=envoy-ratelimit-0",
		"TRACING_SAMPLING_RATE=0.6",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1",
		"PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", // not set there
	}
}

func TestEnvoyGatewaysEnvironmentStartsTheProgramUnchanged(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	ca, certs := testca.New(t), t.TempDir()
	issue(t, ca, certs, "envoy-ratelimit")
	p := startProgram(t, "ratelimit", envoyGateway(redis.Addr, certs)...)

	conn, err := grpc.NewClient(p.addresses["grpc"], grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: ca.Pool})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), labRequest("user", "a"))
	if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "no rate limit configuration loaded") {
		t.Errorf("without rules: %v, want UNKNOWN and that none are loaded", err)
	}
	got, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v, want SERVING", got, err)
	}
	for listener, want := range map[string]string{"http": "/healthcheck", "metrics": "/metrics"} {
		response, err := http.Get("http://" + p.addresses[listener] + want)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("GET %s: %d, want 200", want, response.StatusCode)
		}
	}
	for _, want := range []string{"setting=GRPC_SERVER_TLS_CA_CERT", "setting=RUNTIME_IGNOREDOTFILES", "the debug listener answers whoever reaches it", "the mapping is not there"} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, p.log)
		}
	}
	p.Process.Signal(syscall.SIGTERM)
	if err := <-p.ended; err != nil {
		t.Errorf("after SIGTERM: %v, want exit status 0\n%s", err, p.log)
	}
}

func TestTheProgramNamesEveryFaultOfItsEnvironment(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(os.Args[0], path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Env = []string{"WEIR_TEST_AS_PROGRAM=1", "PORT=http", "BACKEND_TYPE=memcache"}
	out, err := cmd.CombinedOutput()
	for _, want := range []string{`PORT: "http" is not a whole number`, "BACKEND_TYPE: memcached is not supported"} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("ended with %v, want an error and %q:\n%s", err, want, out)
		}
	}
}

func TestTheProgramExportsASpanForEachCall(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			spans, endpoint := startCollector(t, protocol)
			p := startProgram(t, "ratelimit", "LOG_LEVEL=info", "USE_STATSD=false", "DEBUG_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0",
				"RUNTIME_ROOT="+runtimeOf(t, labRules), "TRACING_ENABLED=true", "TRACING_EXPORTER_PROTOCOL="+protocol, "TRACING_SERVICE_NAME=traced",
				"TRACING_SERVICE_NAMESPACE=here", "TRACING_SERVICE_INSTANCE_ID=one", "TRACING_SAMPLING_RATE=0", "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint)
			conn, err := grpc.NewClient(p.addresses["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// The callers decide; of the others' calls, a rate of 0 exports none.
			for name, value := range map[string]string{
				"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				"b3":          "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1",
				"unsampled":   "",
			} {
				ctx := metadata.AppendToOutgoingContext(t.Context(), name, value)
				if _, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, labRequest("free", "a")); err != nil {
					t.Fatal(err)
				}
			}
			p.Process.Signal(syscall.SIGTERM)
			<-p.ended
			got := spans.String()
			for _, want := range []string{"\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6", "\x80\xf1\x98\xee\x56\x34\x3b\xa8", "traced", "here", "one", "ShouldRateLimit"} {
				if !strings.Contains(got, want) {
					t.Errorf("the spans lack %q:\n%q\n%s", want, got, p.log)
				}
			}
			if n := countSpans(t, got); n != 2 {
				t.Errorf("%d spans, want 2", n)
			}
		})
	}
}

// countSpans counts the spans of messages one behind the other, which are one message.
func countSpans(t *testing.T, messages string) (n int) {
	t.Helper()
	var all collector.ExportTraceServiceRequest
	if err := proto.Unmarshal([]byte(messages), &all); err != nil {
		t.Fatal(err)
	}
	for _, r := range all.GetResourceSpans() {
		for _, scope := range r.GetScopeSpans() {
			n += len(scope.GetSpans())
		}
	}
	return n
}

// startCollector returns what is exported to an endpoint, byte by byte.
func startCollector(t *testing.T, protocol string) (*lines, string) {
	t.Helper()
	spans := &lines{}
	if protocol == "http" {
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(spans, r.Body) }))
		t.Cleanup(s.Close)
		return spans, s.URL
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, &traceCollector{spans: spans})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return spans, "http://" + l.Addr().String()
}

type traceCollector struct {
	collector.UnimplementedTraceServiceServer
	spans *lines
}

func (c *traceCollector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	data, err := proto.Marshal(r)
	c.spans.Write(data)
	return &collector.ExportTraceServiceResponse{}, err
}
