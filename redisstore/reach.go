package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// While the client connects to a node or asks for the cluster's map, whoever asks it may
// wait until that has ended, up to a second, without regard to his context. So a question
// goes to the client only when a connection to its node stands; until then it waits
// here, as long as its budget lasts, for one that is made in the background.

// reach returns nil when a connection to the node stands, or why there is none. Nothing
// was asked then.
func (l *link) reach(b *budget, n *node, client rueidis.Client, key string) *Error {
	for wait := firstWait; !n.reached.Load(); wait = min(2*wait, longestWait) {
		a := n.connect(client, key)
		select {
		case <-a.done:
		case <-b.done:
			return &Error{Unreachable, false, errors.New("still connecting")}
		}
		if a.err == nil {
			return nil
		}
		e := &Error{classify(a.err).Class, false, a.err}
		if e.Class != Config && e.Class != Garbage {
			e.Class = Unreachable
		}
		if !e.again() || !b.sleep(wait) {
			return e
		}
	}
	return nil
}

// sendReached sends calls whose nodes are reached together, and every other by itself
// when its node is: nobody waits for another's node.
func (l *link) sendReached(b *budget, client rueidis.Client, calls []*call) {
	ready := calls[:0:0]
	var others sync.WaitGroup
	for _, c := range calls {
		if c.node.reached.Load() {
			ready = append(ready, c)
			continue
		}
		others.Go(func() {
			if e := l.reach(b, c.node, client, c.keys[0]); e != nil {
				c.err = e
				return
			}
			l.exchange(b, client, []*call{c})
		})
	}
	l.exchange(b, client, ready)
	others.Wait()
}

// connect begins to connect, by a harmless question about one of the node's keys, unless
// somebody is at it.
func (n *node) connect(client rueidis.Client, key string) *attempt {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.attempt != nil {
		return n.attempt
	}
	a := &attempt{done: make(chan struct{})}
	n.attempt = a
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		n.mu.Lock()
		lost := n.lost
		n.mu.Unlock()
		err := client.Do(ctx, client.B().Pttl().Key(key).Build()).Error()
		if _, answered := rueidis.IsRedisErr(err); answered {
			err = nil
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.attempt = nil
		n.reached.Store(err == nil && n.lost == lost)
		a.err = err
		close(a.done)
	}()
	return a
}

// doubt notes that a connection to a node has ended. One whose address is not in the map
// may be any node's.
func (n *nodes) doubt(addr string) {
	all := []*node{n.one}
	if m := n.current.Load(); m != nil {
		if owner := m.nodes[addr]; owner != nil {
			all = append(all, owner)
		} else {
			for _, owner := range m.nodes {
				all = append(all, owner)
			}
		}
	}
	for _, o := range all {
		o.mu.Lock()
		o.lost++
		o.reached.Store(false)
		o.mu.Unlock()
	}
}

// watched is a connection whose end is noted before the client makes another.
type watched struct {
	net.Conn
	addr  string
	nodes *nodes
}

// Close implements net.Conn.
func (w *watched) Close() error {
	w.nodes.open.Delete(w)
	w.nodes.doubt(w.addr)
	return w.Conn.Close()
}

// hangUp ends the connections to a server that has become a replica: behind its name may
// be another by now, and behind Sentinels there is. A Cluster's replicas send on.
func (n *nodes) hangUp() {
	if n.cluster {
		return
	}
	n.open.Range(func(w, _ any) bool {
		w.(*watched).Close()
		return true
	})
}

// watch makes every connection of a client a watched one.
func (n *nodes) watch(opt *rueidis.ClientOption) {
	dial := opt.DialCtxFn
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, addr, d, config)
		if err != nil {
			return nil, err
		}
		w := &watched{conn, addr, n}
		n.open.Store(w, nil)
		return w, nil
	}
}
