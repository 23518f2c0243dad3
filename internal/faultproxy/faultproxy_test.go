package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// echo returns a connection through a proxy to a server that sends back what it gets.
func echo(t *testing.T) (*Proxy, net.Conn) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	p, err := New(server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, dial(t, p)
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends text and returns as many bytes of the answer, or the error. It gives
// up after patience, so that what never comes fails a test and does not hang it.
func exchange(conn net.Conn, text string, patience time.Duration) ([]byte, error) {
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte(text)); err != nil {
		return nil, err
	}
	answer := make([]byte, len(text))
	n, err := io.ReadFull(conn, answer)
	return answer[:n], err
}

const long, short = 20 * time.Second, 100 * time.Millisecond

func wantEcho(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if got, err := exchange(conn, text, long); err != nil || string(got) != text {
		t.Errorf("got %q, %v; want %q back", got, err, text)
	}
}

func TestWithoutFaultsEverythingPasses(t *testing.T) {
	t.Parallel()
	_, conn := echo(t)
	wantEcho(t, conn, string(bytes.Repeat([]byte("0123456789"), 100_000)))
	conn.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(conn); len(rest) > 0 || err != nil {
		t.Errorf("after the client's last byte: got %q, %v; want the end", rest, err)
	}
}

func TestLatencyAndJitterDelayBothWays(t *testing.T) {
	t.Parallel()
	p, conn := echo(t)
	flow := Flow{Latency: 30 * time.Millisecond, Jitter: 10 * time.Millisecond}
	p.Set(Faults{flow, flow})
	begin := time.Now()
	wantEcho(t, conn, "late")
	if took := time.Since(begin); took < 60*time.Millisecond {
		t.Errorf("an answer took %v, want at least 30 ms each way", took)
	}
}

func TestAHoleInEitherDirectionKeepsWhatIsSentUntilItHeals(t *testing.T) {
	t.Parallel()
	for _, f := range []Faults{{Requests: Flow{Hole: true}}, {Replies: Flow{Hole: true}}} {
		p, conn := echo(t)
		p.Set(f)
		if got, err := exchange(conn, "through", short); err == nil {
			t.Errorf("%+v: got %q out of a hole", f, got)
		}
		p.Set(Faults{})
		conn.SetDeadline(time.Now().Add(long))
		got := make([]byte, len("through"))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "through" {
			t.Errorf("%+v: after it healed got %q, %v; want what was sent", f, got, err)
		}
	}
}

func TestALostReplyWasARequestThatArrived(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	arrived := make(chan string, 1)
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		request := make([]byte, 4)
		io.ReadFull(conn, request)
		arrived <- string(request)
		conn.Write(request)
	}()
	p, err := New(server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Set(Faults{Replies: Flow{Loss: 1}})
	if got, err := exchange(dial(t, p), "once", long); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v; want a reset in place of the reply", got, err)
	}
	if got := <-arrived; got != "once" {
		t.Errorf("the server got %q, want the request", got)
	}
}

func TestResetAndFinishEndConnectionsEachInItsWay(t *testing.T) {
	t.Parallel()
	p, conn := echo(t)
	wantEcho(t, conn, "up")
	p.Reset()
	conn.SetDeadline(time.Now().Add(long))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after Reset: got %v, want a reset connection", err)
	}
	conn = dial(t, p)
	wantEcho(t, conn, "up again")
	p.Finish()
	conn.SetDeadline(time.Now().Add(long))
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after Finish: got %v, want the end", err)
	}
	wantEcho(t, dial(t, p), "still there")
}

func TestGarbageIsNotWhatWasSent(t *testing.T) {
	t.Parallel()
	p, conn := echo(t)
	p.Set(Faults{Replies: Flow{Garbage: true}})
	text := string(bytes.Repeat([]byte("a"), 100))
	if got, err := exchange(conn, text, long); err != nil || string(got) == text {
		t.Errorf("got %q, %v; want 100 other bytes", got, err)
	}
}

func TestServerThatIsAwayResetsNewConnections(t *testing.T) {
	t.Parallel()
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away.Close()
	p, err := New(away.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return // reset already
	}
	defer conn.Close()
	if got, err := exchange(conn, "hello", long); err == nil {
		t.Errorf("got %q from nobody", got)
	}
}
