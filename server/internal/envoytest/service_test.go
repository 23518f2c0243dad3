package envoytest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"weir.dev/weir/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Run(m)) }

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
	path, err := testserver.Program()
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
