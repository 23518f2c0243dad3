package stats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// flushTimeout is how long one flush may take, connecting included.
	flushTimeout = 10 * time.Second
	// firstPause and longestPause are how long a sink that failed is left alone. The pause
	// doubles each time.
	firstPause, longestPause = time.Second, time.Minute
)

// pusher tells statsd or dogstatsd, each FlushInterval, what was counted since.
//
// A counter's line is the difference to what the kernel last took for the sink, so nothing is
// lost or told twice while the sink is away, restarts or is slow: what it has not been told
// stays in the counter. The protocols have no answers, hence these limits: a datagram that
// nobody receives is lost, and so is what the kernel had taken when a TCP connection broke; a
// line that broke off just before its end may be told twice. Durations are told once at most.
type pusher struct {
	registry      *Registry
	log           *slog.Logger
	network, addr string
	lines         *lines

	conn    net.Conn
	gone    chan struct{} // closed when the other side has closed conn
	away    bool          // since the last flush
	pause   time.Duration // how long to leave the sink alone should it fail again
	retryAt time.Time

	once sync.Once
	stop chan context.Context
	done chan error
}

func newPusher(r *Registry, opts Options) (*pusher, error) {
	lines, err := newLines(opts)
	if err != nil {
		return nil, err
	}
	p := &pusher{
		registry: r,
		log:      opts.Log,
		lines:    lines,
		pause:    firstPause,
		stop:     make(chan context.Context, 1),
		done:     make(chan error, 1),
	}
	p.network, p.addr = opts.address()
	r.onTiming(func(string) durations { return new(sample) })
	return p, nil
}

func (p *pusher) run(interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			p.tick(now)
		case ctx := <-p.stop:
			err := p.flush(ctx)
			p.disconnect()
			p.done <- err
			return
		}
	}
}

// tick flushes, unless the sink is left alone. It logs when the sink goes away and when it
// is back.
func (p *pusher) tick(now time.Time) {
	if now.Before(p.retryAt) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	err := p.flush(ctx)
	if err == nil {
		if p.away {
			p.log.Info("the stats sink is back", "network", p.network, "addr", p.addr)
		}
		p.away, p.pause = false, firstPause
		return
	}
	if !p.away {
		p.log.Warn("the stats sink is away: what it misses is sent when it is back", "network", p.network, "addr", p.addr, "error", err)
	}
	p.disconnect()
	p.away = true
	p.retryAt = now.Add(p.pause)
	p.pause = min(2*p.pause, longestPause)
}

// flush sends the lines of all that has changed.
func (p *pusher) flush(ctx context.Context) error {
	if err := p.connect(ctx); err != nil {
		return err
	}
	conn := p.conn // which may be another, or none, by the time that the function runs
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetWriteDeadline(deadline)
	}
	defer context.AfterFunc(ctx, func() { conn.SetWriteDeadline(time.Unix(1, 0)) })()
	return p.lines.write(conn, p.registry.read())
}

// connect makes the connection, unless there is one that the other side has not closed.
func (p *pusher) connect(ctx context.Context) error {
	if p.conn != nil {
		select {
		case <-p.gone:
			p.disconnect()
		default:
			return nil
		}
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, p.network, p.addr)
	if err != nil {
		return err
	}
	gone := make(chan struct{})
	if p.network == "tcp" { // a read from a datagram socket would hide its errors from writes
		go func() {
			defer close(gone)
			io.Copy(io.Discard, conn) // returns when either side has closed
		}()
	}
	p.conn, p.gone = conn, gone
	return nil
}

func (p *pusher) disconnect() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

func (p *pusher) close(ctx context.Context) error {
	var err error
	p.once.Do(func() {
		p.stop <- ctx
		select {
		case err = <-p.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no time was left: %w", err)
	}
	if err != nil {
		return fmt.Errorf("the stats sink at %s %s has not got the last counts: %w", p.network, p.addr, err)
	}
	return nil
}
