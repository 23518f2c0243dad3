package httpretry

import (
	"net/http"
	"net/url"
	"sync"
	"time"
)

// maxOrigins bounds the memory of a process that calls arbitrary hosts. Beyond it, origins that were not called for 10 s
// are forgotten, and if there are none, new ones share one budget and one pace.
const maxOrigins = 4096

// origins finds the state of an origin.
type origins struct {
	born   time.Time // windows count seconds from here
	mu     sync.RWMutex
	known  map[originName]*origin
	shared *origin
	swept  time.Time
}

type originName struct{ scheme, host string }

func (s *origins) of(u *url.URL) *origin {
	name := originName{u.Scheme, u.Host}
	s.mu.RLock()
	o := s.known[name]
	s.mu.RUnlock()
	if o != nil {
		return o
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.known[name]; o != nil {
		return o
	}
	if s.known == nil {
		s.known = map[originName]*origin{}
		s.shared = &origin{born: s.born}
	}
	if len(s.known) >= maxOrigins {
		s.sweep(time.Now())
	}
	if len(s.known) >= maxOrigins {
		return s.shared
	}
	o = &origin{born: s.born}
	s.known[name] = o
	return o
}

// sweep forgets idle origins, at most once a second because it looks at all.
func (s *origins) sweep(now time.Time) {
	if now.Sub(s.swept) < time.Second {
		return
	}
	s.swept = now
	for name, o := range s.known {
		if o.idle(now) {
			delete(s.known, name)
		}
	}
}

// origin is what is known of one scheme and host: the requests of the last 10 s, and the pace its RateLimit fields ask for.
type origin struct {
	born  time.Time
	mu    sync.Mutex
	last  window
	paces paces
}

// attempt is what a call asks its origin before it sends.
type attempt struct {
	part   string
	now    time.Time
	latest time.Time     // the deadline; zero: none
	wait   time.Duration // what the call waits anyway
}

// begin asks for a first attempt. It returns how long to wait for it, and Throttled or PastDeadline if it must not be made.
func (o *origin) begin(opts *Options, a attempt) (time.Duration, Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last.advance(a.now.Sub(o.born), opts.Random)
	if !o.last.admits(opts) {
		return 0, Throttled
	}
	wait := o.paces.turn(a, opts)
	if a.late(wait) {
		return wait, PastDeadline
	}
	o.last.slot().calls++
	o.last.sum.calls++
	o.paces.take(a)
	return wait, ""
}

// retry asks for a further attempt. It returns the pause before it and Retried, or why it must not be made. The budget is
// asked last, so that only attempts that will be made are charged.
func (o *origin) retry(opts *Options, a attempt) (time.Duration, Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last.advance(a.now.Sub(o.born), opts.Random)
	wait := max(a.wait, o.paces.turn(a, opts))
	if a.late(wait) {
		return 0, PastDeadline
	}
	if !o.last.hasRoom(opts.Budget) {
		return 0, BudgetSpent
	}
	if !o.last.admits(opts) {
		return 0, Throttled
	}
	o.last.slot().retries++
	o.last.sum.retries++
	o.paces.take(a)
	return wait, Retried
}

// learn takes in an answer: whether the server accepted the request, and the quota it states. Redirects and responses
// from a cache (those with an Age) say nothing about the quota of the next request.
func (o *origin) learn(opts *Options, part string, resp *http.Response, reason Reason) {
	if resp == nil {
		return
	}
	accepted := opts.Throttle > 0 && reason == ""
	fresh := (resp.StatusCode < 300 || resp.StatusCode > 399) && resp.Header["Age"] == nil && statesQuota(resp.Header)
	if !accepted && !fresh {
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if accepted {
		o.last.advance(now.Sub(o.born), opts.Random)
		o.last.slot().accepts++
		o.last.sum.accepts++
	}
	if fresh {
		for _, q := range quotas(resp.Header, now) {
			o.paces.learn(part, q, now, opts)
		}
	}
}

func (o *origin) idle(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last.advance(now.Sub(o.born), nil)
	return o.last.sum == tally{} && o.paces.idle(now)
}

func (a attempt) late(wait time.Duration) bool {
	return wait > 0 && !a.latest.IsZero() && !a.now.Add(wait).Before(a.latest)
}

// window counts what was sent to an origin in the last ten seconds, the current one included.
type window struct {
	slots    [10]tally
	second   int64   // the one slots[second%10] counts
	sum      tally   // of all slots
	fraction float64 // the fraction of a retry allowed on top, drawn anew each 10 s
	drawn    bool
}

type tally struct {
	calls    int64 // first attempts
	retries  int64 // further attempts
	requests int64 // attempts wanted, those refused by Throttle included
	accepts  int64 // attempts that the server did not refuse
}

// advance forgets what is older than ten seconds. A nil random keeps the fraction.
func (w *window) advance(age time.Duration, random func() float64) {
	second := int64(age / time.Second)
	if random != nil && (!w.drawn || second/10 > w.second/10) {
		w.fraction, w.drawn = random(), true
	}
	for w.second < second {
		if second-w.second > 10 {
			w.second = second - 10
		}
		w.second++
		old := w.slot()
		w.sum.calls -= old.calls
		w.sum.retries -= old.retries
		w.sum.requests -= old.requests
		w.sum.accepts -= old.accepts
		*old = tally{}
	}
}

func (w *window) slot() *tally { return &w.slots[w.second%10] }

// hasRoom tells whether the budget has room for one more retry. Rounding the allowance by a random fraction, instead of
// down, makes its expectation exact: with a ratio of 0.1, one in ten processes that each send one request may repeat it.
func (w *window) hasRoom(b Budget) bool {
	return float64(w.sum.retries+1) <= b.Ratio*float64(w.sum.calls)+10*b.PerSecond+w.fraction
}

// admits is the adaptive throttle of Google's "Site Reliability Engineering", chapter 21. It must see every request that
// is wanted and not only those sent: otherwise what is sent grows without end as demand does.
func (w *window) admits(opts *Options) bool {
	if opts.Throttle == 0 {
		return true
	}
	refuse := (float64(w.sum.requests) - opts.Throttle*float64(w.sum.accepts)) / float64(w.sum.requests+1)
	w.slot().requests++
	w.sum.requests++
	return refuse <= 0 || opts.Random() >= refuse
}
