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
		ctx  context.Context
		want bool
	}{
		{t.Context(), true},
		{deadline{t.Context(), time.Now().Add(time.Hour)}, true},
		{deadline{t.Context(), time.Now().Add(40 * time.Second)}, true},
		{deadline{t.Context(), time.Now().Add(tellingTime - 1)}, false},
	} {
		b, err := newBudget(test.ctx, time.Minute)
		if err != nil {
			continue // this machine slept for longer than the caller would wait
		}
		if b.telling != test.want {
			t.Errorf("a caller of %v: got %v, want %v", test.ctx, b.telling, test.want)
		}
		b.end()
	}
}
