package drills

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/redisstore"
)

// The drills of whole clusters: what moves, fails over, hangs and dies.

func clusterOf(c *redistest.Cluster) redisstore.Options {
	return redisstore.Options{Addrs: c.Addrs(), Cluster: true}
}

func nothing(s *stage) {
	cluster := s.cluster(false)
	opts := clusterOf(cluster)
	opts.Budget = s.exactBudget()
	c := s.crew(opts, s.keysOf(cluster)...)
	c.start()
	c.rest(10*time.Second, 1500*time.Millisecond)
	all := c.stop()
	s.exact(all)
	s.none("answers that are not the store's", all.notCentral(), all)
	s.once(c, all, true)
}

func scriptsForgotten(s *stage) {
	cluster := s.cluster(false)
	opts := clusterOf(cluster)
	opts.Budget = s.exactBudget()
	c := s.crew(opts, s.keysOf(cluster)...)
	c.start()
	for end := time.Now().Add(s.span(10*time.Second, 1500*time.Millisecond)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		cluster.FlushScripts()
	}
	all := c.stop()
	s.exact(all)
	s.none("answers that are not the store's", all.notCentral(), all)
	s.once(c, all, true)
}

func slotMoves(s *stage) {
	cluster := s.cluster(false)
	opts := clusterOf(cluster)
	opts.Budget = s.exactBudget()
	keys := s.keysOf(cluster)
	c := s.crew(opts, keys...)
	hot := "weir:{" + keys[0] + "}:api:g"
	slot := cluster.Slot(hot)
	c.fresh = true
	c.start()
	for n := range int(s.span(10, 3)) {
		to := (n + 1) % 3
		cluster.OpenSlot(slot, to) // new keys are asked for at the new node, old ones at the old
		c.rest(500*time.Millisecond, 100*time.Millisecond)
		cluster.MoveKeys(slot, to, hot)
		cluster.CloseSlot(slot, to)
		c.rest(500*time.Millisecond, 100*time.Millisecond)
	}
	all := c.stop()
	s.exact(all)
	s.none("answers that are not the store's", all.notCentral(), all)
	s.once(c, all, true)
}

func gracefulFailover(s *stage) {
	cluster := s.cluster(true)
	c := s.crew(clusterOf(cluster), s.keysOf(cluster)...)
	c.start()
	c.rest(time.Second, 200*time.Millisecond)
	stop := c.avoided(cluster.Node(0).Addr)
	stopNew := c.avoided(cluster.Node(3).Addr)
	for n := range int(s.span(5, 1)) {
		cluster.Failover(3-n%2*3, redistest.Planned)
		// A replica stands for election once in four node timeouts.
		c.rest(2*fullNodeTimeout+500*time.Millisecond, 500*time.Millisecond)
		cluster.WaitReady()
	}
	c.untilCentral(0)
	all := c.stop()
	opened, _ := stop()
	openedNew, _ := stopNew()
	s.exact(all)
	s.once(c, all, true)
	away := all.of(0).central().gap()
	s.within("without a central answer about the hot key", away, 500*time.Millisecond)
	s.within("a breaker was open", max(opened, openedNew), time.Second)
	s.note("away for %v at most", away.Round(time.Millisecond))
}

// takeover makes the replica master without the consent of the old one, which goes on
// deciding until it hears of it; and what the replica has not received is forgotten.
func takeover(s *stage) {
	cluster := s.cluster(true)
	c := s.crew(clusterOf(cluster), s.keysOf(cluster)...)
	c.pace = 0
	c.start()
	c.rest(time.Second, 500*time.Millisecond)
	times := int64(s.span(4, 1))
	for n := range times {
		cluster.Failover(3-int(n%2)*3, redistest.Takeover)
		c.rest(time.Second, 300*time.Millisecond)
		cluster.WaitReady()
	}
	c.untilCentral(0)
	all := c.stop()
	s.sum(all.central(), func(calls history, name string) int64 {
		if !s.full { // replication is as late as the machine is busy: at worst a burst is forgotten
			return times * limitOf(name).Capacity()
		}
		// The rate at which the limit lets units pass: GCRA's own, for the window that of the calls.
		rate := int64(50)
		if name != "api" {
			rate = calls.mostWithin(50_000)
		}
		return times * (rate + workers)
	})
	s.row.calls, s.row.local, s.row.longest = len(all), len(all.local()), all.longest()
	s.once(c, all, false)
}

// outage holds a crew's answers against what holds while a node is away: twice the limit
// in all, and nothing of it at the other nodes.
func (s *stage) outage(c *crew, all history, from time.Duration) {
	s.Helper()
	s.sum(all, func(calls history, name string) int64 { return calls.outageBound(limitOf(name)) })
	s.once(c, all, false)
	s.within("the longest call", all.longest(), budget+10*time.Millisecond)
	s.recovered(all.of(0), from)
	others := all.where(func(a call) bool { return a.key != 0 })
	s.none("answers about other nodes' keys that are not the store's", others.notCentral(), others)
}

func masterKilled(s *stage) {
	cluster := s.cluster(true)
	nodeTimeout := s.hasten(cluster)
	c := s.crew(clusterOf(cluster), s.keysOf(cluster)...)
	c.start()
	c.rest(2*time.Second, 500*time.Millisecond)
	killed := c.now()
	cluster.Node(0).Kill()
	c.untilCentral(0)
	c.rest(2*time.Second, 200*time.Millisecond)
	all := c.stop()
	s.outage(c, all, killed)
	s.within("until the first central answer", s.row.first, nodeTimeout+2500*time.Millisecond)
	s.localShare(all.of(0).between(killed, killed+s.row.first))
}

// localShare says that the fallback answered while the node was away, and let its share
// pass.
func (s *stage) localShare(away history) {
	s.Helper()
	if local := away.local(); len(local) == 0 || local.named("api").taken() == 0 {
		s.fault("while the node was away the fallback let nothing pass: %v", away)
	}
}

func masterPaused(s *stage) {
	cluster := s.cluster(true)
	s.hasten(cluster)
	c := s.crew(clusterOf(cluster), s.keysOf(cluster)...)
	c.start()
	c.rest(2*time.Second, 500*time.Millisecond)
	paused := c.now()
	cluster.Node(0).Pause()
	time.Sleep(s.span(4*time.Second, 1500*time.Millisecond))
	cluster.Node(0).Resume()
	c.untilCentral(0)
	c.rest(2*time.Second, 500*time.Millisecond)
	c.untilCentral(0)
	all := c.stop()
	s.outage(c, all, paused)
	s.localShare(all.of(0).between(paused, paused+s.row.first))
}

func allPaused(s *stage) {
	cluster := s.cluster(false)
	c := s.crew(clusterOf(cluster), s.keysOf(cluster)...)
	c.start()
	c.rest(time.Second, 300*time.Millisecond) // connections and breakers settle
	loadAt := sampleLoad(s, cluster)
	c.rest(3*time.Second, time.Second)
	normal := loadAt.stop()
	paused := c.now()
	for i := range 3 {
		cluster.Node(i).Pause()
	}
	time.Sleep(s.span(10*time.Second, time.Second))
	for i := range 3 {
		cluster.Node(i).Resume()
	}
	resumed := c.now()
	loadAt = sampleLoad(s, cluster)
	for key := range c.keys {
		c.untilCentral(key)
	}
	c.rest(5*time.Second, time.Second)
	after := loadAt.stop()
	all := c.stop()
	s.sum(all, func(calls history, name string) int64 { return calls.outageBound(limitOf(name)) })
	s.once(c, all, false)
	s.within("the longest call", all.longest(), budget+10*time.Millisecond)
	s.recovered(all.of(0), resumed)
	s.localShare(all.of(0).between(paused+100*time.Millisecond, resumed))
	s.note("most calls in a second %.2fx of before", after/normal)
	if after > 1.5*normal && s.full {
		s.fault("after the outage Redis saw %.0f calls in a second, want at most 1.5 times the %.0f of before", after, normal)
	}
}

// load samples how many scripts the masters run.
type load struct {
	done     chan struct{}
	finished sync.WaitGroup
	most     float64 // in any second, of all masters together
}

func sampleLoad(s *stage, cluster *redistest.Cluster) *load {
	l := &load{done: make(chan struct{})}
	type sample struct {
		at    time.Time
		calls float64
	}
	l.finished.Go(func() {
		var samples []sample
		for {
			now, calls, all := time.Now(), 0.0, true
			for i := range 3 {
				n, err := scriptCalls(cluster.Node(i))
				calls, all = calls+n, all && err == nil
			}
			if all {
				samples = append(samples, sample{now, calls})
			}
			for _, old := range samples {
				if age := now.Sub(old.at); all && age >= 800*time.Millisecond && age <= 1300*time.Millisecond {
					l.most = max(l.most, (calls-old.calls)/age.Seconds())
				}
			}
			select {
			case <-l.done:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return l
}

func (l *load) stop() (most float64) {
	close(l.done)
	l.finished.Wait()
	return l.most
}

// scriptCalls returns how many EVAL and EVALSHA a server has executed.
func scriptCalls(node *redistest.Server) (float64, error) {
	var calls float64
	reply, err := node.Try("INFO", "commandstats")
	if err != nil {
		return 0, err
	}
	for _, name := range []string{"eval", "evalsha"} {
		if _, after, found := strings.Cut(fmt.Sprint(reply), "cmdstat_"+name+":calls="); found {
			number, _, _ := strings.Cut(after, ",")
			n, err := strconv.ParseFloat(number, 64)
			if err != nil {
				return 0, err
			}
			calls += n
		}
	}
	return calls, nil
}

func slowNode(s *stage) {
	cluster := s.cluster(false)
	opts := clusterOf(cluster)
	victim := cluster.Node(0).Addr
	proxies, dial := s.proxies(victim)
	opts.Dial = dial
	c := s.crew(opts, s.keysOf(cluster)...)
	c.start()
	c.rest(3*time.Second, 500*time.Millisecond)
	stop := c.avoided(victim)
	slow := c.now()
	proxies[victim].Set(slowed)
	c.rest(5*time.Second, 700*time.Millisecond)
	mended := c.now()
	proxies[victim].Set(sound)
	c.untilCentral(0)
	closed := c.now() - mended
	c.rest(time.Second, 200*time.Millisecond)
	all := c.stop()
	_, first := stop()
	s.outage(c, all, mended)
	if first < 0 {
		s.fault("the breaker of a node that is 200 ms late did not open")
	}
	s.within("until its breaker opened", first-slow, time.Second)
	s.within("until its breaker closed", closed, 2*time.Second)
	others := all.where(func(a call) bool { return a.key != 0 })
	before, during := others.between(0, slow).percentile(.99), others.between(slow, mended).percentile(.99)
	s.within("p99 of the other nodes", during, 2*before+2*time.Millisecond)
	s.note("p99 of the others %v before, %v meanwhile; opened after %v", before.Round(10*time.Microsecond), during.Round(10*time.Microsecond), (first - slow).Round(time.Millisecond))
}

// movedLoop makes two masters each hold the other for the owner of a slot.
func movedLoop(s *stage) {
	cluster := s.cluster(false)
	keys := s.keysOf(cluster)
	c := s.crew(clusterOf(cluster), keys...)
	slot := strconv.Itoa(cluster.Slot("weir:{" + keys[0] + "}:api:g"))
	ids := []string{fmt.Sprint(cluster.Node(0).Do("CLUSTER", "MYID")), fmt.Sprint(cluster.Node(1).Do("CLUSTER", "MYID"))}
	c.start()
	c.rest(time.Second, 300*time.Millisecond)
	looped := c.now()
	// Not until it is empty does a node give a slot away.
	for empty := false; !empty; {
		_, err := cluster.Node(0).Try("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
		if empty = err == nil; !empty {
			emptySlot(cluster.Node(0), slot)
		}
	}
	c.rest(3*time.Second, 500*time.Millisecond)
	mended := c.now()
	for i := range 3 {
		cluster.Node(i).Do("CLUSTER", "SETSLOT", slot, "NODE", ids[0])
	}
	c.untilCentral(0)
	c.rest(time.Second, 200*time.Millisecond)
	all := c.stop()
	flushed := int64(1) // the slot was emptied
	s.sum(all, func(calls history, name string) int64 {
		return calls.outageBound(limitOf(name)) + flushed*limitOf(name).Capacity()
	})
	s.within("the longest call", all.longest(), budget+10*time.Millisecond)
	s.recovered(all.of(0), mended)
	s.localShare(all.of(0).between(looped, mended))
	failed := all.of(0).between(looped, mended).notCentral()
	s.wantOnly(failed, redisstore.Moving, redisstore.Timeout, redisstore.Unreachable)
	s.note("classes %v", failed.classes())
}

func emptySlot(node *redistest.Server, slot string) {
	keys, _ := node.Do("CLUSTER", "GETKEYSINSLOT", slot, "100").([]any)
	for _, key := range keys {
		node.Try("DEL", fmt.Sprint(key))
	}
}
