package redisstore

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir.dev/weir"
)

// hostileReplies are what no server answers to a script. Each once ended the process, in
// a goroutine of the client's, or made it take memory without end.
var hostileReplies = map[string]string{
	"a text of negative length":      "$-5\r\n",
	"a text of 2^60 bytes":           "$1152921504606846976\r\n",
	"a list of negative length":      "*-7\r\n",
	"a list of 2^60 items":           "*1152921504606846976\r\n",
	"a list of 2^30 items":           "*1073741824\r\n",
	"a map whose length overflows":   "%4611686018427387904\r\n",
	"a length that overflows":        "$99999999999999999999999999\r\n",
	"lists in lists":                 strings.Repeat("*1\r\n", 5_000_000),
	"two answers to one question":    "*2\r\n:1\r\n:1\r\n*2\r\n:1\r\n:1\r\n+OK\r\n+OK\r\n",
	"a subscription never asked for": ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
	"the end of one":                 ">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n",
	"an invalidation":                ">2\r\n$10\r\ninvalidate\r\n*-1\r\n",
	"a push inside of a list":        "*1\r\n>2\r\n$1\r\na\r\n$1\r\nb\r\n",
	"attributes without end":         strings.Repeat("|1\r\n+a\r\n+b\r\n", 100_000),
	"a text in pieces":               "$?\r\n;4611686018427387904\r\n",
	"a list without end":             "*?\r\n" + strings.Repeat(":1\r\n", 1_000_000),
	"a line without end":             "+" + strings.Repeat("a", 10_000_000),
	"a bool of many letters":         "#true\r\n",
	"a null with a text":             "_null\r\n",
	"a redirect to nowhere":          "-MOVED\r\n",
	"a redirect with a slot alone":   "-MOVED 12\r\n",
	"an ASK to nowhere":              "-ASK\r\n",
	"a word that begins as ASK":      "-ASKEW what now\r\n",
	"an error as a text":             "!5\r\nMOVED\r\n",
}

// hostileServer answers handshakes well and every other command with the given bytes, or
// with them from the first byte on where it greets.
func hostileServer(t *testing.T, reply string, greets bool) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if greets {
					io.WriteString(conn, reply)
				}
				for r := bufio.NewReader(conn); ; {
					command, err := readCommand(r)
					if err != nil {
						return
					}
					switch command[0] {
					case "HELLO":
						io.WriteString(conn, "%1\r\n$5\r\nproto\r\n:3\r\n")
					case "CLIENT", "PING":
						io.WriteString(conn, "+OK\r\n")
					case "CLUSTER":
						host, port, _ := net.SplitHostPort(l.Addr().String())
						fmt.Fprintf(conn, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
					default:
						io.WriteString(conn, reply)
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// readCommand reads one command as clients send them.
func readCommand(r *bufio.Reader) ([]string, error) {
	n, err := readLength(r)
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		size, err := readLength(r)
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		words[i] = string(b[:size])
	}
	return words, nil
}

func readLength(r *bufio.Reader) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

func TestHostileAnswersAreErrors(t *testing.T) {
	t.Parallel()
	for name, reply := range hostileReplies {
		for n := range 3 {
			greets, cluster := n == 1, n == 2
			t.Run(fmt.Sprintf("%s/greets %v/cluster %v", name, greets, cluster), func(t *testing.T) {
				t.Parallel()
				s := open(t, Options{Addrs: []string{hostileServer(t, reply, greets)}, Cluster: cluster, Budget: time.Second})
				for range 3 {
					ask := askOf("hostile", "a", limits[0], 1)
					// One answer too many can be a good one before.
					if _, err := s.Take(ctx, ask); err == nil && !strings.HasPrefix(name, "two") {
						t.Error("got an answer, want an error")
					} else if err != nil {
						classOf(t, err)
					}
				}
			})
		}
	}
}

func TestReplayRefusesTimesThatItCannotCompute(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Addrs: []string{"127.0.0.1:1"}})
	for _, at := range []int64{math.MinInt64, -1, mostMicros, math.MaxInt64} {
		err := s.TakeAt(ctx, at, []weir.Ask{askOf("replay", "a", limits[0], 1)}, make([]weir.Decision, 1))
		if err == nil || !strings.Contains(err.Error(), "is outside 0 to") {
			t.Errorf("a replay at %d µs: got %v, want that it is outside", at, err)
		}
	}
}

// FuzzFrames cuts a stream anywhere: the answers in it are the same.
func FuzzFrames(f *testing.F) {
	for _, reply := range hostileReplies {
		f.Add([]byte(reply[:min(len(reply), 200)]), 3)
	}
	f.Add([]byte("%2\r\n+a\r\n*0\r\n+b\r\n$-1\r\n>1\r\n+c\r\n$3\r\na\nb\r\n"), 5)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		read := func(step int) (pushes, replies int, err error) {
			fr := frames{keeps: true}
			done := func(push bool) error {
				if push {
					pushes++
				} else {
					replies++
				}
				return nil
			}
			for rest := stream; len(rest) > 0 && err == nil; {
				n := min(step, len(rest))
				err, rest = fr.read(rest[:n], done), rest[n:]
			}
			return pushes, replies, err
		}
		pushes, replies, err := read(max(len(stream), 1))
		cutPushes, cutReplies, cutErr := read(max(cut, 1))
		if pushes != cutPushes || replies != cutReplies || (err == nil) != (cutErr == nil) {
			t.Errorf("%q: got %d pushes, %d replies, error %v; in pieces of %d: %d, %d, %v",
				stream, pushes, replies, err, cut, cutPushes, cutReplies, cutErr)
		}
	})
}
