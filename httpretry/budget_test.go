package httpretry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir/httpretry"
)

// down counts attempts and refuses them all.
func down(attempts *int) roundTripper {
	return func(*http.Request) (*http.Response, error) {
		*attempts++
		return response(503, nil), nil
	}
}

func TestBudgetAllowsATenthOfTheRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		rt := newTransport(t, down(&attempts), httpretry.Options{Random: rand.New(rand.NewPCG(1, 1)).Float64})
		for range 1000 {
			drop(rt.RoundTrip(request(t, "GET")))
			time.Sleep(10 * time.Millisecond)
		}
		if attempts < 1090 || attempts > 1101 {
			t.Errorf("got %d attempts for 1000 requests, want 1090 to 1101", attempts)
		}
	})
}

func TestFleetOfOneRequestEachKeepsTheRatio(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		random := rand.New(rand.NewPCG(2, 2))
		for range 10000 {
			rt := newTransport(t, down(&attempts), httpretry.Options{Random: random.Float64})
			drop(rt.RoundTrip(request(t, "GET")))
		}
		if attempts < 10800 || attempts > 11200 {
			t.Errorf("got %d attempts for 10000 processes with one request each, want about 11000", attempts)
		}
	})
}

func TestSavedRequestsAreForgottenAfterTenSeconds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		idle time.Duration
		want int // retries of one more request
	}{{time.Second, 3}, {11 * time.Second, 0}} {
		synctest.Test(t, func(t *testing.T) {
			attempts, status := 0, 200
			rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
				attempts++
				return response(status, nil), nil
			}), httpretry.Options{Random: func() float64 { return 0.5 }})
			for range 100 {
				drop(rt.RoundTrip(request(t, "GET")))
			}
			time.Sleep(tt.idle)
			attempts, status = 0, 503
			drop(rt.RoundTrip(request(t, "GET")))
			if attempts-1 != tt.want {
				t.Errorf("%v after 100 requests: got %d retries, want %d", tt.idle, attempts-1, tt.want)
			}
		})
	}
}

func TestPerSecondServesAProcessWithFewRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		rt := newTransport(t, down(&attempts), httpretry.Options{
			Attempts: 100,
			Backoff:  httpretry.Backoff{Base: time.Millisecond, Cap: time.Millisecond},
			Budget:   httpretry.Budget{PerSecond: 1},
			Random:   func() float64 { return 0.5 },
		})
		drop(rt.RoundTrip(request(t, "GET")))
		if attempts != 11 {
			t.Errorf("got %d attempts, want 11: one, and ten retries of the last ten seconds", attempts)
		}
	})
}

func TestOriginsHaveBudgetsOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := map[string]int{}
		rt := newTransport(t, roundTripper(func(r *http.Request) (*http.Response, error) {
			attempts[r.URL.Host]++
			return response(503, nil), nil
		}), httpretry.Options{Random: func() float64 { return 0.5 }})
		for range 100 {
			drop(rt.RoundTrip(request(t, "GET")))
		}
		other := request(t, "GET")
		other.URL.Host = "other.example"
		drop(rt.RoundTrip(other))
		if attempts["api.example"] != 110 || attempts["other.example"] != 1 {
			t.Errorf("got attempts %v, want 110 and 1: what one origin saved is not spent on another", attempts)
		}
	})
}

func TestThrottleSendsWhatTheServerAcceptsTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent, refused := 0, 0
		rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
			sent++
			if sent%10 == 0 { // a server that can take a tenth of what it is sent at first
				return response(200, nil), nil
			}
			return response(503, nil), nil
		}), httpretry.Options{Attempts: 1, Throttle: 2, Random: rand.New(rand.NewPCG(3, 3)).Float64})
		for range 100 * 100 {
			if err := drop(rt.RoundTrip(request(t, "GET"))); errors.Is(err, httpretry.ErrThrottled) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if sent+refused != 10000 || sent > 1500 || sent < 20 {
			t.Errorf("got %d sent and %d refused of 10000, want between 20 and 1500 sent", sent, refused)
		}
	})
}

func TestThrottleLetsAHealthyOriginBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, script(response(200, nil)), httpretry.Options{Throttle: 1.1})
		for i := range 1000 {
			if err := drop(rt.RoundTrip(request(t, "GET"))); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
	})
}

func TestThrottledRequestIsObserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		var seen string
		rt := newTransport(t, down(&attempts), httpretry.Options{Attempts: 1, Throttle: 2, Random: func() float64 { return 0 },
			Observe: func(_ context.Context, o httpretry.Observation) { seen += fmt.Sprint(o.Attempt, o.Outcome, " ") }})
		drop(rt.RoundTrip(request(t, "GET")))
		err := drop(rt.RoundTrip(request(t, "GET")))
		if want := "1attempts_spent 0throttled "; !errors.Is(err, httpretry.ErrThrottled) || attempts != 1 || seen != want {
			t.Errorf("got error %v, %d attempts, observed %q, want ErrThrottled, 1, %q", err, attempts, seen, want)
		}
	})
}
