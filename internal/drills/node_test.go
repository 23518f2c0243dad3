package drills

import (
	"fmt"
	"strings"
	"time"

	"weir.dev/weir/internal/faultproxy"
	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/redisstore"
)

// The drills of one node, of the network before it, and of servers that are not what
// they should be.

var (
	sound  = faultproxy.Faults{}
	slowed = faultproxy.Faults{Replies: faultproxy.Flow{Latency: 200 * time.Millisecond}}
)

func repliesLost(s *stage) {
	cluster := s.cluster(false)
	opts := clusterOf(cluster)
	proxies, dial := s.proxies(cluster.Addrs()...)
	opts.Dial = dial
	c := s.crew(opts, s.keysOf(cluster)...)
	c.start()
	c.rest(time.Second, 200*time.Millisecond)
	for _, p := range proxies {
		p.Set(faultproxy.Faults{Replies: faultproxy.Flow{Loss: .01}})
	}
	c.rest(10*time.Second, 1500*time.Millisecond)
	for _, p := range proxies {
		p.Set(sound)
	}
	mended := c.now()
	c.untilCentral(0)
	all := c.stop()
	s.sum(all, func(calls history, name string) int64 { return calls.outageBound(limitOf(name)) })
	s.within("the longest call", all.longest(), budget+10*time.Millisecond)
	s.recovered(all.of(0), mended)
	s.once(c, all, true)
	lost := all.where(func(a call) bool { return a.unknown })
	if len(lost) == 0 {
		s.fault("no answer was lost")
	}
	s.note("%d answers lost", len(lost))
}

func outOfMemory(s *stage) {
	cluster := s.cluster(false)
	c := s.crew(clusterOf(cluster), s.keysOf(cluster)...)
	c.start()
	c.rest(time.Second, 300*time.Millisecond)
	cluster.Node(0).Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	cluster.Node(0).Do("CONFIG", "SET", "maxmemory", "1")
	hit := c.now()
	c.rest(4*time.Second, time.Second)
	mended := c.now()
	cluster.Node(0).Do("CONFIG", "SET", "maxmemory", "0")
	c.untilCentral(0)
	c.rest(time.Second, 200*time.Millisecond)
	all := c.stop()
	s.outage(c, all, mended)
	s.localShare(all.of(0).between(hit, mended))
	s.wantOnly(all.of(0).between(hit, mended).notCentral(), redisstore.OutOfMemory)
	counted := int64(0)
	for _, h := range c.halves {
		for _, node := range h.store.Nodes() {
			counted += node.Failures[redisstore.OutOfMemory]
		}
	}
	if counted == 0 {
		s.fault("Nodes counts no failure of class %s", redisstore.OutOfMemory)
	}
}

// stateLost forgets: by FLUSHALL, and by a node that evicts because it is short of memory.
func stateLost(s *stage) {
	cluster := s.cluster(false)
	opts := clusterOf(cluster)
	opts.Budget = s.exactBudget()
	keys := s.keysOf(cluster)
	c := s.crew(opts, keys...)
	c.start()
	flushes := int64(s.span(3, 1))
	for range flushes {
		c.rest(2*time.Second, 700*time.Millisecond)
		for i := range 3 {
			cluster.Node(i).Do("FLUSHALL")
		}
	}
	evicted := evictSome(s, cluster.Node(0))
	c.rest(2*time.Second, 300*time.Millisecond)
	for _, h := range c.halves {
		s.eventually("a metric that tells all flushes and evictions", func() bool {
			var told redisstore.Losses
			for _, node := range h.store.Nodes() {
				told.Flushed += node.Lost.Flushed
				told.Evicted += node.Lost.Evicted
			}
			return told.Flushed >= 3*flushes && told.Evicted >= evicted
		})
	}
	all := c.stop()
	var lost int64
	s.sum(all.central(), func(calls history, name string) int64 {
		n := calls.losses(limitOf(name))
		lost += n
		if least := flushes; calls[0].key == 0 && n > least+evicted {
			s.fault("%s: its state was lost %d times, want at most %d flushes and %d evictions", name, n, flushes, evicted)
		}
		return max(n, flushes) * limitOf(name).Capacity()
	})
	s.row.calls, s.row.local, s.row.longest = len(all), len(all.local()), all.longest()
	s.note("%d states lost, %d keys evicted", lost, evicted)
}

// evictSome fills a node with other keys and lets it keep half of the memory, so that it
// evicts keys at random, ours among them. It returns how many went.
func evictSome(s *stage, node *redistest.Server) int64 {
	const filler = 300
	tag := ""
	for n := range filler {
		for tag = fmt.Sprint(n); ; tag += "x" {
			if _, err := node.Try("SET", tag, strings.Repeat("x", 10_000), "EX", "60"); err == nil {
				break // a key of this node
			}
		}
	}
	var used int64
	fmt.Sscan(node.Info("memory", "used_memory"), &used)
	node.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
	node.Do("CONFIG", "SET", "maxmemory", fmt.Sprint(used-filler*10_000/2))
	time.Sleep(300 * time.Millisecond)
	node.Do("CONFIG", "SET", "maxmemory", "0")
	var evicted int64
	fmt.Sscan(node.Info("stats", "evicted_keys"), &evicted)
	if evicted == 0 {
		s.fault("the node evicted nothing")
	}
	return evicted
}

func busyScript(s *stage) {
	cluster := s.cluster(false)
	c := s.crew(clusterOf(cluster), s.keysOf(cluster)...)
	cluster.Node(0).Do("CONFIG", "SET", "busy-reply-threshold", "300")
	c.start()
	c.rest(time.Second, 300*time.Millisecond)
	began := c.now()
	const script = "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end " +
		"local from = now() while now() < from + ARGV[1] do end return 1"
	cluster.Node(0).Do("EVAL", script, "0", fmt.Sprint(s.span(3*time.Second, time.Second).Microseconds()))
	ended := c.now()
	c.untilCentral(0)
	c.rest(time.Second, 200*time.Millisecond)
	all := c.stop()
	s.outage(c, all, ended)
	s.localShare(all.of(0).between(began, ended))
	s.wantOnly(all.of(0).between(began, ended).notCentral(), redisstore.Busy, redisstore.Timeout, redisstore.Unreachable)
	s.note("classes %v", all.of(0).between(began, ended).classes())
}

func wrongPassword(s *stage) {
	server := redistest.Start(s, redistest.Redis7, redistest.Options{Password: true})
	c := s.crew(redisstore.Options{Addrs: []string{server.Addr}, Password: "not " + server.Password}, "a")
	c.startAnyway()
	c.rest(3*time.Second, time.Second)
	all := c.stop()
	s.sum(all, func(calls history, name string) int64 { return calls.outageBound(limitOf(name)) })
	s.within("the longest call", all.longest(), budget+10*time.Millisecond)
	s.localShare(all)
	s.wantOnly(all, redisstore.Config)
	if n := all.classes()[redisstore.Config]; n < len(all)/2 {
		s.fault("%d of %d answers say that it is the configuration, want nearly all", n, len(all))
	}
	if n := len(all.central()); n > 0 {
		s.fault("%d answers came from the store without its password", n)
	}
}

func garbage(s *stage) {
	cluster := s.cluster(false)
	opts := clusterOf(cluster)
	victim := cluster.Node(0).Addr
	proxies, dial := s.proxies(victim)
	opts.Dial = dial
	c := s.crew(opts, s.keysOf(cluster)...)
	c.start()
	c.rest(time.Second, 300*time.Millisecond)
	began := c.now()
	proxies[victim].Set(faultproxy.Faults{Replies: faultproxy.Flow{Garbage: true}})
	c.rest(4*time.Second, time.Second)
	mended := c.now()
	proxies[victim].Set(sound)
	c.untilCentral(0)
	c.rest(time.Second, 200*time.Millisecond)
	all := c.stop()
	s.outage(c, all, mended)
	failed := all.of(0).between(began, mended)
	s.localShare(failed)
	// What is no whole answer is waited for, and a connection that begins with garbage is none.
	s.wantOnly(failed.notCentral(), redisstore.Garbage, redisstore.Timeout, redisstore.Broken, redisstore.Unreachable)
	s.note("classes %v", failed.classes())
}

func noHello(s *stage) {
	server := redistest.Start(s, redistest.Redis7, redistest.Options{Config: []string{`rename-command HELLO ""`}})
	c := s.crew(redisstore.Options{Addrs: []string{server.Addr}, RESP2: true, Budget: s.exactBudget()}, "a", "b")
	c.start()
	c.rest(3*time.Second, time.Second)
	all := c.stop()
	s.exact(all)
	s.none("answers that are not the store's", all.notCentral(), all)
	s.once(c, all, true)
}

func oneWayPartition(s *stage) {
	cluster := s.cluster(false)
	opts := clusterOf(cluster)
	victim := cluster.Node(0).Addr
	proxies, dial := s.proxies(victim)
	opts.Dial = dial
	c := s.crew(opts, s.keysOf(cluster)...)
	c.start()
	var mended time.Duration
	for _, f := range []faultproxy.Faults{{Requests: faultproxy.Flow{Hole: true}}, {Replies: faultproxy.Flow{Hole: true}}} {
		c.rest(time.Second, 300*time.Millisecond)
		proxies[victim].Set(f)
		c.rest(2*time.Second, 500*time.Millisecond)
		proxies[victim].Set(sound)
		mended = c.now()
		c.untilCentral(0)
	}
	all := c.stop()
	s.outage(c, all, mended)
	s.once(c, all, true)
}

func connectionsEnd(s *stage) {
	cluster := s.cluster(false)
	opts := clusterOf(cluster)
	proxies, dial := s.proxies(cluster.Addrs()...)
	opts.Dial = dial
	c := s.crew(opts, s.keysOf(cluster)...)
	c.start()
	for n := range int(s.span(40, 8)) {
		for _, p := range proxies {
			if n%2 == 0 {
				p.Reset()
			} else {
				p.Finish()
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	mended := c.now()
	c.untilCentral(0)
	all := c.stop()
	s.sum(all, func(calls history, name string) int64 { return calls.outageBound(limitOf(name)) })
	s.within("the longest call", all.longest(), budget+10*time.Millisecond)
	s.recovered(all.of(0), mended)
	s.once(c, all, true)
}
