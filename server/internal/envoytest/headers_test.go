package envoytest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	limitHeader     = "X-Ratelimit-Limit"
	remainingHeader = "X-Ratelimit-Remaining"
	resetHeader     = "X-Ratelimit-Reset"
	retryHeader     = "Retry-After"
)

// seconds reads a header that is a whole number of seconds, at least 1.
func seconds(t *testing.T, header http.Header, name string) int {
	t.Helper()
	n, err := strconv.Atoi(header.Get(name))
	if err != nil || n < 1 {
		t.Errorf("%s is %q, want a whole number of seconds from 1", name, header.Get(name))
	}
	return n
}

func TestXRateLimitHeadersAndRetryAfterSayWhatTheServiceSaid(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		bob := fresh("bob")
		const policy = `2, 2;w=31536000;name="per-user"`
		for i, want := range []struct {
			status    int
			remaining string
		}{{200, "1"}, {200, "0"}, {429, "0"}} {
			r := c.get(t, "/", "x-rule", "two", "x-user", bob)
			if r.status != want.status || r.header.Get(limitHeader) != policy || r.header.Get(remainingHeader) != want.remaining {
				t.Errorf("request %d: status %d, limit %q, remaining %q; want %d, %q, %q", i, r.status,
					r.header.Get(limitHeader), r.header.Get(remainingHeader), want.status, policy, want.remaining)
			}
			reset := seconds(t, r.header, resetHeader)
			if denied := r.status == 429; !denied && r.header.Get(retryHeader) != "" {
				t.Errorf("request %d, which passed: got Retry-After %q, want none", i, r.header.Get(retryHeader))
			} else if denied && seconds(t, r.header, retryHeader) != reset {
				t.Errorf("request %d: Retry-After %q, want the reset %d", i, r.header.Get(retryHeader), reset)
			}
			if got := r.header.Get("X-Envoy-Ratelimited"); (got == "true") != (r.status == 429) {
				t.Errorf("request %d: status %d: got x-envoy-ratelimited %q, want true with 429 alone", i, r.status, got)
			}
		}
	})
}

func TestWindowOf30SecondsIsShownAsSuch(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		r := c.get(t, "/", "x-rule", "half-minute", "x-user", "bob")
		if got, want := r.header.Get(limitHeader), "7, 7;w=30"; got != want {
			t.Errorf("%s is %q, want %q", limitHeader, got, want)
		}
	})
}

// Envoy writes a name between quotes and escapes nothing.
func TestNameOfALimitEndsNeitherItsQuotesNorItsHeader(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		bob := fresh("bob")
		for _, status := range twice {
			r := c.get(t, "/", "x-rule", "named-badly", "x-user", bob)
			if r.status != status {
				t.Errorf("status %d, want %d", r.status, status)
			}
			if got, want := r.header.Get(limitHeader), `2, 2;w=31536000;name="a bx-injected: é"`; got != want {
				t.Errorf("%s is %q, want %q", limitHeader, got, want)
			}
			if got := r.header.Get("x-injected"); got != "" {
				t.Errorf("a name has brought the header x-injected: %q", got)
			}
		}
	})
}

func TestUnlimitedAndUnknownHaveNoHeaders(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		for _, headers := range [][]string{{"x-plan", "gold", "x-user", "root"}, {"x-plan", "none", "x-user", "bob"}} {
			r := c.get(t, "/nested", headers...)
			if got := r.header.Get(limitHeader); r.status != 200 || got != "" {
				t.Errorf("%q: status %d with %s %q, want 200 without", headers, r.status, limitHeader, got)
			}
		}
	})
}

func TestDynamicMetadataSaysWhoDecided(t *testing.T) {
	ownServices(t, func(t *testing.T, c client) {
		path := "/?" + fresh("seen")
		if got := c.get(t, path, "x-rule", "two", "x-user", fresh("bob")).header.Get("X-Decided-By"); got != "store" {
			t.Errorf("a header made of the metadata is %q, want store", got)
		}
		c.untilLogged(t, path+" 200 - by store for -")
	})
}

// untilLogged waits for a line in the listener's access log.
func (c client) untilLogged(t *testing.T, line string) {
	t.Helper()
	wait(t, "the access log", func() error {
		text, err := os.ReadFile(filepath.Join(c.dir, c.listener+".log"))
		if err == nil && !strings.Contains(string(text), line+"\n") {
			err = fmt.Errorf("no line %q", line)
		}
		return err
	})
}
