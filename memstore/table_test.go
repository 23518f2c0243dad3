package memstore

import (
	"math/rand/v2"
	"testing"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

func TestATableIsAMap(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	b := &bound{most: 1 << 40}
	sh := shard{bound: b}
	want := map[identity]state{}
	now, evicted := int64(1000), 0
	ids := make([]identity, 3000)
	for i := range ids {
		ids[i] = identity{r.Uint64N(3), r.Uint64() | 1}
		if i%2 == 0 { // crowd some around one home, some around the last slot
			ids[i].lo = ids[i].lo>>40 | uint64(i%4)<<62 | uint64(i%4)<<61
			ids[i].lo |= 1
		}
	}
	for step := range 50_000 {
		id := ids[r.IntN(len(ids))]
		_, there := want[id]
		switch {
		case !there:
			s := packTAT(algorithm.TAT{Micros: now + r.Int64N(4000), Den: 1})
			b.take(1)
			sh.insert(entry{id, s}, now)
			want[id] = s
		case r.IntN(2) == 0:
			at := sh.search(id)
			if at < 0 {
				if want[id].fresh() > now {
					t.Fatalf("step %d: a key that owes is gone", step)
				}
				delete(want, id)
				continue
			}
			sh.drop(sh.slots[at].state)
			sh.remove(at)
			delete(want, id)
		}
		now++
		sh.sweep(now, r.IntN(8))
		if step%1000 == 0 {
			for id, s := range want {
				switch e := sh.find(id); {
				case e == nil && s.fresh() > now:
					t.Fatalf("step %d: a key that owes is gone", step)
				case e == nil:
					delete(want, id)
					evicted++
				case e.state != s:
					t.Fatalf("step %d: got %+v, want %+v", step, e.state, s)
				}
			}
			if sh.n != len(want) || b.used.Load() != int64(len(want)) {
				t.Fatalf("step %d: %d entries, room for %d used, want %d", step, sh.n, b.used.Load(), len(want))
			}
		}
	}
	if evicted == 0 {
		t.Error("no key was forgotten")
	}
}

func TestALogGivesItsRoomBack(t *testing.T) {
	t.Parallel()
	b := &bound{most: 1000}
	sh := shard{bound: b}
	ask := weir.Ask{Name: "api", Limit: weir.PerHour(100).By(weir.SlidingLog), Cost: 1}
	for round := range int64(10) {
		now := (round + 1) * 2 * ask.Limit.Period().Microseconds()
		for i := range uint64(1000) {
			sh.decideNew(identity{1, i*0x9e3779b97f4a7c15 | 1}, now, now, &ask)
		}
		if used := b.used.Load(); used > 1000 || used < 900 {
			t.Errorf("round %d: room for %d is used, want nearly 1,000", round, used)
		}
		if n := len(sh.logs); n > 2*1000/26 {
			t.Errorf("round %d: %d logs are kept, want about 38", round, n)
		}
	}
}

func FuzzStatesUnpackToWhatWasPacked(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), int64(1))
	f.Add(int64(maxTime-1), int64(1<<32), int64(1<<32), int64(366*24*3600*1e6))
	f.Add(int64(1<<53-1), int64(1<<32-1), int64(1<<32-2), int64(7))
	f.Fuzz(func(t *testing.T, time, x, y, period int64) {
		x, y = x&(1<<33-1)%(1<<32+1), y&(1<<33-1)%(1<<32+1)
		time = time & (1<<53 - 1)
		period = max(1, period&(1<<45-1))
		tat := algorithm.TAT{Micros: time, Rem: min(x, 1<<32-1), Den: max(y, 1)}
		if got := packTAT(tat); got.tat() != tat {
			t.Errorf("got %+v, want %+v", got.tat(), tat)
		}
		time %= maxTime
		s := algorithm.Sliding{Start: time, Cur: x, Prev: y}
		got := packSliding(s, period)
		if got.sliding() != s {
			t.Errorf("got %+v, want %+v", got.sliding(), s)
		}
		if end := got.fresh(); end < time+2*period || end > time+2*(period+period/4+4) {
			t.Errorf("a window of %d from %d counts until %d", period, time, end)
		}
		w := algorithm.Window{Start: time, Count: x}
		if got := packWindow(w, period); got.window() != w || got.fresh() < time+period {
			t.Errorf("got %+v until %d, want %+v", got.window(), got.fresh(), w)
		}
	})
}
