// Package redistest starts real Redis and Valkey servers for tests: single servers, with TLS or users if asked, a master
// watched by sentinels, and clusters. Nothing here is a mock.
//
// Every server listens on a loopback port that the kernel chose, keeps nothing on disk, and ends with the test that
// started it, or, if the test process is killed, with the process. Set-up speaks a minimal RESP of its own, so that what
// the tests find out about a Redis client does not depend on that client.
//
// What cannot be had (a missing binary, a server that does not start) fails the test; nothing is ever skipped. The
// servers come from ./test.sh; find.go says where they are looked for.
package redistest

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"weir.dev/weir/internal/testserver"
)

// Options say what a server does beyond answering on its port. The zero value is a server without TLS or password.
type Options struct {
	TLS      bool     // serves TLS only, with a certificate for 127.0.0.1; of the four versions only Redis7 can
	Password bool     // asks for Server.Password, as requirepass does
	Rules    string   // ACL rules of Server.User, "~weir:* +@scripting" say; the default user is then off
	Config   []string // further lines of redis.conf, such as "maxmemory 2mb"; they come last, so they win
}

// Server is one running server.
type Server struct {
	Addr     string      // 127.0.0.1:port; stays the same over Restart
	User     string      // the user to log in as, or ""
	Password string      // its password, or ""
	TLS      *tls.Config // trusts this server and no other; nil without TLS
	CACert   string      // path of the PEM file with the certificate that TLS trusts, or ""

	process *testserver.Process
	busPort int // of a cluster node
	tb      testing.TB
	shared  bool
	admin   login
}

type login struct{ user, password string }

// Start starts a server of version v, waits until it answers, and ends it when the test ends.
func Start(tb testing.TB, v Version, o Options) *Server {
	tb.Helper()
	s, err := start(v, o, tb.TempDir())
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(s.process.Kill)
	s.tb = tb
	return s
}

// Do sends one command, as a user who may do everything, and returns the reply: a string, an int64, nil or a []any of
// these. An error reply, or none within 5 s, fails the test.
func (s *Server) Do(args ...string) any {
	s.tb.Helper()
	reply, err := s.Try(args...)
	if err != nil {
		s.tb.Fatalf("redistest: %s %s: %v", s.Addr, strings.Join(args, " "), err)
	}
	return reply
}

// Try is Do for a command that may fail: an error reply comes back as an Error.
func (s *Server) Try(args ...string) (any, error) {
	conn, err := dial(s.Addr, s.TLS)
	if err != nil {
		return nil, err
	}
	defer conn.close()
	if s.admin.password != "" {
		auth := []string{"AUTH", s.admin.password}
		if s.admin.user != "" {
			auth = []string{"AUTH", s.admin.user, s.admin.password}
		}
		if _, err := conn.do(auth); err != nil {
			return nil, err
		}
	}
	return conn.do(args)
}

// Info returns one field of INFO, such as Info("replication", "role"), or "" if the server does not report it.
func (s *Server) Info(section, field string) string {
	s.tb.Helper()
	return infoField(fmt.Sprint(s.Do("INFO", section)), field)
}

// Pause stops the server's process (SIGSTOP): its connections stay open and nothing answers, as in a hang or a partition.
func (s *Server) Pause() { s.tb.Helper(); s.mustOwn("pause"); s.must(s.process.Pause()) }

// Resume lets a paused server go on (SIGCONT). It first works off what arrived meanwhile.
func (s *Server) Resume() { s.tb.Helper(); s.mustOwn("resume"); s.must(s.process.Resume()) }

// Kill ends the server at once (SIGKILL), as a crash does: its connections break and what it held is lost.
func (s *Server) Kill() { s.tb.Helper(); s.mustOwn("kill"); s.process.Kill() }

// Restart starts the server again, killing it first if it runs, on the same port and without its data, and waits until it
// answers. A cluster node keeps its identity and its slots.
func (s *Server) Restart() {
	s.tb.Helper()
	s.mustOwn("restart")
	s.process.Kill()
	s.must(testserver.Poll(func() error {
		err := s.boot()
		if err != nil && !portTaken(err) {
			return testserver.Permanent{Err: err}
		}
		return err // somebody uses the port just now, as the near end of a connection
	}))
}

func (s *Server) must(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatalf("redistest: %s: %v", s.Addr, err)
	}
}

func (s *Server) mustOwn(verb string) {
	s.tb.Helper()
	if s.shared {
		s.tb.Fatalf("redistest: cannot %s the server that all tests of the package share; use Start", verb)
	}
}

// start starts a server whose files, if it needs any, are in dir.
func start(v Version, o Options, dir string) (*Server, error) {
	return onFreePort(v, func(path string, port, busPort int) (*Server, error) {
		s := &Server{
			Addr:    fmt.Sprintf("127.0.0.1:%d", port),
			process: &testserver.Process{Path: path, Args: []string{"-"}, Dir: dir},
			busPort: busPort,
		}
		lines, err := s.configure(v, o, port)
		if err != nil {
			return nil, err
		}
		config := strings.Join(lines, "\n") + "\n"
		s.process.Input = strings.ReplaceAll(config, busPortMark, fmt.Sprint(busPort))
		return s, s.boot()
	})
}

// busPortMark in a line of Options.Config stands for the port of the cluster bus.
const busPortMark = "{bus-port}"

// onFreePort starts a server by launch, with the path of its program. Another process may take a free port before the
// server does: then it is tried again on another one.
func onFreePort(v Version, launch func(path string, port, busPort int) (*Server, error)) (*Server, error) {
	path, err := find(v)
	if err != nil {
		return nil, err
	}
	for range 5 {
		port, busPort, err := freePorts(v)
		if err != nil {
			return nil, err
		}
		s, err := launch(path, port, busPort)
		if err == nil {
			return s, nil
		}
		if !portTaken(err) {
			return nil, fmt.Errorf("%v: %w", v, err)
		}
	}
	return nil, fmt.Errorf("%v: five free ports in a row were taken before the server could listen on them", v)
}

// configure returns the lines of redis.conf, and sets what a client must know about the server.
func (s *Server) configure(v Version, o Options, port int) ([]string, error) {
	lines := []string{
		"bind 127.0.0.1", "dir " + s.process.Dir, "save \"\"", "appendonly no",
		"repl-diskless-sync yes", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1",
	}
	if v != Redis62 { // which allows DEBUG to everybody and refuses the line
		lines = append(lines, "enable-debug-command local")
	}
	if o.TLS {
		if v != Redis7 {
			return nil, fmt.Errorf("%v here is built without TLS: use Redis7", v)
		}
		pair, err := newCertificate(s.process.Dir)
		if err != nil {
			return nil, err
		}
		s.TLS, s.CACert = pair.client, pair.certFile
		lines = append(lines, "port 0", fmt.Sprint("tls-port ", port), "tls-auth-clients no",
			"tls-cert-file "+pair.certFile, "tls-key-file "+pair.keyFile, "tls-ca-cert-file "+pair.certFile)
	} else {
		lines = append(lines, fmt.Sprint("port ", port))
	}
	if o.Password {
		s.Password = rand.Text()
		s.admin = login{password: s.Password}
		lines = append(lines, "requirepass "+s.Password)
	}
	if o.Rules != "" {
		s.User, s.Password = "weir", rand.Text()
		s.admin = login{"admin", rand.Text()}
		lines = append(lines, "user default off",
			fmt.Sprintf("user %s on >%s ~* &* +@all", s.admin.user, s.admin.password),
			fmt.Sprintf("user %s on >%s %s", s.User, s.Password, o.Rules))
	}
	return append(lines, o.Config...), nil
}

// boot starts the process and waits until it answers.
func (s *Server) boot() error {
	if err := s.process.Start(); err != nil {
		return err
	}
	err := testserver.Poll(func() error {
		if !s.process.Running() {
			return testserver.Permanent{Err: fmt.Errorf("the server ended; its last lines are:\n%s", s.process.Output())}
		}
		info, err := s.Try("INFO", "server")
		if err != nil {
			return err
		}
		// A port that was taken meanwhile is answered by somebody else's server.
		if got, want := infoField(fmt.Sprint(info), "process_id"), fmt.Sprint(s.process.PID()); got != want {
			return fmt.Errorf("process %s answers on %s, want %s", got, s.Addr, want)
		}
		return nil
	})
	if err != nil {
		s.process.Kill()
	}
	if final := (testserver.Permanent{}); errors.As(err, &final) {
		return final.Err
	}
	return err
}

// shared holds what the tests of one process share.
var shared = struct {
	mu       sync.Mutex
	dir      string // removed by Run; "" without Run
	servers  map[Version]started[*Server]
	clusters map[Version]started[*Cluster]
}{servers: map[Version]started[*Server]{}, clusters: map[Version]started[*Cluster]{}}

// started is what start returned. A failure is kept: one that comes at once in each test is better than a slow one.
type started[T any] struct {
	value T
	err   error
}

// once returns what the first call for v returned. shared.mu must be held.
func once[T any](m map[Version]started[T], v Version, start func() (T, error)) (T, error) {
	if _, tried := m[v]; !tried {
		value, err := start()
		m[v] = started[T]{value, err}
	}
	return m[v].value, m[v].err
}

// Shared returns a server that all tests of the process share: started by the first that asks, ended with the process.
// Each test must keep to keys of its own and change no setting.
func Shared(tb testing.TB, v Version) *Server {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	s, err := once(shared.servers, v, func() (*Server, error) {
		// Without persistence or replicas the server writes no file, so it needs no directory of its own.
		return start(v, Options{}, os.TempDir())
	})
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	view := *s
	view.tb, view.shared = tb, true
	return &view
}

// Run is the TestMain of a package that uses SharedCluster: it runs the tests, then ends what they shared and removes its
// files. Use it as os.Exit(redistest.Run(m)).
func Run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		fmt.Fprintln(os.Stderr, "redistest:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	shared.dir = dir
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, s := range shared.servers {
		if s.err == nil {
			s.value.process.Kill()
		}
	}
	for _, c := range shared.clusters {
		if c.err == nil {
			c.value.kill()
		}
	}
	return code
}
