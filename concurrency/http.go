package concurrency

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"strconv"
)

// HTTPOptions configures [Middleware]. The zero value limits every request as work
// without a class.
type HTTPOptions struct {
	// Class tells the class of a request, usually by r.Pattern or a header that your
	// proxy sets. Nil, or an answer of nil: no class.
	Class func(*http.Request) *Class

	// Bypass picks the requests that are neither limited nor measured, such as health
	// checks and long-lived streams. Nil: none.
	Bypass func(*http.Request) bool
}

// Middleware limits the requests that the handlers behind it work on. A request
// that is refused is answered with 503 and a Retry-After in whole seconds (RFC 9110,
// section 10.2.3) from [Limiter.RetryAfter]; 429 would say that the client asked too
// often, which nobody knows here. The permit is released when the handler returns or
// panics:
//
//   - as a [Drop] if the request's deadline passed,
//   - as [Ignore] if the client left or the handler panicked,
//   - as a [Success] otherwise, whatever the status.
//
// It needs a limiter; without one it returns an error.
func Middleware(l *Limiter, opts HTTPOptions) (func(http.Handler) http.Handler, error) {
	if l == nil {
		return nil, errors.New("concurrency: Middleware got a nil Limiter, want one made by New")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if opts.Bypass != nil && opts.Bypass(r) {
				next.ServeHTTP(w, r)
				return
			}
			permit, ok := l.classOf(r, opts.Class).Acquire(r.Context())
			if !ok {
				refuseHTTP(w, l)
				return
			}
			// Where the processors are busy, requests wait to be scheduled, and a handler that
			// never blocks would run to its end before the next one asks for a place: nobody
			// would ever see more than a few in flight. After this all that wait have asked.
			runtime.Gosched()
			outcome := Ignore // should the handler panic
			defer func() { permit.Release(outcome) }()
			next.ServeHTTP(w, r)
			outcome = outcomeOf(r.Context())
		})
	}, nil
}

func (l *Limiter) classOf(r *http.Request, class func(*http.Request) *Class) *Class {
	if class != nil {
		if c := class(r); c != nil {
			return c
		}
	}
	return l.classes[len(l.classes)-1]
}

func outcomeOf(ctx context.Context) Outcome {
	switch ctx.Err() {
	case nil:
		return Success
	case context.DeadlineExceeded:
		return Drop
	}
	return Ignore
}

// refuseHTTP answers with the problem type "temporary reduced capacity" of the IETF
// draft on RateLimit header fields.
func refuseHTTP(w http.ResponseWriter, l *Limiter) {
	seconds := int64(math.Ceil(l.RetryAfter().Seconds()))
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintf(w, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",`+
		`"title":"Temporarily reduced capacity","status":503,`+
		`"detail":"The server has as much work in flight as it can do; retry in %d s."}`+"\n", seconds)
}
