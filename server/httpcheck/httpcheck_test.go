package httpcheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
	"weir.dev/weir/server/rls"
	"weir.dev/weir/server/rules"
)

// shop has limits that no test outlasts.
const shop = `
domain: shop
http_check:
  trusted_proxies: [127.0.0.0/8]
  descriptors:
  - addr={addr}
  - ["host={host}", "path={path}"]
  - key={header.X-Api-Key}
  - ["call={method} {path}"]
algorithm: gcra
descriptors:
- key: addr
  rate_limit: {unit: year, requests_per_unit: 2, name: each client}
- key: host
  descriptors:
  - key: path
    value: /export/*
    rate_limit: {unit: year, requests_per_unit: 1}
- key: key
  rate_limit: {unit: year, requests_per_unit: 1}
- key: call
  value: DELETE /admin
  rate_limit: {unit: year, requests_per_unit: 0, name: never}
`

func parse(t testing.TB, text string) *rules.Config {
	t.Helper()
	config, err := rules.Parse(rules.File{Name: "shop.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func memory(t testing.TB) weir.Store {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// handlerOn returns a handler that decides by the rules of text.
func handlerOn(t testing.TB, store weir.Store, text string, log *slog.Logger) (*Handler, *rls.Service) {
	t.Helper()
	service, err := rls.New(store, rls.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	if text != "" {
		if err := service.SetRules(parse(t, text)); err != nil {
			t.Fatal(err)
		}
	}
	return New(service, log), service
}

func newHandler(t testing.TB, text string) *Handler {
	t.Helper()
	h, _ := handlerOn(t, memory(t), text, nil)
	return h
}

// ask asks as a gateway at 127.0.0.1 would. Headers are "Name: value".
func ask(h http.Handler, headers ...string) *httptest.ResponseRecorder {
	return askFrom(h, "127.0.0.1:4711", "/check", headers...)
}

func askFrom(h http.Handler, peer, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.RemoteAddr = peer
	for _, text := range headers {
		name, value, _ := strings.Cut(text, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestChecksAreAnsweredWithTheLimitsInHeaders(t *testing.T) {
	t.Parallel()
	h := newHandler(t, shop)
	const who = "X-Forwarded-For: 203.0.113.9"
	for i, want := range []struct {
		code           int
		limit, retries string
	}{
		{200, `"each client";r=1;t=15811200`, ""},
		{200, `"each client";r=0;t=31622400`, ""},
		{429, `"each client";r=0;t=15811200`, "15811200"},
	} {
		w := ask(h, who)
		got := w.Header()
		told := func(name string) string { return strings.Join(got[name], "\n") } // the name as it is, not canonical
		if w.Code != want.code || got.Get("Cache-Control") != "no-store" {
			t.Errorf("request %d: got %d, Cache-Control %q; want %d, no-store", i, w.Code, got.Get("Cache-Control"), want.code)
		}
		if limit := told("RateLimit"); !sameButSeconds(limit, want.limit) {
			t.Errorf("request %d: got RateLimit: %s, want %s", i, limit, want.limit)
		}
		if policy, want := told("RateLimit-Policy"), `"each client";q=2;w=31536000`; policy != want {
			t.Errorf("request %d: got RateLimit-Policy: %s, want %s", i, policy, want)
		}
		if retries := got.Get("Retry-After"); (retries == "") != (want.retries == "") {
			t.Errorf("request %d: got Retry-After: %q, want %q", i, retries, want.retries)
		}
		if want.code == 200 && w.Body.Len() > 0 {
			t.Errorf("request %d: got the body %q, want none", i, w.Body)
		}
	}
	w := ask(h, who)
	var p problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Fatalf("got %q of %s: %v", w.Body, w.Header().Get("Content-Type"), err)
	}
	if p.Status != 429 || p.Type != problemTypes+"quota-exceeded" || len(p.Violated) != 1 || p.Violated[0] != "each client" ||
		!strings.Contains(p.Detail, "retry in "+w.Header().Get("Retry-After")+" s") {
		t.Errorf("got the problem %+v, want what is over and when to retry", p)
	}
}

// sameButSeconds compares a limit's header without its times, which depend on the clock.
func sameButSeconds(a, b string) bool {
	a, timeA, _ := strings.Cut(a, ";t=")
	b, timeB, _ := strings.Cut(b, ";t=")
	return a == b && (timeA == "") == (timeB == "")
}

func TestWhatNoWaitingHelpsHasNoRetryAfter(t *testing.T) {
	t.Parallel()
	w := ask(newHandler(t, shop), "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Method: DELETE", "X-Forwarded-Uri: /admin")
	if w.Code != 429 || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), "no waiting helps") {
		t.Errorf("got %d, Retry-After %q, %s; want 429 without it", w.Code, w.Header().Get("Retry-After"), w.Body)
	}
}

func TestDeniedStatusIsAsConfigured(t *testing.T) {
	t.Parallel()
	h := newHandler(t, strings.Replace(shop, "http_check:", "http_check:\n  denied_status: 403", 1))
	var w *httptest.ResponseRecorder
	for range 3 {
		w = ask(h, "X-Forwarded-For: 203.0.113.9")
	}
	if w.Code != 403 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"status":403`) {
		t.Errorf("got %d, Retry-After %q, %s; want 403 and when to retry", w.Code, w.Header().Get("Retry-After"), w.Body)
	}
}

// codes asks the same question several times.
func codes(h http.Handler, times int, peer, target string, headers ...string) (got []int) {
	for range times {
		got = append(got, askFrom(h, peer, target, headers...).Code)
	}
	return got
}

func TestClientIsKnownThroughTrustedProxiesOnly(t *testing.T) {
	t.Parallel()
	h := newHandler(t, shop)
	for _, forged := range []string{"1.1.1.1", "1.1.1.2", "1.1.1.3"} {
		w := ask(h, "X-Forwarded-For: "+forged+", 203.0.113.9")
		if want := map[string]int{"1.1.1.1": 200, "1.1.1.2": 200, "1.1.1.3": 429}[forged]; w.Code != want {
			t.Errorf("with the forged entry %s: got %d, want %d", forged, w.Code, want)
		}
		w = askFrom(h, "198.51.100.7:80", "/check", "X-Forwarded-For: "+forged)
		if want := map[string]int{"1.1.1.1": 200, "1.1.1.2": 200, "1.1.1.3": 429}[forged]; w.Code != want {
			t.Errorf("from a peer that is not trusted, with %s: got %d, want %d", forged, w.Code, want)
		}
	}
	if got := codes(h, 3, "127.0.0.1:1", "/check", "X-Forwarded-For: 2001:db8:1:2:aaaa::1"); got[2] != 429 {
		t.Errorf("got %v, want the third denied", got)
	}
	if got := ask(h, "X-Forwarded-For: 2001:db8:1:2:bbbb::2").Code; got != 429 {
		t.Errorf("another address of the same /64: got %d, want 429", got)
	}
	if got := ask(h, "X-Forwarded-For: ::ffff:203.0.113.9").Code; got != 429 {
		t.Errorf("the IPv4 address mapped to IPv6: got %d, want 429", got)
	}
}

func TestPeerThatIsNotTrustedIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h, _ := handlerOn(t, memory(t), shop, slog.New(slog.NewTextHandler(&log, nil)))
	ask(h)
	if log.Len() > 0 {
		t.Errorf("a trusted peer is logged: %s", &log)
	}
	codes(h, 5, "198.51.100.7:80", "/check")
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "198.51.100.7") {
		t.Errorf("got the log %q, want one line with the peer", got)
	}
}

func TestNothingOfTheChecksOwnURLIsRead(t *testing.T) {
	t.Parallel()
	h := newHandler(t, shop)
	const uri = "X-Forwarded-Uri: /export/a?addr=1.1.1.1&denied_status=200"
	for i, target := range []string{"/check", "/check?q=1&addr=9.9.9.9&path=/", "/check?denied_status=200"} {
		want := 200
		if i > 0 {
			want = 429
		}
		if got := askFrom(h, "127.0.0.1:1", target, "X-Forwarded-Host: a.example", uri, "X-Forwarded-For: 203.0.113.9").Code; got != want {
			t.Errorf("%s: got %d, want %d", target, got, want)
		}
	}
}

func TestAnyMethodIsAnswered(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"} {
		h := newHandler(t, shop)
		got := [3]int{}
		for i := range got {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, "/check", strings.NewReader("body")))
			got[i] = w.Code
		}
		if got != [3]int{200, 200, 429} {
			t.Errorf("%s: got %d, want 200, 200, 429", method, got)
		}
	}
}

func TestEachHostPathMethodAndHeaderHasItsOwnLimit(t *testing.T) {
	t.Parallel()
	h := newHandler(t, strings.Replace(shop, "  - addr={addr}\n", "", 1))
	for _, c := range []struct {
		want    int
		headers []string
	}{
		{200, []string{"X-Forwarded-Host: a.example", "X-Forwarded-Uri: /export/a"}},
		{429, []string{"X-Forwarded-Host: a.example", "X-Forwarded-Uri: /export/a"}},
		{200, []string{"X-Forwarded-Host: a.example", "X-Forwarded-Uri: /export/b"}},
		{200, []string{"X-Forwarded-Host: b.example", "X-Forwarded-Uri: /export/a"}},
		{429, []string{"X-Forwarded-Host: A.Example.:443", "X-Forwarded-Uri: //export/%61?b"}},
		{200, []string{"X-Forwarded-Host: a.example", "X-Forwarded-Uri: /other"}},
		{200, []string{"X-Forwarded-Host: a.example", "X-Forwarded-Uri: /other"}},
		{200, []string{"X-Api-Key: alice"}},
		{429, []string{"X-Api-Key: alice"}},
		{429, []string{"X-Api-Key: alice", "X-Api-Key: another"}},
		{200, []string{"X-Api-Key: bob"}},
		{200, []string{"X-Api-Key: " + strings.Repeat("k", 8<<10)}},
		{429, []string{"X-Api-Key: " + strings.Repeat("k", 8<<10)}},
		{200, []string{"X-Api-Key: \xff\xfe"}},
		{429, []string{"X-Api-Key: \xff\xfe"}},
		{200, []string{"X-Api-Key: "}},
		{200, []string{"X-Api-Key: "}},
		{200, []string{"X-Forwarded-Method: GET", "X-Forwarded-Uri: /admin"}},
		{429, []string{"X-Forwarded-Method: DELETE", "X-Forwarded-Uri: /a/../admin"}},
		{429, []string{"X-Forwarded-Method: GET", "X-Forwarded-Method: DELETE", "X-Forwarded-Uri: /x", "X-Forwarded-Uri: /admin"}},
		{200, nil},
		{200, nil},
	} {
		if got := ask(h, c.headers...); got.Code != c.want {
			t.Errorf("%.120q: got %d %s, want %d", c.headers, got.Code, got.Body, c.want)
		}
	}
}

// failing is a store that cannot decide.
type failing struct{ weir.Store }

func (failing) Take(context.Context, weir.Ask) (weir.Decision, error) {
	return weir.Decision{}, errors.New("the store is away")
}

func TestWhatNothingCanDecideIsAnsweredAsConfigured(t *testing.T) {
	t.Parallel()
	for extra, want := range map[string]int{"": 503, "\n  undecided_status: 200": 200, "\n  undecided_status: 500": 500} {
		h, _ := handlerOn(t, failing{memory(t)}, strings.Replace(shop, "http_check:", "http_check:"+extra, 1), nil)
		w := ask(h)
		if w.Code != want || w.Header().Get("Retry-After") != "" || (want != 200) != strings.Contains(w.Body.String(), "temporary-reduced-capacity") ||
			strings.Contains(w.Body.String(), "away") {
			t.Errorf("with %q: got %d, Retry-After %q, %s; want %d", extra, w.Code, w.Header().Get("Retry-After"), w.Body, want)
		}
	}
	for _, text := range []string{"", "domain: d"} {
		if w := ask(newHandler(t, text)); w.Code != 503 || !strings.Contains(w.Body.String(), "The rules have no http_check") {
			t.Errorf("with the rules %q: got %d %s, want 503 and why", text, w.Code, w.Body)
		}
	}
}

func TestNewRulesCountFromTheNextCheckOn(t *testing.T) {
	t.Parallel()
	h, service := handlerOn(t, memory(t), shop, nil)
	if got := codes(h, 3, "127.0.0.1:1", "/check"); got[2] != 429 {
		t.Errorf("got %v, want the third denied", got)
	}
	if err := service.SetRules(parse(t, strings.ReplaceAll(shop, "addr={addr}", "other={addr}"))); err != nil {
		t.Fatal(err)
	}
	if got := ask(h).Code; got != 200 {
		t.Errorf("when the address is asked for no more: got %d, want 200", got)
	}
}

func TestPathsThatAreOneLocationAreOneText(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"":                             "",
		"*":                            "*",
		"/":                            "/",
		"/?a=/b":                       "/",
		"?a":                           "",
		"/a?b?c":                       "/a",
		"/a#b":                         "/a",
		"/a/b":                         "/a/b",
		"/a/b/":                        "/a/b/",
		"//a///b//":                    "/a/b/",
		"/./a/../b":                    "/b",
		"/a/..":                        "/",
		"/a/b/..":                      "/a/",
		"/a/.":                         "/a/",
		"/../../a":                     "/a",
		"/%61/%2e%2E/b":                "/b",
		"/a%2fb":                       "/a/b",
		"/a%2F..%2Fb":                  "/b",
		"/%3fx?y":                      "/?x",
		"/%2561":                       "/%61",
		"/%":                           "/%",
		"/%2":                          "/%2",
		"/%zz/%4\x10":                  "/%zz/%4\x10",
		"/a b;c=d":                     "/a b;c=d",
		"/Case":                        "/Case",
		"http://a.example/b?c":         "/b",
		"http://a.example":             "/",
		"/redirect/http://a.example/b": "/redirect/http:/a.example/b",
		"/%ff":                         "/\xff",
	} {
		if got := pathOf(target); got != want {
			t.Errorf("%q: got %q, want %q", target, got, want)
		}
	}
	for host, want := range map[string]string{
		"": "", "A.example": "a.example", "a.example:8000": "a.example", "a.example.": "a.example", "a.example.:80": "a.example",
		"[::1]:80": "[::1]", "[::1]": "[::1]", "evil.example, a.example": "a.example", " a ": "a", ":80": "", ",": "",
	} {
		if got := hostOf(host); got != want {
			t.Errorf("host %q: got %q, want %q", host, got, want)
		}
	}
}

func TestRulesOfTheExamplesAskInVainAboutNothing(t *testing.T) {
	t.Parallel()
	for _, gateway := range []string{"nginx", "caddy", "traefik", "haproxy"} {
		name := filepath.Join("..", "..", "examples", gateway, "rules.yaml")
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if c := parse(t, string(text)); c.HTTPCheck() == nil || len(c.Warnings) > 0 {
			t.Errorf("%s: got %v and the warnings %v, want an http_check and none", name, c.HTTPCheck(), c.Warnings)
		}
	}
}

// FuzzPath: a path has neither dot segments nor empty ones, and a query changes nothing.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "//a/../b?c", "/%2e%2e%2f", "http://a/b", "/%2", "*", "/a/."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		got := pathOf(target)
		if strings.HasPrefix(got, "/") && (strings.Contains(got, "//") || strings.Contains(got+"/", "/../") || strings.Contains(got+"/", "/./")) {
			t.Errorf("%q: got %q, want a clean path", target, got)
		}
		if with := pathOf(target + "?a=/../b"); with != got {
			t.Errorf("%q: got %q with a query, want %q", target, with, got)
		}
	})
}

// FuzzCheck: whatever a client sends, the check is answered, and its address is limited.
func FuzzCheck(f *testing.F) {
	f.Add("1.1.1.1", "a.example", "GET", "/export/a", "key")
	f.Add(",,", "[", "", "%", "\xff")
	text := strings.Replace(shop, "requests_per_unit: 2", "requests_per_unit: 0", 1)
	config := parse(f, text)
	service, err := rls.New(memory(f), rls.Options{})
	if err != nil {
		f.Fatal(err)
	}
	if err := service.SetRules(config); err != nil {
		f.Fatal(err)
	}
	h := New(service, nil)
	f.Fuzz(func(t *testing.T, forged, host, method, uri, key string) {
		w := ask(h, "X-Forwarded-For: "+forged, "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Host: "+host,
			"X-Forwarded-Method: "+method, "X-Forwarded-Uri: "+uri, "X-Api-Key: "+key)
		if w.Code != 429 {
			t.Errorf("got %d %s, want 429", w.Code, w.Body)
		}
		for name, values := range w.Header() {
			for _, v := range values {
				if strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c > '~' }) {
					t.Errorf("got the header %s: %q", name, v)
				}
			}
		}
	})
}
