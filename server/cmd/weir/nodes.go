package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"weir.dev/weir/redisstore"
)

// nodeWatch logs when nodes of the store begin to fail, and when they answer again.
type nodeWatch struct {
	log  *slog.Logger
	seen map[string]watchedNode // by address
}

type watchedNode struct {
	fails    bool
	since    time.Time // it fails
	failures map[redisstore.Class]int64
}

// run looks once a second, so that a node which comes and goes fills no log.
func (w *nodeWatch) run(ctx context.Context, nodes func() []redisstore.Node) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.see(nodes(), now)
		}
	}
}

// see logs what has changed since it was called last.
func (w *nodeWatch) see(nodes []redisstore.Node, now time.Time) {
	next := make(map[string]watchedNode, len(nodes))
	for _, n := range nodes {
		before := w.seen[n.Addr]
		is := watchedNode{fails: fails(n), since: now, failures: n.Failures}
		switch {
		case is.fails && !before.fails:
			w.log.Warn("a node of the store fails and is avoided", "node", n.Addr, "class", grown(before.failures, n.Failures))
		case is.fails:
			is.since = before.since
		case before.fails:
			w.log.Info("a node of the store answers again", "node", n.Addr, "after", now.Sub(before.since).Round(time.Second))
		}
		next[n.Addr] = is
	}
	w.seen = next
}

// fails reports whether a node is avoided because it does not answer.
func fails(n redisstore.Node) bool {
	return n.State == redisstore.Avoided || n.State == redisstore.Tried
}

// grown returns the classes of which there are more failures than before, sorted.
func grown(before, now map[redisstore.Class]int64) string {
	var classes []string
	for class, n := range now {
		if n > before[class] {
			classes = append(classes, string(class))
		}
	}
	slices.Sort(classes)
	return strings.Join(classes, ",")
}
