package algorithm

import (
	"math/rand/v2"
	"testing"
	"time"

	"weir.dev/weir"
)

// charge is one admitted decision of a history, and what came back of it: in units, and
// by GCRA as a length of time in parts of Den.
type charge struct {
	ask   weir.Ask
	d     weir.Decision
	back  int64
	moved int64
}

// histories is how many random ones each property is tried on.
const histories = 6_000

func (c charge) net() int64 { return c.d.Taken - c.back }

// refunding is a machine with a ledger.
type refunding struct {
	machine
	ledger  Ledger
	history []charge
}

func (m *refunding) take(now int64, ask weir.Ask) {
	if d := m.machine.take(now, &ask); d.Taken > 0 {
		m.history = append(m.history, charge{ask: ask, d: d})
	}
}

func (m *refunding) refund(now int64, c *charge, units int64) int64 {
	ask, back := c.ask, int64(0)
	ask.Cost = units
	switch KindOf(ask.Limit.Algorithm()) {
	case KindWindow:
		m.window, back = m.ledger.RefundWindow(m.window, now, &ask, &c.d)
	case KindSliding:
		m.sliding, back = m.ledger.RefundSliding(m.sliding, now, &ask, &c.d)
	case KindLog:
		back = m.ledger.RefundLog(&m.log, now, &ask, &c.d)
	default:
		before, e := m.tat, ask.Limit.Emission()
		m.tat, back = m.ledger.RefundGCRA(m.tat, now, &ask, &c.d)
		c.moved += (before.Micros-m.tat.Micros)*e.Den + before.Rem - m.tat.Rem
	}
	c.back += back
	return back
}

// play makes a random history of takes and refunds of one key.
func play(r *rand.Rand, limit weir.Limit, steps int) *refunding {
	m := &refunding{}
	now := int64(1_700_000_000_000_000) + r.Int64N(1000)
	period := limit.Period().Microseconds()
	for range steps {
		if r.IntN(4) > 0 {
			now += r.Int64N(period/2 + 1)
		}
		if r.IntN(5) < 3 || len(m.history) == 0 {
			m.take(now, weir.Ask{Limit: limit, Cost: 1 + r.Int64N(max(limit.Capacity()/2, 1))})
			continue
		}
		c := &m.history[len(m.history)-1-r.IntN(min(len(m.history), 6))]
		m.refund(now, c, 1+r.Int64N(c.d.Taken))
	}
	return m
}

// overdrawn returns the index of the first charge that GCRA would not have admitted had
// what came back never been taken, or -1: v = max(v, t) + cT must be at most t + BT. What
// came back is counted as the time by which it moved the key, for the last unit may be
// one in part.
func overdrawn(history []charge, limit weir.Limit) int {
	e := limit.Emission()
	per, v := e.Micros*e.Den+e.Rem, int64(0)
	const base = 1_700_000_000_000_000 // keeps the products small
	for i, c := range history {
		t := (c.d.AtMicros - base) * e.Den
		v = max(v, t) + c.d.Taken*per - c.moved
		if v > t+limit.Capacity()*per {
			return i
		}
	}
	return -1
}

func TestRefundsOfGCRAMintNoQuota(t *testing.T) {
	t.Parallel()
	for seed := range uint64(histories) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := weir.Per(1+r.Int64N(9), time.Duration(1+r.IntN(300))*time.Microsecond).Burst(1 + r.Int64N(10))
		m := play(r, limit, 40)
		if i := overdrawn(m.history, limit); i >= 0 {
			t.Fatalf("seed %d, %v: charge %d of %+v overdraws the limit", seed, limit, i, m.history)
		}
	}
}

func TestRefundsOfALeakyBucketSellNoPlaceTwice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(histories) {
		r := rand.New(rand.NewPCG(seed, 2))
		limit := weir.Per(1+r.Int64N(9), time.Duration(1+r.IntN(300))*time.Microsecond).Burst(1 + r.Int64N(10)).By(weir.LeakyBucket)
		m := play(r, limit, 40)
		if i := overdrawn(m.history, limit); i >= 0 {
			t.Fatalf("seed %d, %v: charge %d of %+v overdraws the limit", seed, limit, i, m.history)
		}
	}
}

func TestRefundsOfWindowsMintNoQuota(t *testing.T) {
	t.Parallel()
	for _, a := range []weir.Algorithm{weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog} {
		for seed := range uint64(histories) {
			r := rand.New(rand.NewPCG(seed, 3))
			limit := weir.Per(1+r.Int64N(9), time.Duration(1+r.IntN(300))*time.Microsecond).By(a)
			period := limit.Period().Microseconds()
			m := play(r, limit, 40)
			for i, c := range m.history {
				var n int64
				for _, o := range m.history[:i+1] {
					if a == weir.SlidingLog && o.d.AtMicros > c.d.AtMicros-period ||
						a != weir.SlidingLog && o.d.AtMicros/period == c.d.AtMicros/period {
						n += o.net()
					}
				}
				if n > limit.Units() {
					t.Fatalf("seed %d, %v: %d units in the window of charge %d of %+v", seed, limit, n, i, m.history)
				}
			}
		}
	}
}

func TestADecisionIsRefundedOnce(t *testing.T) {
	t.Parallel()
	for a := weir.GCRA; a <= weir.SlidingLog; a++ {
		m := &refunding{}
		limit := weir.Per(10, time.Hour).By(a)
		m.take(3_600_000_000_000, weir.Ask{Limit: limit, Cost: 5})
		c := &m.history[0]
		if got := m.refund(3_600_000_000_001, c, 3); got != 3 {
			t.Errorf("%v: a refund of 3 of 5 gave back %d, want 3", a, got)
		}
		if got := m.refund(3_600_000_000_001, c, 2); got != 0 {
			t.Errorf("%v: a second refund gave back %d, want 0", a, got)
		}
		d := m.machine.take(3_600_000_000_001, &weir.Ask{Limit: limit})
		if d.Remaining != 8 {
			t.Errorf("%v: %d remain after 5 of 10 were taken and 3 given back, want 8", a, d.Remaining)
		}
	}
}

// The last unit that comes back may be one in part.
func TestUnitsThatWereEarnedAgainDoNotComeBack(t *testing.T) {
	t.Parallel()
	limit := weir.Per(10, 10*time.Second)
	for _, tt := range []struct{ after, want int64 }{{0, 4}, {1, 4}, {1_000_000, 3}, {1_000_001, 3}, {3_999_999, 1}, {4_000_000, 0}, {9_000_000, 0}} {
		m := &refunding{}
		m.take(1_000_000_000, weir.Ask{Limit: limit, Cost: 4})
		if got := m.refund(1_000_000_000+tt.after, &m.history[0], 4); got != tt.want {
			t.Errorf("4 units of 1 s each, refunded %d µs later: got %d back, want %d", tt.after, got, tt.want)
		}
	}
}

func TestOnlyTheLastPlaceOfALeakyBucketComesBack(t *testing.T) {
	t.Parallel()
	limit := weir.Per(10, 10*time.Second).By(weir.LeakyBucket)
	m := &refunding{}
	m.take(1_000_000_000, weir.Ask{Limit: limit, Cost: 1})
	m.take(1_000_000_000, weir.Ask{Limit: limit, Cost: 1})
	for i, want := range []struct{ place, back int64 }{{0, 0}, {1, 1}, {0, 1}} {
		if got := m.refund(1_000_000_000, &m.history[want.place], 1); got != want.back {
			t.Errorf("refund %d, of place %d: got %d back, want %d", i, want.place, got, want.back)
		}
	}
}

func TestALedgerIsBoundedAndForgets(t *testing.T) {
	t.Parallel()
	limit := weir.Per(10_000, time.Hour).By(weir.FixedWindow)
	m := &refunding{}
	now := int64(3_600_000_000_000)
	back := int64(0)
	for i := range MaxReceipts + 50 {
		m.take(now, weir.Ask{Limit: limit, Cost: 2})
		back += m.refund(now, &m.history[i], 1)
		now++
	}
	if back != MaxReceipts {
		t.Errorf("got %d units back, want %d: beyond that many receipts nothing comes back", back, MaxReceipts)
	}
	if got := m.ledger.Size(); got == 0 || got > 48<<10 {
		t.Errorf("a full ledger has %d bytes, want up to 48 KiB", got)
	}
	if m.ledger.Forget(now + limit.Period().Microseconds()); m.ledger.Size() != 0 {
		t.Errorf("a ledger has %d bytes after its last mark, want 0", m.ledger.Size())
	}
}

func TestTheCommonestQuestionIsAnsweredAsEveryOther(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 4))
	hits := 0
	for range 200_000 {
		limit := weir.Per(r.Int64N(1000), time.Duration(1+r.IntN(5000))*time.Microsecond).By(weir.Algorithm(r.IntN(2)))
		if r.IntN(2) == 0 && limit.Units() > 0 {
			limit = limit.Burst(1 + r.Int64N(1000))
		}
		e := limit.Emission()
		now := int64(1_000_000)
		s := TAT{Micros: now - 2000 + r.Int64N(6000), Den: max(e.Den, 1)}
		s.Rem = r.Int64N(s.Den)
		if r.IntN(10) == 0 {
			s.Den, s.Rem = 7, r.Int64N(7)
		}
		ask := weir.Ask{Limit: limit, Cost: r.Int64N(20), Partial: r.IntN(8) == 0}
		if r.IntN(8) == 0 {
			ask.MaxWait = min(time.Millisecond, limit.Period())
		}
		want, v, _ := TakeGCRA(s, now, &ask)
		wantD := DescribeGCRA(want, v, &ask)
		var d weir.Decision
		got, ok := AdmitGCRA(s, now, &ask, &d)
		if !ok {
			if got != s || d != (weir.Decision{}) {
				t.Fatalf("%+v at %+v: left to the others, but changed to %+v, %+v", ask, s, got, d)
			}
			continue
		}
		hits++
		if got != want || d != wantD {
			t.Fatalf("%+v at %+v:\n got %+v %+v\nwant %+v %+v", ask, s, got, d, want, wantD)
		}
	}
	if hits < 10_000 {
		t.Errorf("only %d questions were the commonest", hits)
	}
}
