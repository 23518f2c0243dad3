package main

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir.dev/weir/internal/redistest"
)

// runCommand runs a command of weir.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func writeToken(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// charge sends a request of alice's, and returns the status.
func charge(t *testing.T, s *running) int {
	t.Helper()
	response, err := http.Post("http://"+s.http.Addr().String()+"/json", "application/json",
		strings.NewReader(`{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func TestExplainAndResetAskARunningService(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	server := "http://" + s.debug.Addr().String()
	for i, want := range []int{200, 200, 429} {
		if got := charge(t, s); got != want {
			t.Fatalf("request %d: got %d, want %d", i+1, got, want)
		}
	}
	out, err := runCommand(t, "explain", "--server", server, "--domain", "shop", "user=alice")
	want := `1. "user" = "alice": user, by key alone
Limited by the rule user:
   2 per year by fixed_window: 0 left, and denied for `
	if err != nil || !strings.HasPrefix(out, want) || !strings.Contains(out, "; as new in ") {
		t.Errorf("got %v and\n%s\nwant\n%s", err, out, want)
	}
	out, err = runCommand(t, "reset", "--server", server, "shop", "user=alice")
	if want := "Reset what this key has used of the rule user: shop|user\n"; err != nil || out != want {
		t.Errorf("got %v and %q, want %q", err, out, want)
	}
	out, err = runCommand(t, "explain", "--server", server+"/", "--domain", "shop", "user=alice")
	if err != nil || !strings.HasSuffix(out, "2 per year by fixed_window: 2 left\n") {
		t.Errorf("got %v and %q, want all left", err, out)
	}
	if got := charge(t, s); got != 200 {
		t.Errorf("after the reset: got %d, want 200", got)
	}
	out, err = runCommand(t, "explain", "--server", server, "--domain", "shop", "user=alice", "x=y")
	if want := "1. \"user\" = \"alice\": user, by key alone\n2. \"x\" = \"y\": no match, there is no level below\nNot limited: no rule is at the level of the last entry.\n"; err != nil || out != want {
		t.Errorf("got %v and %q, want %q", err, out, want)
	}
}

func TestExplainAndResetNameEveryBadArgument(t *testing.T) {
	t.Parallel()
	const url = "http://127.0.0.1:1"
	for want, args := range map[string][]string{
		"no service: write --server and the URL of its debug listener, such as http://127.0.0.1:6070\nno domain: write one of the configuration's domains, and after it each KEY=VALUE": {"reset"},
		"no service: write --server and the URL of its debug listener, such as http://127.0.0.1:6070\nno entries: write at least one KEY=VALUE":                                         {"reset", "shop"},
		"no domain: write one of the configuration's domains, and after it each KEY=VALUE":                                                                                              {"reset", "--server", url, "user=alice"},
		`the entry "alice" is not KEY=VALUE`: {"reset", "--server", url, "shop", "alice"},
		"--server: the URL of the service is none: write that of its debug listener, such as http://127.0.0.1:6070": {"reset", "--server", "127.0.0.1:6070", "shop", "user=alice"},
		"no rules: write --config and a file or a directory, or --server and the URL of a running service":          {"explain", "--domain", "shop", "user=alice"},
		"--config and --server are both here: leave one of them out":                                                {"explain", "--config", "x", "--server", url, "--domain", "shop", "user=alice"},
	} {
		if out, err := runCommand(t, args...); err == nil || err.Error() != want || out != "" {
			t.Errorf("%q: got %v and %q, want %q", args, err, out, want)
		}
	}
	if _, err := runCommand(t, "reset", "--server", url, "shop", "user=alice"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("nobody there: got %v, want an error that names the address", err)
	}
}

func TestOffLoopbackTheDebugListenerWantsAToken(t *testing.T) {
	t.Parallel()
	start := func(tokenFile string) (url string, s *running) {
		opts := localOptions(writeRules(t, shopRules))
		opts.debug, opts.adminTokenFile = "0.0.0.0:0", tokenFile
		made, err := newServer(opts, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		s = runServer(t, made)
		_, port, _ := strings.Cut(strings.TrimPrefix(s.debug.Addr().String(), "[::]"), ":")
		return "http://127.0.0.1:" + port, s
	}
	url, _ := start("")
	if _, err := runCommand(t, "reset", "--server", url, "shop", "user=alice"); err == nil || !strings.Contains(err.Error(), "start the service with --admin-token-file") {
		t.Errorf("without any token: got %v, want an error that says what to do", err)
	}
	url, s := start(writeToken(t, "s3cret\n"))
	if _, err := runCommand(t, "reset", "--server", url, "shop", "user=alice"); err == nil || !strings.Contains(err.Error(), "the token is missing or wrong") {
		t.Errorf("without its token: got %v, want a refusal", err)
	}
	if _, err := runCommand(t, "reset", "--server", url, "--admin-token-file", writeToken(t, "wrong"), "shop", "user=alice"); err == nil || !strings.Contains(err.Error(), "the token is missing or wrong") {
		t.Errorf("with another: got %v, want a refusal", err)
	}
	if out, err := runCommand(t, "reset", "--server", url, "--admin-token-file", writeToken(t, "s3cret"), "shop", "user=alice"); err != nil || out == "" {
		t.Errorf("with its token: got %v and %q, want a reset", err, out)
	}
	if code, body := get(t, s.debug, "/admin/rules"); code != 200 || !strings.Contains(body, "2 per year") {
		t.Errorf("GET /admin/rules: got %d and %s, want the rules", code, body)
	}
}

func TestATokenIsOneWordInAFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                        "is empty: write a token into it",
		"\n":                      "is empty: write a token into it",
		"two words":               "has more than a token: write one word of ASCII, without spaces",
		"a\nb":                    "has more than a token: write one word of ASCII, without spaces",
		"töken":                   "has more than a token: write one word of ASCII, without spaces",
		strings.Repeat("a", 4097): "is too long: a token has at most 4096 bytes",
		strings.Repeat("a", 1e6):  "is too long: a token has at most 4096 bytes",
	} {
		path := writeToken(t, text)
		if _, err := readToken(path); err == nil || err.Error() != path+" "+want {
			t.Errorf("%.20q: got %v, want %s", text, err, want)
		}
		opts := localOptions(writeRules(t, shopRules))
		opts.adminTokenFile = path
		if _, err := newServer(opts, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--admin-token-file, WEIR_ADMIN_TOKEN_FILE: ") {
			t.Errorf("%.20q: the service: got %v, want an error that names the flag", text, err)
		}
	}
	if got, err := readToken(writeToken(t, " s3cret\r\n")); got != "s3cret" || err != nil {
		t.Errorf("got %q, %v, want the word", got, err)
	}
	if _, err := readToken(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a file that is not there: got no error")
	}
	if got, err := readToken(""); got != "" || err != nil {
		t.Errorf("no file: got %q, %v, want no token", got, err)
	}
}

func TestExplainSaysACandidate(t *testing.T) {
	t.Parallel()
	path := writeRules(t, "domain: shop\ndescriptors:\n- {key: user, rate_limit: {unit: day, requests_per_unit: 9}, candidate: {unit: day, requests_per_unit: 5}}\n")
	out, err := runCommand(t, "explain", "--config", path, "--domain", "shop", "user=alice")
	if err != nil || !strings.Contains(out, "\n      candidate, only counted: 5 per day by fixed_window\n") {
		t.Errorf("got %v and %s, want the candidate", err, out)
	}
}

func TestResetForgetsWhatRedisKeeps(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s := startServerOn(t, "redis://"+redis.Addr)
	for range 3 {
		charge(t, s)
	}
	if _, err := runCommand(t, "reset", "--server", "http://"+s.debug.Addr().String(), "shop", "user=alice"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 200, 429} {
		if got := charge(t, s); got != want {
			t.Errorf("request %d after the reset: got %d, want %d", i+1, got, want)
		}
	}
}

func TestInCompatResetDeletesTheOriginalsCounters(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	opts := compatOptions(compatSettings(t, onRedis(redis, "RUNTIME_ROOT", runtimeOf(t, labRules), "LOCAL_CACHE_SIZE_IN_BYTES", "100000")...))
	opts.adminTokenFile = writeToken(t, "s3cret")
	made, err := newServer(opts, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := runServer(t, made)
	for range 4 {
		askLab(t, s, "user", "a")
	}
	askLab(t, s, "user", "b")
	if got := askLab(t, s, "user", "a"); got != "OVER_LIMIT" {
		t.Fatalf("got %s, want OVER_LIMIT", got)
	}
	if out, err := runCommand(t, "reset", "--server", "http://"+s.debug.Addr().String(), "--admin-token-file", opts.adminTokenFile, "lab", "user=a"); err != nil || !strings.Contains(out, "the rule user") {
		t.Fatalf("got %v and %q, want the name of the rule", err, out)
	}
	keys, _ := redis.Do("KEYS", "*").([]any)
	if len(keys) != 1 || !strings.HasPrefix(keys[0].(string), "lab_user_b_") {
		t.Errorf("keys %v, want b's alone", keys)
	}
	if got := askLab(t, s, "user", "a"); got != "OK" {
		t.Errorf("after the reset: got %s, want OK", got)
	}
}

func TestACandidateWhoseStateIsForeignFailsNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	opts := localOptions(writeRules(t, shopRules+"    candidate: {unit: year, requests_per_unit: 1}\n"))
	opts.store = "redis://" + redis.Addr
	made, err := newServer(opts, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := runServer(t, made)
	got := []int{charge(t, s)}
	keys, _ := redis.Do("KEYS", "*#candidate*").([]any)
	if len(keys) != 1 {
		t.Fatalf("keys of candidates %v, want one", keys)
	}
	redis.Do("DEL", keys[0].(string))
	redis.Do("RPUSH", keys[0].(string), "x")
	got = append(got, charge(t, s), charge(t, s))
	if !slices.Equal(got, []int{200, 200, 429}) {
		t.Errorf("got %v, want 200, 200 and 429", got)
	}
	if _, text := get(t, s.http, "/metrics"); !strings.Contains(text, `rate_limit_candidate_decisions_total{domain="shop",limit="1",rule="user",verdict="not_compared"} 2`) {
		t.Error("want two that are not compared")
	}
}
