package httpretry_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir/httpretry"
)

func TestPassingFailureIsRepeatedUntilTheAnswerIsGood(t *testing.T) {
	t.Parallel()
	for _, status := range []int{408, 425, 429, 502, 503, 504} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, answers(status, status, 200))
			rt := newTransport(t, s.http, steady(httpretry.Options{}))
			resp, err := rt.RoundTrip(request(t, "GET"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != 200 || s.hits.Load() != 3 {
				t.Errorf("after two %d: got status %d after %d attempts, want 200 after 3", status, resp.StatusCode, s.hits.Load())
			}
		})
	}
}

func TestLastingAnswerIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 204, 301, 304, 400, 401, 404, 409, 500, 501} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, answers(status))
			rt := newTransport(t, s.http, steady(httpretry.Options{}))
			resp, err := rt.RoundTrip(request(t, "GET"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != status || s.hits.Load() != 1 {
				t.Errorf("got status %d after %d attempts, want %d after 1", resp.StatusCode, s.hits.Load(), status)
			}
		})
	}
}

func TestLastingErrorIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, lasting := range []error{
		&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}},
		&tls.CertificateVerificationError{Err: errors.New("expired")},
		tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"},
		http.ErrSchemeMismatch,
		context.Canceled,
	} {
		attempts := 0
		rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
			attempts++
			return nil, lasting
		}), steady(httpretry.Options{}))
		if _, err := rt.RoundTrip(request(t, "GET")); !errors.Is(err, lasting) || attempts != 1 {
			t.Errorf("got %v after %d attempts, want %v after 1", err, attempts, lasting)
		}
	}
}

func TestOnlyWhatIsSafeToRepeatIsRepeated(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		method string
		key    http.Header
		status int
		after  bool // with Retry-After
		opts   httpretry.Options
		want   int64
	}{
		{name: "GET", method: "GET", status: 503, want: 2},
		{name: "no method is GET", method: "", status: 503, want: 2},
		{name: "HEAD", method: "HEAD", status: 503, want: 2},
		{name: "OPTIONS", method: "OPTIONS", status: 502, want: 2},
		{name: "POST", method: "POST", status: 503, want: 1},
		{name: "POST with a key", method: "POST", key: http.Header{"Idempotency-Key": {"k"}}, status: 503, want: 2},
		{name: "POST with an empty list of keys", method: "POST", key: http.Header{"X-Idempotency-Key": {}}, status: 503, want: 2},
		{name: "PUT", method: "PUT", status: 503, want: 1},
		{name: "PUT by option", method: "PUT", status: 503, opts: httpretry.Options{RetryPutDelete: true}, want: 2},
		{name: "DELETE by option", method: "DELETE", status: 503, opts: httpretry.Options{RetryPutDelete: true}, want: 2},
		{name: "PATCH is never idempotent", method: "PATCH", status: 503, opts: httpretry.Options{RetryPutDelete: true}, want: 1},
		{name: "refused POST", method: "POST", status: 429, want: 1},
		{name: "refused POST by option", method: "POST", status: 429, opts: httpretry.Options{RetryRefused: true}, want: 2},
		{name: "503 alone is no refusal", method: "POST", status: 503, opts: httpretry.Options{RetryRefused: true}, want: 1},
		{name: "503 with Retry-After is one", method: "POST", status: 503, after: true, opts: httpretry.Options{RetryRefused: true}, want: 2},
		{name: "a gateway may have acted", method: "POST", status: 504, after: true, opts: httpretry.Options{RetryRefused: true}, want: 1},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.after {
					w.Header().Set("Retry-After", "1")
				}
				w.WriteHeader(tt.status)
			})
			tt.opts.Attempts = 2
			req := request(t, tt.method)
			req.Method = tt.method // NewRequest turns "" into GET
			for name, values := range tt.key {
				req.Header[name] = values
			}
			resp, err := newTransport(t, s.http, steady(tt.opts)).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := s.hits.Load(); got != tt.want {
				t.Errorf("%s: got %d attempts, want %d", tt.name, got, tt.want)
			}
		})
	}
}

func TestFailedDialRepeatsEvenAPost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, answers(201))
		s.refuse.Store(2)
		req := request(t, "POST")
		resp, err := newTransport(t, s.http, steady(httpretry.Options{})).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if s.hits.Load() != 1 || s.dials.Load() != 3 {
			t.Errorf("got %d requests by %d dials, want 1 by 3", s.hits.Load(), s.dials.Load())
		}
	})
}

func TestFirstRetryIsAtOnceOnlyForConnections(t *testing.T) {
	t.Parallel()
	opts := steady(httpretry.Options{FirstAtOnce: true, Attempts: 2})
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, answers(200))
		s.refuse.Store(1)
		rt := newTransport(t, s.http, opts)
		if d := took(func() { drop(rt.RoundTrip(request(t, "GET"))) }); d != 0 {
			t.Errorf("after a failed dial: waited %v, want 0", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, answers(503, 200))
		rt := newTransport(t, s.http, opts)
		if d := took(func() { drop(rt.RoundTrip(request(t, "GET"))) }); d != 50*time.Millisecond {
			t.Errorf("after a 503: waited %v, want 50ms", d)
		}
	})
}

func TestWaitsDoubleUpToTheCap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, answers(503))
		var pauses []time.Duration
		rt := newTransport(t, s.http, steady(httpretry.Options{
			Attempts: 6,
			Backoff:  httpretry.Backoff{Base: 100 * time.Millisecond, Cap: time.Second},
			Observe:  func(_ context.Context, o httpretry.Observation) { pauses = append(pauses, o.Pause) },
		}))
		drop(rt.RoundTrip(request(t, "GET")))
		want := "[50ms 100ms 200ms 400ms 500ms 0s]"
		if got := fmt.Sprint(pauses); got != want {
			t.Errorf("got pauses %s, want %s", got, want)
		}
	})
}

func TestLastResponseComesBackWithItsBody(t *testing.T) {
	t.Parallel()
	ample := strings.Repeat("x", 200<<10)
	tests := []struct {
		name    string
		opts    httpretry.Options
		timeout time.Duration
		outcome httpretry.Outcome
		hits    int64
	}{
		{"attempts spent", steady(httpretry.Options{}), time.Hour, httpretry.AttemptsSpent, 4},
		{"past the deadline", steady(httpretry.Options{}), 40 * time.Millisecond, httpretry.PastDeadline, 1},
		{"budget spent", httpretry.Options{Random: func() float64 { return 0.5 }}, time.Hour, httpretry.BudgetSpent, 1},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(503)
				io.WriteString(w, ample)
			})
			var last httpretry.Outcome
			tt.opts.Observe = func(_ context.Context, o httpretry.Observation) { last = o.Outcome }
			ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
			defer cancel()
			var resp *http.Response
			var err error
			d := took(func() {
				resp, err = newTransport(t, s.http, tt.opts).RoundTrip(request(t, "GET").WithContext(ctx))
			})
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(body) != ample || resp.StatusCode != 503 {
				t.Errorf("%s: got status %d, %d bytes, error %v, want 503 and %d bytes", tt.name, resp.StatusCode, len(body), err, len(ample))
			}
			if last != tt.outcome || s.hits.Load() != tt.hits {
				t.Errorf("%s: got %q after %d attempts, want %q after %d", tt.name, last, s.hits.Load(), tt.outcome, tt.hits)
			}
			if tt.hits == 1 && d != 0 {
				t.Errorf("%s: came back after %v, want at once", tt.name, d)
			}
		})
	}
}

func TestOneConnectionServesAllAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(503)
			io.WriteString(w, strings.Repeat("x", 60<<10))
		})
		rt := newTransport(t, s.http, steady(httpretry.Options{Attempts: 60}))
		drop(rt.RoundTrip(request(t, "GET")))
		if s.hits.Load() != 60 || s.dials.Load() != 1 {
			t.Errorf("got %d attempts over %d connections, want 60 over 1", s.hits.Load(), s.dials.Load())
		}
	})
}

func TestSlowOrEndlessBodyOfAFailureDoesNotHoldUpTheRetry(t *testing.T) {
	t.Parallel()
	for _, endless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int64
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) > 1 {
					return
				}
				w.WriteHeader(503)
				w.(http.Flusher).Flush()
				for endless {
					if _, err := w.Write(make([]byte, 1<<10)); err != nil {
						return
					}
				}
				<-r.Context().Done()
			})
			rt := newTransport(t, s.http, steady(httpretry.Options{}))
			d := took(func() { drop(rt.RoundTrip(request(t, "GET"))) })
			if most := time.Second; s.hits.Load() != 2 || d > most {
				t.Errorf("endless %v: got %d attempts in %v, want 2 in at most %v", endless, s.hits.Load(), d, most)
			}
		})
	}
}

func TestBodyIsSentWholeEachTime(t *testing.T) {
	t.Parallel()
	payload := strings.Repeat("payload ", 1000)
	tests := []struct {
		name   string
		body   io.Reader
		length int64 // stated, if the reader's type does not say it
		want   int   // attempts
	}{
		{"GetBody", strings.NewReader(payload), 0, 3},
		{"stated length", io.MultiReader(strings.NewReader(payload)), int64(len(payload)), 3},
		{"a stream", io.MultiReader(strings.NewReader(payload)), 0, 1},
		{"too long to hold", io.MultiReader(strings.NewReader(strings.Repeat(payload, 10))), int64(10 * len(payload)), 1},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var got []string
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				mu.Lock()
				got = append(got, string(b))
				mu.Unlock()
				w.WriteHeader(503)
			})
			body := &closeCounter{Reader: tt.body}
			req, err := http.NewRequest("POST", "http://api.example/", tt.body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Idempotency-Key", "k")
			if tt.length > 0 {
				req.ContentLength = tt.length
			}
			if req.GetBody == nil {
				req.Body = body
			}
			rt := newTransport(t, s.http, steady(httpretry.Options{Attempts: 3}))
			drop(rt.RoundTrip(req))
			if len(got) != tt.want {
				t.Fatalf("%s: got %d attempts, want %d", tt.name, len(got), tt.want)
			}
			for i, b := range got {
				if !strings.HasPrefix(b, payload) {
					t.Errorf("%s: attempt %d got %d bytes, want the payload", tt.name, i+1, len(b))
				}
			}
			if req.GetBody == nil && body.closed.Load() == 0 {
				t.Errorf("%s: the caller's body was not closed", tt.name)
			}
		})
	}
}

type closeCounter struct {
	io.Reader
	closed atomic.Int64
}

func (c *closeCounter) Close() error {
	c.closed.Add(1)
	return nil
}

func TestUnreadableBodyIsAnErrorAndClosed(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	body := &closeCounter{Reader: io.MultiReader(strings.NewReader("half"), errReader{broken})}
	req := request(t, "POST")
	req.Body, req.ContentLength = body, 10
	rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
		t.Error("a half-read body was sent")
		return response(200, nil), nil
	}), httpretry.Options{})
	if _, err := rt.RoundTrip(req); !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
	if body.closed.Load() == 0 {
		t.Error("the body was not closed")
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestCallersRequestIsNeverChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var numbers []string
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			numbers = append(numbers, r.Header.Get("X-Attempt"))
			w.WriteHeader(503)
		})
		req := request(t, "GET")
		before := fmt.Sprintf("%v %v %v", req.Header, req.URL, req.Context())
		rt := newTransport(t, s.http, steady(httpretry.Options{AttemptHeader: "X-Attempt", AttemptTimeout: time.Minute}))
		drop(rt.RoundTrip(req))
		if after := fmt.Sprintf("%v %v %v", req.Header, req.URL, req.Context()); after != before {
			t.Errorf("got request %s, want %s", after, before)
		}
		if got, want := fmt.Sprintf("%q", numbers), `["" "2" "3" "4"]`; got != want {
			t.Errorf("got attempt headers %s, want %s", got, want)
		}
	})
}

func TestHungAttemptIsCutShortAndRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 {
				<-r.Context().Done()
			}
		})
		var reasons []httpretry.Reason
		rt := newTransport(t, s.http, steady(httpretry.Options{
			AttemptTimeout: time.Second,
			Observe:        func(_ context.Context, o httpretry.Observation) { reasons = append(reasons, o.Reason) },
		}))
		var err error
		d := took(func() { err = drop(rt.RoundTrip(request(t, "GET"))) })
		if err != nil || d != 1050*time.Millisecond || fmt.Sprint(reasons) != "[timeout ]" {
			t.Errorf("got error %v after %v with reasons %v, want none after 1.05s with [timeout ]", err, d, reasons)
		}
	})
}

func TestAttemptTimeoutCoversTheBodyButDoesNotCutItEarly(t *testing.T) {
	t.Parallel()
	for _, slow := range []time.Duration{900 * time.Millisecond, 1100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.(http.Flusher).Flush()
				select {
				case <-time.After(slow):
					io.WriteString(w, "late")
				case <-r.Context().Done():
				}
			})
			rt := newTransport(t, s.http, steady(httpretry.Options{AttemptTimeout: time.Second}))
			resp, err := rt.RoundTrip(request(t, "GET"))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if inTime := slow < time.Second; inTime != (err == nil && string(body) == "late") {
				t.Errorf("body after %v with a timeout of 1s: got %q, error %v", slow, body, err)
			}
		})
	}
}

func TestUpgradedConnectionStaysWritable(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
		resp := response(101, nil)
		resp.Body = near
		return resp, nil
	}), httpretry.Options{AttemptTimeout: time.Minute})
	resp, err := rt.RoundTrip(request(t, "GET"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := resp.Body.(io.Writer); !ok {
		t.Errorf("got body %T, want an io.Writer", resp.Body)
	}
	resp.Body.Close()
}

func TestCallerWhoLeavesIsNotKeptWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(503)
		})
		left := errors.New("gone home")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(left) })
		rt := newTransport(t, s.http, steady(httpretry.Options{}))
		var err error
		d := took(func() { err = drop(rt.RoundTrip(request(t, "GET").WithContext(ctx))) })
		if !errors.Is(err, left) || d != time.Second || s.hits.Load() != 1 {
			t.Errorf("got error %v after %v and %d attempts, want %v after 1s and 1", err, d, s.hits.Load(), left)
		}
	})
}

func TestClientTimeoutIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, answers(503))
		client := &http.Client{Transport: newTransport(t, s.http, steady(httpretry.Options{Attempts: 100})), Timeout: time.Second}
		var resp *http.Response
		var err error
		d := took(func() { resp, err = client.Get("http://api.example/") })
		if err != nil || resp.StatusCode != 503 || d >= time.Second {
			t.Fatalf("got %v, error %v after %v, want the last 503 in less than 1s", resp, err, d)
		}
		resp.Body.Close()
	})
}

func TestTransportBelowARetryingOneDoesNotMultiply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, answers(503))
		below := newTransport(t, s.http, steady(httpretry.Options{Attempts: 5}))
		above := newTransport(t, below, steady(httpretry.Options{Attempts: 5}))
		drop(above.RoundTrip(request(t, "GET")))
		if got := s.hits.Load(); got != 9 {
			t.Errorf("got %d attempts, want 9: 5 by the lower within the first of the upper, then 4, not 25", got)
		}
	})
}

func TestLimiterIsAskedBeforeEveryAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, answers(503, 200))
		asked := 0
		rt := newTransport(t, s.http, steady(httpretry.Options{Wait: func(ctx context.Context, r *http.Request) error {
			asked++
			time.Sleep(time.Second)
			return nil
		}}))
		d := took(func() { drop(rt.RoundTrip(request(t, "GET"))) })
		if asked != 2 || d != 2050*time.Millisecond {
			t.Errorf("asked %d times in %v, want 2 in 2.05s", asked, d)
		}
		full := errors.New("full")
		rt = newTransport(t, s.http, steady(httpretry.Options{Wait: func(context.Context, *http.Request) error { return full }}))
		body := &closeCounter{Reader: strings.NewReader("x")}
		req := request(t, "POST")
		req.Body = body
		if err := drop(rt.RoundTrip(req)); !errors.Is(err, full) || s.hits.Load() != 2 || body.closed.Load() != 1 {
			t.Errorf("got error %v, %d attempts in all, body closed %d times, want %v, 2, 1", err, s.hits.Load(), body.closed.Load(), full)
		}
	})
}

func TestObservationsNameEveryAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, answers(503, 429, 200))
		s.refuse.Store(1)
		var got bytes.Buffer
		rt := newTransport(t, s.http, steady(httpretry.Options{Observe: func(_ context.Context, o httpretry.Observation) {
			fmt.Fprintf(&got, "%d %d %q %q %v %v\n", o.Attempt, o.Status, o.Reason, o.Outcome, o.Pause, o.Paced)
		}}))
		drop(rt.RoundTrip(request(t, "GET")))
		want := `1 0 "dial" "retried" 50ms 0s
2 503 "unavailable" "retried" 100ms 50ms
3 429 "limited" "retried" 200ms 100ms
4 200 "" "returned" 0s 200ms
`
		if got.String() != want {
			t.Errorf("got\n%swant\n%s", &got, want)
		}
	})
}

func TestFaultyRoundTripperBelowIsAnErrorAndNoPanic(t *testing.T) {
	t.Parallel()
	rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil }), httpretry.Options{})
	if _, err := rt.RoundTrip(request(t, "GET")); err == nil || !strings.Contains(err.Error(), "neither a response nor an error") {
		t.Errorf("got error %v, want one that says what is wrong", err)
	}
	attempts := 0
	rt = newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
		attempts++
		return &http.Response{StatusCode: 503}, nil
	}), steady(httpretry.Options{Attempts: 2, Backoff: httpretry.Backoff{Base: 1, Cap: 1}, AttemptTimeout: time.Hour}))
	if err := drop(rt.RoundTrip(request(t, "GET"))); err != nil || attempts != 2 {
		t.Errorf("responses without a body: got error %v after %d attempts, want none after 2", err, attempts)
	}
}

func TestBodyThatCannotBeHadAgainEndsTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("file deleted")
		s := serve(t, answers(503))
		req := request(t, "POST")
		req.Header.Set("Idempotency-Key", "k")
		req.Body = io.NopCloser(strings.NewReader("x"))
		asked := 0
		req.GetBody = func() (io.ReadCloser, error) {
			asked++
			return nil, gone
		}
		rt := newTransport(t, s.http, steady(httpretry.Options{AttemptTimeout: time.Second}))
		if err := drop(rt.RoundTrip(req)); !errors.Is(err, gone) || s.hits.Load() != 1 || asked != 1 {
			t.Errorf("got error %v after %d attempts and %d calls of GetBody, want %v after 1 and 1", err, s.hits.Load(), asked, gone)
		}
	})
}

func TestIdleConnectionsOfTheRoundTripperBelowAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, answers(200))
		client := &http.Client{Transport: newTransport(t, s.http, httpretry.Options{})}
		for range 2 {
			drop(client.Get("http://api.example/"))
			client.CloseIdleConnections()
			synctest.Wait()
		}
		if got := s.dials.Load(); got != 2 {
			t.Errorf("got %d connections, want 2", got)
		}
	})
}

func TestBadOptionsAreAllNamedAtOnce(t *testing.T) {
	t.Parallel()
	nan := func() float64 { var zero float64; return zero / zero }()
	_, err := httpretry.New(nil, httpretry.Options{
		Attempts:       -1,
		Backoff:        httpretry.Backoff{Jitter: 9, Base: time.Minute, Cap: time.Second},
		MaxWait:        -time.Second,
		AttemptTimeout: -1,
		Budget:         httpretry.Budget{Ratio: nan, PerSecond: -1},
		Throttle:       0.5,
		AttemptHeader:  "X Attempt",
	})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{
		"next is nil, want a RoundTripper such as http.DefaultTransport", "Attempts is -1, want at least 1", "MaxWait is -1s",
		"AttemptTimeout is -1ns", "Backoff.Jitter is 9", "Backoff.Cap is 1s, want at least Base, 1m0s", "Budget.Ratio is NaN",
		"Budget.PerSecond is -1", "Throttle is 0.5", `AttemptHeader is "X Attempt"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got error %q, want it to say %q", err, want)
		}
	}
}

func TestFirstAttemptThatSucceedsAllocatesNothing(t *testing.T) {
	resp := response(200, nil)
	rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) { return resp, nil }), httpretry.Options{})
	req := request(t, "GET")
	if got := testing.AllocsPerRun(1000, func() { rt.RoundTrip(req) }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func TestConcurrentCallsOverLoopbackLoseNothing(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%5 == 0 {
			w.WriteHeader(503)
		}
		io.WriteString(w, r.URL.Path)
	}))
	defer s.Close()
	rt := newTransport(t, s.Client().Transport, httpretry.Options{
		Attempts: 50,
		Backoff:  httpretry.Backoff{Base: time.Microsecond, Cap: time.Microsecond},
		Budget:   httpretry.Budget{PerSecond: 1e6},
	})
	client := &http.Client{Transport: rt}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 25 {
				path := fmt.Sprintf("/%d/%d", i, j)
				resp, err := client.Get(s.URL + path)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || string(body) != path {
					t.Errorf("got status %d, body %q, error %v, want 200 and %q", resp.StatusCode, body, err, path)
				}
			}
		})
	}
	wg.Wait()
	client.CloseIdleConnections()
}

func BenchmarkFirstAttemptSucceeds(b *testing.B) {
	resp := response(200, nil)
	rt, err := httpretry.New(roundTripper(func(*http.Request) (*http.Response, error) { return resp, nil }), httpretry.Options{})
	if err != nil {
		b.Fatal(err)
	}
	req, _ := http.NewRequest("GET", "http://api.example/", nil)
	b.ReportAllocs()
	for b.Loop() {
		rt.RoundTrip(req)
	}
}

// drop closes a response whose content does not matter.
func drop(resp *http.Response, err error) error {
	if err == nil {
		resp.Body.Close()
	}
	return err
}
