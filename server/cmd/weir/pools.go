package main

import (
	"context"
	"net"
	"time"

	"weir.dev/weir/redisstore"
	"weir.dev/weir/server/stats"
)

// countConns returns the options of a pool whose connections are counted under name.
func countConns(opts redisstore.Options, counts *stats.Registry, name string) redisstore.Options {
	dial := opts.Dial
	if dial == nil {
		d := net.Dialer{Timeout: time.Second, KeepAlive: time.Second} // as the store's own
		dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	opts.Dial = stats.CountConns(counts, name, dial)
	return opts
}

// showLocalCache sets the gauges of the local cache whenever they are read.
func showLocalCache(cache func() redisstore.LocalCache, counts *stats.Registry) {
	gauge := func(name string) *stats.Gauge { return counts.Gauge("ratelimit.localcache." + name) }
	entries, lookups, hits := gauge("entryCount"), gauge("lookupCount"), gauge("hitCount")
	misses, evicted := gauge("missCount"), gauge("evacuateCount")
	counts.BeforeRead(func() {
		is := cache()
		entries.Set(int64(is.Entries))
		lookups.Set(is.Lookups)
		hits.Set(is.Hits)
		misses.Set(is.Lookups - is.Hits)
		evicted.Set(is.Evicted)
	})
}
