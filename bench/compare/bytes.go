package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	redisrate "github.com/go-redis/redis_rate/v10"

	"weir.dev/weir"
)

var (
	usage   = metric{"MEMORY USAGE", "B", false}
	allUsed = metric{"used_memory", "B", false}
)

// keyBytes is P11: what one key costs Redis, by MEMORY USAGE and all in. The limit is
// one an hour, so that keys last until they are counted.
func keyBytes(b *bench) ([]row, error) {
	const keys = 100_000
	ours, err1 := captureWeir(b.redis, weir.PerHour(1))
	theirs, err2 := captureRate(b.redis, redisrate.PerHour(1))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	r, err := interleave(1, b.filled("weir", ours, keys, weirUser), b.filled("redis_rate", theirs, keys, rateUser))
	if err != nil {
		return nil, err
	}
	return []row{
		r.compare("P11", "bytes of a GCRA key of 24 bytes, used_memory over 100k keys", allUsed, atMost(0.85, "x redis_rate"), "weir", "redis_rate"),
		r.compare("P11", "bytes of a GCRA key of 24 bytes, MEMORY USAGE", usage, atMost(0.85, "x redis_rate"), "weir", "redis_rate"),
	}, nil
}

// filled returns a contender that makes so many keys, and measures the bytes of each.
func (b *bench) filled(name string, of call, keys int, user func(int) string) contender {
	commands := of.batch(keys, user)
	return contender{name, func() (sample, error) {
		if _, err := b.redis.do("FLUSHDB"); err != nil {
			return nil, err
		}
		before, err := b.redis.info("memory", "used_memory:")
		if err != nil {
			return nil, err
		}
		c, err := dial(b.redis.addr)
		if err != nil {
			return nil, err
		}
		err = c.pipeline(commands, keys)
		c.close()
		if err != nil {
			return nil, err
		}
		after, err := b.redis.info("memory", "used_memory:")
		if err != nil {
			return nil, err
		}
		size, err := b.redis.number("DBSIZE")
		if err != nil || size < int64(keys) {
			return nil, errors.Join(err, fmt.Errorf("%d of %d keys are left", size, keys))
		}
		each, err := b.redis.number("MEMORY", "USAGE", of.args[3])
		return sample{allUsed: float64(after-before) / float64(keys), usage: float64(each)}, err
	}}
}

// number sends a command whose reply is a number.
func (s *redisServer) number(args ...string) (int64, error) {
	reply, err := s.do(args...)
	if err != nil {
		return 0, err
	}
	n, ok := reply.(int64)
	if !ok {
		return 0, fmt.Errorf("%q answered %v, not a number", args, reply)
	}
	return n, nil
}

// P12's logs are full: each entry is made as another leaves the window.
const (
	logEntries = 1000
	logWindow  = time.Minute
	logKeys    = 100
)

// setScript is the usual log in a sorted set, whose members and scores are small numbers.
const setScript = `
local now, window = tonumber(ARGV[3]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local live = redis.call('ZCARD', KEYS[1])
if live >= tonumber(ARGV[1]) then return {now, -1 - live} end
redis.call('ZADD', KEYS[1], now, ARGV[3])
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
return {now, live + 1}`

// log is one kind of log. The last argument of its call is the time in microseconds, so
// that a window need not be waited for; the reply has the number of entries second.
type log struct {
	call  call
	begin int64 // the first entry's time
	made  int   // the entries so far
}

// newLogs returns weir's log and the sorted set.
func newLogs(b *bench) (ours, set *log, err error) {
	store, err := newStore(b.redis.addr, longBudget)
	if err != nil {
		return nil, nil, err
	}
	defer store.Close()
	asks := []weir.Ask{{Name: "api", Key: weir.Text(weirUser(0)), Limit: weir.Per(logEntries, logWindow).By(weir.SlidingLog), Cost: 1}}
	now := time.Now().UnixMicro()
	c, err := capture(b.redis, weirUser(0), func() error {
		return store.TakeAt(context.Background(), now, asks, make([]weir.Decision, 1))
	})
	if err != nil {
		return nil, nil, err
	}
	begin, err := strconv.ParseInt(c.args[len(c.args)-1], 10, 64) // the script counts from a later year than 1970
	if err != nil {
		return nil, nil, err
	}
	sha, err := b.redis.do("SCRIPT", "LOAD", setScript)
	if err != nil {
		return nil, nil, err
	}
	setArgs := []string{"EVALSHA", fmt.Sprint(sha), "1", "weir:{" + weirUser(0) + "}:api:z",
		fmt.Sprint(logEntries), fmt.Sprint(logWindow.Microseconds()), ""}
	_, err = b.redis.do("FLUSHDB")
	return &log{call: c, begin: begin}, &log{call: call{setArgs, weirUser(0)}, begin: begin}, err
}

// grow makes n more entries in the log of each user, a thousandth of a window apart.
func (l *log) grow(s *redisServer, n int) error {
	c, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer c.close()
	time := &l.call.args[len(l.call.args)-1]
	for range n {
		*time = strconv.FormatInt(l.begin+int64(l.made)*(logWindow/logEntries).Microseconds(), 10)
		l.made++
		if err := c.pipeline(l.call.batch(logKeys, weirUser), logKeys); err != nil {
			return err
		}
	}
	return nil
}

// usage returns the bytes of one log, which must have so many entries.
func (l *log) usage(s *redisServer) (float64, error) {
	n, err := s.number("MEMORY", "USAGE", l.call.args[3])
	return float64(n), err
}

// logs is P12: the exact log's bytes, and its Redis CPU, against a sorted set.
func logs(b *bench) ([]row, error) {
	ours, set, err := newLogs(b)
	if err != nil {
		return nil, err
	}
	bytes := map[*log][]float64{}
	for _, n := range []int{128, 1, logEntries - 129} {
		for _, l := range []*log{ours, set} {
			if err := l.grow(b.redis, n); err != nil {
				return nil, err
			}
			used, err := l.usage(b.redis)
			if err != nil {
				return nil, err
			}
			bytes[l] = append(bytes[l], used)
		}
	}
	r, err := interleave(b.scale(10*b.rounds), b.logging("weir", ours), b.logging("sorted set", set))
	if err != nil {
		return nil, err
	}
	in := func(name string, of []float64) []measured {
		return []measured{{name, of[0], "B at 128", 0}, {name, of[1], "B at 129", 0}, {name, of[2], "B at 1000", 0}}
	}
	both := slices.Concat(in("weir", bytes[ours]), in("sorted set", bytes[set]))
	return []row{
		row{Figure: "P12", What: "bytes an entry of an exact log, 1000 in 60 s", Measured: both}.
			judge(atMost(6, " B"), bytes[ours][2]/logEntries),
		row{Figure: "P12", What: "step at entry 129: bytes at 129 over 128"}.judge(atMost(1.2, "x"), bytes[ours][1]/bytes[ours][0]),
		r.compare("P12", "Redis CPU of an entry in a full log of 1000, deeply pipelined", redisCPU,
			atMost(1.25, "x a sorted set"), "weir", "sorted set"),
	}, nil
}

// logging returns a contender whose full logs go on: with each entry one leaves.
func (b *bench) logging(name string, l *log) contender {
	return contender{name, func() (sample, error) {
		const n = 100
		before, err := b.redis.cpu()
		if err != nil {
			return nil, err
		}
		if err := l.grow(b.redis, n); err != nil {
			return nil, err
		}
		after, err := b.redis.cpu()
		if err != nil {
			return nil, err
		}
		return sample{redisCPU: perOp(after-before, n*logKeys)}, l.full(b.redis)
	}}
}

// full makes one more entry for one user, and reports if that did not leave a full log.
func (l *log) full(s *redisServer) error {
	args := slices.Clone(l.call.args)
	args[len(args)-1] = strconv.FormatInt(l.begin+int64(l.made)*(logWindow/logEntries).Microseconds()-1, 10)
	reply, err := s.do(args...)
	if err != nil {
		return err
	}
	if numbers, _ := reply.([]any); len(numbers) < 2 || numbers[1] != int64(-1-logEntries) {
		return fmt.Errorf("a log answers %v, want one that is full with %d", reply, logEntries)
	}
	return nil
}
