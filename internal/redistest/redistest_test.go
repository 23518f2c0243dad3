package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"weir.dev/weir/internal/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanVariable) != "" {
		startAndHang()
	}
	os.Exit(Run(m))
}

func TestEachVersionAnswersAsItself(t *testing.T) {
	t.Parallel()
	want := map[Version]struct{ field, prefix string }{
		Redis7:  {"redis_version", "7."},
		Valkey9: {"valkey_version", "9."},
		Redis8:  {"redis_version", "8."},
		Redis62: {"redis_version", "6.2."},
	}
	for _, v := range Versions() {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			s := Start(t, v, Options{})
			if got := s.Do("PING"); got != "PONG" {
				t.Errorf("PING: got %v, want PONG", got)
			}
			if got := s.Info("server", want[v].field); !strings.HasPrefix(got, want[v].prefix) {
				t.Errorf("%s: got %q, want %s*", want[v].field, got, want[v].prefix)
			}
		})
	}
}

func TestServerIsGoneWhenItsTestEnds(t *testing.T) {
	t.Parallel()
	var addr string
	t.Run("started here", func(t *testing.T) {
		addr = Start(t, Redis7, Options{}).Addr
	})
	if answers(addr) {
		t.Errorf("%s still listens after the test that started it", addr)
	}
}

func TestRepliesOfEveryKindAreRead(t *testing.T) {
	t.Parallel()
	s := Start(t, Redis7, Options{})
	got := s.Do("EVAL", "return {1, 'a\\r\\nb', false, {redis.status_reply('fine'), ''}, {}}", "0")
	if got, want := fmt.Sprintf("%#v", got), `[]interface {}{1, "a\r\nb", interface {}(nil), `+
		`[]interface {}{"fine", ""}, []interface {}{}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	_, err := s.Try("EVALSHA", strings.Repeat("0", 40), "0")
	var refused Error
	if !errors.As(err, &refused) || !strings.HasPrefix(string(refused), "NOSCRIPT ") {
		t.Errorf("unknown script: got %v, want a NOSCRIPT Error", err)
	}
}

func TestTLSServerIsTrustedByItsOwnClientAndRefusesPlainText(t *testing.T) {
	t.Parallel()
	s := Start(t, Redis7, Options{TLS: true, Password: true})
	if got := s.Do("PING"); got != "PONG" {
		t.Errorf("PING: got %v, want PONG", got)
	}
	if _, err := os.Stat(s.CACert); err != nil {
		t.Errorf("CACert: %v", err)
	}
	plain := *s
	plain.TLS = nil
	if got, err := plain.Try("PING"); err == nil {
		t.Errorf("PING without TLS: got %v, want an error", got)
	}
}

func TestUserIsHeldToItsRules(t *testing.T) {
	t.Parallel()
	s := Start(t, Redis7, Options{Rules: "~weir:* +get"})
	s.Do("SET", "weir:a", "1")
	asUser := *s
	asUser.admin = login{s.User, s.Password}
	if got := asUser.Do("GET", "weir:a"); got != "1" {
		t.Errorf("GET weir:a: got %v, want 1", got)
	}
	for _, command := range [][]string{{"GET", "other"}, {"SET", "weir:a", "2"}} {
		if got, err := asUser.Try(command...); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%v: got %v, %v, want NOPERM", command, got, err)
		}
	}
	nobody := *s
	nobody.admin = login{}
	if got, err := nobody.Try("PING"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("PING without a user: got %v, %v, want NOAUTH", got, err)
	}
}

func TestRestartKeepsThePortAndLosesTheData(t *testing.T) {
	t.Parallel()
	s := Start(t, Redis7, Options{Config: []string{"maxmemory 20mb"}})
	s.Do("SET", "a", "1")
	s.Kill()
	if answers(s.Addr) {
		t.Errorf("%s listens after Kill", s.Addr)
	}
	s.Restart()
	if got := s.Do("GET", "a"); got != nil {
		t.Errorf("GET a after a restart: got %v, want nil", got)
	}
	if got := s.Info("memory", "maxmemory"); got != "20971520" {
		t.Errorf("maxmemory after a restart: got %s, want 20971520", got)
	}
}

func TestPausedServerTakesConnectionsAndAnswersAfterResume(t *testing.T) {
	t.Parallel()
	s := Start(t, Redis7, Options{})
	s.Pause()
	c, err := dial(s.Addr, nil)
	if err != nil {
		t.Fatalf("dial a paused server: %v", err)
	}
	defer c.close()
	answer := make(chan error)
	go func() {
		_, err := c.do([]string{"PING"})
		answer <- err
	}()
	s.Resume()
	if err := <-answer; err != nil {
		t.Errorf("PING sent while paused: %v", err)
	}
}

func TestSharedServerIsOneForAllAndNotForOneTestToStop(t *testing.T) {
	t.Parallel()
	first, second := Shared(t, Redis7), Shared(t, Redis7)
	if first.Addr != second.Addr {
		t.Errorf("got %s and %s, want one server", first.Addr, second.Addr)
	}
	refusal := failure(t, func(tb testing.TB) { Shared(tb, Redis7).Kill() })
	if want := "cannot kill the server that all tests of the package share"; !strings.Contains(refusal, want) {
		t.Errorf("Kill: got %q, want %q", refusal, want)
	}
	first.Do("PING")
}

func TestWhatCannotBeStartedSaysWhyAndWhatToDo(t *testing.T) {
	t.Setenv("WEIR_REDIS62", "/no/such/program")
	refusal := failure(t, func(tb testing.TB) { Start(tb, Redis62, Options{}) })
	if want := "WEIR_REDIS62=/no/such/program names no program"; !strings.Contains(refusal, want) {
		t.Errorf("missing program: got %q, want %q", refusal, want)
	}
	refusal = failure(t, func(tb testing.TB) { Start(tb, Redis7, Options{Config: []string{"no-such-setting 1"}}) })
	if want := "no-such-setting"; !strings.Contains(refusal, want) {
		t.Errorf("bad setting: got %q, want what the server said, with %q", refusal, want)
	}
	refusal = failure(t, func(tb testing.TB) { Start(tb, Redis8, Options{TLS: true}) })
	if want := "use Redis7"; !strings.Contains(refusal, want) {
		t.Errorf("TLS on Redis 8: got %q, want %q", refusal, want)
	}
	refusal = failure(t, func(tb testing.TB) { StartCluster(tb, Redis7, 2, 0) })
	if want := "want at least 3 masters"; !strings.Contains(refusal, want) {
		t.Errorf("cluster of two: got %q, want %q", refusal, want)
	}
}

const orphanVariable = "REDISTEST_START_AND_HANG"

// startAndHang is the child of the next test: it prints a server's address and waits to be killed.
func startAndHang() {
	s, err := start(Redis7, Options{}, os.TempDir())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Addr)
	select {}
}

func TestKilledTestProcessLeavesNoServer(t *testing.T) {
	t.Parallel()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), orphanVariable+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	addr := strings.TrimSpace(line)
	wasThere := answers(addr)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if !wasThere {
		t.Fatalf("the child's server, %q, did not answer", addr)
	}
	err = testserver.Poll(func() error {
		if answers(addr) {
			return fmt.Errorf("%s still listens", addr)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func answers(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// failure runs f with a test that may fail, and returns what it said.
func failure(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.said
}

// recorder is a test whose failures are noted. Like a real one it ends the goroutine that fails.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
