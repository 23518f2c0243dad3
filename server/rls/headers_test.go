package rls

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const shown = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 3, name: per-user}}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: path, value: never, rate_limit: {unit: minute, requests_per_unit: 0, name: never}}
  - {key: quota, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1, name: quota}}
  - {key: open, rate_limit: {unlimited: true}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1, name: trial}}
  - {key: burst, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: gcra, burst: 5, name: burst}}
`

// headersOf asks a service and returns its headers, one a line. The fake clock is 20 s
// into a minute and 1220 s into an hour.
func headersOf(t *testing.T, s *Service, descriptors ...Descriptor) string {
	t.Helper()
	answer, err := s.Decide(t.Context(), &Request{Domain: "shop", Descriptors: descriptors})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, h := range answer.Headers {
		lines = append(lines, h.Name+": "+h.Value)
	}
	return strings.Join(lines, "\n")
}

func inFakeTime(t *testing.T, headers Headers, test func(ask func(want string, descriptors ...string))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(1220*time.Second + 300*time.Millisecond)
		s, err := New(inMemory(t), Options{Headers: headers})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetRules(parse(t, shown)); err != nil {
			t.Fatal(err)
		}
		test(func(want string, descriptors ...string) {
			t.Helper()
			var all []Descriptor
			for _, d := range descriptors {
				all = append(all, Descriptor{Entries: entriesOf(d)})
			}
			if got := headersOf(t, s, all...); got != want {
				t.Errorf("%v\n got %s\nwant %s", descriptors, got, want)
			}
		})
	})
}

func TestHeadersTellTheNearestLimit(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Headers{Counts: true, LimitName: "X-Limit"}, func(ask func(want string, descriptors ...string)) {
		ask("X-Limit: 3\nRateLimit-Remaining: 2\nRateLimit-Reset: 2380", "user=a")
		ask("X-Limit: 2\nRateLimit-Remaining: 1\nRateLimit-Reset: 40", "path=a", "user=b")
		ask("X-Limit: 3\nRateLimit-Remaining: 1\nRateLimit-Reset: 2380", "user=b", "path=b") // of two with 1 the first
		ask("X-Limit: 0\nRateLimit-Remaining: 0\nRateLimit-Reset: 60", "path=never", "user=b")
		ask("", "open=x", "nobody=knows")
	})
}

func TestLimitThatDeniesIsToldBeforeAQuota(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Headers{Counts: true}, func(ask func(want string, descriptors ...string)) {
		ask("RateLimit-Limit: 1\nRateLimit-Remaining: 0\nRateLimit-Reset: 40", "quota=a")
		ask("RateLimit-Limit: 0\nRateLimit-Remaining: 0\nRateLimit-Reset: 60", "path=never", "quota=a")
	})
}

func TestDraft11HeadersTellEachLimitAndTheWaitOfADenial(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Headers{Draft11: true}, func(ask func(want string, descriptors ...string)) {
		ask(`RateLimit-Policy: "2-per-minute";q=2;w=60, "per-user";q=3;w=3600`+"\n"+
			`RateLimit: "2-per-minute";r=1;t=40, "per-user";r=2;t=2380`, "user=a", "path=a")
		ask(`RateLimit-Policy: "burst";q=60;w=60;weir-burst=5`+"\n"+`RateLimit: "burst";r=4;t=1`, "burst=a")
		ask(`RateLimit-Policy: "2-per-minute";q=2;w=60`+"\n"+`RateLimit: "2-per-minute";r=0;t=40`, "path=a")
		ask(`RateLimit-Policy: "2-per-minute";q=2;w=60`+"\n"+`RateLimit: "2-per-minute";r=0;t=40`+"\nRetry-After: 40", "path=a")
		ask(`RateLimit-Policy: "never";q=0;w=60`+"\n"+`RateLimit: "never";r=0`, "path=never") // no waiting helps
		ask(`RateLimit-Policy: "trial";q=1;w=60`+"\n"+`RateLimit: "trial";r=0;t=40`, "trial=a")
		ask(`RateLimit-Policy: "trial";q=1;w=60`+"\n"+`RateLimit: "trial";r=0;t=40`, "trial=a") // over, but let through
		ask("", "open=x")
	})
}

func TestDraft11HeadersAreShortHoweverManyLimits(t *testing.T) {
	t.Parallel()
	text := "domain: shop\ndescriptors:\n"
	var descriptors []Descriptor
	for i := range 100 {
		name := strings.Repeat("x", i+1)
		text += "  - {key: " + name + ", rate_limit: {unit: year, requests_per_unit: 9, name: " + name + "}}\n"
		descriptors = append(descriptors, Descriptor{Entries: entriesOf(name + "=a")})
	}
	s, err := New(inMemory(t), Options{Headers: Headers{Draft11: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetRules(parse(t, text)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(headersOf(t, s, descriptors...), ";q="); got != maxPolicies {
		t.Errorf("%d policies, want %d", got, maxPolicies)
	}
}

func TestNameOfALimitCannotBreakAHeader(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a\r\nx-injected: 1":   `"ax-injected: 1"`,
		`quo"te and \ slash`:   `"quote and  slash"`,
		"caf\u00e9 \x00\x7f":   `"caf "`,
		"\u4e2d\u6587":         `"5-per-minute"`,
		"":                     `"5-per-minute"`,
		strings.Repeat("n", 9): `"nnnnnnnnn"`,
	} {
		config := parse(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 5}}]")
		l := config.Rules()[0].Limits[0]
		l.Name = name
		if got := policyOf(&l).name; got != want {
			t.Errorf("the name %q: got %s, want %s", name, got, want)
		}
	}
}

func TestShortWindowIsToldInWholeSeconds(t *testing.T) {
	t.Parallel()
	for window, want := range map[string]string{"100ms": ";q=100;w=1", "1500ms": ";q=10;w=2", "30s": ";q=10;w=30"} {
		config := parse(t, "domain: d\ndescriptors: [{key: k, rate_limit: {window: "+window+", requests_per_unit: 10}}]")
		if got := policyOf(&config.Rules()[0].Limits[0]).text; !strings.HasSuffix(got, want) {
			t.Errorf("10 each %s: got %s, want %s", window, got, want)
		}
	}
}

func TestHeaderNamesThatBreakMessagesAreRefused(t *testing.T) {
	t.Parallel()
	bad := Headers{Counts: true, LimitName: "Content-Length", RemainingName: "X Left", ResetName: ":status"}
	_, err := New(inMemory(t), Options{Headers: bad, NearLimitRatio: 2, Compat: &Compat{}})
	if err == nil {
		t.Fatal("New took them")
	}
	for _, want := range []string{`"Content-Length" is taken`, `"X Left" has ' ' at byte 1`, `":status" has ':' at byte 0`, "ratio of 2", "compat without counters"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %s", err, want)
		}
	}
}
