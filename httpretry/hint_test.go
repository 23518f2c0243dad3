package httpretry_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir/httpretry"
)

// The bubble of a synctest begins at midnight UTC on 2000-01-01.
func TestRetryAfterIsAMinimumThatIsAddedTo(t *testing.T) {
	t.Parallel()
	const plain = 50 * time.Millisecond // the middle of the first interval: what is waited without a hint
	tests := []struct {
		name       string
		retryAfter []string
		date       string
		draw       float64
		want       time.Duration
	}{
		{"none", nil, "", 0.5, plain},
		{"seconds", []string{"4"}, "", 0, 4 * time.Second},
		{"seconds and half the spread", []string{"4"}, "", 0.5, 5 * time.Second},
		{"the spread is at most the cap", []string{"100"}, "", 0.5, 105 * time.Second},
		{"date", []string{"Sat, 01 Jan 2000 00:00:08 GMT"}, "", 0, 8 * time.Second},
		{"date of RFC 850", []string{"Saturday, 01-Jan-00 00:00:08 GMT"}, "", 0, 8 * time.Second},
		{"date of asctime", []string{"Sat Jan  1 00:00:08 2000"}, "", 0, 8 * time.Second},
		{"date by a server an hour ahead", []string{"Sat, 01 Jan 2000 01:00:08 GMT"}, "Sat, 01 Jan 2000 01:00:00 GMT", 0, 8 * time.Second},
		{"negative", []string{"-5"}, "", 0.5, plain},
		{"zero", []string{"0"}, "", 0.5, plain},
		{"zero has a floor", []string{"0"}, "", 0, 10 * time.Millisecond},
		{"1e12", []string{"1e12"}, "", 0.5, plain},
		{"10^12", []string{"1000000000000"}, "", 0, 10 * time.Minute},
		{"beyond int64", []string{"99999999999999999999999999"}, "", 0, 10 * time.Minute},
		{"1970", []string{"Thu, 01 Jan 1970 00:00:00 GMT"}, "", 0.5, plain},
		{"9999", []string{"Fri, 31 Dec 9999 23:59:59 GMT"}, "", 0, 10 * time.Minute},
		{"NaN", []string{"NaN"}, "", 0.5, plain},
		{"Inf", []string{"Inf"}, "", 0.5, plain},
		{"fraction", []string{"1.5"}, "", 0.5, plain},
		{"empty", []string{""}, "", 0.5, plain},
		{"cut short", []string{"Sat, 01 Jan 20"}, "", 0.5, plain},
		{"twice", []string{"4", "9"}, "", 0.5, plain},
	}
	for _, tt := range tests {
		for _, status := range []int{429, 503} {
			synctest.Test(t, func(t *testing.T) {
				first := response(status, http.Header{"Date": {tt.date}})
				if tt.retryAfter != nil {
					first.Header["Retry-After"] = tt.retryAfter
				}
				rt := newTransport(t, script(first, response(200, nil)), steady(httpretry.Options{Random: func() float64 { return tt.draw }}))
				if got := took(func() { drop(rt.RoundTrip(request(t, "GET"))) }); got != tt.want {
					t.Errorf("%s, on %d: waited %v, want %v", tt.name, status, got, tt.want)
				}
			})
		}
	}
}

func TestHintPastTheDeadlineEndsTheCallAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		rt := newTransport(t, script(response(503, http.Header{"Retry-After": {"30"}})), steady(httpretry.Options{}))
		var resp *http.Response
		var err error
		d := took(func() { resp, err = rt.RoundTrip(request(t, "GET").WithContext(ctx)) })
		if err != nil || resp.StatusCode != 503 || d != 0 {
			t.Errorf("got %v, error %v after %v, want the 503 at once", resp, err, d)
		}
	})
}

func TestRedirectIsHeldBackAsItAsks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		header  http.Header
		timeout time.Duration
		want    time.Duration
	}{
		{"with Retry-After", http.Header{"Location": {"/x"}, "Retry-After": {"4"}}, time.Hour, 5 * time.Second},
		{"without", http.Header{"Location": {"/x"}}, time.Hour, 0},
		{"to nowhere", http.Header{"Retry-After": {"4"}}, time.Hour, 0},
		{"past the deadline", http.Header{"Location": {"/x"}, "Retry-After": {"4"}}, 4 * time.Second, 0},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
			defer cancel()
			rt := newTransport(t, script(response(302, tt.header)), steady(httpretry.Options{}))
			d := took(func() { drop(rt.RoundTrip(request(t, "GET").WithContext(ctx))) })
			if d != tt.want {
				t.Errorf("%s: waited %v, want %v", tt.name, d, tt.want)
			}
		})
	}
}

// script answers with the given responses in turn, the last one for ever.
func script(responses ...*http.Response) roundTripper {
	n := 0
	return func(*http.Request) (*http.Response, error) {
		n++
		return responses[min(n, len(responses))-1], nil
	}
}
