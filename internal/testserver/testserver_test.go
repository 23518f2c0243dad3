package testserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets this binary be the program that is started: it says so and waits for a signal.
func TestMain(m *testing.M) {
	if os.Getenv(playedVariable) != "" {
		fmt.Println("started in", os.Getenv(playedVariable))
		select {}
	}
	os.Exit(m.Run())
}

const playedVariable = "WEIR_TESTSERVER_PLAYED"

func TestVariableNamesTheProgram(t *testing.T) {
	t.Setenv("WEIR_ENVOY", os.Args[0])
	if got, err := Find("envoy"); got != os.Args[0] || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, os.Args[0])
	}
	missing := filepath.Join(t.TempDir(), "none")
	t.Setenv("WEIR_ENVOY", missing)
	if _, err := Find("envoy"); err == nil || !strings.Contains(err.Error(), "WEIR_ENVOY="+missing) {
		t.Errorf("got %v, want an error that names the variable and its program", err)
	}
}

func TestProgramThatIsNotInstalledIsAnErrorThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	_, err := Find("no-such-server")
	if err == nil || !strings.Contains(err.Error(), "run ./test.sh") || !strings.Contains(err.Error(), "WEIR_NO-SUCH-SERVER") {
		t.Errorf("got %v, want an error that names test.sh and the variable", err)
	}
}

func TestPortIsGivenAwayOnce(t *testing.T) {
	t.Parallel()
	port, err := Port(0)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Port(port); err == nil {
		t.Errorf("port %d is given away twice, the second time as %d", port, again)
	}
}

func TestProcessRunsAgainAfterItEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := &Process{Path: os.Args[0], Dir: dir, Env: []string{playedVariable + "=" + dir}}
	t.Cleanup(p.Kill)
	last := 0
	for name, end := range map[string]func(){"killed": p.Kill, "terminated": p.Terminate} {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		err := Poll(func() error {
			if got, want := p.Output(), "started in "+dir; !strings.Contains(got, want) {
				return fmt.Errorf("output %q, want %q", got, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !p.Running() || p.PID() == last {
			t.Errorf("running %t as %d after %d, want a new process", p.Running(), p.PID(), last)
		}
		last = p.PID()
		if err := errors.Join(p.Pause(), p.Resume()); err != nil || !p.Running() {
			t.Errorf("paused and resumed: running %t, %v", p.Running(), err)
		}
		end()
		if p.Running() {
			t.Errorf("%s and still running", name)
		}
	}
}

func TestPollEndsAtAnErrorThatNoTryMends(t *testing.T) {
	t.Parallel()
	tries := 0
	fatal := errors.New("fatal")
	err := Poll(func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return fmt.Errorf("the third: %w", Permanent{fatal})
	})
	if !errors.Is(err, fatal) || tries != 3 {
		t.Errorf("got %v after %d tries, want the fatal error after 3", err, tries)
	}
}
