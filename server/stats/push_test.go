package stats

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// unstarted returns a pusher that flushes when the test says so.
func unstarted(t *testing.T, r *Registry, opts Options, addr net.Addr) *pusher {
	t.Helper()
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Log = host, slog.New(slog.DiscardHandler)
	opts.Port, _ = strconv.Atoi(port)
	if err := opts.check(); err != nil {
		t.Fatal(err)
	}
	p, err := newPusher(r, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.disconnect)
	return p
}

func flush(t *testing.T, p *pusher) {
	t.Helper()
	if err := p.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func listenUDP(t *testing.T) net.PacketConn {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// accept returns the next connection.
func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(30 * time.Second)) // or never, if the pusher is broken
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// receive returns the lines of the next datagram, sorted.
func receive(t *testing.T, c net.PacketConn) []string {
	t.Helper()
	buf := make([]byte, 1<<16)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, _, err := c.ReadFrom(buf)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(buf[:n]), "\n"), "\n")
	slices.Sort(lines)
	return lines
}

// readAll returns the lines that come until the other side closes, sorted.
func readAll(t *testing.T, c net.Conn) []string {
	t.Helper()
	data, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	slices.Sort(lines)
	return lines
}

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// fill counts a little of everything.
func fill(r *Registry) {
	r.Counter("ratelimit.service.rate_limit.mongo_cps.database_users.total_hits").Add(3)
	r.Counter("ratelimit.service.rate_limit.mongo_cps.database_users.over_limit")
	r.Gauge("ratelimit.redis_pool.cx_active").Set(10)
	r.Timer("ratelimit_server.ShouldRateLimit.response_time").Observe(1250 * time.Microsecond)
	r.Timer("ratelimit_server.ShouldRateLimit.response_time").Observe(2 * time.Millisecond)
}

func TestStatsdOverTCPHasALineForEachChange(t *testing.T) {
	t.Parallel()
	l := listenTCP(t)
	r := New()
	p := unstarted(t, r, Options{Statsd: true}, l.Addr())
	fill(r)
	flush(t, p)
	r.Counter("ratelimit.service.rate_limit.mongo_cps.database_users.total_hits").Add(2)
	flush(t, p)
	p.disconnect()
	equal(t, readAll(t, accept(t, l)),
		"ratelimit.service.rate_limit.mongo_cps.database_users.total_hits:3|c",
		"ratelimit.redis_pool.cx_active:10|g",
		"ratelimit_server.ShouldRateLimit.response_time:1.25|ms",
		"ratelimit_server.ShouldRateLimit.response_time:2|ms",
		"ratelimit.service.rate_limit.mongo_cps.database_users.total_hits:2|c",
		"ratelimit.redis_pool.cx_active:10|g",
	)
}

func TestStatsdOverUDPHasTheSameLines(t *testing.T) {
	t.Parallel()
	c := listenUDP(t)
	r := New()
	p := unstarted(t, r, Options{Statsd: true, Network: "udp", ExtraTags: map[string]string{"zone": "eu.1", "app": "edge", "none": ""}}, c.LocalAddr())
	fill(r)
	flush(t, p)
	equal(t, receive(t, c),
		"ratelimit.service.rate_limit.mongo_cps.database_users.total_hits.__app=edge.__zone=eu_1:3|c",
		"ratelimit.redis_pool.cx_active.__app=edge.__zone=eu_1:10|g",
		"ratelimit_server.ShouldRateLimit.response_time.__app=edge.__zone=eu_1:1.25|ms",
		"ratelimit_server.ShouldRateLimit.response_time.__app=edge.__zone=eu_1:2|ms",
	)
}

func TestDogstatsdHasTagsFromMogrifiers(t *testing.T) {
	t.Parallel()
	c := listenUDP(t)
	r := New()
	p := unstarted(t, r, Options{
		Dogstatsd:   true,
		ExtraTags:   map[string]string{"zone": "eu.1", "app": "edge"},
		DatadogTags: map[string]string{"version": "1.2"},
		Mogrifiers: []Mogrifier{{
			Label:   "TAG",
			Pattern: `^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.(.*)$`,
			Name:    "ratelimit.service.rate_limit.$3",
			Tags:    map[string]string{"domain": "$1", "descriptor": "$2"},
		}, {
			Label:   "LATE", // matches too, but the first counts
			Pattern: `rate_limit`,
			Name:    "late.$0",
		}},
	}, c.LocalAddr())
	fill(r)
	r.Counter("ratelimit.service.rate_limit.mongo_cps.user_a,b#c d.total_hits").Add(1)
	flush(t, p)
	equal(t, receive(t, c),
		"ratelimit.service.rate_limit.total_hits:3|c|#app:edge,zone:eu_1,version:1.2,descriptor:database_users,domain:mongo_cps",
		"ratelimit.service.rate_limit.total_hits:1|c|#app:edge,zone:eu_1,version:1.2,descriptor:user_a_b_c_d,domain:mongo_cps",
		"ratelimit.redis_pool.cx_active:10|g|#app:edge,zone:eu_1,version:1.2",
		"ratelimit_server.ShouldRateLimit.response_time:1.25|ms|#app:edge,zone:eu_1,version:1.2",
		"ratelimit_server.ShouldRateLimit.response_time:2|ms|#app:edge,zone:eu_1,version:1.2",
	)
}

func TestDatagramsPassMostNetworksInOnePiece(t *testing.T) {
	t.Parallel()
	c := listenUDP(t)
	r := New()
	p := unstarted(t, r, Options{Statsd: true, Network: "udp"}, c.LocalAddr())
	for i := range 200 {
		r.Counter(fmt.Sprintf("ratelimit.service.rate_limit.domain.key_%03d.total_hits", i)).Add(1)
	}
	flush(t, p)
	lines, datagrams := 0, 0
	for lines < 200 {
		got := receive(t, c)
		if size := len(strings.Join(got, "\n")) + 1; size > datagramBytes {
			t.Errorf("datagram of %d bytes, want at most %d", size, datagramBytes)
		}
		lines += len(got)
		datagrams++
	}
	if lines != 200 || datagrams != 9 {
		t.Errorf("got %d lines in %d datagrams, want 200 in 9", lines, datagrams)
	}
}

func TestGaugeBelowZeroIsNoChange(t *testing.T) {
	t.Parallel()
	c := listenUDP(t)
	r := New()
	p := unstarted(t, r, Options{Dogstatsd: true}, c.LocalAddr())
	r.Gauge("g").Set(-3)
	flush(t, p)
	equal(t, receive(t, c), "g:0|g", "g:-3|g")
}

func TestManyDurationsAreASampleThatSaysItsRate(t *testing.T) {
	t.Parallel()
	l := listenTCP(t)
	r := New()
	p := unstarted(t, r, Options{Statsd: true}, l.Addr())
	for range 4 * maxSample {
		r.Timer("t").Observe(3 * time.Millisecond)
	}
	flush(t, p)
	r.Timer("t").Observe(5 * time.Millisecond)
	flush(t, p)
	p.disconnect()
	got := readAll(t, accept(t, l))
	want := append(slices.Repeat([]string{"t:3|ms|@0.25"}, maxSample), "t:5|ms")
	equal(t, got, want...)
}

func TestNothingIsLostWhileTheSinkIsAway(t *testing.T) {
	t.Parallel()
	l := listenTCP(t)
	addr := l.Addr()
	l.Close()
	r := New()
	p := unstarted(t, r, Options{Statsd: true}, addr)
	now := time.Now()
	for i := range 3 {
		r.Counter("c").Add(1)
		p.tick(now)
		now = p.retryAt
		if !p.away {
			t.Fatalf("tick %d: the sink is not away", i)
		}
	}
	if want := 8 * firstPause; p.pause != want {
		t.Errorf("pause after three failures: got %v, want %v", p.pause, want)
	}
	l, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Skip("another process has taken the port:", err)
	}
	defer l.Close()
	p.tick(now.Add(-time.Nanosecond)) // too early
	if !p.away {
		t.Error("the sink was not left alone")
	}
	p.tick(now)
	if p.away || p.pause != firstPause {
		t.Errorf("got away %v and a pause of %v, want the sink back", p.away, p.pause)
	}
	p.disconnect()
	equal(t, readAll(t, accept(t, l)), "c:3|c")
}

func TestSinkThatClosedIsNoticedBeforeTheNextFlush(t *testing.T) {
	t.Parallel()
	l := listenTCP(t)
	r := New()
	p := unstarted(t, r, Options{Statsd: true}, l.Addr())
	for i := range 5 {
		r.Counter("c").Add(uint64(i + 1))
		flush(t, p)
		conn := accept(t, l)
		got, err := bufio.NewReader(conn).ReadString('\n')
		if want := fmt.Sprintf("c:%d|c\n", i+1); err != nil || got != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
		conn.Close()
		<-p.gone
	}
}

func TestSinkThatDoesNotReadHoldsNothingUp(t *testing.T) {
	t.Parallel()
	l := listenTCP(t)
	r := New()
	p := unstarted(t, r, Options{Statsd: true}, l.Addr())
	name := func(i int) string { return fmt.Sprint(strings.Repeat("x", 900), i) }
	const names = 4_000 // more than the kernel takes
	if err := p.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.conn.(*net.TCPConn).SetWriteBuffer(1 << 16)
	for i := range names {
		r.Counter(name(i)).Add(1)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	flushed := make(chan error)
	go func() { flushed <- p.flush(ctx) }()
	stuck := accept(t, l)
	if _, err := io.ReadFull(stuck, make([]byte, 2)); err != nil { // of the first name: it has begun
		t.Fatal(err)
	}
	for i := range names {
		r.Counter(name(i)).Add(1)
	}
	giveUp()
	if err := <-flushed; err == nil {
		t.Fatal("the kernel took all of it")
	}
	if got := cap(p.lines.buf); got > 2*writeBytes {
		t.Errorf("%d bytes wait for the sink, want at most %d", got, 2*writeBytes)
	}
	p.disconnect()
	sum := make(chan uint64)
	go func() { sum <- total(t, stuck) + total(t, accept(t, l)) }()
	flush(t, p)
	p.disconnect()
	if got := <-sum; got != 2*names {
		t.Errorf("got %d, want %d", got, 2*names)
	}
}

// total adds up the numbers of the whole lines that come.
func total(t *testing.T, r io.Reader) (sum uint64) {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		_, rest, _ := strings.Cut(lines.Text(), ":")
		number, kind, _ := strings.Cut(rest, "|")
		if n, err := strconv.ParseUint(number, 10, 64); err == nil && kind == "c" {
			sum += n
		}
	}
	return sum
}

// limited takes some bytes and fails.
type limited struct {
	bytes.Buffer
	left int
}

func (w *limited) Write(b []byte) (int, error) {
	if len(b) > w.left {
		n, _ := w.Buffer.Write(b[:w.left])
		w.left = 0
		return n, errors.New("broken")
	}
	w.left -= len(b)
	return w.Buffer.Write(b)
}

// Whatever part of a flush could be written, the counts in it arrive once.
// A context that ends and a deadline that passes are one moment: what the first sets off may
// come when the connection is gone.
func TestFlushThatRunsOutOfTimeLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New()
		r.Counter("c").Add(1)
		p := unstarted(t, r, Options{Statsd: true}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1})
		for range 100 {
			conn, other := net.Pipe() // nobody reads
			p.conn, p.gone, p.away = conn, make(chan struct{}), false
			p.tick(time.Now())
			synctest.Wait()
			if p.conn != nil || !p.away {
				t.Fatalf("got away %v and the connection %v, want it away and closed", p.away, p.conn)
			}
			other.Close()
			time.Sleep(longestPause)
		}
	})
}

func TestPartOfAFlushArrivesOnce(t *testing.T) {
	t.Parallel()
	for _, at := range []int{datagramBytes, 40} {
		for broken := 0; ; broken++ {
			r := New()
			for i := range 5 {
				r.Counter(fmt.Sprintf("counter.%d", i)).Add(uint64(i + 1))
			}
			l, err := newLines(Options{Statsd: true})
			if err != nil {
				t.Fatal(err)
			}
			l.limit = at
			first, second := &limited{left: broken}, &limited{left: 1 << 20}
			failed := l.write(first, r.read())
			if err := l.write(second, r.read()); err != nil {
				t.Fatal(err)
			}
			if sum := total(t, &first.Buffer) + total(t, &second.Buffer); sum != 15 {
				t.Errorf("broken after %d bytes of a batch of %d: got %d, want 15", broken, at, sum)
			}
			if failed == nil {
				break
			}
		}
	}
}

func TestCountsArriveExactlyWhileTheSinkRestarts(t *testing.T) {
	t.Parallel()
	l := listenTCP(t)
	sums := make(chan uint64)
	go func() { // a sink that tells its clients to leave, reads on until they have, and does so again
		var all uint64
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.(*net.TCPConn).CloseWrite()
			data, _ := io.ReadAll(conn)
			conn.Close()
			if string(data) == "the end" {
				sums <- all
				return
			}
			all += total(t, bytes.NewReader(data))
		}
	}()
	r := New()
	addr := l.Addr().(*net.TCPAddr)
	sink, err := Open(r, Options{Statsd: true, Host: "127.0.0.1", Port: addr.Port, FlushInterval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 20_000 {
				r.Counter(fmt.Sprint("c.", (i+j)%50)).Add(1)
			}
		})
	}
	wg.Wait()
	if err := sink.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	last, err := net.Dial("tcp", addr.String()) // accepted after all others
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(last, "the end")
	last.Close()
	if got := <-sums; got != 80_000 {
		t.Errorf("got %d, want 80000", got)
	}
}

func TestCloseSendsWhatIsLeftAndSaysWhatItCannot(t *testing.T) {
	t.Parallel()
	l := listenTCP(t)
	addr := l.Addr().(*net.TCPAddr)
	r := New()
	opts := Options{Statsd: true, Host: "127.0.0.1", Port: addr.Port, FlushInterval: time.Hour}
	sink, err := Open(r, opts)
	if err != nil {
		t.Fatal(err)
	}
	r.Counter("c").Add(4)
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Error("the second time:", err)
	}
	equal(t, readAll(t, accept(t, l)), "c:4|c")

	l.Close()
	if sink, err = Open(New(), opts); err != nil {
		t.Fatal(err)
	}
	err = sink.Close(t.Context())
	if err == nil || !strings.Contains(err.Error(), "has not got the last counts") {
		t.Errorf("got %v, want an error", err)
	}
}
