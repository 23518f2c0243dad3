package concurrency

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
)

// Class is one kind of work: admitted from the same limit as the others, counted
// apart, perhaps with a guaranteed share.
type Class struct {
	limiter  *Limiter
	name     string
	share    float64
	rank     int // 0 is served first from the queue
	admitted atomic.Int64
	released atomic.Int64
	shed     [reasons]atomic.Int64
}

// ClassOptions describes a class.
type ClassOptions struct {
	Name string // required, unique

	// Share is the part of the limit, 0 to 1, that the class always has, however much
	// other work is in flight. What it does not use, others may. When they fill the
	// limit and the class then claims its share, more than the limit is in flight, by
	// the share at most, until enough of the others' work has ended. Default 0.
	Share float64
}

// Acquire asks for a place. It answers at once unless the limiter has a queue;
// then it waits there, at most the queue's timeout and as long as ctx lives. If it
// returns true, the permit must be released exactly once; if false, the permit's
// Reason says why, and [Limiter.RetryAfter] when to come back. It allocates
// nothing unless it has to wait.
func (c *Class) Acquire(ctx context.Context) (Permit, bool) {
	l := c.limiter
	if l.mode == Off {
		return Permit{}, true
	}
	if ctx.Err() != nil {
		return c.refuse(Canceled)
	}
	if l.queue == nil || l.queue.waiting.Load() == 0 || c.guaranteed() {
		if inFlight, ok := c.take(); ok {
			return l.admit(c, inFlight), true
		}
	}
	return c.acquireFull(ctx)
}

// acquireFull is the rest of Acquire, when no place is free.
func (c *Class) acquireFull(ctx context.Context) (Permit, bool) {
	l := c.limiter
	switch {
	case l.mode == Observe:
		c.shed[OverLimit].Add(1)
		l.samples.refused()
		c.admitted.Add(1)
		return l.admit(c, l.inFlight.Add(1)), true
	case l.queue == nil:
		return c.refuse(OverLimit)
	}
	inFlight, reason := l.queue.wait(ctx, c)
	if reason != Admitted {
		return c.refuse(reason)
	}
	return l.admit(c, inFlight), true
}

// take takes a place of the limit, or one beyond it if the class is owed it.
func (c *Class) take() (inFlight int64, ok bool) {
	inFlight, ok = c.limiter.take()
	if !ok && c.guaranteed() {
		inFlight, ok = c.limiter.inFlight.Add(1), true
	}
	if ok {
		c.admitted.Add(1)
	}
	return inFlight, ok
}

// guaranteed reports whether the class has less in flight than its share. Two at
// the same instant may both see the last place of the share; one too many for the
// length of a request is harmless, a second shared counter would not be.
func (c *Class) guaranteed() bool {
	if c.share == 0 {
		return false
	}
	places := max(1, math.Floor(c.share*float64(c.limiter.limit.Load())))
	return float64(c.inFlight()) < places
}

func (c *Class) inFlight() int64 {
	released := c.released.Load() // first, lest one released meanwhile be counted as gone before it came
	return c.admitted.Load() - released
}

func (c *Class) refuse(reason Reason) (Permit, bool) {
	c.shed[reason].Add(1)
	if reason != Canceled {
		c.limiter.samples.refused()
	}
	return Permit{reason: reason}, false
}

func validClasses(classes []ClassOptions) (errs []error) {
	var shares float64
	seen := map[string]bool{}
	for i, c := range classes {
		if c.Name == "" || seen[c.Name] {
			errs = append(errs, fmt.Errorf("concurrency: Classes[%d].Name is %q, want a name no other class has", i, c.Name))
		}
		seen[c.Name] = true
		if !(c.Share >= 0 && c.Share <= 1) {
			errs = append(errs, fmt.Errorf("concurrency: Classes[%d].Share is %v, want 0 to 1", i, c.Share))
		}
		shares += c.Share
	}
	if shares > 1 {
		errs = append(errs, fmt.Errorf("concurrency: the shares of all classes add up to %v, want at most 1", shares))
	}
	return errs
}
