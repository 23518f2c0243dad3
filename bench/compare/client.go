package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	redisrate "github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"weir.dev/weir"
)

// windowScript is the pattern of rueidislimiter: a fixed window from the first hit on,
// kept in two keys, the count and the window's end, by one script under the caller's clock.
var windowScript = rueidis.NewLuaScript(`
local ends = tonumber(redis.call('GET', KEYS[2]) or 0)
if ends <= tonumber(ARGV[2]) then
  ends = tonumber(ARGV[3])
  redis.call('SET', KEYS[1], 0, 'PXAT', ARGV[3])
  redis.call('SET', KEYS[2], ARGV[3], 'PXAT', ARGV[3])
end
return {redis.call('INCRBY', KEYS[1], ARGV[1]), ends}`)

// limiters are the clients of P3 to P5, each with one question to ask about user i.
type limiters struct {
	store   interface{ Close() error }
	goRedis *redis.Client
	rueidis rueidis.Client
	weir    func(ctx context.Context, i int) error
	rate    func(ctx context.Context, i int) error
	window  func(ctx context.Context, i int) error
}

func newLimiters(addr string, users int) (*limiters, error) {
	store, err := newStore(addr, longBudget)
	if err != nil {
		return nil, err
	}
	limiter, err := weir.New(store, "api", weir.PerSecond(1000), weir.Options{})
	if err != nil {
		return nil, err
	}
	plain, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		return nil, err
	}
	l := &limiters{store: store, goRedis: redis.NewClient(&redis.Options{Addr: addr}), rueidis: plain}
	keys, texts, windows := make([]weir.Key, users), make([]string, users), make([][]string, users)
	for i := range users {
		keys[i], texts[i] = weir.Text(weirUser(i)), rateUser(i)
		windows[i] = []string{"{" + weirUser(i) + "}:api:1000", "{" + weirUser(i) + "}:api:1000:e"}
	}
	l.weir = func(ctx context.Context, i int) error {
		_, err := limiter.Take(ctx, keys[i], 1)
		return err
	}
	peer := redisrate.NewLimiter(l.goRedis)
	l.rate = func(ctx context.Context, i int) error {
		_, err := peer.Allow(ctx, texts[i], redisrate.PerSecond(1000))
		return err
	}
	l.window = func(ctx context.Context, i int) error {
		now := time.Now().UnixMilli()
		args := []string{"1", strconv.FormatInt(now, 10), strconv.FormatInt(now+1000, 10)}
		reply, err := windowScript.Exec(ctx, plain, windows[i], args).AsIntSlice()
		if err == nil && len(reply) != 2 {
			err = fmt.Errorf("%d numbers", len(reply))
		}
		return err
	}
	return l, nil
}

func (l *limiters) close() {
	l.store.Close()
	l.goRedis.Close()
	l.rueidis.Close()
}

// clients is P3, P4 and P5: the whole way of a decision, from 50 and 500 goroutines.
func clients(b *bench) ([]row, error) {
	const users = 100_000
	l, err := newLimiters(b.redis.addr, users)
	if err != nil {
		return nil, err
	}
	defer l.close()
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, users-1)
	order := make([]int, 1<<17)
	for i := range order {
		order[i] = int(zipf.Uint64())
	}
	var rows []row
	for _, goroutines := range []int{50, 500} {
		r, err := interleave(b.rounds,
			b.loaded("weir", goroutines, order, l.weir),
			b.loaded("redis_rate", goroutines, order, l.rate),
			b.loaded("two-key window", goroutines, order, l.window))
		if err != nil {
			return nil, err
		}
		faster := map[int]float64{50: 2.2, 500: 4}[goroutines]
		with := fmt.Sprintf(", 100k zipf keys, %d goroutines", goroutines)
		rows = append(rows,
			r.compare("P3", "decisions/s"+with, rate, atLeast(faster, "x redis_rate"), "weir", "redis_rate"),
			r.compare("P3", "p99"+with, p99, atMost(0.5, "x redis_rate"), "weir", "redis_rate"),
			r.compare("P4", "decisions/s"+with, rate, atLeast(1.3, "x rueidislimiter's pattern"), "weir", "two-key window"),
			r.compare("P5", "Go CPU a decision"+with, goCPU, atMost(0.45, "x redis_rate"), "weir", "redis_rate").
				beside(r, goCPU, "two-key window"),
			r.value("P5", "allocations a decision"+with, allocs, atMost(3, ""), "weir").beside(r, allocs, "redis_rate", "two-key window"))
	}
	return rows, nil
}

// loaded returns a contender that asks from so many goroutines for a slice of time.
func (b *bench) loaded(name string, goroutines int, order []int, take func(context.Context, int) error) contender {
	return contender{name, func() (sample, error) {
		if _, err := b.load(goroutines, b.slice/5, order, take); err != nil { // warm
			return nil, err
		}
		return b.load(goroutines, b.slice, order, take)
	}}
}

// load asks from so many goroutines until the time is up.
func (b *bench) load(goroutines int, lasting time.Duration, order []int, take func(context.Context, int) error) (sample, error) {
	var wg sync.WaitGroup
	var stop atomic.Bool
	latencies, errs := make([][]time.Duration, goroutines), make([]error, goroutines)
	for g := range latencies {
		latencies[g] = make([]time.Duration, 0, 1<<12)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	redisBefore, err := b.redis.cpu()
	if err != nil {
		return nil, err
	}
	cpu, begin := ownCPU(), time.Now()
	for g := range goroutines {
		wg.Go(func() {
			for at := g * len(order) / goroutines; !stop.Load(); at++ {
				start := time.Now()
				if errs[g] = take(b.ctx, order[at%len(order)]); errs[g] != nil {
					return
				}
				latencies[g] = append(latencies[g], time.Since(start))
			}
		})
	}
	time.Sleep(lasting)
	stop.Store(true)
	wg.Wait()
	elapsed, cpu := time.Since(begin), ownCPU()-cpu
	redisAfter, err := b.redis.cpu()
	runtime.ReadMemStats(&after)
	all := slices.Concat(latencies...)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	slices.Sort(all)
	n := len(all)
	return sample{
		rate: float64(n) / elapsed.Seconds(), goCPU: perOp(cpu, n), redisCPU: perOp(redisAfter-redisBefore, n),
		allocs: float64(after.Mallocs-before.Mallocs) / float64(n), p50: perOp(all[n/2], 1), p99: perOp(all[n*99/100], 1),
	}, nil
}

// oneGoroutine is P6: how long one caller waits, with nobody else to share a round trip.
func oneGoroutine(b *bench) ([]row, error) {
	l, err := newLimiters(b.redis.addr, 1000)
	if err != nil {
		return nil, err
	}
	defer l.close()
	order := rand.New(rand.NewPCG(1, 2)).Perm(1000)
	one := func(name string, take func(context.Context, int) error) contender {
		return contender{name, func() (sample, error) { return b.load(1, b.slice/5, order, take) }}
	}
	plain := make([]string, 1000)
	for i := range plain {
		plain[i] = fmt.Sprintf("plain:counter:%010d", i)
	}
	r, err := interleave(5*b.rounds,
		one("weir", l.weir),
		one("rueidis GET", func(ctx context.Context, i int) error {
			err := l.rueidis.Do(ctx, l.rueidis.B().Get().Key(plain[i]).Build()).Error()
			if rueidis.IsRedisNil(err) {
				return nil
			}
			return err
		}),
		one("rueidis INCR", func(ctx context.Context, i int) error {
			return l.rueidis.Do(ctx, l.rueidis.B().Incr().Key(plain[i]).Build()).Error()
		}),
		one("go-redis INCR", func(ctx context.Context, i int) error { return l.goRedis.Incr(ctx, plain[i]).Err() }),
		one("redis_rate", l.rate))
	if err != nil {
		return nil, err
	}
	return []row{r.compare("P6", "p50, one goroutine", p50, atMost(1.1, "x the best plain call"),
		"weir", "rueidis GET", "rueidis INCR", "go-redis INCR").beside(r, p50, "redis_rate")}, nil
}

// hotKey is P7: 500 goroutines at one key, within the default budget.
func hotKey(b *bench) ([]row, error) {
	const perSecond = 1000
	store, err := newStore(b.redis.addr, 0)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	ask := weir.Ask{Name: "api", Key: weir.Text("hot"), Limit: weir.PerSecond(perSecond), Cost: 1}
	var taken, failed, asked atomic.Int64
	var mu sync.Mutex
	var first, last int64
	s, err := b.load(500, 2*b.slice, []int{0}, func(ctx context.Context, _ int) error {
		d, err := store.Take(ctx, ask)
		asked.Add(1)
		if err != nil {
			failed.Add(1)
			return nil
		}
		taken.Add(d.Taken)
		mu.Lock()
		defer mu.Unlock()
		if first == 0 {
			first = d.AtMicros
		}
		first, last = min(first, d.AtMicros), max(last, d.AtMicros)
		return nil
	})
	if err != nil {
		return nil, err
	}
	most := float64(perSecond) + float64(perSecond)*float64(last-first)/1e6
	what := fmt.Sprintf(", one key, 500 goroutines, %d questions", asked.Load())
	return []row{
		row{Figure: "P7", What: "errors" + what}.judge(atMost(0, ""), float64(failed.Load())),
		row{Figure: "P7", What: "units above burst + rate x time" + what}.judge(atMost(0, ""), max(0, float64(taken.Load())-most)).
			noting("%d admitted of at most %.0f; p99 %.1f ms", taken.Load(), most, s[p99]/1000),
	}, nil
}
