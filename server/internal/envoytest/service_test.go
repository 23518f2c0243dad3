package envoytest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"weir.dev/weir/internal/testserver"
)

// shared is what all tests have in common: one directory, and the program.
var shared struct{ dir string }

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if shared.dir, err = os.MkdirTemp("", "envoytest"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(shared.dir)
	return m.Run()
}

// program builds the program, once.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(shared.dir, "weir")
	out, err := exec.Command("go", "build", "-o", path, "weir.dev/weir/server/cmd/weir").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// service is the running program. Its addresses stay the same over restarts.
type service struct {
	*testserver.Process
	grpc, http, debug string
}

// start is how to start a service that listens on the addresses of s: it sets what is run.
type start func(s *service)

// serve starts the program on a file of rules and a store.
func serve(rules, store string, flags ...string) start {
	return func(s *service) {
		s.Args = append([]string{"serve", "--config", rules, "--store", store,
			"--grpc", s.grpc, "--http", s.http, "--debug", s.debug}, flags...)
	}
}

// startService runs a service until the test ends.
func startService(t *testing.T, how start) *service {
	t.Helper()
	s, err := launchService(how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the service's last lines:\n%s", s.Output())
		}
	})
	return s
}

// launchService runs the service, and returns when it answers. A port that another process
// took meanwhile costs another try.
func launchService(how start) (*service, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	for range 5 {
		s := &service{Process: &testserver.Process{Path: path}}
		for _, address := range []*string{&s.grpc, &s.http, &s.debug} {
			port, err := testserver.Port(0)
			if err != nil {
				return nil, err
			}
			*address = fmt.Sprint("127.0.0.1:", port)
		}
		how(s)
		if err = s.boot(); err == nil || !s.portTaken() {
			return s, err
		}
	}
	return nil, errors.New("five free ports in a row were taken before the service could listen on them")
}

func (s *service) portTaken() bool { return strings.Contains(s.Output(), "address already in use") }

// boot starts the program and waits until it answers.
func (s *service) boot() error {
	if err := s.Start(); err != nil {
		return err
	}
	return testserver.Poll(func() error {
		if !s.Running() {
			return testserver.Permanent{Err: fmt.Errorf("the service ended; its last lines are:\n%s", s.Output())}
		}
		_, err := page(s.http, "/healthcheck")
		return err
	})
}

// restart starts the program again after it has ended.
func (s *service) restart(t *testing.T) {
	t.Helper()
	err := testserver.Poll(func() error {
		err := s.boot()
		if err != nil && !s.portTaken() {
			return testserver.Permanent{Err: err}
		}
		return err // somebody uses the port just now, as the near end of a connection
	})
	if err != nil {
		t.Fatal(err)
	}
}

// page returns what is at a path of an HTTP server.
func page(address, path string) (string, error) {
	response, err := http.Get("http://" + address + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", path, response.Status, body)
	}
	return string(body), err
}
