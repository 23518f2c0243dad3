// Package difftest asks the Go and the Lua form of the arithmetic the same random
// questions, on a real server.
package difftest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/memstore"
	"weir.dev/weir/redisstore"
)

// machine is one key under every algorithm, in Go.
type machine struct {
	tat     algorithm.TAT
	window  algorithm.Window
	sliding algorithm.Sliding
	log     algorithm.Log
	ledger  algorithm.Ledger
}

func (m *machine) take(now int64, ask *weir.Ask) weir.Decision {
	var v algorithm.Verdict
	switch algorithm.KindOf(ask.Limit.Algorithm()) {
	case algorithm.KindWindow:
		m.window, v, _ = algorithm.TakeWindow(m.window, now, ask)
		return algorithm.DescribeWindow(m.window, v, ask)
	case algorithm.KindSliding:
		m.sliding, v, _ = algorithm.TakeSliding(m.sliding, now, ask)
		return algorithm.DescribeSliding(m.sliding, v, ask)
	case algorithm.KindLog:
		v, _ = algorithm.TakeLog(&m.log, now, ask)
		return algorithm.DescribeLog(&m.log, v, ask)
	}
	m.tat, v, _ = algorithm.TakeGCRA(m.tat, now, ask)
	return algorithm.DescribeGCRA(m.tat, v, ask)
}

func (m *machine) refund(now int64, ask *weir.Ask, d *weir.Decision) (back int64) {
	switch algorithm.KindOf(ask.Limit.Algorithm()) {
	case algorithm.KindWindow:
		m.window, back = m.ledger.RefundWindow(m.window, now, ask, d)
	case algorithm.KindSliding:
		m.sliding, back = m.ledger.RefundSliding(m.sliding, now, ask, d)
	case algorithm.KindLog:
		back = m.ledger.RefundLog(&m.log, now, ask, d)
	default:
		m.tat, back = m.ledger.RefundGCRA(m.tat, now, ask, d)
	}
	return back
}

// drawLimit draws a limit of one algorithm: small counts and odd fractions mostly, and
// the ends of what is allowed.
func drawLimit(t *rapid.T, a weir.Algorithm) weir.Limit {
	most := int64(weir.MaxUnits)
	if a == weir.SlidingLog {
		most = 40 // so that rings fill and turn
	}
	units := rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(1, min(most, 2000)), rapid.Int64Range(1, most)).Draw(t, "units")
	period := rapid.OneOf(
		rapid.SampledFrom([]int64{1, 7, 1000, 1e6, 10e6, 60e6, 3600e6, 86400e6, 30 * 86400e6, 366 * 86400e6}),
		rapid.Int64Range(1, 100e6),
		rapid.Int64Range(1, 366*86400e6),
	).Draw(t, "period")
	l := weir.Per(units, time.Duration(period)*time.Microsecond).By(a)
	if (a == weir.GCRA || a == weir.LeakyBucket) && rapid.Bool().Draw(t, "burst given") {
		l = l.Burst(rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(1, weir.MaxUnits)).Draw(t, "burst"))
	}
	if l.Validate() != nil {
		t.Skip("a limit that is refused")
	}
	return l
}

// drawStep draws how far the time moves: not at all, within an interval, within a
// period, beyond it, or a little back.
func drawStep(t *rapid.T, l weir.Limit) int64 {
	period := l.Period().Microseconds()
	return rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.Int64Range(0, max(period/l.Units(), 1)),
		rapid.Int64Range(0, period),
		rapid.Int64Range(0, 3*period),
		rapid.Int64Range(-min(period, 900_000), 0),
	).Draw(t, "step")
}

func drawCost(t *rapid.T, l weir.Limit) int64 {
	return rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, l.Capacity()+1), rapid.Just(l.Capacity())).Draw(t, "cost")
}

// Starts of histories: today, before the store's epoch, and across 2^28, 2^31 and 2^32 s
// and 2^53 µs.
var starts = []int64{1_796_000_000e6, 1<<28*1_000_000 - 50, 1<<31*1_000_000 - 3, 1<<32*1_000_000 - 10, 1<<53 - 40, 1<<53 - 5_000_000}

var fresh atomic.Int64

func open(t testing.TB, s *redistest.Server) *redisstore.Store {
	store, err := redisstore.New(redisstore.Options{Addrs: []string{s.Addr}, Username: s.User, Password: s.Password, Budget: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// servers runs a test against each kind of server.
func servers(t *testing.T, test func(t *testing.T, s *redisstore.Store)) {
	for _, v := range []redistest.Version{redistest.Redis7, redistest.Valkey9} {
		t.Run(v.String(), func(t *testing.T) { test(t, open(t, redistest.Shared(t, v))) })
	}
}

func TestGoAndLuaDecideAlike(t *testing.T) {
	servers(t, func(t *testing.T, store *redisstore.Store) {
		steps := 0
		for steps < 50_000 && !t.Failed() { // on each of two servers
			rapid.Check(t, func(t *rapid.T) { steps += oneKey(t, store) })
		}
	})
}

// oneKey asks one key in both forms, under limits of one algorithm that change, and
// refunds some decisions, some twice.
func oneKey(t *rapid.T, store *redisstore.Store) int {
	ctx := context.Background()
	key := weir.Parts("one", fmt.Sprint(fresh.Add(1)))
	a := rapid.SampledFrom([]weir.Algorithm{weir.GCRA, weir.LeakyBucket, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog}).Draw(t, "algorithm")
	limit := drawLimit(t, a)
	now := rapid.SampledFrom(starts).Draw(t, "start")
	var m machine
	type taken struct {
		limit weir.Limit
		d     weir.Decision
	}
	var kept []taken
	n := rapid.IntRange(1, 60).Draw(t, "n")
	started := time.Now()
	for range n {
		if time.Since(started) > 50*time.Second {
			t.Skip("keys live a minute by the server's own clock, and this machine has stalled")
		}
		if rapid.IntRange(0, 15).Draw(t, "change") == 0 {
			limit = drawLimit(t, a)
		}
		now += drawStep(t, limit)
		if now >= 1<<53+1<<50 {
			return n
		}
		if len(kept) > 0 && rapid.IntRange(0, 4).Draw(t, "refund") == 0 {
			k := rapid.SampledFrom(kept).Draw(t, "of")
			ask := weir.Ask{Name: "diff", Key: key, Limit: k.limit, Cost: rapid.Int64Range(1, k.d.Taken).Draw(t, "back")}
			got, err := store.RefundAt(ctx, now, ask, k.d)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("at %d gave back %d of %+v", now, got, k.d)
			if want := m.refund(now, &ask, &k.d); got != want {
				t.Fatalf("a refund of %d of %+v at %d: Lua gave back %d, Go %d; state %+v", ask.Cost, k.d, now, got, want, m)
			}
			continue
		}
		ask := weir.Ask{Name: "diff", Key: key, Limit: limit, Cost: drawCost(t, limit), Partial: rapid.IntRange(0, 3).Draw(t, "partial") == 0}
		if rapid.IntRange(0, 3).Draw(t, "wait") == 0 {
			ask.MaxWait = time.Duration(rapid.Int64Range(0, limit.Period().Microseconds()).Draw(t, "max wait")) * time.Microsecond
		}
		var got [1]weir.Decision
		if err := store.TakeAt(ctx, now, []weir.Ask{ask}, got[:]); err != nil {
			t.Fatal(err)
		}
		t.Logf("at %d took %d of %d of %v: %+v", now, got[0].Taken, ask.Cost, limit, got[0])
		before := fmt.Sprintf("%+v", m)
		if want := m.take(now, &ask); got[0] != want {
			t.Fatalf("%v, cost %d, partial %v, wait %v, at %d:\nLua %+v\nGo  %+v\nstate before %s", limit, ask.Cost, ask.Partial, ask.MaxWait, now, got[0], want, before)
		}
		if got[0].Taken > 0 && got[0].AtMicros <= 1<<53 {
			kept = append(kept, taken{limit, got[0]})
		}
	}
	return n
}

func TestBothStoresAnswerSeveralAlike(t *testing.T) {
	servers(t, func(t *testing.T, store *redisstore.Store) {
		rapid.Check(t, func(t *rapid.T) { several(t, store) })
	})
}

// several asks both stores questions about several limits of a few keys.
func several(t *rapid.T, store *redisstore.Store) {
	local, err := memstore.New(memstore.Options{MaxKeys: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	run := fmt.Sprint(fresh.Add(1))
	algorithms := []weir.Algorithm{weir.GCRA, weir.LeakyBucket, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog}
	limits := make([]weir.Limit, 5)
	for i := range limits {
		limits[i] = drawLimit(t, algorithms[i])
	}
	now := int64(1_796_000_000e6)
	started := time.Now()
	for range rapid.IntRange(1, 25).Draw(t, "n") {
		if time.Since(started) > 50*time.Second {
			t.Skip("keys live a minute by the server's own clock, and this machine has stalled")
		}
		// Only forward: what a clock that steps back by periods would bring to life again
		// may have been forgotten when an ask was held back.
		now += max(drawStep(t, rapid.SampledFrom(limits).Draw(t, "pace")), 0)
		asks := make([]weir.Ask, rapid.IntRange(1, 4).Draw(t, "asks"))
		for i := range asks {
			which := rapid.IntRange(0, len(limits)-1).Draw(t, "limit")
			asks[i] = weir.Ask{
				Name: fmt.Sprint("limit", which), Key: weir.Parts("several", run, fmt.Sprint(rapid.IntRange(0, 1).Draw(t, "key"))),
				Limit: limits[which], Cost: drawCost(t, limits[which]),
				Partial: rapid.IntRange(0, 5).Draw(t, "partial") == 0, Alone: rapid.IntRange(0, 4).Draw(t, "alone") == 0,
			}
		}
		agree(t, store, local, now, asks)
	}
}

// counters are what both stores that count as envoyproxy/ratelimit does are.
type counters interface {
	weir.Store
	replayer
}

func TestBothCountersAnswerAlike(t *testing.T) {
	for _, v := range []redistest.Version{redistest.Redis7, redistest.Valkey9} {
		for _, stop := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, stop when over %v", v, stop), func(t *testing.T) {
				shared, err := redisstore.NewCounters(redisstore.CountersOptions{
					Options: redisstore.Options{Addrs: []string{redistest.Shared(t, v).Addr}, Budget: 10 * time.Second}, StopWhenOver: stop, CalendarMonths: true,
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { shared.Close() })
				rapid.Check(t, func(t *rapid.T) {
					local, err := memstore.NewCounters(memstore.CountersOptions{MaxKeys: 1 << 12, StopWhenOver: stop, CalendarMonths: true})
					if err != nil {
						t.Fatal(err)
					}
					counted(t, shared, local)
				})
			})
		}
	}
}

// counted asks both counters about a few keys, under limits that change.
func counted(t *rapid.T, shared, local counters) {
	const day = 24 * time.Hour
	run := fresh.Add(1)
	now, started := rapid.SampledFrom(starts[:4]).Draw(t, "start"), time.Now()
	for range rapid.IntRange(1, 25).Draw(t, "n") {
		if time.Since(started) > 50*time.Second {
			t.Skip("keys live a minute by the server's own clock, and this machine has stalled")
		}
		now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 90e6), rapid.Int64Range(0, 40*86400e6), rapid.Int64Range(-90e6, 0)).Draw(t, "step")
		now = max(now, 0)
		asks := make([]weir.Ask, rapid.IntRange(1, 4).Draw(t, "asks"))
		for i := range asks {
			period := rapid.SampledFrom([]time.Duration{time.Minute, 61 * time.Second, time.Hour, day, 7 * day, 30 * day, 365 * day}).Draw(t, "period")
			limit := weir.Per(rapid.OneOf(rapid.Int64Range(0, 6), rapid.Int64Range(0, weir.MaxUnits)).Draw(t, "units"), period).By(weir.FixedWindow)
			asks[i] = weir.Ask{
				Name: "counted", Key: weir.Text(fmt.Sprintf("counted%d_%d_", run, rapid.IntRange(0, 1).Draw(t, "key"))), Limit: limit,
				Cost: rapid.OneOf(rapid.Int64Range(0, 3), drawn(limit.Units()), rapid.Int64Min(0)).Draw(t, "cost"),
			}
		}
		agree(t, shared, local, now, asks)
	}
}

// drawn draws a cost near a limit.
func drawn(units int64) *rapid.Generator[int64] {
	return rapid.Int64Range(max(units-2, 0), units+2)
}

// replayer answers at times of the caller's.
type replayer interface {
	TakeAt(ctx context.Context, atMicros int64, asks []weir.Ask, decisions []weir.Decision) error
}

// agree asks both the same, and fails unless every answer is the same.
func agree(t *rapid.T, redis, memory replayer, now int64, asks []weir.Ask) {
	t.Helper()
	got, want := make([]weir.Decision, len(asks)), make([]weir.Decision, len(asks))
	ctx := context.Background()
	if err := redis.TakeAt(ctx, now, asks, got); err != nil {
		t.Fatal(err)
	}
	if err := memory.TakeAt(ctx, now, asks, want); err != nil {
		t.Fatal(err)
	}
	t.Logf("at %d %+v: %+v", now, asks, got)
	for i := range asks {
		if got[i] != want[i] {
			t.Fatalf("ask %d of %+v at %d:\nredis  %+v\nmemory %+v", i, asks, now, got[i], want[i])
		}
	}
}
