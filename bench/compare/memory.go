package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledmem "github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	timerate "golang.org/x/time/rate"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
)

const (
	million = 1_000_000
	// Every question is allowed: the burst is more than a run uses up.
	memoryRate  = 1_000_000
	memoryBurst = 1 << 31
)

var errRefused = errors.New("refused, which no run should be")

// memoryLimiter asks about user i.
type memoryLimiter struct {
	name string
	take func(i int) error
}

// memoryLimiters returns weir, asked at the store and through a Limiter, and its peers.
// Each keeps its own counters of so many users, whose names are made beforehand.
func memoryLimiters(users int) ([]memoryLimiter, error) {
	ctx := context.Background()
	keys, texts := make([]weir.Key, users), make([]string, users)
	for i := range keys {
		texts[i] = weirUser(i)
		keys[i] = weir.Text(texts[i])
	}
	limit := weir.PerSecond(memoryRate).Burst(memoryBurst)
	store, err1 := memstore.New(memstore.Options{MaxKeys: users + users/8 + 64})
	below, err2 := memstore.New(memstore.Options{MaxKeys: users + users/8 + 64})
	windows, err3 := memorystore.New(&memorystore.Config{Tokens: memoryBurst, Interval: time.Hour})
	gcraStore, err4 := throttledmem.NewCtx(0)
	gcra, err5 := throttled.NewGCRARateLimiterCtx(gcraStore, throttled.RateQuota{MaxRate: throttled.PerSec(memoryRate), MaxBurst: memoryBurst})
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	limiter, err := weir.New(below, "api", limit, weir.Options{})
	if err != nil {
		return nil, err
	}
	fixed := ulule.New(ululemem.NewStore(), ulule.Rate{Period: time.Hour, Limit: memoryBurst})
	var buckets sync.Map // of *rate.Limiter, which has no keys of its own
	return []memoryLimiter{
		{"weir's store", func(i int) error {
			d, err := store.Take(ctx, weir.Ask{Name: "api", Key: keys[i], Limit: limit, Cost: 1})
			return passed(d.Allowed, err)
		}},
		{"weir's Limiter", func(i int) error {
			d, err := limiter.Take(ctx, keys[i], 1)
			return passed(d.Allowed, err)
		}},
		{"go-limiter", func(i int) error {
			_, _, _, ok, err := windows.Take(ctx, texts[i])
			return passed(ok, err)
		}},
		{"throttled", func(i int) error {
			limited, _, err := gcra.RateLimitCtx(ctx, texts[i], 1)
			return passed(!limited, err)
		}},
		{"ulule", func(i int) error {
			c, err := fixed.Get(ctx, texts[i])
			return passed(!c.Reached, err)
		}},
		{"x/time/rate in a sync.Map", func(i int) error {
			l, ok := buckets.Load(texts[i])
			if !ok {
				l, _ = buckets.LoadOrStore(texts[i], timerate.NewLimiter(memoryRate, memoryBurst))
			}
			return passed(l.(*timerate.Limiter).Allow(), nil)
		}},
	}, nil
}

func passed(ok bool, err error) error {
	if err == nil && !ok {
		return errRefused
	}
	return err
}

// memoryTime is P13: a decision in memory, from one goroutine.
func memoryTime(b *bench) ([]row, error) {
	var rows []row
	for _, users := range []int{1, b.scale(million)} {
		limiters, err := memoryLimiters(users)
		if err != nil {
			return nil, err
		}
		var turns []contender
		var peers []string
		for _, l := range limiters {
			for i := range users { // every user is known before the first turn
				if err := l.take(i); err != nil {
					return nil, fmt.Errorf("%s: %w", l.name, err)
				}
			}
			turns = append(turns, b.taking(l, users))
			peers = append(peers, l.name)
		}
		runtime.GC()
		r, err := interleave(20*b.rounds, turns...) // short turns: the least of many is the least disturbed
		if err != nil {
			return nil, err
		}
		what, through := "one hot key", 0.9
		at := 0.6
		if users > 1 {
			what, through, at = fmt.Sprintf("%d random keys", users), 0.65, 0.65
		}
		best := "x the best peer"
		rows = append(rows,
			r.compare("P13", "time of a decision in memory, at the store, "+what, took, atMost(at, best), peers[0], peers[2:]...),
			r.compare("P13", "time of a decision in memory, through a Limiter, "+what, took, atMost(through, best), peers[1], peers[2:]...),
			r.value("P13", "allocations at the store, "+what, allocs, atMost(0, ""), peers[0]).beside(r, allocs, peers[1:]...))
	}
	return rows, nil
}

// taking returns a contender that asks about users in random order.
func (b *bench) taking(l memoryLimiter, users int) contender {
	n := b.scale(50_000)
	random := rand.New(rand.NewPCG(1, uint64(users)))
	order := make([]int, n)
	return contender{l.name, func() (sample, error) {
		for i := range order {
			order[i] = random.IntN(users)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := time.Now()
		for _, i := range order {
			if err := l.take(i); err != nil {
				return nil, err
			}
		}
		elapsed := time.Since(begin)
		runtime.ReadMemStats(&after)
		return sample{took: float64(elapsed) / float64(n), allocs: float64((after.Mallocs - before.Mallocs) / uint64(n))}, nil
	}}
}

// memoryBytes is P14: the heap that a key takes, of a million that all owe something.
func memoryBytes(b *bench) ([]row, error) {
	users := b.scale(million)
	ctx := context.Background()
	limit := weir.PerHour(100)
	before := heap()
	store, err := memstore.New(memstore.Options{MaxKeys: users})
	if err != nil {
		return nil, err
	}
	fill := func(from int) error {
		for i := range users {
			key := weir.Text("user-" + strconv.Itoa(from+i))
			if _, err := store.Take(ctx, weir.Ask{Name: "api", Key: key, Limit: limit, Cost: 1}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := fill(0); err != nil {
		return nil, err
	}
	full, kept := heap()-before, store.Stats().Keys
	if err := fill(users); err != nil { // as many again, for which there is no room
		return nil, err
	}
	over := heap() - before
	more := store.Stats().Keys
	runtime.KeepAlive(store)

	windows, err := memorystore.New(&memorystore.Config{Tokens: 100, Interval: time.Hour})
	if err != nil {
		return nil, err
	}
	defer windows.Close(ctx)
	before = heap()
	for i := range users {
		if _, _, _, _, err := windows.Take(ctx, "user-"+strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	peer := heap() - before
	each := float64(full) / float64(kept)
	return []row{
		row{Figure: "P14", What: fmt.Sprintf("heap bytes a key, %d keys", kept), Measured: []measured{
			{"weir", each, "B", 0}, {"go-limiter", float64(peer) / float64(users), "B", 0}}}.judge(atMost(45, " B"), each),
		row{Figure: "P14", What: fmt.Sprintf("heap after as many new keys again, %d kept, over the heap before", more)}.
			judge(atMost(1.02, "x"), float64(over)/float64(full)),
	}, nil
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
