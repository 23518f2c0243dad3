package concurrency_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"weir.dev/weir/concurrency"
)

func middleware(t testing.TB, l *concurrency.Limiter, o concurrency.HTTPOptions) func(http.Handler) http.Handler {
	t.Helper()
	mw, err := concurrency.Middleware(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

func TestRefusedRequestGets503AndRetryAfter(t *testing.T) {
	l := newLimiter(t, concurrency.Options{Initial: 1, Max: 1})
	l.Acquire(t.Context())
	h := middleware(t, l, concurrency.HTTPOptions{})(http.NotFoundHandler())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))

	seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if w.Code != 503 || err != nil || seconds < 1 || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("got %d, %v; want 503, Retry-After of at least 1, no-store", w.Code, w.Header())
	}
}

func TestPermitIsReleasedHoweverTheHandlerEnds(t *testing.T) {
	l := newLimiter(t, concurrency.Options{})
	gone, leave := context.WithCancel(t.Context())
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for _, c := range []struct {
		ctx     context.Context
		handler http.HandlerFunc
		want    concurrency.Stats
	}{
		{t.Context(), func(http.ResponseWriter, *http.Request) {}, concurrency.Stats{Successes: 1}},
		{t.Context(), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, concurrency.Stats{Ignored: 1}},
		{gone, func(http.ResponseWriter, *http.Request) { leave() }, concurrency.Stats{Ignored: 1}},
	} {
		before := l.Stats()
		func() {
			defer func() { recover() }()
			h := middleware(t, l, concurrency.HTTPOptions{})(c.handler)
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(c.ctx))
		}()
		got := l.Stats()
		if got.InFlight != 0 || got.Successes-before.Successes != c.want.Successes || got.Ignored-before.Ignored != c.want.Ignored {
			t.Errorf("got %+v after %+v, want %+v more and nothing in flight", got, before, c.want)
		}
	}
	h := middleware(t, l, concurrency.HTTPOptions{})(http.NotFoundHandler())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(late))
	if w.Code != 503 || l.Stats().InFlight != 0 {
		t.Errorf("a request past its deadline: got %d, %d in flight; want 503, 0", w.Code, l.Stats().InFlight)
	}
}

func TestBypassedRequestIsNotLimited(t *testing.T) {
	l := newLimiter(t, concurrency.Options{Initial: 1, Max: 1})
	l.Acquire(t.Context())
	health := func(r *http.Request) bool { return r.URL.Path == "/health" }
	h := middleware(t, l, concurrency.HTTPOptions{Bypass: health})(http.NotFoundHandler())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
	if w.Code != 404 {
		t.Errorf("got %d, want the handler's 404", w.Code)
	}
}

func TestClassOfARequestHasItsShare(t *testing.T) {
	l := newLimiter(t, concurrency.Options{Initial: 1, Max: 1, Classes: []concurrency.ClassOptions{{Name: "pay", Share: 1}}})
	l.Acquire(t.Context())
	pay, _ := l.Class("pay")
	class := func(r *http.Request) *concurrency.Class {
		if r.URL.Path == "/pay" {
			return pay
		}
		return nil
	}
	h := middleware(t, l, concurrency.HTTPOptions{Class: class})(http.NotFoundHandler())
	for path, want := range map[string]int{"/pay": 404, "/other": 503} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
}

func TestMiddlewareWithoutALimiterIsAnError(t *testing.T) {
	if _, err := concurrency.Middleware(nil, concurrency.HTTPOptions{}); err == nil {
		t.Error("got no error")
	}
}
