package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir"
)

func TestARefundComesBackOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, a := range algorithms {
			s := newStore(t, 0)
			ask := weir.Ask{Name: "api", Key: number(1), Limit: weir.PerHour(10).By(a), Cost: 6}
			d := take(t, s, ask)
			ask.Cost = 4
			for i, want := range []int64{4, 0} {
				got, err := s.Refund(ctx, ask, d)
				if err != nil || got != want {
					t.Errorf("%v: refund %d: got %d, %v; want %d", a, i, got, err, want)
				}
			}
			ask.Cost = 0
			if d := take(t, s, ask); d.Remaining != 8 {
				t.Errorf("%v: %d left, want 8", a, d.Remaining)
			}
		}
	})
}

func TestNothingComesBackOfAForgottenKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, 0)
		ask := weir.Ask{Name: "api", Key: number(1), Limit: weir.PerHour(10), Cost: 6}
		d := take(t, s, ask)
		if err := s.Reset(ctx, "api", number(1)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Refund(ctx, ask, d); got != 0 || err != nil {
			t.Errorf("got %d, %v; want nothing", got, err)
		}
		if st, most := s.Stats(), newStore(t, 0).Stats().Room; st.Keys != 0 || st.Room < most-3 {
			t.Errorf("got %+v, want no key and the room of %d less a memory of the reset", st, most)
		}
		time.Sleep(time.Hour) // no decision from before can reach ahead any more
		for i := range 20_000 {
			s.Take(ctx, weir.Ask{Name: "api", Key: number(2 + i), Limit: weir.PerHour(10)})
			s.Refund(ctx, ask, d) // looks at the shard, and sweeps it
		}
		if st, most := s.Stats(), newStore(t, 0).Stats().Room; st.Room != most {
			t.Errorf("got %+v after the memory of the reset has no use, want the room of %d", st, most)
		}
	})
}

func TestWhatRemembersRefundsIsBoundedAndGoesAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, 5000)
		refunded := 0
		for i := range 5000 {
			ask := weir.Ask{Name: "api", Key: number(i), Limit: weir.PerHour(10), Cost: 2}
			d := take(t, s, ask)
			if d.Taken == 0 {
				continue // there was no room
			}
			ask.Cost = 1
			got, err := s.Refund(ctx, ask, d)
			if err != nil {
				t.Fatal(err)
			}
			refunded += int(got)
		}
		if refunded == 0 || refunded > 2500 {
			t.Errorf("%d of 5,000 keys got a refund, want some, and as few as there is room for", refunded)
		}
		if st := s.Stats(); st.Room > 0 {
			t.Errorf("got %+v, want no room", st)
		}
		time.Sleep(3 * time.Hour)
		for i := range 20_000 {
			take(t, s, weir.Ask{Name: "other", Key: number(i), Limit: weir.Per(10, time.Microsecond), Cost: 1})
			time.Sleep(time.Microsecond)
		}
		if st := s.Stats(); st.Room < 4000 {
			t.Errorf("got %+v three hours later, want most of the room back", st)
		}
	})
}
