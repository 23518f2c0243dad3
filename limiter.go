package weir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrTooLong is what Wait returns when the units cannot be had in time. Nothing was
// charged.
var ErrTooLong = errors.New("the units cannot be had in time")

// FailureMode is what a Limiter answers when neither its store nor its fallback can
// decide.
type FailureMode uint8

// The failure modes.
const (
	ReturnError FailureMode = iota // the error, and a decision that is not allowed
	FailClosed                     // denied, with a RetryAfter of one second
	FailOpen                       // allowed
)

// Options of a Limiter. The zero value enforces, and returns an error when the store
// cannot decide.
type Options struct {
	Shadow    bool        // count and decide, but let everything pass
	Alone     bool        // in TakeAll: neither hold the other charges back nor be held back by them; it still denies
	Fallback  Store       // asked when the store cannot decide, usually a memstore
	Instances int         // with Fallback, required: how many processes share the limit; each has 1/Instances of it there
	OnFailure FailureMode // when nothing decides
	// Observe is told of every decision, whoever made it, and of every failure; it is
	// called in the caller's goroutine and must be quick.
	Observe func(context.Context, Observation)
}

// Observation is one decision as metrics see it. It never holds the key.
type Observation struct {
	Name     string
	Limit    Limit
	Cost     int64
	Decision Decision
	Err      error         // why nothing could decide
	Took     time.Duration // how long the decision took; for Wait, without the waiting
}

// Limiter asks a store about one named limit. It is safe for concurrent use.
type Limiter struct {
	core  *core
	limit Limit
}

// core is what all limits of one name share.
type core struct {
	store Store
	name  string
	opts  Options
}

// New returns a limiter of the named limit. It does no I/O. The error names every
// argument that is wrong.
func New(store Store, name string, limit Limit, opts Options) (*Limiter, error) {
	var errs []error
	if store == nil {
		errs = append(errs, errors.New("no store: pass one from memstore or redisstore"))
	}
	if err := ValidateName(name); err != nil {
		errs = append(errs, err)
	}
	if err := limit.Validate(); err != nil {
		errs = append(errs, err)
	}
	if opts.OnFailure > FailOpen {
		errs = append(errs, fmt.Errorf("failure mode %d does not exist: use ReturnError, FailClosed or FailOpen", opts.OnFailure))
	}
	switch {
	case opts.Fallback == nil && opts.Instances != 0:
		errs = append(errs, fmt.Errorf("%d instances without a fallback: leave them out, or add one", opts.Instances))
	case opts.Fallback != nil && opts.Instances < 1:
		errs = append(errs, fmt.Errorf("a fallback with %d instances: say how many processes share the limit, 1 or more", opts.Instances))
	case opts.Fallback != nil && len(errs) == 0:
		if err := limit.share(opts.Instances, 0).Validate(); err != nil && !limit.IsUnlimited() {
			errs = append(errs, fmt.Errorf("one share of %d of the limit: %w", opts.Instances, err))
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("weir.New(%.80q): %w", name, errors.Join(errs...))
	}
	return &Limiter{core: &core{store: store, name: name, opts: opts}, limit: limit}, nil
}

// Name returns the limit's name.
func (l *Limiter) Name() string { return l.core.name }

// Limit returns how much the limiter allows.
func (l *Limiter) Limit() Limit { return l.limit }

// With returns a limiter of the same name, store and options with another limit, such
// as a customer's plan. A key keeps what it has used; of a window or a log, once it has
// been charged under a shorter period, only what counts there, so a key is best asked
// under one period. With does not allocate where the result does not outlive the call; a
// limit that is not valid fails when it is asked.
func (l *Limiter) With(limit Limit) *Limiter { return &Limiter{core: l.core, limit: limit} }

// Take takes cost units, at least 1, if that many are there. The error says that
// nothing could decide; then the decision is not allowed.
func (l *Limiter) Take(ctx context.Context, key Key, cost int64) (d Decision, err error) {
	err = l.core.take(ctx, &Ask{Name: l.core.name, Key: key, Limit: l.limit, Cost: cost}, &d)
	return d, err
}

// TakeUpTo takes as many of cost units as are there, at least one: see Decision.Taken.
func (l *Limiter) TakeUpTo(ctx context.Context, key Key, cost int64) (d Decision, err error) {
	err = l.core.take(ctx, &Ask{Name: l.core.name, Key: key, Limit: l.limit, Cost: cost, Partial: true}, &d)
	return d, err
}

// Peek says what is there and whether one unit would be allowed now. It changes nothing.
func (l *Limiter) Peek(ctx context.Context, key Key) (d Decision, err error) {
	err = l.core.decide(ctx, &Ask{Name: l.core.name, Key: key, Limit: l.limit}, &d)
	return d, err
}

// Reserve takes units that may be used after Decision.Delay, at most maxWait from now
// and at most a period. GCRA and LeakyBucket sell places ahead in this way; windows and
// the log cannot promise the future, and there Reserve is Take.
func (l *Limiter) Reserve(ctx context.Context, key Key, cost int64, maxWait time.Duration) (d Decision, err error) {
	err = l.core.take(ctx, &Ask{Name: l.core.name, Key: key, Limit: l.limit, Cost: cost, MaxWait: maxWait}, &d)
	return d, err
}

// Wait takes cost units and returns when they may be used: at the latest at ctx's
// deadline, and after one period where ctx has none. It returns ErrTooLong as soon as
// it is clear that they cannot be had by then. When ctx ends first, it gives back what
// it took and returns ctx's error.
func (l *Limiter) Wait(ctx context.Context, key Key, cost int64) (Decision, error) {
	if err := l.limit.Validate(); err != nil {
		return Decision{}, fmt.Errorf("limit %q: %w", l.core.name, err)
	}
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	period := l.limit.Period()
	latest := time.Now().Add(period)
	if deadline, ok := ctx.Deadline(); ok {
		latest = deadline
	}
	for {
		left := time.Until(latest)
		d, err := l.Reserve(ctx, key, cost, min(max(left, 0), period))
		if err != nil {
			return d, err
		}
		pause := d.RetryAfter
		if d.Allowed {
			pause = d.Delay
		}
		if d.Allowed && pause <= 0 {
			return d, nil
		}
		if pause > left {
			l.giveBack(ctx, key, d)
			return d, fmt.Errorf("limit %q: %w: %d units in %v at the earliest, with %v left", l.core.name, ErrTooLong, cost, pause, left)
		}
		if err := sleep(ctx, pause); err != nil {
			l.giveBack(ctx, key, d)
			return d, err
		}
		if d.Allowed {
			return d, nil
		}
	}
}

// giveBack refunds a decision whose caller has left.
func (l *Limiter) giveBack(ctx context.Context, key Key, d Decision) {
	if d.Taken > 0 {
		l.Refund(context.WithoutCancel(ctx), key, d, d.Taken) // best effort: lost, the key was charged too much
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Refund gives back units of what d took, and returns how many came back: never more
// than if they had not been taken, so units that were long ago earned again do not, and
// a second refund of one decision changes nothing. What a fallback admitted goes back to
// the fallback; a decision that took nothing gives nothing back.
func (l *Limiter) Refund(ctx context.Context, key Key, d Decision, units int64) (int64, error) {
	if units < 0 || units > d.Taken {
		return 0, fmt.Errorf("limit %q: a refund of %d units of a decision that took %d: give back 0 to %[3]d", l.core.name, units, d.Taken)
	}
	if units == 0 || d.Source == FromPolicy {
		return 0, nil
	}
	ask := Ask{Name: l.core.name, Key: key, Limit: l.limit, Cost: units}
	if err := ask.Validate(); err != nil {
		return 0, err
	}
	store := l.core.store
	if d.Source == FromFallback {
		store = l.core.opts.Fallback
		ask.Limit = ask.Limit.share(l.core.opts.Instances, d.Taken)
	}
	return store.Refund(ctx, ask, d)
}

// Reset forgets what the key has used, in the store and in the fallback.
func (l *Limiter) Reset(ctx context.Context, key Key) error {
	if key.IsZero() {
		return fmt.Errorf("limit %q: no key to reset: make one with Text, Parts or Addr", l.core.name)
	}
	err := l.core.store.Reset(ctx, l.core.name, key)
	if l.core.opts.Fallback != nil {
		err = errors.Join(err, l.core.opts.Fallback.Reset(ctx, l.core.name, key))
	}
	return err
}

// take is decide for verbs that charge.
func (c *core) take(ctx context.Context, ask *Ask, d *Decision) error {
	if ask.Cost < 1 {
		return fmt.Errorf("limit %q: a cost of %d units: take 1 or more, or use Peek", ask.Name, ask.Cost)
	}
	return c.decide(ctx, ask, d)
}

// decide asks the store, applies what the options say of its answer, and fills d. Ask
// and Decision are long: they go by pointer as far as the store, since each copy costs
// as much as the counting.
func (c *core) decide(ctx context.Context, ask *Ask, d *Decision) (err error) {
	if c.opts.Observe != nil {
		return c.decideObserved(ctx, ask, d)
	}
	if ask.Limit.IsUnlimited() {
		*d, err = c.unlimited(*ask)
		return err
	}
	*d, err = c.store.Take(ctx, *ask)
	if err != nil || d.Cause != nil {
		*d, err = c.settle(ctx, *ask, *d, err)
		return err
	}
	if !d.Allowed && c.opts.Shadow {
		d.Allowed, d.Shadow = true, true
	}
	return nil
}

// decideObserved is decide with a clock and a witness.
func (c *core) decideObserved(ctx context.Context, ask *Ask, d *Decision) error {
	silent := *c
	silent.opts.Observe = nil
	start := time.Now()
	err := silent.decide(ctx, ask, d)
	c.opts.Observe(ctx, Observation{Name: c.name, Limit: ask.Limit, Cost: ask.Cost, Decision: *d, Err: err, Took: time.Since(start)})
	return err
}

// unlimited answers without a store.
func (c *core) unlimited(ask Ask) (Decision, error) {
	if ask.Key.IsZero() {
		return Decision{}, fmt.Errorf("limit %q: no key: make one with Text, Parts or Addr", c.name)
	}
	return Decision{Allowed: true, Source: FromPolicy, Remaining: math.MaxInt64}, nil
}

// settle answers when the store could not: by the fallback, else by the failure mode.
// What is wrong with the question, and a caller who left, are not failures of the store.
func (c *core) settle(ctx context.Context, ask Ask, d Decision, cause error) (Decision, error) {
	if cause == nil {
		cause = d.Cause
	}
	if d.Allowed { // decided below the store, by what it has of its own
		return d, nil
	}
	if err := ask.Validate(); err != nil {
		return Decision{}, err
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return Decision{}, cause
	}
	d, err := c.answerWithout(ctx, ask, cause)
	if err == nil && !d.Allowed && c.opts.Shadow {
		d.Allowed, d.Shadow = true, true
	}
	return d, err
}

func (c *core) answerWithout(ctx context.Context, ask Ask, cause error) (Decision, error) {
	if c.opts.Fallback != nil {
		capacity, least := ask.Limit.Capacity(), ask.Cost
		if ask.Partial {
			least = 1 // so it gets no more than the burst's share
		}
		ask.Limit = ask.Limit.share(c.opts.Instances, least)
		if least > capacity {
			return Decision{Source: FromFallback, RetryAfter: Never, Cause: cause}, nil
		}
		d, err := c.opts.Fallback.Take(ctx, ask)
		if err == nil {
			d.Source, d.Cause = FromFallback, cause
			return d, nil
		}
		cause = errors.Join(cause, fmt.Errorf("fallback: %w", err))
	}
	switch c.opts.OnFailure {
	case FailOpen:
		return Decision{Allowed: true, Source: FromPolicy, Cause: cause}, nil
	case FailClosed:
		return Decision{RetryAfter: time.Second, Source: FromPolicy, Cause: cause}, nil
	}
	return Decision{}, fmt.Errorf("limit %q: nothing could decide: %w", c.name, cause)
}
