package redisstore

import (
	"context"
	"testing"
	"time"
)

// deadline is a context that ends at a time, as far as a budget looks at it.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

func TestOnlyCallersWhoWaitBlameTheNode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		caller time.Duration // 0: no deadline
		budget time.Duration
		want   bool
	}{
		{0, time.Minute, true},
		{time.Hour, time.Minute, true},
		{40 * time.Second, time.Minute, true},
		{tellingTime - 1, time.Minute, false},
		{tellingTime * 7 / 10, tellingTime, false},
	} {
		ctx := t.Context()
		if test.caller > 0 {
			ctx = deadline{ctx, time.Now().Add(test.caller)}
		}
		b, err := newBudget(ctx, test.budget)
		if err != nil {
			continue // this machine slept for longer than the caller would wait
		}
		if b.telling != test.want {
			t.Errorf("a caller with %v of %v: got %v, want %v", test.caller, test.budget, b.telling, test.want)
		}
		b.end()
	}
}
