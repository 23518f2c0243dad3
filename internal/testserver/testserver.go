// Package testserver finds and runs the programs that tests talk to: Redis servers, Envoy, other proxies, and the service
// itself. Each ends with its test, or, if the test process is killed, with the process.
//
// Nothing is ever skipped for want of a program: Find says what to do, and the test fails with it.
package testserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Find returns the path of a program that scripts/install-test-servers.sh installs, such as "envoy": the one that its
// variable names (WEIR_ENVOY), else the one in the repository's .tools/servers.
func Find(name string) (string, error) {
	variable := "WEIR_" + strings.ToUpper(name)
	if path := os.Getenv(variable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("%s=%s names no program: %w", variable, path, err)
		}
		return path, nil
	}
	root, err := repository()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, ".tools", "servers", name)
	if _, err := exec.LookPath(path); err != nil {
		return "", fmt.Errorf("%s is not installed: run ./test.sh, which installs it, or let %s name its program", name, variable)
	}
	return path, nil
}

// repository returns the folder of go.work, above the package under test.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.work above the package under test, so no .tools folder to look into")
		}
		dir = parent
	}
}

// Port returns a loopback port that was free a moment ago and that no other call in this process has returned: the one
// that is wanted, or one of the kernel's choice for 0. Another process may take it before it is used, so whoever listens
// on it must be ready to try again.
func Port(want int) (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", want))
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if !ports.used[port] {
			ports.used[port] = true
			return port, nil
		}
		if want != 0 {
			return 0, fmt.Errorf("port %d is given away already", want)
		}
	}
	return 0, errors.New("no free loopback port in 100 tries")
}

var ports = struct {
	sync.Mutex
	used map[int]bool
}{used: map[int]bool{}}

// Permanent marks an error that no further try will mend.
type Permanent struct{ Err error }

func (p Permanent) Error() string { return p.Err.Error() }

// Unwrap returns the error itself.
func (p Permanent) Unwrap() error { return p.Err }

// patience bounds every wait for a server: long, for the machine may be busy, since a wait ends as soon as it can.
const patience = 60 * time.Second

// Poll calls f until it returns nil or a Permanent error, or a minute has passed; then it returns the last error.
func Poll(f func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if errors.As(err, new(Permanent)) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
