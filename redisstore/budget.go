package redisstore

import (
	"context"
	"sync"
	"time"
)

// budget is the time that one question may take: a context that ends at a deadline and
// nothing else. A caller who leaves early is not waited for longer than that, and the
// answer that comes meanwhile is not lost. One that did not run out is used again, so
// that a question allocates no context.
type budget struct {
	started  time.Time
	deadline time.Time
	telling  bool // long enough to blame the node for no answer
	timer    *time.Timer
	done     chan struct{}
}

var budgets = sync.Pool{New: func() any {
	b := &budget{done: make(chan struct{})}
	b.timer = time.AfterFunc(time.Hour, func() { close(b.done) })
	b.timer.Stop()
	return b
}}

// tellingTime is how long a caller must wait for a silent node to be blamed for it, or three
// quarters of a budget that is shorter. Proxies wait for less than a budget, by default
// Envoy for 20 ms of which the service keeps 3; if their waits told nothing, a node that
// hangs would cost each of them.
const tellingTime = 10 * time.Millisecond

// newBudget returns a budget of at most d, and of what ctx has left.
func newBudget(ctx context.Context, d time.Duration) (*budget, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now := time.Now()
	deadline, telling := now.Add(d), true
	if own, ok := ctx.Deadline(); ok && own.Before(deadline) {
		most := d
		if d = own.Sub(now); d <= 0 {
			return nil, context.DeadlineExceeded
		}
		deadline, telling = own, d >= min(tellingTime, most*3/4)
	}
	b := budgets.Get().(*budget)
	b.started, b.deadline, b.telling = now, deadline, telling
	b.timer.Reset(d)
	return b, nil
}

// end gives the budget back for another question.
func (b *budget) end() {
	if b.timer.Stop() {
		budgets.Put(b)
	}
}

// Deadline implements context.Context.
func (b *budget) Deadline() (time.Time, bool) { return b.deadline, true }

// Done implements context.Context.
func (b *budget) Done() <-chan struct{} { return b.done }

// Err implements context.Context.
func (b *budget) Err() error {
	select {
	case <-b.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Value implements context.Context: a budget carries nothing.
func (b *budget) Value(any) any { return nil }

// sleep waits, and reports whether the budget lasted.
func (b *budget) sleep(d time.Duration) bool {
	if time.Until(b.deadline) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-b.done:
		return false
	}
}
