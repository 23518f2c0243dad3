package envoytest

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"

	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/internal/testserver"
)

// listener is one way of an Envoy to use a service: a port for clients, a rate limit
// filter and the cluster that it asks. The extra lines are YAML in flow style.
type listener struct {
	Name    string
	Service string   // the address that it asks
	Second  string   // another one that it asks in turn; "" is none
	Filter  []string // of the filter
	Cluster []string // of the cluster
	HTTP2   string   // inside the cluster's http2_protocol_options
}

// patient is a filter that shows every error, and waits long: of tests that are about
// answers, not about time.
var patient = []string{"failure_mode_deny: true", "timeout: 60s"}

// envoy is a running Envoy.
type envoy struct {
	*testserver.Process
	dir   string
	admin string            // the address of its admin API
	ports map[string]string // the address of each listener, by its name
}

// startEnvoy runs an Envoy with these listeners until the test ends.
func startEnvoy(t *testing.T, listeners ...listener) *envoy {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(greet))
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	name, err := configure(dir, upstream.Listener.Addr().String(), listeners)
	if err != nil {
		t.Fatal(err)
	}
	return startEnvoyOn(t, name)
}

// startEnvoyOn runs an Envoy on a file, in the file's folder, until the test ends.
func startEnvoyOn(t *testing.T, config string) *envoy {
	t.Helper()
	e, err := launchEnvoy(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Envoy's last lines:\n%s", e.Output())
		}
	})
	return e
}

func greet(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") }

// launchEnvoy runs an Envoy on a file, in the file's folder, and returns when it is ready.
func launchEnvoy(config string) (*envoy, error) {
	path, err := testserver.Find("envoy")
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(config)
	e := &envoy{
		Process: &testserver.Process{Path: path, Dir: dir, Args: []string{"-c", config, "--concurrency", "1", "--use-dynamic-base-id",
			"--log-level", "warning", "--admin-address-path", "admin", "--file-flush-interval-msec", "50"}},
		dir: dir,
	}
	return e, e.boot()
}

var (
	//go:embed testdata/envoy.yaml
	envoyText string
	//go:embed testdata/rules.yaml
	rulesText string
	//go:embed testdata/routes.yaml
	routesText string
)

// configure writes Envoy's configuration, and returns the file's name.
func configure(dir, upstream string, listeners []listener) (string, error) {
	var routes, all bytes.Buffer
	if err := parseTemplate(routesText).Execute(&routes, nil); err != nil {
		return "", err
	}
	err := parseTemplate(envoyText).Execute(&all, map[string]any{
		"Dir": dir, "Upstream": upstream, "Listeners": listeners,
		"Routes": "              " + strings.ReplaceAll(routes.String(), "\n", "\n              "),
	})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "envoy.yaml")
	return name, os.WriteFile(name, all.Bytes(), 0o600)
}

func parseTemplate(text string) *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"ten": func() int { return 10 },
		"socket": func(address string) (string, error) {
			if path, ok := strings.CutPrefix(address, "unix:"); ok {
				return fmt.Sprintf("{pipe: {path: %s}}", path), nil
			}
			host, port, err := net.SplitHostPort(address)
			return fmt.Sprintf("{socket_address: {address: %s, port_value: %s}}", host, port), err
		},
	}).Parse(text))
}

// boot starts Envoy, waits until it is ready, and finds out its ports.
func (e *envoy) boot() error {
	if err := e.Start(); err != nil {
		return err
	}
	err := testserver.Poll(func() error {
		if !e.Running() {
			return testserver.Permanent{Err: fmt.Errorf("Envoy ended; its last lines are:\n%s", e.Output())}
		}
		address, err := os.ReadFile(filepath.Join(e.dir, "admin"))
		if err != nil {
			return err
		}
		e.admin = string(address)
		state, err := page(e.admin, "/ready")
		if err == nil && state != "LIVE\n" {
			err = errors.New("Envoy is " + state)
		}
		return err
	})
	if err != nil {
		return err
	}
	return e.findPorts()
}

func (e *envoy) findPorts() error {
	text, err := page(e.admin, "/listeners?format=json")
	if err != nil {
		return err
	}
	var found struct {
		Listeners []struct {
			Name    string
			Address struct {
				Socket struct {
					Address string
					Port    int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		return err
	}
	e.ports = map[string]string{}
	for _, l := range found.Listeners {
		e.ports[l.Name] = fmt.Sprintf("%s:%d", l.Address.Socket.Address, l.Address.Socket.Port)
	}
	return nil
}

// wantStat returns nil if one of Envoy's counters or gauges has a value.
func (e *envoy) wantStat(t *testing.T, name string, want int) error {
	t.Helper()
	if got := e.stat(t, name); got != want {
		return fmt.Errorf("%s is %d, want %d", name, got, want)
	}
	return nil
}

// stat returns one of Envoy's counters or gauges by its full name; 0 if there is none.
func (e *envoy) stat(t *testing.T, name string) int {
	t.Helper()
	text, err := page(e.admin, "/stats?filter=^"+strings.ReplaceAll(name, ".", `\.`)+"$")
	if err != nil {
		t.Fatal(err)
	}
	_, value, ok := strings.Cut(strings.TrimSpace(text), ": ")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// filterStat returns a counter of a listener's rate limit filter, such as over_limit.
func (e *envoy) filterStat(t *testing.T, listener, name string) int {
	t.Helper()
	return e.stat(t, "cluster.echo.ratelimit."+listener+"."+name)
}

// wait polls until a test's own condition holds.
func wait(t *testing.T, what string, f func() error) {
	t.Helper()
	if err := testserver.Poll(f); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// client sends requests to one listener.
type client struct {
	*envoy
	listener string
}

func (e *envoy) at(listener string) client { return client{e, listener} }

// response is what a client sees of a response.
type response struct {
	status int
	header http.Header
}

// get sends a request with these headers: names and values in turn.
func (c client) get(t *testing.T, path string, headers ...string) response {
	t.Helper()
	r, err := c.try(path, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (c client) try(path string, headers ...string) (response, error) {
	request, err := http.NewRequest("GET", "http://"+c.ports[c.listener]+path, nil)
	if err != nil {
		return response{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		return response{}, err
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return response{r.StatusCode, r.Header}, err
}

// expect sends the same request once for each of the statuses that are wanted.
func (c client) expect(t *testing.T, wanted []int, path string, headers ...string) {
	t.Helper()
	var got []int
	for range wanted {
		got = append(got, c.get(t, path, headers...).status)
	}
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		t.Errorf("%s %q: statuses %v, want %v", path, headers, got, wanted)
	}
}

// fresh returns the name of a client whom no test has used before.
func fresh(name string) string { return name + "-" + rand.Text() }

// everyService runs a test with a patient Envoy in front of each kind of service: on
// Redis, on the store in memory, and in place of the original. All tests share these, so
// each keeps to clients of its own.
func everyService(t *testing.T, test func(t *testing.T, c client)) {
	t.Helper()
	eachOf(t, []string{"redis", "memory", "compat"}, test)
}

// ownServices is everyService for what the original does not do.
func ownServices(t *testing.T, test func(t *testing.T, c client)) {
	t.Helper()
	eachOf(t, []string{"redis", "memory"}, test)
}

func eachOf(t *testing.T, services []string, test func(t *testing.T, c client)) {
	t.Helper()
	t.Parallel()
	for _, name := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, at(t, name))
		})
	}
}

// at returns a client of one of the services that all tests share.
func at(t *testing.T, service string) client {
	t.Helper()
	e, err := common.start(redistest.Shared(t, redistest.Redis7).Addr)
	if err != nil {
		t.Fatal(err)
	}
	return e.at(service)
}

// common is what everyService shares. It ends with the test process.
var common stack

type stack struct {
	once  sync.Once
	envoy *envoy
	err   error
}

func (s *stack) start(redis string) (*envoy, error) {
	s.once.Do(func() {
		var listeners []listener
		for name, how := range map[string]start{
			"redis":  serve("testdata/rules.yaml", "redis://"+redis+"?budget=30s"),
			"memory": serve("testdata/rules.yaml", "memory:"),
			"compat": original(testserver.Dir(), rulesText, redis, "RESPONSE_DYNAMIC_METADATA=true", "LIMIT_RESPONSE_HEADERS_ENABLED=true"),
		} {
			var service *service
			if service, s.err = launchService(how); s.err != nil {
				return
			}
			listeners = append(listeners, listener{Name: name, Service: service.grpc, Filter: patient})
		}
		upstream := httptest.NewServer(http.HandlerFunc(greet))
		config, err := configure(testserver.Dir(), upstream.Listener.Addr().String(), listeners)
		if err != nil {
			s.err = err
			return
		}
		s.envoy, s.err = launchEnvoy(config)
	})
	return s.envoy, s.err
}
