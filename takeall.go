package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Charge is one limiter's part in a question about several: made by For, asked by
// TakeAll.
type Charge struct {
	core  *core
	limit Limit
	key   Key
	cost  int64
}

// For returns the charge of cost units to key, for TakeAll. A cost of 0 charges nothing,
// and holds the others back if not even one unit is there.
func (l *Limiter) For(key Key, cost int64) Charge {
	return Charge{core: l.core, limit: l.limit, key: key, cost: cost}
}

func (c Charge) ask() Ask {
	return Ask{Name: c.core.name, Key: c.key, Limit: c.limit, Cost: c.cost, Alone: c.alone()}
}

// alone reports whether the charge is no part of all or none.
func (c Charge) alone() bool { return c.core.opts.Shadow || c.core.opts.Alone }

// TakeAll takes all the charges, or none: a denial by one limit charges no other.
// Limiters in shadow, and those that are Alone, are charged by themselves; they neither
// hold the others back nor are held back. One that is Alone denies nevertheless.
//
// each[i] answers charges[i]. binding is the answer to pass on: of the denied the one
// to wait for longest, else the longest Delay, else the fewest Remaining. Charges to
// one store are one question to it; between stores, what the others took is given back
// when one denies. The error says that nothing could decide, and then nothing is taken
// but by those who are by themselves.
func TakeAll(ctx context.Context, charges ...Charge) (binding Decision, each []Decision, err error) {
	if err := validate(charges); err != nil {
		return Decision{}, nil, err
	}
	start := time.Now()
	each = make([]Decision, len(charges))
	errs := askAll(ctx, charges, each)
	denied := false
	var failed []error
	for i, c := range charges {
		denied = denied || !c.alone() && !each[i].Allowed
		if errs[i] != nil && !c.core.opts.Shadow {
			failed = append(failed, errs[i])
		}
	}
	if denied {
		holdBack(ctx, charges, each)
	}
	for i, c := range charges {
		if c.core.opts.Shadow && !each[i].Allowed {
			each[i].Allowed, each[i].Shadow = true, true
		}
		if c.core.opts.Observe != nil {
			c.core.opts.Observe(ctx, Observation{Name: c.core.name, Limit: c.limit, Cost: c.cost, Decision: each[i], Err: errs[i], Took: time.Since(start)})
		}
	}
	if len(failed) > 0 {
		return Decision{}, each, some(failed)
	}
	return bind(each), each, nil
}

// some joins errors, of which one store that is away makes as many as there are charges.
func some(errs []error) error {
	const few = 4
	if more := len(errs) - few; more > 0 {
		errs = append(errs[:few:few], fmt.Errorf("and %d more charges", more))
	}
	return errors.Join(errs...)
}

func validate(charges []Charge) error {
	if len(charges) == 0 {
		return errors.New("weir.TakeAll: no charges: pass at least one, made by Limiter.For")
	}
	var errs []error
	for i, c := range charges {
		switch {
		case c.core == nil:
			errs = append(errs, fmt.Errorf("charge %d is empty: make it with Limiter.For", i))
		case c.limit.IsUnlimited():
			if c.key.IsZero() {
				errs = append(errs, fmt.Errorf("charge %d: limit %q: no key: make one with Text, Parts or Addr", i, c.core.name))
			}
		default:
			ask := c.ask()
			if err := ask.Validate(); err != nil {
				errs = append(errs, fmt.Errorf("charge %d: %w", i, err))
			}
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("weir.TakeAll: %w", errors.Join(errs...))
	}
	return nil
}

// askAll asks each store once, in the order of its first charge, and settles what a
// store could not decide. errs[i] is set where nothing decided charge i.
func askAll(ctx context.Context, charges []Charge, each []Decision) (errs []error) {
	errs = make([]error, len(charges))
	asks := make([]Ask, 0, len(charges))
	at := make([]int, 0, len(charges))
	answers := make([]Decision, len(charges))
	done := make([]bool, len(charges))
	for i := range charges {
		if done[i] {
			continue
		}
		if charges[i].limit.IsUnlimited() {
			each[i], errs[i] = charges[i].core.unlimited(charges[i].ask())
			continue
		}
		store := charges[i].core.store
		asks, at = asks[:0], at[:0]
		for j := i; j < len(charges); j++ {
			if charges[j].core.store == store && !charges[j].limit.IsUnlimited() {
				asks, at, done[j] = append(asks, charges[j].ask()), append(at, j), true
			}
		}
		clear(answers[:len(asks)])
		err := store.TakeAll(ctx, asks, answers[:len(asks)])
		for n, j := range at {
			each[j] = answers[n]
			if err != nil || each[j].Cause != nil {
				each[j], errs[j] = charges[j].core.settle(ctx, asks[n], each[j], err)
			}
		}
	}
	return errs
}

// holdBack gives back what the charges that are not alone took, since one of them was
// denied: all at once, and in the background where ctx ends before they are done.
func holdBack(ctx context.Context, charges []Charge, each []Decision) {
	var others sync.WaitGroup
	waits := false
	for i, c := range charges {
		d := each[i]
		if c.alone() || d.Taken == 0 {
			continue
		}
		l := Limiter{core: c.core, limit: c.limit}
		if d.Source == FromFallback { // in this process: nothing to wait for
			l.giveBack(ctx, c.key, d)
		} else {
			waits = true
			others.Go(func() { l.giveBack(ctx, c.key, d) })
		}
		each[i].Remaining = min(d.Remaining+d.Taken, c.limit.Capacity())
		each[i].Taken, each[i].Delay = 0, 0
	}
	if !waits {
		return
	}
	done := make(chan struct{})
	go func() {
		others.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// bind picks the answer to pass on.
func bind(each []Decision) Decision {
	b := each[0]
	for _, d := range each[1:] {
		switch {
		case d.Allowed != b.Allowed:
			if !d.Allowed {
				b = d
			}
		case !d.Allowed:
			if d.RetryAfter > b.RetryAfter {
				b = d
			}
		case d.Delay != b.Delay:
			if d.Delay > b.Delay {
				b = d
			}
		case d.Remaining < b.Remaining && !d.Shadow || b.Shadow && !d.Shadow:
			b = d
		}
	}
	return b
}
