package redisstore

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
)

func TestNewMasterOfASentinelGroupIsFollowed(t *testing.T) {
	t.Parallel()
	g := redistest.StartSentinel(t, redistest.Redis7, 1)
	var stores []*Store
	for _, resp2 := range []bool{false, true} {
		stores = append(stores, open(t, Options{Addrs: g.Addrs(), Master: g.MasterName, RESP2: resp2, Budget: patient}))
	}
	ask := askOf("failover", "a", weir.PerHour(1000).By(weir.FixedWindow), 1)
	for _, s := range stores {
		take(t, s, ask)
	}
	g.Failover()
	for _, s := range stores {
		eventually(t, func() error { _, err := s.Take(ctx, ask); return err })
	}
	ask.Cost = 0
	for _, s := range stores {
		if d := take(t, s, ask); d.Remaining > 998 {
			t.Errorf("got %d remaining, want what was taken since the new master at least", d.Remaining)
		}
	}
}

// told is a push of a Sentinel.
func told(channel, text string) string {
	return fmt.Sprintf(">3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(channel), channel, len(text), text)
}

// confirmed is a Sentinel's answer to the client's SUBSCRIBE.
var confirmed = strings.Repeat(">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", 6)

// hostileSentinels answer one command as no Sentinel or master does. Each once ended the
// process, in a goroutine of the client's.
var hostileSentinels = map[string]struct{ verb, reply string }{
	"a server without a role":          {"ROLE", "*0\r\n"},
	"a master without an address":      {"SENTINEL GET-MASTER-ADDR-BY-NAME", "*0\r\n"},
	"a master without a port":          {"SENTINEL GET-MASTER-ADDR-BY-NAME", "*1\r\n$9\r\n127.0.0.1\r\n"},
	"a subscription that is queued":    {"SUBSCRIBE", "+QUEUED\r\n"},
	"an end of one that is queued":     {"UNSUBSCRIBE", "+QUEUED\r\n"},
	"one confirmation too many":        {"SUBSCRIBE", confirmed + ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"},
	"confirmations and ends":           {"SUBSCRIBE", ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n" + strings.Repeat(">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n", 5) + confirmed},
	"a confirmation out of turn":       {"SENTINEL SENTINELS", confirmed},
	"an answer to nothing":             {"SUBSCRIBE", confirmed + "+OK\r\n"},
	"two errors to one end":            {"UNSUBSCRIBE", "-NOAUTH Authentication required.\r\n-NOAUTH Authentication required.\r\n"},
	"a Sentinel without an address":    {"SUBSCRIBE", confirmed + told("+sentinel", "sentinel abc")},
	"a switch to nowhere":              {"SUBSCRIBE", confirmed + told("+switch-master", "m 127.0.0.1 1")},
	"a reboot of nobody":               {"SUBSCRIBE", confirmed + told("+reboot", "master")},
	"a reboot at no address":           {"SUBSCRIBE", confirmed + told("+reboot", "master m")},
	"an empty list in place of a text": {"SUBSCRIBE", confirmed + ">4\r\n+message\r\n++sentinel\r\n*0\r\n+a b c d e\r\n"},
}

// hostileSentinel answers as the Sentinel and the master of a group, but for one command. It
// tells when somebody hangs up after that.
func hostileSentinel(t *testing.T, verb, reply string, resp2 bool) (addr string, hungUp <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	host, port, _ := net.SplitHostPort(l.Addr().String())
	replies := map[string]string{
		"HELLO": "%1\r\n$5\r\nproto\r\n:3\r\n", "PING": "+PONG\r\n", "UNSUBSCRIBE": ">3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n",
		"SUBSCRIBE": confirmed, "SENTINEL SENTINELS": "*0\r\n", "ROLE": "*1\r\n$6\r\nmaster\r\n",
		"SENTINEL GET-MASTER-ADDR-BY-NAME": fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port),
	}
	replies[verb] = reply
	ended := make(chan struct{}, 100)
	serve := func(conn net.Conn) {
		defer conn.Close()
		harmed := false
		for r := bufio.NewReader(conn); ; {
			command, err := readCommand(r)
			if err != nil {
				if harmed {
					ended <- struct{}{}
				}
				return
			}
			name := strings.ToUpper(command[0])
			if name == "SENTINEL" {
				name += " " + strings.ToUpper(command[1])
			}
			harmed = harmed || name == verb
			answer, ok := replies[name]
			if !ok {
				answer = "+OK\r\n"
			}
			if resp2 {
				answer = strings.ReplaceAll(answer, ">", "*")
			}
			io.WriteString(conn, answer)
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String(), ended
}

func TestHostileSentinelsAreGivenUp(t *testing.T) {
	t.Parallel()
	for name, c := range hostileSentinels {
		for _, resp2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/RESP2 %v", name, resp2), func(t *testing.T) {
				t.Parallel()
				addr, hungUp := hostileSentinel(t, c.verb, c.reply, resp2)
				s := open(t, Options{Addrs: []string{addr}, Master: "m", RESP2: resp2, Budget: time.Second})
				s.Take(ctx, askOf("hostile", "a", limits[0], 1)) // connects; the answer is another's matter
				select {
				case <-hungUp:
				case <-time.After(10 * time.Second):
					t.Error("its connection still stands")
				}
			})
		}
	}
}
