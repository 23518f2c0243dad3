package gatewaytest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weir.dev/weir/internal/testserver"
)

var gateways = []gateway{nginx, caddy, traefik, haproxy}

var nginx = gateway{
	name:    "nginx",
	files:   []string{"nginx.conf"},
	changes: [][2]string{{"listen 8000;", "listen 127.0.0.1:$PORT;"}, {"250ms", "1m"}},
	main: `daemon off; master_process off; pid $DIR/pid; error_log stderr; events {}
http {
	access_log off;
	client_body_temp_path $DIR/body; proxy_temp_path $DIR/proxy;
	fastcgi_temp_path $DIR/fastcgi; uwsgi_temp_path $DIR/uwsgi; scgi_temp_path $DIR/scgi;
	include $DIR/nginx.conf;
}`,
	args:  []string{"-p", "$DIR", "-e", "stderr", "-c", "$DIR/main"},
	away:  http.StatusInternalServerError,
	tells: true,
}

var caddy = gateway{
	name:    "caddy",
	files:   []string{"Caddyfile"},
	changes: [][2]string{{":8000 {", ":$PORT {"}, {"250ms", "1m"}},
	main:    "{\n\tadmin off\n\tauto_https off\n\tdefault_bind 127.0.0.1\n}\nimport $DIR/Caddyfile\n",
	args:    []string{"run", "--adapter", "caddyfile", "--config", "$DIR/main"},
	env:     []string{"XDG_DATA_HOME=$DIR", "XDG_CONFIG_HOME=$DIR"},
	away:    http.StatusBadGateway,
	tells:   true,
}

var traefik = gateway{
	name:    "traefik",
	files:   []string{"traefik.yaml", "routes.yaml"},
	changes: [][2]string{{"address: :8000", "address: 127.0.0.1:$PORT"}},
	args:    []string{"--configFile=$DIR/traefik.yaml"},
	away:    http.StatusInternalServerError,
}

var haproxy = gateway{
	name:    "haproxy",
	files:   []string{"haproxy.cfg", "weir.lua"},
	changes: [][2]string{{"bind :8000", "bind 127.0.0.1:$PORT"}, {"timeout_ms = 250", "timeout_ms = 60000"}},
	args:    []string{"-db", "-f", "haproxy.cfg"},
	away:    http.StatusServiceUnavailable,
	tells:   true,
}

// TestGatewaysKeepTheLimits runs each example. The parts share a gateway, and each has
// clients of its own.
func TestGatewaysKeepTheLimits(t *testing.T) {
	t.Parallel()
	for _, g := range gateways {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, g)
			t.Run("a reply says what is left, or when to come back", func(t *testing.T) { s.repliesSayWhatIsLeft(t, g) })
			t.Run("each client has its own limit", s.eachClientHasItsOwnLimit)
			t.Run("a forged header does not help", s.forgedHeadersDoNotHelp)
			t.Run("a path has one limit however it is written", s.pathHasOneLimit)
			t.Run("a site has a limit for all its clients", s.siteHasOneLimit)
			t.Run("a key has a limit wherever it is used", s.keyHasOneLimit)
			t.Run("of parallel requests exactly the limit passes", s.exactlyTheLimitPasses)
			t.Run("a header too long to be asked about does not pass", s.longHeaderDoesNotPass)
			t.Run("while the service is away no request passes", func(t *testing.T) { s.nothingPassesWhileAway(t, g) })
		})
	}
}

func (s *site) repliesSayWhatIsLeft(t *testing.T, g gateway) {
	q := request{client: "127.0.1.1", path: "/"}
	reply := s.send(t, q)
	limit, told := reply.Header.Get("RateLimit"), g.tells
	if reply.StatusCode != http.StatusOK || strings.HasPrefix(limit, `"client";r=19;t=`) != told || (limit != "") != told {
		t.Errorf("the first: got %s, RateLimit: %s; want 200, and 19 left if such replies tell it (%t)", reply.Status, limit, told)
	}
	if retry := reply.Header.Get("Retry-After"); retry != "" {
		t.Errorf("the first: got Retry-After: %s, want it on denials alone", retry)
	}
	s.codes(t, 19, q)
	reply = s.send(t, q)
	if reply.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the 21st: got %s, want 429", reply.Status)
	}
	if seconds, err := strconv.Atoi(reply.Header.Get("Retry-After")); err != nil || seconds < 1 {
		t.Errorf("the 21st: got Retry-After: %q, want seconds", reply.Header.Get("Retry-After"))
	}
	if limit, policy := reply.Header.Get("RateLimit"), reply.Header.Get("RateLimit-Policy"); !strings.HasPrefix(limit, `"client";r=0;t=`) ||
		!strings.HasPrefix(policy, `"client";q=60;w=31536000;weir-burst=20`) {
		t.Errorf("the 21st: got RateLimit: %s and RateLimit-Policy: %s", limit, policy)
	}
}

func (s *site) eachClientHasItsOwnLimit(t *testing.T) {
	for i, method := range []string{http.MethodGet, http.MethodPost} {
		q := request{client: fmt.Sprint("127.0.2.", i+1), method: method, path: "/a?b=c"}
		if got := s.codes(t, 22, q); !slices.Equal(got, passing(20)) {
			t.Errorf("%s from %s: got %d, want 20 that pass", method, q.client, got)
		}
	}
}

func (s *site) forgedHeadersDoNotHelp(t *testing.T) {
	var got []int
	for i := range 22 {
		forged := fmt.Sprint("198.51.100.", i)
		got = append(got, s.send(t, request{client: "127.0.3.1", path: "/", headers: []string{
			"X-Forwarded-For: " + forged, "X-Real-Ip: " + forged, "Forwarded: for=" + forged}}).StatusCode)
	}
	if !slices.Equal(got, passing(20)) {
		t.Errorf("with another address each time: got %d, want 20 that pass", got)
	}
	q := request{client: "127.0.3.2", path: "/login", headers: []string{
		"X-Forwarded-Uri: /other", "X-Forwarded-Host: other.example", "X-Forwarded-Method: HEAD"}}
	if got := s.codes(t, 7, q); !slices.Equal(got, passing(5)) {
		t.Errorf("with another path: got %d, want 5 that pass", got)
	}
}

func (s *site) pathHasOneLimit(t *testing.T) {
	q := request{client: "127.0.4.1", path: "/login"}
	if got := s.codes(t, 7, q); !slices.Equal(got, passing(5)) {
		t.Errorf("got %d, want 5 that pass", got)
	}
	for path, want := range map[string]int{"/login?user=a": 429, "//login": 429, "/%6cogin": 429, "/a/../login": 429, "/": 200, "/logins": 200} {
		q.path = path
		if got := s.send(t, q).StatusCode; got != want {
			t.Errorf("%s: got %d, want %d", path, got, want)
		}
	}
}

func (s *site) siteHasOneLimit(t *testing.T) {
	var got []int
	for i := range 32 {
		got = append(got, s.send(t, request{client: fmt.Sprint("127.0.5.", 1+i%3), host: "small.example", path: "/"}).StatusCode)
	}
	if !slices.Equal(got, passing(30)) {
		t.Errorf("from three clients: got %d, want 30 that pass", got)
	}
	forged := request{client: "127.0.5.4", host: "small.example", path: "/", headers: []string{"X-Forwarded-Host: large.example"}}
	if got := s.send(t, forged).StatusCode; got != 429 {
		t.Errorf("with another site in X-Forwarded-Host: got %d, want 429", got)
	}
	for host, want := range map[string]int{"SMALL.example": 429, "small.example:80": 429, "large.example": 200} {
		if got := s.send(t, request{client: "127.0.5.4", host: host, path: "/"}).StatusCode; got != want {
			t.Errorf("%s: got %d, want %d", host, got, want)
		}
	}
}

func (s *site) keyHasOneLimit(t *testing.T) {
	var got []int
	for i := range 12 {
		got = append(got, s.send(t, request{client: fmt.Sprint("127.0.6.", 1+i%3), path: "/", headers: []string{"X-Api-Key: alice"}}).StatusCode)
	}
	if !slices.Equal(got, passing(10)) {
		t.Errorf("from three clients: got %d, want 10 that pass", got)
	}
	if got := s.send(t, request{client: "127.0.6.4", path: "/", headers: []string{"X-Api-Key: bob"}}).StatusCode; got != 200 {
		t.Errorf("another key: got %d, want 200", got)
	}
}

func (s *site) exactlyTheLimitPasses(t *testing.T) {
	before := s.passed.Load()
	codes := make([]int, 100)
	var all sync.WaitGroup
	for i := range codes {
		all.Go(func() {
			reply, err := s.do(request{client: "127.0.7.1", path: "/"})
			if err != nil {
				t.Error(err)
				return
			}
			codes[i] = reply.StatusCode
		})
	}
	all.Wait()
	times := map[int]int{}
	for _, code := range codes {
		times[code]++
	}
	if times[200] != 20 || times[429] != 80 {
		t.Errorf("of 100 requests got so many of each status: %v; want 20 of 200 and 80 of 429", times)
	}
	if got := s.passed.Load() - before; got != 20 {
		t.Errorf("the application got %d requests, want 20", got)
	}
}

func (s *site) longHeaderDoesNotPass(t *testing.T) {
	before := s.passed.Load()
	reply, err := s.do(request{client: "127.0.8.1", path: "/", headers: []string{"X-Long: " + strings.Repeat("x", 100_000)}})
	// A gateway may hang up while it still comes in.
	if err == nil && reply.StatusCode < 400 || s.passed.Load() != before {
		t.Errorf("got %v, %v and %d requests at the application, want neither success nor any", reply, err, s.passed.Load()-before)
	}
}

func (s *site) nothingPassesWhileAway(t *testing.T, g gateway) {
	s.service.Kill()
	before := s.passed.Load()
	q := request{client: "127.0.9.1", path: "/"}
	if got := s.codes(t, 3, q); !slices.Equal(got, []int{g.away, g.away, g.away}) || s.passed.Load() != before {
		t.Errorf("got %d and %d requests at the application, want %d and none", got, s.passed.Load()-before, g.away)
	}
	s.serviceReturns(t, q)
}

// serviceReturns starts the service again, and waits until requests pass.
func (s *site) serviceReturns(t *testing.T, q request) {
	t.Helper()
	if err := s.service.Start(); err != nil {
		t.Fatal(err)
	}
	err := testserver.Poll(func() error {
		reply, err := s.do(q)
		if err == nil && reply.StatusCode != http.StatusOK {
			err = fmt.Errorf("got %s, want 200", reply.Status)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNginxCanMakeThe429OfIts500 is the way of docs/gateways.md for an http_check that
// another gateway uses too.
func TestNginxCanMakeThe429OfIts500(t *testing.T) {
	t.Parallel()
	s := start(t, nginx, [][2]string{
		{"denied_status: 403", "denied_status: 429"},
		{"error_page 403 = @denied", "error_page 500 = @denied"},
		{"$weir_status != 403", "$weir_status != 429"},
		{"return 403;", "return 500;"},
	}...)
	s.repliesSayWhatIsLeft(t, nginx)
	s.nothingPassesWhileAway(t, nginx)
}

// TestWhileTheServiceIsAwayRequestsPassWhereTheExampleSaysHow uses the lines that the
// examples have as comments.
func TestWhileTheServiceIsAwayRequestsPassWhereTheExampleSaysHow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		gateway
		changes [][2]string
	}{
		{nginx, [][2]string{
			{"# proxy_intercept_errors on;", "proxy_intercept_errors on;"},
			{"# error_page 500 502 503 504 = @pass;", "error_page 500 502 503 504 = @pass;"},
		}},
		{haproxy, [][2]string{{"http-request deny deny_status 503 if !decided or !passed", ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, c.gateway, c.changes...)
			q := request{client: "127.0.1.1", path: "/"}
			if got := s.codes(t, 22, q); !slices.Equal(got, passing(20)) {
				t.Errorf("before: got %d, want 20 that pass", got)
			}
			s.service.Kill()
			if got := s.codes(t, 3, q); !slices.Equal(got, []int{200, 200, 200}) {
				t.Errorf("while it is away: got %d, want 200 each time", got)
			}
			s.serviceReturns(t, request{client: "127.0.1.2", path: "/"})
		})
	}
}
