package envoytest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weir.dev/weir/internal/redistest"
)

// original starts the program as envoyproxy/ratelimit is started: under that name, with an
// environment and no flags. Its folders are made in dir; rules is the text of its file.
func original(dir, rules, redis string, environment ...string) start {
	return func(s *service) {
		name := filepath.Join(dir, "ratelimit")
		config := filepath.Join(dir, "runtime", "config")
		if err := os.Symlink(s.Path, name); err != nil && !errors.Is(err, fs.ErrExist) {
			panic(err)
		}
		if err := os.MkdirAll(config, 0o700); err != nil {
			panic(err)
		}
		if err := os.WriteFile(filepath.Join(config, "rules.yaml"), []byte(rules), 0o600); err != nil {
			panic(err)
		}
		s.Path = name
		for variable, address := range map[string]string{"": s.http, "GRPC_": s.grpc, "DEBUG_": s.debug} {
			host, port, _ := net.SplitHostPort(address)
			s.Env = append(s.Env, variable+"HOST="+host, variable+"PORT="+port)
		}
		s.Env = append(s.Env, "RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=runtime", "RUNTIME_WATCH_ROOT=false",
			"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis, "USE_STATSD=false", "LOG_LEVEL=info")
		s.Env = append(s.Env, environment...)
	}
}

func TestOriginalChargesDenialsToo(t *testing.T) {
	t.Parallel()
	c, bob := at(t, "compat"), []string{"x-user", fresh("bob")}
	c.expect(t, []int{200, 200, 429}, "/cost", bob...) // 4, 8 and 12 of 10
	c.expect(t, []int{429, 429}, "/peek", bob...)
	c.expect(t, []int{429}, "/said", append(bob, "x-cost", "1")...)
}

// Keys and values are the original's, so that both may count for one fleet. A rule that
// names an algorithm is weir's own, and its key looks otherwise.
func TestOriginalsCountersAreInRedis(t *testing.T) {
	t.Parallel()
	c, bob := at(t, "compat"), fresh("bob")
	redis := redistest.Shared(t, redistest.Redis7)
	c.expect(t, []int{200, 200, 429}, "/", "x-rule", "two", "x-user", bob)
	c.expect(t, []int{200}, "/", "x-rule", "half-minute", "x-user", bob)
	keys, _ := redis.Do("KEYS", "*"+bob+"*").([]any)
	if len(keys) != 1 {
		t.Fatalf("keys %v, want one with the client's name", keys)
	}
	key, prefix := keys[0].(string), "envoy_rule_two_user_"+bob+"_"
	const year = 365 * 24 * 3600
	began, err := strconv.Atoi(strings.TrimPrefix(key, prefix))
	if err != nil || began%year != 0 {
		t.Errorf("key %s, want %s and when a year of 365 days began", key, prefix)
	}
	if got := redis.Do("GET", key); got != "3" {
		t.Errorf("%s is %v, want 3", key, got)
	}
	if ttl, _ := redis.Do("TTL", key).(int64); ttl <= 0 || ttl > year+300 {
		t.Errorf("%s ends in %d s, want at most a year and 300 s", key, ttl)
	}
}

func TestOriginalsHeadersAndMetadata(t *testing.T) {
	t.Parallel()
	c, path := at(t, "compat"), "/?"+fresh("seen")
	bob := []string{"x-rule", "two", "x-user", fresh("bob")}
	for i, want := range []string{"2 1", "2 0", "2 0"} {
		r := c.get(t, path, bob...)
		if got := r.header.Get("RateLimit-Limit") + " " + r.header.Get("RateLimit-Remaining"); got != want {
			t.Errorf("request %d: limit and remaining are %q, want %q", i, got, want)
		}
		seconds(t, r.header, "RateLimit-Reset")
	}
	c.untilLogged(t, path+" 429 RL by - for envoy")
}

func TestOriginalGivesBackNegativeHits(t *testing.T) {
	t.Parallel()
	c, bob := at(t, "compat"), []string{"x-user", fresh("bob")}
	c.expect(t, []int{200, 200}, "/cost", bob...) // 8 of 10
	c.expect(t, []int{200}, "/refund", bob...)
	c.expect(t, []int{200, 429}, "/cost", bob...)
}

func TestConnectionThatIsOldIsReplacedWithoutAnError(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t, redistest.Redis7)
	s := startService(t, original(t.TempDir(), rulesText, redis.Addr, "GRPC_MAX_CONNECTION_AGE=100ms", "GRPC_MAX_CONNECTION_AGE_GRACE=60s"))
	e := startEnvoy(t, listener{Name: "aging", Service: s.grpc, Filter: patient})
	wait(t, "three connections", func() error {
		if got := e.at("aging").get(t, "/", "x-rule", "two", "x-user", fresh("bob")).status; got != 200 {
			t.Fatalf("status %d, want 200", got)
		}
		if got := e.stat(t, "cluster.aging.upstream_cx_total"); got < 3 {
			return fmt.Errorf("%d connections", got)
		}
		return nil
	})
}
