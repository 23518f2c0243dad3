package redisstore

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// Losses is how often a server has lost what it kept, as far as its own statistics tell,
// since it was asked first. A limit whose state is lost begins anew. With Options.RESP2 it
// is not asked.
type Losses struct {
	Evicted  int64 // keys, of whomever, that it dropped because it is short of memory
	Flushed  int64 // times that somebody emptied a database of it
	Restarts int64 // times that another process answered in its place: a restart, or a failover behind Sentinels
}

// lossesAge is how old what is known of losses gets while there are questions.
const lossesAge = 5 * time.Second

// losses follows the statistics of the nodes, unless it is off: a proxy may end the
// connection at a command that it does not know.
type losses struct {
	off    bool
	next   atomic.Int64 // when to ask again, Unix nanoseconds
	asking atomic.Bool
}

// tally is what a node has lost, and what its statistics were when it was asked last.
type tally struct {
	mu   sync.Mutex
	lost Losses
	last statistics
}

// statistics are the numbers of INFO that tell of losses. They begin at 0 with a process.
type statistics struct {
	process          string // run_id
	evicted, flushed int64
}

// refresh asks each node in the background if it is time. A server that gives no INFO, or
// not to this user, tells of no losses.
func (l *losses) refresh(client rueidis.Client, nodes *nodes, now time.Time) {
	if l.off || now.UnixNano() < l.next.Load() || !l.asking.CompareAndSwap(false, true) {
		return
	}
	l.next.Store(now.Add(lossesAge).UnixNano())
	go func() {
		defer l.asking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		for _, of := range nodes.all() {
			to := client
			if nodes.cluster {
				to = client.Nodes()[of.addr]
			}
			if to == nil || !of.reached.Load() { // a silent node would keep the others from being asked again
				l.next.Store(now.Add(failureAge).UnixNano())
				continue
			}
			all.Go(func() {
				if is, ok := askStatistics(ctx, to); ok {
					of.tally.add(is)
				}
			})
		}
		all.Wait()
	}()
}

// askStatistics asks for one section at a time, for before 7.0 INFO takes no more, and over a
// connection of its own: one that two have shared at the same time the client serves by
// goroutines from then on, at a fifth more time for who asks alone.
func askStatistics(ctx context.Context, client rueidis.Client) (is statistics, ok bool) {
	own, release := client.Dedicate()
	defer release()
	var text strings.Builder
	for _, section := range []string{"server", "stats", "commandstats"} {
		part, err := own.Do(ctx, own.B().Info().Section(section).Build()).ToString()
		if err != nil {
			return is, false
		}
		text.WriteString(part)
	}
	return parseStatistics(text.String())
}

// parseStatistics reads sections of INFO; what it does not know it passes over. ok is
// false without the name of the process, which tells a new one from an old one.
func parseStatistics(text string) (is statistics, ok bool) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch name {
		case "run_id":
			is.process = value
		case "evicted_keys":
			is.evicted, _ = strconv.ParseInt(value, 10, 64)
		case "cmdstat_flushall", "cmdstat_flushdb":
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, _ := strconv.ParseInt(calls, 10, 64)
			is.flushed += n
		}
	}
	return is, is.process != ""
}

// add notes what is new since the last time. Statistics that went back were set to 0.
func (t *tally) add(is statistics) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.last
	t.last = is
	switch before.process {
	case "": // the first time: what was lost before does not count
		return
	case is.process:
	default:
		t.lost.Restarts++
		before = statistics{}
	}
	t.lost.Evicted += grown(before.evicted, is.evicted)
	t.lost.Flushed += grown(before.flushed, is.flushed)
}

func grown(before, now int64) int64 {
	if now < before {
		return now
	}
	return now - before
}

func (t *tally) get() Losses {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}
