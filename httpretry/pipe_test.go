package httpretry_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"weir.dev/weir/httpretry"
)

// server is a real http.Server whose connections are pipes in memory, so that a test in a synctest bubble has no real wait.
type server struct {
	listener pipeListener
	http     *http.Transport
	dials    atomic.Int64
	refuse   atomic.Int64 // so many dials fail
	hits     atomic.Int64
}

func serve(t *testing.T, handler http.HandlerFunc) *server {
	t.Helper()
	s := &server{listener: pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}}
	s.http = &http.Transport{DialContext: s.dial}
	h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		handler(w, r)
	})}
	go h.Serve(s.listener)
	t.Cleanup(func() {
		s.http.CloseIdleConnections()
		h.Close()
	})
	return s
}

func (s *server) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.dials.Add(1)
	if s.refuse.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
	}
	near, far := net.Pipe()
	select {
	case s.listener.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// answers replies with the given statuses in turn, the last one for ever.
func answers(statuses ...int) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		i := min(int(n.Add(1)), len(statuses)) - 1
		w.WriteHeader(statuses[i])
		w.Write([]byte(http.StatusText(statuses[i])))
	}
}

// steady are options under which every wait is the middle of its interval and the budget is no concern.
func steady(o httpretry.Options) httpretry.Options {
	if o.Random == nil {
		o.Random = func() float64 { return 0.5 }
	}
	if o.Budget.PerSecond == 0 {
		o.Budget.PerSecond = 1000
	}
	return o
}

func newTransport(t *testing.T, next http.RoundTripper, o httpretry.Options) *httpretry.Transport {
	t.Helper()
	rt, err := httpretry.New(next, o)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func request(t *testing.T, method string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, "http://api.example/things", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// took runs f and returns the virtual time that it needed.
func took(f func()) time.Duration {
	begun := time.Now()
	f()
	return time.Since(begun)
}

// roundTripper is a fake for answers that no server can be made to give.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func response(status int, header http.Header) *http.Response {
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: header, Body: http.NoBody}
}
