package gatewaytest

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"weir.dev/weir/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Run(m)) }

// gateway is how to run one of the examples. In its texts $PORT is the gateway's own port
// and $DIR the directory that its files are in.
type gateway struct {
	name      string
	files     []string    // of examples/NAME, beside the rules
	changes   [][2]string // what is changed in them
	main      string      // a file "main" of the test, if the example is only a part of one
	args, env []string
	away      int  // the status of replies while the service is away
	tells     bool // replies that pass tell the limits
}

// site is a running gateway, the service that it asks and the application behind it.
type site struct {
	gateway *testserver.Process
	service *testserver.Process
	dir     string
	address string // of the gateway
	passed  atomic.Int64
}

// find returns the gateway's program.
func find(t *testing.T, name string) string {
	t.Helper()
	path, err := testserver.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs a gateway until the test ends. Further changes are made to its files.
func start(t *testing.T, g gateway, changes ...[2]string) *site {
	t.Helper()
	path := find(t, g.name)
	weir, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{}
	application := httptest.NewServer(http.HandlerFunc(s.serveApplication))
	t.Cleanup(application.Close)
	changes = append(changes, [2]string{"127.0.0.1:9000", application.Listener.Addr().String()})
	for range 5 { // a port may be taken before it is used
		err = s.launch(t, g, path, weir, changes)
		if err == nil || !strings.Contains(strings.ToLower(s.gateway.Output()+s.service.Output()), "address already in use") {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serveApplication is the application: it says which client it was called for.
func (s *site) serveApplication(w http.ResponseWriter, r *http.Request) {
	s.passed.Add(1)
	fmt.Fprintf(w, "application: %s %s", r.Host, r.URL)
}

func (s *site) launch(t *testing.T, g gateway, path, weir string, changes [][2]string) error {
	t.Helper()
	own, err := testserver.Port(0)
	if err != nil {
		return err
	}
	asked, err := testserver.Port(0)
	if err != nil {
		return err
	}
	s.dir, s.address = t.TempDir(), fmt.Sprint("127.0.0.1:", own)
	asks := fmt.Sprint("127.0.0.1:", asked)
	changes = append(changes, [2]string{"127.0.0.1:8080", asks}, [2]string{"unit: minute", "unit: year"})
	filled := strings.NewReplacer("$PORT", fmt.Sprint(own), "$DIR", s.dir)
	for _, change := range g.changes {
		changes = append(changes, [2]string{change[0], filled.Replace(change[1])})
	}
	if err := install(filepath.Join("..", "..", "..", "examples", g.name), s.dir, append(g.files, "rules.yaml"), changes); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "main"), []byte(filled.Replace(g.main)), 0o600); err != nil {
		return err
	}
	s.service = &testserver.Process{Path: weir, Args: []string{"serve", "--config", filepath.Join(s.dir, "rules.yaml"),
		"--http", asks, "--grpc", "127.0.0.1:0", "--debug", "127.0.0.1:0"}}
	s.gateway = &testserver.Process{Path: path, Dir: s.dir}
	for _, arg := range g.args {
		s.gateway.Args = append(s.gateway.Args, filled.Replace(arg))
	}
	for _, variable := range g.env {
		s.gateway.Env = append(s.gateway.Env, filled.Replace(variable))
	}
	for _, p := range []*testserver.Process{s.service, s.gateway} {
		t.Cleanup(func() {
			p.Kill()
			if t.Failed() {
				t.Logf("the last lines of %s:\n%s", p.Path, p.Output())
			}
		})
	}
	if err := boot(s.service, "http://"+asks+"/healthcheck"); err != nil {
		return err
	}
	return boot(s.gateway, "http://"+s.address+"/")
}

// boot starts a program and waits until it answers with success.
func boot(p *testserver.Process, url string) error {
	if err := p.Start(); err != nil {
		return err
	}
	return testserver.Poll(func() error {
		if !p.Running() {
			return testserver.Permanent{Err: fmt.Errorf("%s ended; its last lines are:\n%s", p.Path, p.Output())}
		}
		response, err := from("127.0.0.1").Get(url)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, response.Status)
		}
		return nil
	})
}

// install copies the files of an example with changes, each of which must change something.
func install(from, to string, files []string, changes [][2]string) error {
	made := make([]bool, len(changes))
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		for i, change := range changes {
			made[i] = made[i] || strings.Contains(string(text), change[0])
			text = []byte(strings.ReplaceAll(string(text), change[0], change[1]))
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o600); err != nil {
			return err
		}
	}
	for i, change := range changes {
		if !made[i] {
			return testserver.Permanent{Err: fmt.Errorf("no file of %s has %q", from, change[0])}
		}
	}
	return nil
}

// from returns a client with the address, which is one of 127.0.0.0/8. The first is the
// gateways' own.
func from(address string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("no redirect was expected") },
	}
}

// request is what a client sends.
type request struct {
	client  string // its address
	method  string // GET, if empty
	host    string
	path    string
	headers []string // "Name: value"
}

// send sends a request to the gateway and returns the reply, its body read and closed.
func (s *site) send(t *testing.T, q request) *http.Response {
	t.Helper()
	response, err := s.do(q)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func (s *site) do(q request) (*http.Response, error) {
	r, err := http.NewRequest(q.method, "http://"+s.address+q.path, nil)
	if err != nil {
		return nil, err
	}
	r.Host = q.host
	for _, text := range q.headers {
		name, value, _ := strings.Cut(text, ": ")
		r.Header.Add(name, value)
	}
	response, err := from(q.client).Do(r)
	if err != nil {
		return nil, err
	}
	return response, response.Body.Close()
}

// codes sends a request several times and returns the statuses.
func (s *site) codes(t *testing.T, times int, q request) []int {
	t.Helper()
	codes := make([]int, times)
	for i := range codes {
		codes[i] = s.send(t, q).StatusCode
	}
	return codes
}

// passing returns the statuses of a limit that lets so many requests pass and then two not.
func passing(times int) []int {
	codes := make([]int, times+2)
	for i := range codes {
		codes[i] = http.StatusOK
	}
	codes[times], codes[times+1] = http.StatusTooManyRequests, http.StatusTooManyRequests
	return codes
}
