// Package httpretry is an http.RoundTripper for callers: it sends a request again when that is safe and likely to help,
// and so seldom that a fleet of callers cannot turn a stumble of the server into an outage.
//
// A request is sent again only when all of this holds:
//   - the failure may pass: the connection broke, the attempt timed out, or the answer was 408, 425, 429, 502, 503 or 504;
//   - sending it twice is safe: GET, HEAD, OPTIONS, TRACE, an Idempotency-Key, or a connection that was never made;
//   - its body can be had again: none, GetBody, or a stated length of at most 64 KiB;
//   - attempts are left, the retry budget of the origin has room, and the wait ends before the context's deadline.
//
// Otherwise the caller gets the last response, body and all, or the last error, as net/http made it.
//
// Waits are jittered (Backoff). A Retry-After, in seconds or as a date, and RateLimit fields of every published draft
// are minimums that are added to, never shortened. When the RateLimit fields say that little is left, the requests that
// follow are spaced before the server has to refuse one.
//
// Redirects are not followed here, responses other than those above are not judged, and requests are never hedged.
package httpretry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrThrottled is returned, wrapped, by RoundTrip when Options.Throttle kept a request from being sent.
var ErrThrottled = errors.New("not sent: the origin refuses most requests")

// Transport sends requests by another RoundTripper and retries them. It is safe for concurrent use. One Transport should
// serve a whole process, because budgets and pacing are kept in it, by origin (scheme and host).
type Transport struct {
	next    http.RoundTripper
	opts    Options
	origins origins
}

// New returns a Transport that sends by next, for instance http.DefaultTransport. It does no I/O. The error names every
// bad option.
func New(next http.RoundTripper, opts Options) (*Transport, error) {
	var missing error
	if next == nil {
		missing = errors.New("next is nil, want a RoundTripper such as http.DefaultTransport")
	}
	if err := errors.Join(missing, opts.validate()); err != nil {
		return nil, fmt.Errorf("httpretry: %w", err)
	}
	t := &Transport{next: next, opts: opts.withDefaults()}
	t.origins.born = time.Now()
	return t, nil
}

// RoundTrip sends req, waits and sends it again while that is right, and returns the last answer. It never changes req
// and closes its body. An error is that of the last attempt; or says that no attempt was made, because the context
// ended, because the origin asked for a wait past its deadline (context.DeadlineExceeded), because Options.Wait refused,
// or because of ErrThrottled.
//
// A Transport below another sends each request that the upper one is already retrying exactly once, so that their
// attempts do not multiply.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if retriedAbove(req.Context()) || req.URL == nil {
		return t.next.RoundTrip(req)
	}
	c := call{t: t, req: req, origin: t.origins.of(req.URL)}
	if err := c.open(); err != nil {
		closeBody(req)
		return nil, err
	}
	for {
		c.attempt++
		resp, err := c.send()
		pause, again := c.judge(resp, err)
		if !again {
			return c.deliver(resp, err)
		}
		discard(resp)
		if err := c.pause(pause); err != nil {
			return nil, err
		}
	}
}

// CloseIdleConnections passes the wish on to the RoundTripper below, as http.Client.CloseIdleConnections expects.
func (t *Transport) CloseIdleConnections() {
	if below, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		below.CloseIdleConnections()
	}
}

// call is one RoundTrip in progress.
type call struct {
	t        *Transport
	req      *http.Request
	origin   *origin
	buffered []byte        // the body, if it was read here
	attempt  int           // attempts begun
	drawn    time.Duration // the last backoff drawn
	paced    time.Duration // waited before the current attempt
}

// open does what precedes the first attempt: throttle, pacing, the caller's limiter, and a copy of a short body.
func (c *call) open() error {
	ctx := c.req.Context()
	wait, refusal := c.origin.begin(&c.t.opts, c.ask(0))
	switch refusal {
	case Throttled:
		c.t.observe(ctx, Observation{Outcome: Throttled})
		return fmt.Errorf("httpretry: %s: %w", c.req.URL.Host, ErrThrottled)
	case PastDeadline:
		c.t.observe(ctx, Observation{Outcome: PastDeadline})
		return fmt.Errorf("httpretry: %s asks for a wait of %v, past the deadline: %w", c.req.URL.Host, wait, context.DeadlineExceeded)
	}
	if err := c.pause(wait); err != nil {
		return err
	}
	return c.buffer()
}

// pause sleeps, then asks the caller's limiter. What it waited is reported with the attempt that follows.
func (c *call) pause(wait time.Duration) error {
	ctx := c.req.Context()
	if err := sleep(ctx, wait); err != nil {
		return err
	}
	c.paced = wait
	if c.t.opts.Wait == nil {
		return nil
	}
	asked := time.Now()
	if err := c.t.opts.Wait(ctx, c.req); err != nil {
		return fmt.Errorf("httpretry: waiting to send: %w", err)
	}
	c.paced += time.Since(asked)
	return nil
}

// judge learns from an answer and decides what comes next: a further attempt after a pause, or none.
func (c *call) judge(resp *http.Response, err error) (pause time.Duration, again bool) {
	reason := reasonOf(c.req.Context(), resp, err)
	c.origin.learn(&c.t.opts, c.part(), resp, reason)
	seen := Observation{Attempt: c.attempt, Reason: reason, Err: err, Paced: c.paced}
	if resp != nil {
		seen.Status = resp.StatusCode
	}
	if reason == "" {
		seen.Outcome = Returned
	} else {
		seen.Pause, seen.Outcome = c.decide(resp, reason)
	}
	c.t.observe(c.req.Context(), seen)
	return seen.Pause, seen.Outcome == Retried
}

// decide says whether a failed attempt is followed by another, and after what pause.
func (c *call) decide(resp *http.Response, reason Reason) (time.Duration, Outcome) {
	if !c.replayable(reason, resp) {
		return 0, NotReplayable
	}
	if c.attempt >= c.t.opts.Attempts {
		return 0, AttemptsSpent
	}
	return c.origin.retry(&c.t.opts, c.ask(c.backoff(resp, reason, time.Now())))
}

// backoff is the pause that the strategy and the server's hint call for. The hint is a minimum: the spread comes on top.
func (c *call) backoff(resp *http.Response, reason Reason, now time.Time) time.Duration {
	o := &c.t.opts
	c.drawn = o.Backoff.Draw(c.attempt, c.drawn, o.Random())
	if resp != nil {
		if hint, ok := retryAfter(resp.Header, now); ok {
			return min(hint, o.MaxWait) + o.Backoff.spread(c.attempt, min(hint, o.MaxWait), o.Random())
		}
	}
	if o.FirstAtOnce && c.attempt == 1 && (reason == Dial || reason == Connection) {
		return 0
	}
	return max(c.drawn, o.Backoff.Base/10)
}

// deliver hands the last answer to the caller. A redirect with a Retry-After is held back for that long, because the
// caller will follow it at once (RFC 9110, section 10.2.3); only this call waits, never others to the target.
func (c *call) deliver(resp *http.Response, err error) (*http.Response, error) {
	if resp == nil || resp.StatusCode < 300 || resp.StatusCode > 399 || resp.Header.Get("Location") == "" {
		return resp, err
	}
	hint, ok := retryAfter(resp.Header, time.Now())
	if !ok {
		return resp, err
	}
	o := &c.t.opts
	wait := min(hint, o.MaxWait) + o.Backoff.spread(1, min(hint, o.MaxWait), o.Random())
	if c.ask(0).late(wait) {
		return resp, err
	}
	if err := sleep(c.req.Context(), wait); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, err
}

// ask is the question to the origin about an attempt after a wait.
func (c *call) ask(wait time.Duration) attempt {
	latest, _ := c.req.Context().Deadline()
	return attempt{part: c.part(), now: time.Now(), latest: latest, wait: wait}
}

func (c *call) part() string {
	if c.t.opts.Part == nil {
		return ""
	}
	return c.t.opts.Part(c.req)
}

func (t *Transport) observe(ctx context.Context, o Observation) {
	if t.opts.Observe != nil {
		t.opts.Observe(ctx, o)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type retriedKey struct{}

func retriedAbove(ctx context.Context) bool { return ctx.Value(retriedKey{}) != nil }
