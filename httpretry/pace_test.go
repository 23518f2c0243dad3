package httpretry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir/httpretry"
)

func limited(value string) http.Header {
	return http.Header{"Ratelimit": {value}, "Ratelimit-Policy": {`"api";q=100;w=60`}}
}

// sendTimes makes n calls one after the other and returns when each was sent, from the beginning.
func sendTimes(t *testing.T, n int, header http.Header, opts httpretry.Options) []time.Duration {
	t.Helper()
	begun := time.Now()
	var sent []time.Duration
	rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
		sent = append(sent, time.Since(begun))
		return response(200, header), nil
	}), steady(opts))
	for range n {
		drop(rt.RoundTrip(request(t, "GET")))
	}
	return sent
}

func TestRequestsAreSpacedWhenLittleIsLeft(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		header http.Header
		want   string
	}{
		{"a tenth left: 10 in 50 s", limited(`"api";r=10;t=50`), "[0s 5s 10s]"},
		{"a fifth left is enough", limited(`"api";r=20;t=50`), "[0s 0s 0s]"},
		{"nothing left: the window and half of the spread", limited(`"api";r=0;t=4`), "[0s 5s 10s]"},
		{"nothing left, for how long is not said", limited(`"api";r=0`), "[0s 0s 0s]"},
		{"nothing left for 10^15-1 s", limited(`"api";r=0;t=999999999999999`), "[0s 10m5s 20m10s]"},
		{"the tightest of several", limited(`"day";r=0;t=2, "api";r=10;t=50`), "[0s 5s 10s]"},
		{"draft 07", http.Header{"Ratelimit": {"limit=100, remaining=10, reset=50"}}, "[0s 5s 10s]"},
		{"draft 06", http.Header{"Ratelimit-Limit": {"100, 100;w=60"}, "Ratelimit-Remaining": {"10"}, "Ratelimit-Reset": {"50"}}, "[0s 5s 10s]"},
		{"from a cache", http.Header{"Ratelimit": {"limit=100, remaining=10, reset=50"}, "Age": {"3"}}, "[0s 0s 0s]"},
		{"cut short", limited(`"api";r=0;t`), "[0s 0s 0s]"},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			if got := fmt.Sprint(sendTimes(t, 3, tt.header, httpretry.Options{})); got != tt.want {
				t.Errorf("%s: sent at %s, want %s", tt.name, got, tt.want)
			}
		})
	}
}

func TestPaceEndsWithItsWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var sent []time.Duration
		header := limited(`"api";r=0;t=4`)
		rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
			sent = append(sent, time.Since(begun))
			h := header
			header = nil
			return response(200, h), nil
		}), steady(httpretry.Options{}))
		for range 4 {
			drop(rt.RoundTrip(request(t, "GET")))
		}
		if got, want := fmt.Sprint(sent), "[0s 5s 5s 5s]"; got != want {
			t.Errorf("sent at %s, want %s", got, want)
		}
	})
}

func TestConcurrentCallsShareThePace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		sent := make(chan time.Duration, 100)
		rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
			sent <- time.Since(begun)
			return response(200, limited(`"api";r=4;t=8`)), nil
		}), steady(httpretry.Options{}))
		drop(rt.RoundTrip(request(t, "GET")))
		for range 3 {
			go func() { drop(rt.RoundTrip(request(t, "GET"))) }()
		}
		time.Sleep(time.Minute)
		var got []time.Duration
		for len(sent) > 0 {
			got = append(got, <-sent)
		}
		if want := "[0s 2s 4s 6s]"; fmt.Sprint(got) != want {
			t.Errorf("sent at %v, want %s", got, want)
		}
	})
}

func TestPaceIsOfOnePart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/search" {
				return response(200, limited(`"api";r=0;t=60`)), nil
			}
			return response(200, nil), nil
		}), steady(httpretry.Options{Part: func(r *http.Request) string { return r.URL.Path }}))
		search, rest := request(t, "GET"), request(t, "GET")
		search.URL.Path = "/search"
		drop(rt.RoundTrip(search))
		if d := took(func() { drop(rt.RoundTrip(rest)) }); d != 0 {
			t.Errorf("a request of another part waited %v, want 0", d)
		}
		if d := took(func() { drop(rt.RoundTrip(search)) }); d < time.Minute {
			t.Errorf("a request of the same part waited %v, want at least 1m", d)
		}
	})
}

func TestRequestThatCannotWaitItsTurnFailsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
			sent++
			return response(200, limited(`"api";r=0;t=60`)), nil
		}), steady(httpretry.Options{}))
		drop(rt.RoundTrip(request(t, "GET")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		d := took(func() { err = drop(rt.RoundTrip(request(t, "GET").WithContext(ctx))) })
		if !errors.Is(err, context.DeadlineExceeded) || d != 0 || sent != 1 {
			t.Errorf("got error %v after %v with %d sent, want a deadline error at once and 1", err, d, sent)
		}
	})
}

func TestLaterOfHintAndPaceHolds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		after string
		want  time.Duration
	}{{"2", 60 * time.Second}, {"90", 90 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			header := limited(`"api";r=0;t=60`)
			header.Set("Retry-After", tt.after)
			rt := newTransport(t, script(response(429, header), response(200, nil)), steady(httpretry.Options{Random: func() float64 { return 0 }}))
			if d := took(func() { drop(rt.RoundTrip(request(t, "GET"))) }); d != tt.want {
				t.Errorf("Retry-After %s, window 60 s: waited %v, want %v", tt.after, d, tt.want)
			}
		})
	}
}
