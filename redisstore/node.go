package redisstore

import (
	"context"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// Node is what is known of one server that decides: the one server, the master behind
// the Sentinels, or a master of the Cluster.
type Node struct {
	Addr     string
	State    State
	InFlight int   // questions that wait for it
	Opened   int64 // how often it has become Avoided
	Failures map[Class]int64
	Lost     Losses
}

// node is a server that questions go to.
type node struct {
	addr string
	breaker
	failures sync.Map // Class to *atomic.Int64
	tally    tally

	reached atomic.Bool // a connection to it stands: see reach
	attempt *attempt    // to connect, while it lasts; under the breaker's lock, as is
	lost    int         // how many connections have ended
}

// nodes knows which node a key's questions go to. On a Cluster the client routes; this is
// a copy of its map that may be some seconds old, which only makes a question count for
// the node that had its slot before.
type nodes struct {
	cluster bool
	one     *node // of one server or Sentinel, and of a Cluster while it is not known
	current atomic.Pointer[slotMap]
	next    atomic.Int64 // when to ask for the map again, Unix nanoseconds
	asking  atomic.Bool
	open    sync.Map // *watched: the connections that stand
}

type slotMap struct {
	slots [16384]*node
	nodes map[string]*node
}

// Ages at which the map is asked for again: in quiet, and after a failure.
const (
	quietAge   = 5 * time.Second
	failureAge = 200 * time.Millisecond
)

func newNodes(o Options) *nodes {
	addr := strings.Join(o.Addrs, ",")
	if o.Master != "" {
		addr = o.Master
	}
	return &nodes{cluster: o.Cluster, one: &node{addr: addr}}
}

// of returns the node of a key.
func (n *nodes) of(key string) *node {
	if !n.cluster {
		return n.one
	}
	if m := n.current.Load(); m != nil {
		if owner := m.slots[slotOf(key)]; owner != nil {
			return owner
		}
	}
	return n.one
}

// refresh asks for the map in the background if it is time.
func (n *nodes) refresh(client rueidis.Client, now time.Time) {
	if !n.cluster || now.UnixNano() < n.next.Load() || !n.asking.CompareAndSwap(false, true) {
		return
	}
	n.next.Store(now.Add(quietAge).UnixNano())
	go func() {
		defer n.asking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		reply, err := client.Do(ctx, client.B().ClusterSlots().Build()).ToArray()
		if err != nil {
			n.soon(time.Now())
			return
		}
		n.read(reply)
	}()
}

// soon makes the next refresh come early, after a failure.
func (n *nodes) soon(now time.Time) {
	if early := now.Add(failureAge).UnixNano(); early < n.next.Load() {
		n.next.Store(early)
	}
}

// read takes over a map: ranges of slots, each with its master first. Nodes that stay keep
// their breakers.
func (n *nodes) read(reply []rueidis.RedisMessage) {
	old := n.current.Load()
	m := &slotMap{nodes: map[string]*node{}}
	for _, r := range reply {
		row, err := r.ToArray()
		if err != nil || len(row) < 3 {
			continue
		}
		first, err1 := row[0].AsInt64()
		last, err2 := row[1].AsInt64()
		master, err3 := row[2].ToArray()
		if err1 != nil || err2 != nil || err3 != nil || len(master) < 2 || first < 0 || last > 16383 {
			continue
		}
		host, _ := master[0].ToString()
		port, _ := master[1].AsInt64()
		addr := host + ":" + decimal(port)
		owner := m.nodes[addr]
		if owner == nil {
			if old != nil {
				owner = old.nodes[addr]
			}
			if owner == nil {
				owner = &node{addr: addr}
			}
			m.nodes[addr] = owner
		}
		for slot := first; slot <= last; slot++ {
			m.slots[slot] = owner
		}
	}
	if len(m.nodes) > 0 {
		n.current.Store(m)
	}
}

// reached reports whether a connection to the node of an address stands.
func (n *nodes) reached(addr string) bool {
	m := n.current.Load()
	return m != nil && m.nodes[addr] != nil && m.nodes[addr].reached.Load()
}

// all returns the nodes, in no order.
func (n *nodes) all() []*node {
	m := n.current.Load()
	if m == nil {
		return []*node{n.one}
	}
	all := make([]*node, 0, len(m.nodes))
	for _, owner := range m.nodes {
		all = append(all, owner)
	}
	return all
}

// list returns the nodes as they are, by address.
func (n *nodes) list() []Node {
	all := n.all()
	list := make([]Node, 0, len(all))
	for _, o := range all {
		o.mu.Lock()
		seen := Node{Addr: o.addr, State: o.state, InFlight: o.inFlight, Opened: o.opened, Failures: map[Class]int64{}, Lost: o.tally.get()}
		o.mu.Unlock()
		o.failures.Range(func(class, count any) bool {
			seen.Failures[class.(Class)] = count.(*atomic.Int64).Load()
			return true
		})
		list = append(list, seen)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Addr < list[j].Addr })
	return list
}

// note counts a failure by its class.
func (n *node) note(e *Error) {
	count, ok := n.failures.Load(e.Class)
	if !ok {
		count, _ = n.failures.LoadOrStore(e.Class, new(atomic.Int64))
	}
	count.(*atomic.Int64).Add(1)
}

// slotOf returns the Cluster slot of one of our keys: CRC-16/XMODEM of what is between
// its braces, modulo 16384 (Redis Cluster specification, "Key distribution model").
func slotOf(key string) int {
	if from := strings.IndexByte(key, '{'); from >= 0 {
		if to := strings.IndexByte(key[from:], '}'); to > 1 {
			key = key[from+1 : from+to]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
