// Package faultproxy stands between a client and a server over TCP and does to their
// connections what networks do: delay, partitions in one direction or both, replies that
// are lost, resets, and bytes that are not what was sent. It is for tests.
package faultproxy

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Faults are what happens to all connections. The zero value passes everything on.
type Faults struct {
	Requests Flow // from the client to the server
	Replies  Flow // from the server to the client
}

// Flow is what happens to the pieces of one direction, a piece being what one read gave:
// usually one or several whole requests or replies.
type Flow struct {
	Latency time.Duration // each piece arrives so much later
	Jitter  time.Duration // and up to so much more, at random; the order stays
	// Hole lets nothing arrive while it is set. As in a partition that heals, what was
	// sent arrives afterwards, unless its connection has ended.
	Hole bool
	// Loss is the probability, 0 to 1, that a piece is lost. Its connection is then
	// reset: TCP never leaves a gap.
	Loss    float64
	Garbage bool // each piece is replaced by as many random bytes
}

// Proxy passes connections to its address on to a server.
type Proxy struct {
	to       string
	listener *net.TCPListener
	state    atomic.Pointer[state]

	mu     sync.Mutex
	links  map[*link]bool
	closed bool
}

// state is the present faults. changed is closed when others take their place.
type state struct {
	Faults
	changed chan struct{}
}

// New returns a proxy on a loopback port, before the server at address to.
func New(to string) (*Proxy, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	p := &Proxy{to: to, listener: listener, links: map[*link]bool{}}
	p.state.Store(&state{changed: make(chan struct{})})
	go p.accept()
	return p, nil
}

// Addr returns the address that clients use.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set replaces the faults, for connections that exist and for later ones.
func (p *Proxy) Set(f Faults) {
	close(p.state.Swap(&state{f, make(chan struct{})}).changed)
}

// Reset breaks all connections of the moment with RST, as a crash of the far end's host does.
func (p *Proxy) Reset() {
	for _, l := range p.current() {
		l.reset()
	}
}

// Finish ends all connections of the moment with FIN, as a server does that shuts down.
func (p *Proxy) Finish() {
	for _, l := range p.current() {
		l.end()
	}
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Finish()
	return err
}

func (p *Proxy) current() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var links []*link
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	conn, err := net.DialTimeout("tcp", p.to, 5*time.Second)
	if err != nil {
		refuse(client)
		return
	}
	l := &link{client: client, server: conn.(*net.TCPConn), done: make(chan struct{})}
	p.mu.Lock()
	p.links[l] = true
	closed := p.closed
	p.mu.Unlock()
	if closed {
		l.end()
	}
	var both sync.WaitGroup
	both.Go(func() { p.pass(l, l.client, l.server, func(f *state) Flow { return f.Requests }) })
	both.Go(func() { p.pass(l, l.server, l.client, func(f *state) Flow { return f.Replies }) })
	both.Wait()
	l.end()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// refuse resets a connection, which is how a port where nobody listens looks.
func refuse(c *net.TCPConn) {
	_ = c.SetLinger(0) // on a connection that has ended there is nothing to reset
	c.Close()
}

// piece is what one read gave, and when it is to arrive.
type piece struct {
	bytes []byte
	due   time.Time
}

// pass carries one direction of a connection until either end ends it.
func (p *Proxy) pass(l *link, from, to *net.TCPConn, flow func(*state) Flow) {
	const mostPieces = 4096 // on the way; then the sender waits, as TCP makes it
	pieces := make(chan piece, mostPieces)
	var delivery sync.WaitGroup
	delivery.Go(func() { p.deliver(l, pieces, to, flow) })
	defer delivery.Wait()
	defer close(pieces)
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		f := flow(p.state.Load())
		if f.Loss > 0 && mathrand.Float64() < f.Loss {
			l.reset()
			return
		}
		if f.Garbage {
			rand.Read(buf[:n]) // never fails
		}
		due := time.Now().Add(f.Latency)
		if f.Jitter > 0 {
			due = due.Add(mathrand.N(f.Jitter))
		}
		select {
		case pieces <- piece{buf[:n], due}:
		case <-l.done:
			return
		}
	}
}

// deliver writes pieces when they are due, and ends the direction after the last.
func (p *Proxy) deliver(l *link, pieces <-chan piece, to *net.TCPConn, flow func(*state) Flow) {
	for next := range pieces {
		if !l.wait(time.Until(next.due)) {
			return
		}
		for s := p.state.Load(); flow(s).Hole; s = p.state.Load() {
			select {
			case <-s.changed:
			case <-l.done:
				return
			}
		}
		if _, err := to.Write(next.bytes); err != nil {
			l.end()
			return
		}
	}
	_ = to.CloseWrite() // fails only if the connection has ended already
}

// link is one connection of a client with its connection to the server.
type link struct {
	client, server *net.TCPConn
	once           sync.Once
	done           chan struct{} // closed when the link ends
}

// wait returns after d, or false if the link ends first.
func (l *link) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

func (l *link) end() {
	l.once.Do(func() {
		close(l.done)
		l.client.Close()
		l.server.Close()
	})
}

func (l *link) reset() {
	l.once.Do(func() {
		close(l.done)
		refuse(l.client)
		l.server.Close()
	})
}
