package drills

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
	"weir.dev/weir/redisstore"
)

// The limits that a crew asks about: those of the full form, and smaller ones for the
// short form, whose few questions must reach them too. The tally is never reached: it
// counts how often a question was executed.
var (
	api   = weir.PerSecond(1000)
	quota = weir.PerHour(20_000).By(weir.FixedWindow)
	tally = weir.Per(10_000_000, 100*24*time.Hour).By(weir.FixedWindow)

	shortAPI   = weir.PerSecond(200)
	shortQuota = weir.PerHour(400).By(weir.FixedWindow)
)

// limitOf returns the limit of a name in a history.
func limitOf(name string) weir.Limit {
	switch name {
	case "api":
		return api
	case "tally":
		return tally
	}
	return quota // "quota", and the new names of a crew that asks about some
}

const workers = 8

// crew is 8 workers in two halves, each with a store, a fallback and limiters of its own,
// as in two processes.
type crew struct {
	s     *stage
	keys  []string // keys[0] has most of the questions
	pace  time.Duration
	fresh bool // ask about new names too
	begin time.Time

	halves  [2]*half
	done    chan struct{}
	running sync.WaitGroup
	parts   [workers]history
	central []atomic.Int64 // by key: central answers in a row
}

type half struct {
	store             *redisstore.Store
	options           weir.Options
	api, quota, tally *weir.Limiter
}

// crew makes the workers of a drill. opts say where the servers are.
func (s *stage) crew(opts redisstore.Options, keys ...string) *crew {
	s.Helper()
	c := &crew{s: s, keys: keys, pace: s.span(time.Millisecond, 2*time.Millisecond), begin: time.Now(), central: make([]atomic.Int64, len(keys))}
	if opts.Budget == 0 {
		opts.Budget = budget
	}
	for i := range c.halves {
		store, err := redisstore.New(opts)
		s.must(err)
		s.Cleanup(func() { store.Close() })
		local, err := memstore.New(memstore.Options{})
		s.must(err)
		h := &half{store: store, options: weir.Options{Fallback: local, Instances: len(c.halves)}}
		for name, to := range map[string]**weir.Limiter{"api": &h.api, "quota": &h.quota, "tally": &h.tally} {
			*to, err = weir.New(store, name, limitOf(name), h.options)
			s.must(err)
		}
		c.halves[i] = h
	}
	return c
}

// now is the time since the crew began.
func (c *crew) now() time.Duration { return time.Since(c.begin) }

// start sets the workers to work, once the servers can be reached.
func (c *crew) start() {
	c.s.Helper()
	for _, h := range c.halves {
		for _, key := range c.keys {
			c.s.eventually("the first answer", func() bool {
				_, err := h.store.Take(context.Background(), weir.Ask{Name: "hello", Key: weir.Text(key), Limit: api})
				return err == nil
			})
		}
	}
	c.startAnyway()
}

func (c *crew) startAnyway() {
	c.begin, c.done = time.Now(), make(chan struct{})
	for n := range workers {
		c.running.Go(func() { c.parts[n] = c.work(c.halves[n%2], n) })
	}
}

// stop ends the work and returns all answers.
func (c *crew) stop() history {
	close(c.done)
	c.running.Wait()
	var all history
	for _, part := range c.parts {
		all = append(all, part...)
	}
	return all
}

// rest lets the workers work.
func (c *crew) rest(full, short time.Duration) { time.Sleep(c.s.span(full, short)) }

// untilCentral waits until the store answers all questions about a key again.
func (c *crew) untilCentral(key int) {
	c.s.Helper()
	c.central[key].Store(0)
	c.s.eventually(fmt.Sprintf("central answers about key %d", key), func() bool { return c.central[key].Load() > 50 })
}

func (c *crew) work(h *half, n int) (answers history) {
	for i := n; ; i++ {
		select {
		case <-c.done:
			return answers
		default:
		}
		key := 0
		if i%4 == 3 {
			key = i / 4 % len(c.keys)
		}
		got := c.ask(h, key, i%7)
		answers = append(answers, got...)
		for _, a := range got {
			if !a.central() {
				c.central[key].Store(0)
			}
		}
		c.central[key].Add(1)
		if c.pace > 0 {
			time.Sleep(c.pace)
		}
	}
}

// ask asks one question, of seven kinds: about one limit, or about two at once.
func (c *crew) ask(h *half, key, kind int) history {
	ctx, who := context.Background(), weir.Text(c.keys[key])
	one := h.api
	asked := c.now()
	switch {
	case kind == 3:
		one = h.quota
	case kind == 4:
		one = h.tally
	case kind == 5 && c.fresh:
		var err error
		one, err = weir.New(h.store, fmt.Sprintf("new-%d", asked/(50*time.Millisecond)), quota, h.options)
		if err != nil {
			return history{newCall(key, "new", asked, 0, weir.Decision{}, err)}
		}
	case kind >= 5:
		_, each, err := weir.TakeAll(ctx, h.api.For(who, 1), h.quota.For(who, 1))
		took := c.now() - asked
		return history{newCall(key, "api", asked, took, each[0], err), newCall(key, "quota", asked, took, each[1], err)}
	}
	d, err := one.Take(ctx, who, 1)
	return history{newCall(key, one.Name(), asked, c.now()-asked, d, err)}
}

// avoided watches the breakers of one node until stop, and returns the longest time that
// one was open, and when the first opened.
func (c *crew) avoided(addr string) (stop func() (longest, first time.Duration)) {
	done, finished := make(chan struct{}), make(chan struct{})
	var longest, first time.Duration
	first = -1
	go func() {
		defer close(finished)
		var since [2]time.Duration
		var open [2]bool
		for {
			for i, h := range c.halves {
				now := c.now()
				is := false
				for _, node := range h.store.Nodes() {
					is = is || node.Addr == addr && (node.State == redisstore.Avoided || node.State == redisstore.Tried)
				}
				if is && !open[i] {
					since[i] = now
					if first < 0 {
						first = now
					}
				}
				if is {
					longest = max(longest, now-since[i])
				}
				open[i] = is
			}
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() (time.Duration, time.Duration) {
		close(done)
		<-finished
		return longest, first
	}
}

// peek returns what is left of a key's tally, without a budget's hurry.
func (c *crew) peek(key int) (remaining int64) {
	c.s.Helper()
	c.s.eventually("the tally", func() bool {
		d, err := c.halves[0].tally.Peek(context.Background(), weir.Text(c.keys[key]))
		remaining = d.Remaining
		return err == nil && d.Source == weir.FromStore
	})
	return remaining
}
