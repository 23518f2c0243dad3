package httpretry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"
)

// Options of a Transport. The zero value is the safe default.
type Options struct {
	// Attempts is how often a request is sent at most, the first time included. Default 4; 1 never retries.
	Attempts int

	// Backoff says how long to wait before a retry. Default: full jitter from 100 ms, at most 10 s.
	Backoff Backoff

	// MaxWait is the longest that a server's hint is believed: a longer Retry-After or RateLimit window counts as this
	// much. The spread, at most Backoff.Cap, comes on top. Default 10 minutes.
	MaxWait time.Duration

	// AttemptTimeout bounds one attempt, from sending it to the end of reading the response body. Default none.
	AttemptTimeout time.Duration

	// Budget bounds retries to a part of the requests, by origin.
	Budget Budget

	// Throttle, if not 0, refuses requests here with ErrThrottled when the origin refused most of those of the last 10 s:
	// with the probability (requests - Throttle x accepted) / (requests + 1), where requests counts those refused here too
	// (Google's "Site Reliability Engineering", chapter 21). At least 1; 2 is usual. Default off.
	Throttle float64

	// FirstAtOnce makes the first retry without a wait where the connection failed and no response came, as when an idle
	// connection had been closed.
	FirstAtOnce bool

	// RetryPutDelete also resends PUT and DELETE, which RFC 9110 calls idempotent though many servers disagree.
	RetryPutDelete bool

	// RetryRefused also resends other methods after 429, and after 503 with Retry-After: the server says that it did not
	// act. Set it only where no proxy says so on its behalf after the server has acted.
	RetryRefused bool

	// AttemptHeader, if set, is the header that carries the number of the attempt, from 2 on. Default: none is sent.
	AttemptHeader string

	// Wait, if set, is called before every attempt and holds it back, for instance by a limiter that the process shares.
	// An error keeps the attempt from being made and is returned, wrapped.
	Wait func(context.Context, *http.Request) error

	// Part names the part of an origin whose quota a request uses, where an origin has several, such as search and the
	// rest. RateLimit fields on the response to one part do not slow another. Default: the origin is one part.
	Part func(*http.Request) string

	// Observe, if set, is told of every attempt once, and of every request that was refused before the first. It must not block.
	Observe func(context.Context, Observation)

	// Random returns uniform draws from [0, 1), and must be safe for concurrent use. Default: rand.Float64 of math/rand/v2.
	// A simulation passes its own to be repeatable.
	Random func() float64
}

// Budget bounds the retries sent to one origin in any 10 s to Ratio x requests + 10 x PerSecond. The fraction of a retry
// that remains is allowed with that probability, so that a fleet of processes with one request each keeps the ratio too.
type Budget struct {
	// Ratio is retries per request. Default 0.1, with which an outage raises traffic by a tenth.
	Ratio float64

	// PerSecond is retries a second beside the ratio. Default 0. A command or a job that makes few requests, and is not one
	// of thousands, wants some: 1 allows it ten retries at the start.
	PerSecond float64
}

// Observation is what became of one attempt. Reason and Outcome are closed sets, fit for metric labels.
type Observation struct {
	Attempt int           // 1 is the first; 0: nothing was sent, see Outcome
	Status  int           // the response's, 0 without a response
	Err     error         // the attempt's, nil with a response
	Reason  Reason        // why a retry may help; empty: it would not, or there is no need
	Outcome Outcome       // what follows
	Pause   time.Duration // the pause before the next attempt, if Retried
	Paced   time.Duration // the pause before this attempt, Options.Wait included
}

// Outcome is what follows an attempt.
type Outcome string

// The outcomes. All but Retried hand the answer to the caller.
const (
	Returned      Outcome = "returned"       // the answer is final
	Retried       Outcome = "retried"        // another attempt follows
	NotReplayable Outcome = "not_replayable" // the method or the body does not allow it
	AttemptsSpent Outcome = "attempts_spent" // Options.Attempts were made
	BudgetSpent   Outcome = "budget_spent"   // Options.Budget has no room
	PastDeadline  Outcome = "past_deadline"  // the wait would end after the context's deadline
	Throttled     Outcome = "throttled"      // Options.Throttle refused the attempt
)

func (o Options) validate() error {
	var bad []error
	refuse := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	d := o.withDefaults()
	refuse(d.Attempts >= 1, "Attempts is %d, want at least 1, or 0 for the default of 4", o.Attempts)
	refuse(d.MaxWait >= 0, "MaxWait is %v, want a positive duration, or 0 for 10m0s", o.MaxWait)
	refuse(d.AttemptTimeout >= 0, "AttemptTimeout is %v, want a positive duration, or 0 for none", o.AttemptTimeout)
	refuse(d.Backoff.Jitter <= DecorrelatedInside, "Backoff.Jitter is %d, want one of the package's constants", o.Backoff.Jitter)
	refuse(d.Backoff.Base > 0, "Backoff.Base is %v, want a positive duration, or 0 for 100ms", o.Backoff.Base)
	refuse(d.Backoff.Cap >= d.Backoff.Base, "Backoff.Cap is %v, want at least Base, %v, or 0 for 10s", d.Backoff.Cap, d.Backoff.Base)
	refuse(d.Budget.Ratio >= 0 && d.Budget.Ratio <= 1, "Budget.Ratio is %v, want above 0 to 1, or 0 for 0.1", o.Budget.Ratio)
	refuse(d.Budget.PerSecond >= 0 && !math.IsInf(d.Budget.PerSecond, 0), "Budget.PerSecond is %v, want a finite number from 0", o.Budget.PerSecond)
	refuse(d.Throttle == 0 || d.Throttle >= 1 && !math.IsInf(d.Throttle, 0), "Throttle is %v, want a finite number from 1, or 0 for none", o.Throttle)
	refuse(isToken(d.AttemptHeader) || d.AttemptHeader == "", "AttemptHeader is %q, want a header name such as X-Attempt", o.AttemptHeader)
	return errors.Join(bad...)
}

func (o Options) withDefaults() Options {
	setDefault(&o.Attempts, 4)
	setDefault(&o.MaxWait, 10*time.Minute)
	setDefault(&o.Budget.Ratio, 0.1)
	o.Backoff = o.Backoff.withDefaults()
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// isToken tells whether s may be a header name (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func isTokenByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return false
}
