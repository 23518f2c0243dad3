package envoytest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The example runs as it is, but for its ports and the time that Envoy waits for an
// answer: a busy machine may need more.
func TestExampleConfigurationWorks(t *testing.T) {
	t.Parallel()
	const example = "../../../examples/envoy/"
	s := startService(t, serve(example+"rules.yaml", "memory:"))
	application := httptest.NewServer(http.HandlerFunc(greet))
	t.Cleanup(application.Close)

	config, err := os.ReadFile(example + "envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(config)
	for from, to := range map[string]string{
		"port_value: 9901":  "port_value: 0",
		"port_value: 10000": "port_value: 0",
		"port_value: 8000":  "port_value: " + portOf(application.Listener.Addr().String()),
		"port_value: 8081":  "port_value: " + portOf(s.grpc),
		"timeout: 0.02s":    "timeout: 60s",
	} {
		if strings.Count(text, from) != 1 {
			t.Fatalf("the example has %q %d times, want once", from, strings.Count(text, from))
		}
		text = strings.Replace(text, from, to, 1)
	}
	name := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e := startEnvoyOn(t, name)
	c := e.at("edge")
	wait(t, "the first check of health", func() error { return e.wantStat(t, "cluster.weir.membership_healthy", 1) })

	free := []string{"x-plan", "free", "x-user", "bob"}
	passed := 0
	r := c.get(t, "/api/", free...)
	for ; r.status == 200 && passed < 50; r = c.get(t, "/api/", free...) {
		passed++
	}
	if r.status != 429 || passed < 5 { // more where the machine is slow: one returns every 6 s
		t.Errorf("after %d that passed came status %d, want 429 after 5", passed, r.status)
	}
	if got, want := r.header.Get(limitHeader), `5, 5;w=30;name="free", 60;w=60;name="per-address"`; got != want {
		t.Errorf("%s is %q, want %q", limitHeader, got, want)
	}
	seconds(t, r.header, retryHeader)
	c.expect(t, []int{200, 200, 200, 200, 200, 200}, "/api/", "x-plan", "gold", "x-user", "bob")
	for range 15 {
		c.expect(t, []int{200}, "/login")
	}
	if said := s.Output() + e.Output(); strings.Contains(said, "level=WARN") || strings.Contains(said, "Deprecated") {
		t.Errorf("the example is warned of:\n%s", said)
	}
	if err := e.wantStat(t, "cluster.application.ratelimit.error", 0); err != nil {
		t.Error(err)
	}
}

func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }
