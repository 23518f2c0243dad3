package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
	"weir.dev/weir/server/admin"
	"weir.dev/weir/server/rls"
	"weir.dev/weir/server/rules"
)

// The windows are years, so that no test meets the end of one.
const shop = `
domain: shop
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 3, name: per-user}
  candidate: {unit: year, requests_per_unit: 2}
- {key: user, value: vip, rate_limit: {unlimited: true}}
- {key: user, value: white}
- key: tenant
  shadow_mode: true
  limits:
  - {unit: year, requests_per_unit: 1, on_store_error: allow}
  - {unit: year, requests_per_unit: 5, algorithm: gcra}
- {key: closed, rate_limit: {unit: year, requests_per_unit: 0}}
`

// listener is a debug listener on a real socket, and the service behind it.
type listener struct {
	*httptest.Server
	service *rls.Service
	store   *flapping
	log     *logged
}

// logged is a log that many goroutines write.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// flapping is a store that is there or not.
type flapping struct {
	weir.Store
	gone bool
}

var errGone = errors.New("no route to the store")

func (f *flapping) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	if f.gone {
		return weir.Decision{}, errGone
	}
	return f.Store.Take(ctx, ask)
}

func (f *flapping) Reset(ctx context.Context, name string, key weir.Key) error {
	if f.gone {
		return errGone
	}
	return f.Store.Reset(ctx, name, key)
}

func start(t *testing.T, token string, local bool) *listener {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{store: &flapping{Store: store}, log: &logged{}}
	if l.service, err = rls.New(l.store, rls.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.service.Close)
	config, err := rules.Parse(rules.File{Name: "limits.yaml", Data: []byte(shop)})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.service.SetRules(config); err != nil {
		t.Fatal(err)
	}
	access := admin.Access{Token: token, Local: func() bool { return local }}
	mux := http.NewServeMux()
	mux.Handle("/admin/", admin.API(l.service, access, slog.New(slog.NewTextHandler(l.log, nil))))
	mux.Handle("/", admin.Debug(l.service.Rules))
	l.Server = httptest.NewServer(access.GuardHost(mux))
	t.Cleanup(l.Server.Close)
	return l
}

// take charges a descriptor once, as a proxy's request does.
func (l *listener) take(t *testing.T, key, value string) bool {
	t.Helper()
	a, err := l.service.Decide(t.Context(), &rls.Request{Domain: "shop", Descriptors: []rls.Descriptor{{Entries: []rules.Entry{{Key: key, Value: value}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return !a.OverLimit
}

// post sends a question as JSON; change may make another request of it.
func (l *listener) post(t *testing.T, path, body string, change func(*http.Request)) (code int, answer string, h http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	response, err := l.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), response.Header
}

func (l *listener) client(t *testing.T, token string) *admin.Client {
	t.Helper()
	c, err := admin.NewClient(l.URL, token)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ask(key, value string) admin.Question {
	return admin.Question{Domain: "shop", Entries: []admin.Entry{{Key: key, Value: value}}}
}

const alice = `{"domain": "shop", "entries": [{"key": "user", "value": "alice"}]}`

func TestPeekSaysTheRuleItsStepsAndWhatIsLeft(t *testing.T) {
	t.Parallel()
	l := start(t, "", true)
	for range 2 {
		l.take(t, "user", "alice")
	}
	for range 2 { // it charges nothing
		e, err := l.client(t, "").Peek(t.Context(), ask("user", "alice"))
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Steps) != 1 || e.Steps[0].How != rules.ByKey || e.Steps[0].Level != "user" {
			t.Errorf("got the steps %+v, want user by its key", e.Steps)
		}
		if e.Rule == nil || e.Rule.Rule != "user" || len(e.Rule.Limits) != 1 || e.Rule.Decisions["allowed"] != 2 {
			t.Fatalf("got the rule %+v, want user with one limit and two allowed", e.Rule)
		}
		limit := e.Rule.Limits[0]
		if limit.Limit != "3 per year by fixed_window" || limit.Name != "per-user" || limit.StateName != "shop|user" || limit.Units != 3 || limit.Capacity != 3 {
			t.Errorf("got the limit %+v, want per-user of 3 a year", limit)
		}
		if s := limit.State; s == nil || !s.Allowed || s.Remaining != 1 || s.Source != "store" || s.ResetAfter <= 0 || s.RetryAfter != 0 || s.Error != "" {
			t.Errorf("got the state %+v, want 1 left", s)
		}
		if c := limit.Candidate; c == nil || c.State == nil || c.State.Allowed || c.State.Remaining != 0 || c.State.RetryAfter <= 0 || limit.Compared["both_allow"] != 2 {
			t.Errorf("got the candidate %+v and %v, want one that is used up and agreed twice", c, limit.Compared)
		}
	}
	e, err := l.client(t, "").Peek(t.Context(), ask("closed", "x"))
	if err != nil || e.Rule.Limits[0].State.Allowed || !e.Rule.Limits[0].State.Never {
		t.Errorf("closed: got %+v, %v, want a denial for ever", e, err)
	}
	e, err = l.client(t, "").Peek(t.Context(), ask("nothing", "x"))
	if err != nil || e.Rule != nil || len(e.Steps) != 1 || e.Steps[0].How != rules.ByNothing || len(e.Steps[0].Else) != 5 {
		t.Errorf("nothing: got %+v, %v, want no rule, and the levels there are", e, err)
	}
}

func TestExplainAsksNoStore(t *testing.T) {
	t.Parallel()
	l := start(t, "", true)
	l.store.gone = true
	code, answer, h := l.post(t, "/admin/explain", alice, nil)
	var e admin.Explanation
	if code != 200 || json.Unmarshal([]byte(answer), &e) != nil || e.Rule == nil || e.Rule.Limits[0].State != nil {
		t.Errorf("got %d and %s, want the rule without a state", code, answer)
	}
	if h.Get("Content-Type") != "application/json" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("got the headers %v, want JSON that is neither sniffed nor stored", h)
	}
	p, err := l.client(t, "").Peek(t.Context(), ask("user", "alice"))
	if err != nil || p.Rule == nil || !strings.Contains(p.Rule.Limits[0].State.Error, errGone.Error()) {
		t.Errorf("peek without the store: got %+v, %v, want the rule, and why there is no state", p, err)
	}
}

func TestResetForgetsThisKeysUseOfAllLimitsOfTheRuleAlone(t *testing.T) {
	t.Parallel()
	l := start(t, "", true)
	for range 4 {
		l.take(t, "user", "alice")
		l.take(t, "user", "bob")
		l.take(t, "tenant", "alice")
	}
	if l.take(t, "user", "alice") {
		t.Fatal("alice passed a fifth time, want a denial")
	}
	done, err := l.client(t, "").Reset(t.Context(), ask("user", "alice"))
	if err != nil || done.Rule != "user" || fmt.Sprint(done.Reset) != "[shop|user shop#candidate|user]" {
		t.Errorf("got %+v, %v, want the limit and its candidate", done, err)
	}
	if !l.take(t, "user", "alice") || l.take(t, "user", "bob") {
		t.Error("want alice to pass, and bob not")
	}
	if done, err = l.client(t, "").Reset(t.Context(), ask("tenant", "alice")); err != nil || len(done.Reset) != 2 {
		t.Errorf("got %+v, %v, want both limits", done, err)
	}
	e, err := l.client(t, "").Peek(t.Context(), ask("tenant", "alice"))
	if err != nil || e.Rule.Limits[0].State.Remaining != 1 || e.Rule.Limits[1].State.Remaining != 5 {
		t.Errorf("got %+v, %v, want both limits as new", e.Rule, err)
	}
}

func TestEachResetIsLoggedWithoutTheKeysText(t *testing.T) {
	t.Parallel()
	l := start(t, "", true)
	if _, err := l.client(t, "").Reset(t.Context(), ask("user", "alice@example.com\nlevel=ERROR")); err != nil {
		t.Fatal(err)
	}
	l.store.gone = true
	if _, err := l.client(t, "").Reset(t.Context(), ask("user", "alice@example.com")); err == nil || !strings.Contains(err.Error(), errGone.Error()) {
		t.Errorf("got %v, want the store's error", err)
	}
	lines := strings.Split(strings.TrimSpace(l.log.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("got %q, want a line for each reset", lines)
	}
	for i, want := range []string{"level=WARN msg=reset", `level=ERROR msg="a reset failed"`} {
		if !strings.Contains(lines[i], want) || !strings.Contains(lines[i], "remote=127.0.0.1:") || !strings.Contains(lines[i], "domain=shop rule=user key=~") || strings.Contains(lines[i], "alice") {
			t.Errorf("got %s, want %s, who and what, and no value", lines[i], want)
		}
	}
}

func TestThereIsNothingToResetWithoutALimit(t *testing.T) {
	t.Parallel()
	l := start(t, "", true)
	for value, want := range map[string]string{
		"vip":   `the rule "user=vip" has no limit: there is nothing to reset`,
		"white": `the rule "user=white" has no limit: there is nothing to reset`,
	} {
		if _, err := l.client(t, "").Reset(t.Context(), ask("user", value)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", value, err, want)
		}
	}
	if _, err := l.client(t, "").Reset(t.Context(), ask("nothing", "x")); err == nil || !strings.Contains(err.Error(), "no rule is at the level of the last entry") {
		t.Errorf("got %v, want an error that no rule matches", err)
	}
	if l.log.String() != "" {
		t.Errorf("got the log %s, want none: nothing was reset", l.log)
	}
}

func TestRulesAreListedWithTheirStateByGET(t *testing.T) {
	t.Parallel()
	l := start(t, "secret", false)
	for range 5 {
		l.take(t, "user", "alice")
	}
	response, err := l.Client().Get(l.URL + "/admin/rules")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var list struct{ Rules []admin.Rule }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil || response.StatusCode != 200 || len(list.Rules) != 5 {
		t.Fatalf("got %d, %v and %+v, want 5 rules", response.StatusCode, err, list)
	}
	user, vip, tenant := list.Rules[0], list.Rules[1], list.Rules[3]
	if user.Decisions["allowed"] != 3 || user.Decisions["denied"] != 2 || user.Limits[0].Compared["would_deny"] != 1 || user.Limits[0].Compared["both_deny"] != 2 {
		t.Errorf("user: got %+v, want 3 allowed, 2 denied, and 1 that the candidate would deny", user)
	}
	if !vip.Unlimited || len(vip.Limits) != 0 || !tenant.Shadow || tenant.Limits[0].OnStoreError != "allow" || tenant.Limits[1].Algorithm != "gcra" {
		t.Errorf("got %+v and %+v, want one unlimited, and one in shadow whose first limit allows and whose second is by gcra", vip, tenant)
	}
}

func TestQuestionsThatAreNoneAreRefusedAndSayWhy(t *testing.T) {
	t.Parallel()
	l := start(t, "", true)
	many := strings.Repeat(`{"key": "a", "value": "b"},`, 1000) + `{"key": "a", "value": "b"}`
	for _, test := range []struct {
		name, body string
		code       int
		want       string
	}{
		{"empty", "", 400, "EOF"},
		{"no JSON", "{", 400, "unexpected EOF"},
		{"a list", "[]", 400, "cannot unmarshal array"},
		{"null", "null", 400, "domain is empty"},
		{"two", alice + alice, 400, "something follows it: send one object"},
		{"unknown field", `{"domain": "shop", "entry": []}`, 400, `unknown field \"entry\"`},
		{"no domain", `{"entries": [{"key": "a"}]}`, 400, "domain is empty: write one of the configuration's"},
		{"no entries", `{"domain": "shop"}`, 400, "entries is empty: write at least one key and value"},
		{"no key", `{"domain": "shop", "entries": [{"value": "a"}]}`, 400, "entry 1 has no key"},
		{"not UTF-8", "{\"domain\": \"shop\", \"entries\": [{\"key\": \"user\", \"value\": \"\xff\"}]}", 400, "entry 1 has the replacement character"},
		{"half a surrogate", `{"domain": "shop", "entries": [{"key": "user", "value": "\ud800"}]}`, 400, "entry 1 has the replacement character"},
		{"many entries", `{"domain": "shop", "entries": [` + many + `]}`, 400, "1001 entries: at most 1000"},
		{"a huge body", `{"domain": "` + strings.Repeat("a", 2<<20) + `"}`, 413, "too large"},
		{"a huge tail", alice + strings.Repeat(" ", 2<<20), 413, "too large"},
		{"unknown domain", `{"domain": "shop2", "entries": [{"key": "a"}]}`, 404, `no rules for the domain \"shop2\", so its requests are not limited: the configuration has [\"shop\"]`},
	} {
		for _, path := range []string{"/admin/explain", "/admin/peek", "/admin/reset"} {
			code, answer, h := l.post(t, path, test.body, nil)
			if code != test.code || !strings.Contains(answer, test.want) || h.Get("Content-Type") != "application/json" {
				t.Errorf("%s to %s: got %d and %.300s, want %d and %q", test.name, path, code, answer, test.code, test.want)
			}
		}
	}
}

func TestNothingHasAnEffectByGET(t *testing.T) {
	t.Parallel()
	l := start(t, "", true)
	for range 4 {
		l.take(t, "user", "alice")
	}
	for _, path := range []string{"/admin/reset", "/admin/peek", "/admin/explain"} {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
			code, _, h := l.post(t, path, alice, func(r *http.Request) { r.Method = method })
			if code != http.StatusMethodNotAllowed || h.Get("Allow") != "POST" {
				t.Errorf("%s %s: got %d and Allow %q, want 405 and POST", method, path, code, h.Get("Allow"))
			}
		}
	}
	if l.take(t, "user", "alice") {
		t.Error("alice passed, want nothing reset")
	}
}

func TestNoPageInABrowserIsAnswered(t *testing.T) {
	t.Parallel()
	l := start(t, "", true)
	for _, test := range []struct {
		name   string
		code   int
		change func(*http.Request)
	}{
		{"a form", 415, func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }},
		{"plain text", 415, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }},
		{"no type", 415, func(r *http.Request) { r.Header.Del("Content-Type") }},
		{"two types", 415, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain, application/json") }},
		{"an origin", 403, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
		{"its own origin", 403, func(r *http.Request) { r.Header.Set("Origin", "http://"+r.URL.Host) }},
		{"a null origin", 403, func(r *http.Request) { r.Header.Set("Origin", "null") }},
		{"a fetch", 403, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }},
		{"a foreign host", 403, func(r *http.Request) { r.Host = "evil.example:6070" }},
		{"a host that begins so", 403, func(r *http.Request) { r.Host = "localhost.evil.example" }},
		{"an address of others", 403, func(r *http.Request) { r.Host = "192.0.2.1:6070" }},
		{"every address", 403, func(r *http.Request) { r.Host = "0.0.0.0:6070" }},
		{"localhost", 200, func(r *http.Request) { r.Host = "LOCALHOST:6070" }},
		{"IPv6", 200, func(r *http.Request) { r.Host = "[::1]:6070" }},
		{"with a charset", 200, func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") }},
	} {
		if code, answer, _ := l.post(t, "/admin/reset", alice, test.change); code != test.code {
			t.Errorf("%s: got %d and %s, want %d", test.name, code, answer, test.code)
		}
	}
	for _, path := range []string{"/admin/rules", "/rlconfig", "/debug/pprof/", "/"} {
		code, answer, _ := l.post(t, path, "", func(r *http.Request) { r.Method, r.Host = "GET", "evil.example" })
		if code != 403 || strings.Contains(answer, "user") {
			t.Errorf("%s under a foreign name: got %d and %.100s, want 403", path, code, answer)
		}
	}
}

func TestElsewhereThanOnLoopbackATokenIsNeeded(t *testing.T) {
	t.Parallel()
	const token = "q7Zk1-x"
	bearer := func(s string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", s) }
	}
	for _, test := range []struct {
		name, token string
		local       bool
		change      func(*http.Request)
		code        int
	}{
		{"none is set", "", false, nil, 403},
		{"none is set, and one sent", "", false, bearer("Bearer "), 403},
		{"missing", token, false, nil, 401},
		{"wrong", token, false, bearer("Bearer q7Zk1-y"), 401},
		{"the beginning", token, false, bearer("Bearer q7Zk1"), 401},
		{"longer", token, false, bearer("Bearer q7Zk1-x-"), 401},
		{"empty", token, false, bearer("Bearer "), 401},
		{"another scheme", token, false, bearer("Basic q7Zk1-x"), 401},
		{"without a scheme", token, false, bearer("q7Zk1-x"), 401},
		{"in the query", token, false, func(r *http.Request) { r.URL.RawQuery = "token=" + token }, 401},
		{"missing on loopback", token, true, nil, 401},
		{"right", token, false, bearer("Bearer q7Zk1-x"), 200},
		{"right, of a page", token, false, func(r *http.Request) { bearer("Bearer " + token)(r); r.Header.Set("Origin", "null") }, 403},
		{"right, under any name", token, false, func(r *http.Request) { bearer("bearer " + token)(r); r.Host = "weir.example" }, 200},
	} {
		l := start(t, test.token, test.local)
		for _, path := range []string{"/admin/explain", "/admin/peek", "/admin/reset"} {
			code, answer, h := l.post(t, path, alice, test.change)
			if code != test.code || code == 401 && h.Get("WWW-Authenticate") != "Bearer" || strings.Contains(answer, token) {
				t.Errorf("%s, %s: got %d and %s, want %d", test.name, path, code, answer, test.code)
			}
		}
	}
	l := start(t, token, false)
	if _, err := l.client(t, token).Peek(t.Context(), ask("user", "alice")); err != nil {
		t.Errorf("the client with the token: got %v", err)
	}
	if _, err := l.client(t, "").Peek(t.Context(), ask("user", "alice")); err == nil || !strings.Contains(err.Error(), "the token is missing or wrong") {
		t.Errorf("the client without the token: got %v, want an error that says so", err)
	}
}

func TestASocketIsLocalUnderAnyName(t *testing.T) {
	t.Parallel()
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "debug.sock"))
	if err != nil {
		t.Fatal(err)
	}
	access := admin.Access{Local: func() bool { return admin.IsLocal(socket.Addr()) }}
	l := start(t, "", true)
	server := &http.Server{Handler: access.GuardHost(admin.API(l.service, access, slog.New(slog.DiscardHandler)))}
	go server.Serve(socket)
	t.Cleanup(func() { server.Close() })
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket.Addr().String())
	}}}
	response, err := client.Post("http://weir/admin/reset", "application/json", strings.NewReader(alice))
	if err != nil || response.StatusCode != 200 {
		t.Errorf("got %v, %v, want 200", response, err)
	}
}

func TestLoopbackAddressesAreLocal(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"0.0.0.0": false, "::": false, "192.0.2.1": false, "fe80::1": false,
	} {
		if got := admin.IsLocal(&net.TCPAddr{IP: net.ParseIP(address)}); got != want {
			t.Errorf("%s: got %v, want %v", address, got, want)
		}
	}
}

func TestBeforeThereAreRulesTheAPISaysSo(t *testing.T) {
	t.Parallel()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	service, err := rls.New(store, rls.Options{})
	if err != nil {
		t.Fatal(err)
	}
	access := admin.Access{Local: func() bool { return true }}
	server := httptest.NewServer(admin.API(service, access, slog.New(slog.DiscardHandler)))
	t.Cleanup(server.Close)
	c, err := admin.NewClient(server.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Peek(t.Context(), ask("user", "alice")); err == nil || err.Error() != "no rules are loaded yet" {
		t.Errorf("got %v, want an error that there are no rules", err)
	}
	response, err := http.Get(server.URL + "/admin/rules")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); strings.Join(strings.Fields(string(text)), "") != `{"rules":[]}` {
		t.Errorf("got %s, want an empty list", text)
	}
}

func TestAClientTrustsNoOtherServer(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "127.0.0.1:6070", "ftp://127.0.0.1", "http://", "http://user:word@127.0.0.1", "http://127.0.0.1/?x=y", "http://127.0.0.1/#x", "http://[::1"} {
		if _, err := admin.NewClient(url, ""); err == nil || strings.Contains(err.Error(), "word@") {
			t.Errorf("%q: got %v, want an error", url, err)
		}
	}
	reached := make(chan string, 1)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.Header.Get("Authorization") }))
	t.Cleanup(elsewhere.Close)
	for name, answer := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"another service": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"nothing there":   http.NotFound,
	} {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		c, err := admin.NewClient(server.URL, "secret")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := c.Reset(ctx, ask("user", "alice")); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want an error", name, err)
		}
		cancel()
	}
	select {
	case got := <-reached:
		t.Errorf("the token %q went to another server", got)
	default:
	}
}
