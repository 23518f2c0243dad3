package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	redisrate "github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"weir.dev/weir"
	"weir.dev/weir/redisstore"
)

// Users of the two libraries whose keys in Redis have 24 bytes: weir:{user-000000}:api:g
// and rate:api:user-0000000000.
func weirUser(i int) string { return fmt.Sprintf("user-%06d", i) }
func rateUser(i int) string { return fmt.Sprintf("api:user-%010d", i) }

// longBudget is a budget that does not run out on a busy machine, where what is measured is
// not time.
const longBudget = 10 * time.Second

func newStore(addr string, budget time.Duration) (*redisstore.Store, error) {
	return redisstore.New(redisstore.Options{Addrs: []string{addr}, Budget: budget})
}

// call is a command that a client sent about its first key, and the key in it.
type call struct {
	args []string
	key  string
}

// captureWeir returns the call that weir sends for a question about weirUser(0).
func captureWeir(s *redisServer, limit weir.Limit) (call, error) {
	store, err := newStore(s.addr, longBudget)
	if err != nil {
		return call{}, err
	}
	defer store.Close()
	return capture(s, weirUser(0), func() error {
		_, err := store.Take(context.Background(), weir.Ask{Name: "api", Key: weir.Text(weirUser(0)), Limit: limit, Cost: 1})
		return err
	})
}

// captureRate returns the call that redis_rate sends about rateUser(0).
func captureRate(s *redisServer, limit redisrate.Limit) (call, error) {
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer client.Close()
	l := redisrate.NewLimiter(client)
	return capture(s, rateUser(0), func() error {
		_, err := l.Allow(context.Background(), rateUser(0), limit)
		return err
	})
}

// capture returns the EVALSHA that take sends once the server knows the script.
func capture(s *redisServer, key string, take func() error) (call, error) {
	if err := take(); err != nil {
		return call{}, err
	}
	commands, err := s.capture(take)
	if err != nil {
		return call{}, err
	}
	for _, args := range commands {
		if strings.EqualFold(args[0], "EVALSHA") {
			return call{args, key}, nil
		}
	}
	return call{}, fmt.Errorf("no EVALSHA among %q", commands)
}

// batch returns the call about n keys, as it goes over the wire.
func (c call) batch(n int, name func(int) string) []byte {
	var b []byte
	for i := range n {
		args := append([]string(nil), c.args...)
		args[3] = strings.Replace(args[3], c.key, name(i), 1)
		b = appendCommand(b, args)
	}
	return b
}

// pipelined returns a contender that sends a batch of n commands over one connection, ten
// times, and measures the server's CPU time for each. Its turns are short, to be taken often:
// the least of many is the least disturbed.
func (b *bench) pipelined(name string, commands []byte, n int) contender {
	return contender{name, func() (sample, error) {
		c, err := dial(b.redis.addr)
		if err != nil {
			return nil, err
		}
		defer c.close()
		if err := c.pipeline(commands, n); err != nil { // keys that expired meanwhile come back
			return nil, err
		}
		before, err := b.redis.cpu()
		if err != nil {
			return nil, err
		}
		const passes = 10
		for range passes {
			if err := c.pipeline(commands, n); err != nil {
				return nil, err
			}
		}
		after, err := b.redis.cpu()
		return sample{redisCPU: perOp(after-before, passes*n)}, err
	}}
}

// liveKeys are few enough to stay in the processor's cache, whose misses cost every script
// the same, and enough that none of them reaches its limit.
const liveKeys = 1000

// scriptCPU is P1: what a decision costs Redis, nothing but the decision.
func scriptCPU(b *bench) ([]row, error) {
	ours, err1 := captureWeir(b.redis, weir.PerSecond(1000))
	theirs, err2 := captureRate(b.redis, redisrate.PerSecond(1000))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	r, err := interleave(b.scale(10*b.rounds),
		b.pipelined("weir", ours.batch(liveKeys, weirUser), liveKeys),
		b.pipelined("redis_rate", theirs.batch(liveKeys, rateUser), liveKeys))
	if err != nil {
		return nil, err
	}
	return []row{r.compare("P1", "Redis CPU a decision: GCRA, 1000 live keys, deeply pipelined", redisCPU,
		atMost(0.50, "x redis_rate"), "weir", "redis_rate")}, nil
}

// refusalCPU is P2: a refusal against an admission of the same script.
func refusalCPU(b *bench) ([]row, error) {
	admit, err1 := captureWeir(b.redis, weir.PerSecond(1000))
	refuse, err2 := captureWeir(b.redis, weir.PerHour(1))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	exhausted := func(i int) string { return weirUser(liveKeys + i) }
	refusals := refuse.batch(liveKeys, exhausted)
	c, err := dial(b.redis.addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.pipeline(refusals, liveKeys); err != nil { // the one that each key has
		return nil, err
	}
	before, err := b.redis.info("persistence", "rdb_changes_since_last_save:")
	if err != nil {
		return nil, err
	}
	if err := c.pipeline(refusals, liveKeys); err != nil {
		return nil, err
	}
	after, err := b.redis.info("persistence", "rdb_changes_since_last_save:")
	if err != nil {
		return nil, err
	}
	r, err := interleave(b.scale(10*b.rounds),
		b.pipelined("refusal", refusals, liveKeys),
		b.pipelined("admission", admit.batch(liveKeys, weirUser), liveKeys))
	if err != nil {
		return nil, err
	}
	writes := row{Figure: "P2", What: "writes of 1000 refusals"}.judge(atMost(0, ""), float64(after-before))
	return []row{writes, r.compare("P2", "Redis CPU of a refusal, deeply pipelined", redisCPU,
		atMost(0.6, "x an admission"), "refusal", "admission")}, nil
}
