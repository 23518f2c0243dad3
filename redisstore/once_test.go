package redisstore

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
)

// cutter is a proxy that breaks a connection, while it cuts, when the answer to a script
// comes back: the script has run, and the client cannot know.
type cutter struct {
	addr string
	cut  atomic.Bool
}

func newCutter(t *testing.T, to string) *cutter {
	p := &cutter{}
	p.addr = proxy(t, to, func(client, server net.Conn) {
		var doomed atomic.Bool
		go pass(server, client, func(request []byte) bool {
			if p.cut.Load() && bytes.Contains(request, []byte("EVAL")) {
				doomed.Store(true)
			}
			return true
		})
		go pass(client, server, func([]byte) bool { return !doomed.Load() })
	})
	return p
}

// proxy hands each connection that it takes, with one of its own to the address, to serve.
func proxy(t *testing.T, to string, serve func(client, server net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			serve(client, server)
		}
	}()
	return l.Addr().String()
}

// pass copies what comes from one end to the other while ok, and closes both at the end.
func pass(to, from net.Conn, ok func([]byte) bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !ok(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func TestAQuestionWhoseConnectionBreaksIsNotSentTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	proxy := newCutter(t, server.Addr)
	direct := open(t, Options{Addrs: []string{server.Addr}, Budget: patient})
	limit := weir.PerHour(1_000_000).By(weir.FixedWindow)
	ask := askOf("cut", "a", limit, 1)
	s := open(t, Options{Addrs: []string{proxy.addr}, Budget: patient})
	take(t, s, ask)
	for what, question := range map[string]func() error{
		"one":     func() error { _, err := s.Take(ctx, ask); return err },
		"several": func() error { return s.TakeAll(ctx, []weir.Ask{ask, ask}, make([]weir.Decision, 2)) },
	} {
		before := take(t, direct, askOf("cut", "a", limit, 0)).Remaining
		proxy.cut.Store(true)
		err := question()
		proxy.cut.Store(false)
		if err == nil {
			t.Fatalf("%s: a question whose answer was cut off was answered", what)
		}
		if _, executed := classOf(t, err); !executed {
			t.Errorf("%s: got %v, want it to say that it may have run", what, err)
		}
		most := int64(1)
		if what == "several" {
			most = 2
		}
		if used := before - take(t, direct, askOf("cut", "a", limit, 0)).Remaining; used > most {
			t.Errorf("%s: a question whose answer was cut off was charged %d units, want at most %d", what, used, most)
		}
		eventually(t, func() error { _, err := s.Take(ctx, ask); return err })
	}
}

func TestABudgetIsTheLesserOfItsOwnAndItsCallersTime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ own, callers, want time.Duration }{
		{50 * time.Millisecond, time.Hour, 50 * time.Millisecond},
		{time.Hour, time.Minute, time.Minute},
		{time.Minute, 0, time.Minute},
	} {
		caller, cancel := ctx, context.CancelFunc(func() {})
		before := time.Now()
		if tt.callers > 0 {
			caller, cancel = context.WithDeadline(ctx, before.Add(tt.callers))
		}
		b, err := newBudget(caller, tt.own)
		if err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		got, ok := b.Deadline()
		if !ok || got.Before(before.Add(tt.want)) || got.After(after.Add(tt.want)) {
			t.Errorf("a budget of %v of a caller who has %v: got until %v, want %v from %v", tt.own, tt.callers, got, tt.want, before)
		}
		b.end()
		cancel()
	}
}
