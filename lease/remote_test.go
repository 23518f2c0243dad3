package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/lease"
	"weir.dev/weir/memstore"
)

// remote is a store at a distance: half of the latency passes before it decides, half
// before its answer comes.
type remote struct {
	weir.Store
	latency time.Duration
	hangs   atomic.Bool // no answer comes before the context ends
	loses   atomic.Bool // as hangs, but the store decides
	calls   atomic.Int64
	asked   atomic.Int64 // units, in the last Take
}

func newRemote(tb testing.TB, latency time.Duration) *remote {
	tb.Helper()
	memory, err := memstore.New(memstore.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return &remote{Store: memory, latency: latency}
}

func (r *remote) wait(ctx context.Context, d time.Duration) error {
	if r.hangs.Load() {
		d = time.Hour
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *remote) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	r.calls.Add(1)
	r.asked.Store(ask.Cost)
	if err := r.wait(ctx, r.latency/2); err != nil {
		return weir.Decision{}, err
	}
	d, err := r.Store.Take(ctx, ask)
	if r.loses.Load() {
		<-ctx.Done()
		return weir.Decision{}, ctx.Err()
	}
	if err := r.wait(ctx, r.latency/2); err != nil {
		return weir.Decision{}, err
	}
	return d, err
}

func (r *remote) TakeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	r.calls.Add(1)
	if err := r.wait(ctx, r.latency); err != nil {
		return err
	}
	return r.Store.TakeAll(ctx, asks, decisions)
}

func newStore(tb testing.TB, below weir.Store, opts lease.Options) *lease.Store {
	tb.Helper()
	s, err := lease.New(below, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func take(tb testing.TB, s weir.Store, ask weir.Ask) weir.Decision {
	tb.Helper()
	d, err := s.Take(context.Background(), ask)
	if err != nil {
		tb.Fatalf("take: got the error %v, want a decision", err)
	}
	return d
}

func of(limit weir.Limit) weir.Ask {
	return weir.Ask{Name: "api", Key: weir.Text("acme"), Limit: limit, Cost: 1}
}

// heat asks until a block serves the key.
func heat(tb testing.TB, s weir.Store, ask weir.Ask) {
	tb.Helper()
	for range 100 {
		if take(tb, s, ask).Source == weir.FromLease {
			return
		}
	}
	tb.Fatalf("no block served any of 100 questions about %v", ask.Limit)
}

// balance reports units that were granted and are neither spent, nor lost, nor held.
func balance(tb testing.TB, st lease.Stats) {
	tb.Helper()
	if st.Granted+st.Returned != st.Spent+st.Wasted+uint64(st.Outstanding) {
		tb.Errorf("the units do not add up: %+v", st)
	}
}
