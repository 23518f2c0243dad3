package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/lease"
)

// A limit in shadow is asked beside others, Alone. Whatever becomes of its question, they
// keep the answers that they have from memory.
func TestWhatIsAloneFailsNobodyWhoNeedsNoStore(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(t *testing.T, s *lease.Store, ask weir.Ask)
		limit   weir.Limit
		source  weir.Source
	}{
		{"a block", func(t *testing.T, s *lease.Store, ask weir.Ask) { heat(t, s, ask) }, weir.PerHour(100_000), weir.FromLease},
		{"a denial", func(t *testing.T, s *lease.Store, ask weir.Ask) { exhaust(t, s, ask) }, weir.PerHour(1), weir.FromCache},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				below := newRemote(t, 0)
				s := newStore(t, below, lease.Options{Block: 50, Instances: 1})
				ask, other := of(test.limit), of(weir.PerHour(5).By(weir.SlidingLog))
				other.Name, other.Alone = "other", true
				test.prepare(t, s, ask)
				synctest.Wait()

				below.hangs.Store(true)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				ds := make([]weir.Decision, 2)
				if err := s.TakeAll(ctx, []weir.Ask{ask, other}, ds); err != nil {
					t.Fatalf("got the error %v, want an answer", err)
				}
				if ds[0].Source != test.source || ds[0].Allowed != (test.source == weir.FromLease) || ds[0].Cause != nil {
					t.Errorf("got %+v, want the answer of %v", ds[0], test.source)
				}
				if ds[1].Allowed || ds[1].Cause == nil {
					t.Errorf("of the other: got %+v, want its cause", ds[1])
				}
				balance(t, s.Stats())
				if err := s.TakeAll(ctx, []weir.Ask{other, other}, ds); err == nil {
					t.Error("nobody is answered from memory: got no error")
				}

				below.hangs.Store(false)
				calls := below.calls.Load()
				if err := s.TakeAll(t.Context(), []weir.Ask{ask, other}, ds); err != nil || ds[0].Source != test.source || !ds[1].Allowed || ds[1].Remaining != 4 {
					t.Errorf("with the store there: got %+v and %v, want both answered", ds, err)
				}
				if got := below.calls.Load() - calls; got != 1 {
					t.Errorf("got %d calls, want one", got)
				}
			})
		})
	}
}
