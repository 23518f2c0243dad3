package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// A link is the way to the servers: the client, once there is one, and the rules of
// what is sent again.
type link struct {
	opts   rueidis.ClientOption
	nodes  *nodes
	losses losses

	mu      sync.RWMutex
	client  rueidis.Client
	closed  bool
	attempt *attempt // the last try to connect, while there is no client
}

// attempt is one try to connect. done is closed at its end; err is set before.
type attempt struct {
	done   chan struct{}
	err    error
	ended  time.Time
	before error // why the try before it failed, which stands while this one lasts
}

// pause is how long a failed attempt stands before another is made.
const pause = 100 * time.Millisecond

// Before what did not run is sent again: at first, and at most, so that a slot on the move
// is asked for until the budget ends.
const firstWait, longestWait = 2 * time.Millisecond, 8 * time.Millisecond

func newLink(o Options) *link {
	l := &link{opts: clientOption(o), nodes: newNodes(o)}
	l.nodes.watch(&l.opts)
	l.losses.off = o.RESP2
	l.mu.Lock()
	l.connect()
	l.mu.Unlock()
	return l
}

// clientOption forbids the client everything that would hide a failure, take longer than
// a budget, or send what may have run.
func clientOption(o Options) rueidis.ClientOption {
	opt := rueidis.ClientOption{
		InitAddress:       o.Addrs,
		Username:          o.Username,
		Password:          o.Password,
		SelectDB:          o.DB,
		ClientName:        o.ClientName,
		AlwaysRESP2:       o.RESP2,
		DisableRetry:      true,
		DisableCache:      true,
		ForceSingleClient: !o.Cluster && o.Master == "",
		PipelineMultiplex: -1,
		ConnWriteTimeout:  max(time.Second, o.Budget),
		Dialer:            net.Dialer{Timeout: time.Second, KeepAlive: time.Second},
	}
	opt.ClusterOption.ShardsRefreshInterval = 5 * time.Second
	// At the second of a loop the client would make another connection, for which everybody waits: see follow.
	opt.ClusterOption.MaxMovedRedirections = 1
	if o.Master != "" {
		opt.Sentinel = rueidis.SentinelOption{
			MasterSet: o.Master, Username: o.SentinelUsername, Password: o.SentinelPassword, ClientName: o.ClientName,
		}
	}
	if o.RESP2 {
		opt.ClientName, opt.Sentinel.ClientName = "", ""
		opt.ClientSetInfo = rueidis.DisableClientSetInfo
	}
	if o.TLS != nil {
		config := o.TLS.Clone()
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
		opt.TLSConfig, opt.Sentinel.TLSConfig = config, config
	}
	if o.Dial != nil {
		opt.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, config *tls.Config) (net.Conn, error) {
			conn, err := o.Dial(ctx, addr)
			if err != nil || config == nil {
				return conn, err
			}
			if config.ServerName == "" {
				config = config.Clone()
				config.ServerName, _, _ = net.SplitHostPort(addr)
			}
			secure := tls.Client(conn, config)
			if err := secure.HandshakeContext(ctx); err != nil {
				conn.Close()
				return nil, err
			}
			return secure, nil
		}
	}
	guard(&opt)
	return opt
}

// connect begins an attempt unless one runs or has just failed. It is called with the
// lock held, and returns the attempt to wait for.
func (l *link) connect() *attempt {
	if a := l.attempt; a != nil {
		select {
		case <-a.done:
			if time.Since(a.ended) < pause {
				return a
			}
		default:
			return a
		}
	}
	a := &attempt{done: make(chan struct{})}
	if l.attempt != nil {
		a.before = l.attempt.err
	}
	l.attempt = a
	go func() {
		client, err := rueidis.NewClient(l.opts)
		l.mu.Lock()
		defer l.mu.Unlock()
		defer close(a.done)
		a.ended = time.Now()
		if a.err = err; err != nil {
			return
		}
		if l.closed {
			client.Close()
			return
		}
		l.client = client
	}()
	return a
}

func (l *link) close() {
	l.mu.Lock()
	client := l.client
	l.closed, l.client = true, nil
	l.mu.Unlock()
	if client != nil {
		client.Close()
	}
}

// get returns the client, waiting for a connection as long as the budget lasts.
func (l *link) get(b *budget) (rueidis.Client, error) {
	l.mu.RLock()
	client := l.client
	l.mu.RUnlock()
	if client != nil {
		return client, nil
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, &Error{Closed, false, errors.New("the store was closed")}
	}
	if l.client != nil {
		defer l.mu.Unlock()
		return l.client, nil
	}
	a := l.connect()
	l.mu.Unlock()
	failure := a.before
	select {
	case <-a.done:
		failure = a.err
	case <-b.done:
		if failure == nil {
			failure = errors.New("still connecting")
		}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case l.client != nil:
		return l.client, nil
	case l.closed:
		return nil, &Error{Closed, false, errors.New("the store was closed")}
	}
	if e := classify(failure); e.Class == Config {
		return nil, e
	}
	return nil, &Error{Unreachable, false, failure}
}

// command returns the call of a script, by its SHA-1 or whole.
func (sc script) command(client rueidis.Client, whole bool, keys, args []string) rueidis.Completed {
	verb, body := "EVALSHA", sc.sha
	if whole {
		verb, body = "EVAL", sc.text
	}
	return client.B().Arbitrary(verb, body, decimal(int64(len(keys)))).Keys(keys...).Args(args...).Build()
}

// run calls a script, and calls it again where it certainly did not run and the budget
// lasts. A node that fails is not called.
func (l *link) run(b *budget, sc script, keys, args []string) (reply rueidis.RedisMessage, err error) {
	n := l.nodes.of(keys[0])
	if e := n.enter(b.started); e != nil {
		return reply, e
	}
	defer func() { err = l.left(b, n, err) }()
	client, err := l.get(b)
	if err != nil {
		return reply, err
	}
	l.nodes.refresh(client, b.started)
	l.losses.refresh(client, l.nodes, b.started)
	if e := l.reach(b, n, client, keys[0]); e != nil {
		return reply, e
	}
	whole := false
	var last *Error
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		if reply, err = client.Do(b, sc.command(client, whole, keys, args)).ToMessage(); err != nil {
			// The keys are copied here alone, so that they need no allocation elsewhere.
			reply, err = l.follow(b, client, &call{script: sc, whole: whole, keys: slices.Clone(keys), args: args}, err)
		}
		if err == nil {
			return reply, nil
		}
		if noScript(err) && !whole {
			whole = true
			continue
		}
		if last = classify(err).after(last); !last.again() || !b.sleep(wait) {
			return reply, last
		}
	}
}

// follow asks the node that a second redirect names, as there is for a slot on the move whose
// last move the client has not heard of. It goes only where a connection stands: nobody
// may wait for one beyond his budget. Other errors are returned as they are.
func (l *link) follow(b *budget, client rueidis.Client, c *call, err error) (rueidis.RedisMessage, error) {
	reply, ok := rueidis.IsRedisErr(err)
	if !ok {
		return rueidis.RedisMessage{}, err
	}
	words := strings.Fields(reply.Error()) // MOVED or ASK, the slot, the address
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" || !l.nodes.reached(words[2]) {
		return rueidis.RedisMessage{}, err
	}
	to := client.Nodes()[words[2]]
	switch {
	case to == nil:
		return rueidis.RedisMessage{}, err
	case words[0] == "MOVED":
		return to.Do(b, c.command(to)).ToMessage()
	}
	return to.DoMulti(b, to.B().Arbitrary("ASKING").Build(), c.command(to))[1].ToMessage()
}

// left tells a node's breaker how a question ended, and returns its error as an *Error.
// A question whose caller had next to no time says nothing by timing out.
func (l *link) left(b *budget, n *node, err error) error {
	now := time.Now()
	if err == nil {
		n.leave(now, nil, false)
		return nil
	}
	e := classify(err)
	n.note(e)
	l.nodes.soon(now)
	if e.Class == ReadOnly {
		l.nodes.hangUp()
	}
	n.leave(now, e, !e.tells() || e.Class == Timeout && !b.telling)
	return e
}

// noScript reports whether the server does not know the script, which then did not run.
func noScript(err error) bool {
	reply, ok := rueidis.IsRedisErr(err)
	return ok && reply.IsNoScript()
}

// call is a call of a script.
type call struct {
	script script
	keys   []string
	args   []string
	reply  rueidis.RedisMessage
	err    error
	last   *Error // of the attempt before
	whole  bool
	node   *node
}

// command returns the call as it is sent.
func (c *call) command(client rueidis.Client) rueidis.Completed {
	return c.script.command(client, c.whole, c.keys, c.args)
}

// runAll makes calls in parallel, one round trip a node, and those again that certainly
// did not run, while the budget lasts. Each call has its reply or its error.
func (l *link) runAll(b *budget, calls []*call) {
	in := make([]*call, 0, len(calls))
	for _, c := range calls {
		c.node = l.nodes.of(c.keys[0])
		if e := c.node.enter(b.started); e != nil {
			c.err = e
			continue
		}
		in = append(in, c)
	}
	l.send(b, in)
	for _, c := range in {
		c.err = l.left(b, c.node, c.err)
	}
}

func (l *link) send(b *budget, calls []*call) {
	client, err := l.get(b)
	for _, c := range calls {
		c.err = err
	}
	if err != nil {
		return
	}
	l.nodes.refresh(client, b.started)
	l.losses.refresh(client, l.nodes, b.started)
	l.sendReached(b, client, calls)
}

// exchange sends calls until each has its reply, or an error that no moment mends.
func (l *link) exchange(b *budget, client rueidis.Client, calls []*call) {
	for wait := firstWait; len(calls) > 0; wait = min(2*wait, longestWait) {
		commands := make([]rueidis.Completed, len(calls))
		for i, c := range calls {
			commands[i] = c.command(client)
		}
		left, pause := calls[:0:0], false
		for i, result := range client.DoMulti(b, commands...) {
			c := calls[i]
			if c.reply, c.err = result.ToMessage(); c.err != nil {
				c.reply, c.err = l.follow(b, client, c, c.err)
			}
			if c.err == nil {
				continue
			}
			if noScript(c.err) && !c.whole {
				c.whole = true
				left = append(left, c)
				continue
			}
			c.last = classify(c.err).after(c.last)
			c.err = c.last
			if c.last.again() {
				left, pause = append(left, c), true
			}
		}
		if pause && !b.sleep(wait) {
			return
		}
		calls = left
	}
}
