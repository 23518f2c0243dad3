package bench

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"weir.dev/weir"
	"weir.dev/weir/memstore"
)

const (
	manyKeys = 1_000_000
	// Every ask is allowed: a burst that no run uses up.
	unitsPerSecond = 1_000_000
	burst          = weir.MaxUnits
)

var memoryLimit = weir.PerSecond(unitsPerSecond).Burst(burst)

// BenchmarkMemoryHot asks of one key, from one goroutine.
func BenchmarkMemoryHot(b *testing.B) { benchmarkMemory(b, 1) }

// BenchmarkMemory1M asks of a million keys in random order, all of which have been
// seen.
func BenchmarkMemory1M(b *testing.B) { benchmarkMemory(b, manyKeys) }

// BenchmarkMemorySideBySide runs the three in turn, a batch each, and reports the tenth
// percentile of each and its ratio to go-limiter: on a machine that does other work too,
// only what ran side by side can be compared.
func BenchmarkMemorySideBySide(b *testing.B) {
	for _, n := range []int{1, manyKeys} {
		b.Run(strconv.Itoa(n)+"-keys", func(b *testing.B) { sideBySide(b, n) })
	}
}

// contender is one limiter that takes a unit of the i-th key.
type contender struct {
	name string
	take func(i uint32)
}

// contenders returns the three, each of which has seen n keys.
func contenders(b *testing.B, n int) []contender {
	ctx := context.Background()
	texts, keys := make([]string, n), make([]weir.Key, n)
	for i := range texts {
		texts[i] = "user-" + strconv.Itoa(i)
		keys[i] = weir.Text(texts[i])
	}
	store, peer := newMemory(b), newGoLimiter(b)
	limiter, err := weir.New(newMemory(b), "api", memoryLimit, weir.Options{})
	if err != nil {
		b.Fatal(err)
	}
	all := []contender{
		{"weir-store", func(i uint32) {
			d, err := store.Take(ctx, weir.Ask{Name: "api", Key: keys[i], Limit: memoryLimit, Cost: 1})
			if err != nil || !d.Allowed {
				b.Fatal(d, err)
			}
		}},
		{"weir-limiter", func(i uint32) {
			d, err := limiter.Take(ctx, keys[i], 1)
			if err != nil || !d.Allowed {
				b.Fatal(d, err)
			}
		}},
		{"go-limiter", func(i uint32) {
			_, _, _, ok, err := peer.Take(ctx, texts[i])
			if err != nil || !ok {
				b.Fatal(ok, err)
			}
		}},
	}
	for i := range n {
		for _, c := range all {
			c.take(uint32(i))
		}
	}
	return all
}

// randomOrder returns 2^20 indices below n.
func randomOrder(n int) []uint32 {
	r := rand.New(rand.NewPCG(1, 2))
	order := make([]uint32, 1<<20)
	for i := range order {
		order[i] = uint32(r.IntN(n))
	}
	return order
}

func benchmarkMemory(b *testing.B, n int) {
	order := randomOrder(n)
	for _, c := range contenders(b, n) {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c.take(order[i&(len(order)-1)])
				i++
			}
		})
	}
}

func sideBySide(b *testing.B, n int) {
	const batch = 2000
	all, order := contenders(b, n), randomOrder(n)
	times := make([][]float64, len(all))
	at := 0
	for b.Loop() {
		for k, c := range all {
			start := time.Now()
			for i := range batch {
				c.take(order[(at+i)&(len(order)-1)])
			}
			times[k] = append(times[k], float64(time.Since(start))/batch)
		}
		at += batch
	}
	tenth := make([]float64, len(all))
	for k := range all {
		slices.Sort(times[k])
		tenth[k] = times[k][len(times[k])/10]
	}
	for k, c := range all {
		b.ReportMetric(tenth[k], c.name+"-ns")
		b.ReportMetric(tenth[k]/tenth[len(all)-1], c.name+"-ratio")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkMemoryBytes reports what a key takes of the heap where a store remembers a
// million.
func BenchmarkMemoryBytes(b *testing.B) {
	ctx := context.Background()
	b.Run("weir-store", func(b *testing.B) {
		for b.Loop() {
			before := heap()
			s := newMemory(b)
			for i := range manyKeys {
				s.Take(ctx, weir.Ask{Name: "api", Key: weir.Text("user-" + strconv.Itoa(i)), Limit: weir.PerHour(100), Cost: 1})
			}
			b.ReportMetric(float64(heap()-before)/manyKeys, "bytes/key")
			runtime.KeepAlive(s)
		}
	})
	b.Run("go-limiter", func(b *testing.B) {
		for b.Loop() {
			before := heap()
			s := newGoLimiter(b)
			for i := range manyKeys {
				s.Take(ctx, "user-"+strconv.Itoa(i))
			}
			b.ReportMetric(float64(heap()-before)/manyKeys, "bytes/key")
			runtime.KeepAlive(s)
		}
	})
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func newMemory(b *testing.B) *memstore.Store {
	s, err := memstore.New(memstore.Options{MaxKeys: manyKeys + manyKeys/8})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func newGoLimiter(b *testing.B) golimiter.Store {
	s, err := memorystore.New(&memorystore.Config{Tokens: burst, Interval: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close(context.Background()) })
	return s
}
