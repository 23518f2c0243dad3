package lease_test

import (
	"context"
	"testing"

	"weir.dev/weir"
	"weir.dev/weir/lease"
	"weir.dev/weir/memstore"
)

func newTier(tb testing.TB, opts lease.Options) *lease.Store {
	tb.Helper()
	memory, err := memstore.New(memstore.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	s, err := lease.New(memory, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func benchmarkAnswer(b *testing.B, limit weir.Limit, want weir.Source) {
	s := newTier(b, lease.Options{Block: 1 << 20, Instances: 1})
	ask := weir.Ask{Name: "api", Key: weir.Text("acme"), Limit: limit, Cost: 1}
	for {
		d, err := s.Take(context.Background(), ask)
		if err != nil {
			b.Fatal(err)
		}
		if d.Source == want {
			break
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Take(context.Background(), ask)
	}
	st := s.Stats()
	b.ReportMetric(float64(st.Calls)/float64(st.Asks), "calls/ask")
}

func BenchmarkLeaseHit(b *testing.B) {
	benchmarkAnswer(b, weir.PerSecond(1<<30), weir.FromLease)
}

func BenchmarkRememberedDenial(b *testing.B) {
	benchmarkAnswer(b, weir.PerHour(1), weir.FromCache)
}

// Each key is asked once in a while, and there are more of them than are watched.
func BenchmarkColdKeys(b *testing.B) {
	s := newTier(b, lease.Options{Block: 100, Instances: 1, MaxKeys: 1024})
	limit := weir.PerSecond(1 << 30)
	keys := make([]weir.Key, 1<<16)
	for i := range keys {
		keys[i] = weir.Parts("user", string(rune('a'+i%26)), string(rune(i)))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s.Take(context.Background(), weir.Ask{Name: "api", Key: keys[i&(len(keys)-1)], Limit: limit, Cost: 1})
		i++
	}
}

func BenchmarkFirstOfOne(b *testing.B) {
	s := newTier(b, lease.Options{})
	ask := weir.Ask{Name: "api", Key: weir.Text("acme"), Limit: weir.PerSecond(1 << 30), Cost: 1}
	b.ReportAllocs()
	for b.Loop() {
		s.Take(context.Background(), ask)
	}
}
