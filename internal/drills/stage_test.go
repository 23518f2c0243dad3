package drills

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"weir.dev/weir/internal/faultproxy"
	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/redisstore"
)

// budget is what a question may wait for the network, as by default. patient is that of
// short drills about exactness, on machines that do much else.
const (
	budget  = redisstore.DefaultBudget
	patient = 5 * time.Second
)

// stage is where one drill takes place, and its row of the table.
type stage struct {
	*testing.T
	full bool
	row  row
}

// row is what a drill found.
type row struct {
	name, fault   string
	calls, local  int
	over, bound   int64
	longest       time.Duration
	first, whole  time.Duration // until the first central answer, and until all were; -1: nothing was away
	notes, faults []string
}

// fault reports a promise that was not kept.
func (s *stage) fault(format string, args ...any) {
	s.Helper()
	s.row.faults = append(s.row.faults, fmt.Sprintf(format, args...))
	s.Errorf(format, args...)
}

// note adds a figure to the row.
func (s *stage) note(format string, args ...any) {
	s.row.notes = append(s.row.notes, fmt.Sprintf(format, args...))
}

// within holds a time against its promise. The short form, on machines that do much else,
// only finds what hangs.
func (s *stage) within(what string, got, want time.Duration) {
	s.Helper()
	if !s.full {
		want = 10*want + 5*time.Second
	}
	if got > want {
		s.fault("%s: got %v, want at most %v", what, got.Round(time.Millisecond), want)
	}
}

// none reports calls that should not be there. Where only time can have made them, the
// short form lets some pass.
func (s *stage) none(what string, of, all history) {
	s.Helper()
	if s.full && len(of) > 0 || len(of) > len(all)/2 {
		s.fault("%s: got %d of %d calls, want none: %v", what, len(of), len(all), of.classes())
	}
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually waits until f is true, long enough for any machine.
func (s *stage) eventually(what string, f func() bool) {
	s.Helper()
	for deadline := time.Now().Add(30 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("waited 30 s for %s", what)
		}
	}
}

// span is how long something lasts in each form.
func (s *stage) span(full, short time.Duration) time.Duration {
	if s.full {
		return full
	}
	return short
}

// exactBudget is the budget of drills that hurt no server for long.
func (s *stage) exactBudget() time.Duration { return s.span(budget, patient) }

// cluster starts three masters, and in the full form or if the drill needs them three
// replicas: node i+3 follows node i. Nodes go on serving while others are away.
func (s *stage) cluster(replicas bool) *redistest.Cluster {
	s.Helper()
	n := 0
	if replicas || s.full {
		n = 1
	}
	c := redistest.StartCluster(s, redistest.Redis7, 3, n)
	for i := range c.Addrs() {
		c.Node(i).Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
		if !s.full && !replicas { // nothing here may fail over because the machine is busy
			c.Node(i).Do("CONFIG", "SET", "cluster-node-timeout", "60000")
		}
	}
	return c
}

// nodeTimeout is how long a silent node is waited for by the others.
const fullNodeTimeout, shortNodeTimeout = 2 * time.Second, 500 * time.Millisecond

// hasten sets the node timeout of drills that wait for a failover.
func (s *stage) hasten(c *redistest.Cluster) (nodeTimeout time.Duration) {
	nodeTimeout = s.span(fullNodeTimeout, shortNodeTimeout)
	for i := range c.Addrs() {
		c.Node(i).Do("CONFIG", "SET", "cluster-node-timeout", fmt.Sprint(nodeTimeout.Milliseconds()))
	}
	return nodeTimeout
}

// keysOf returns a key of each of the nodes 0, 1 and 2.
func (s *stage) keysOf(c *redistest.Cluster) []string {
	s.Helper()
	keys := make([]string, 3)
	for n, found := 0, 0; found < 3; n++ {
		key := fmt.Sprint("k", n)
		owner := c.Owner(c.Slot("weir:{" + key + "}:api:g"))
		if keys[owner] == "" {
			keys[owner] = key
			found++
		}
	}
	return keys
}

// proxies puts a proxy before each address, and returns them with a Dial that goes
// through them.
func (s *stage) proxies(addrs ...string) (map[string]*faultproxy.Proxy, func(context.Context, string) (net.Conn, error)) {
	s.Helper()
	all := map[string]*faultproxy.Proxy{}
	for _, addr := range addrs {
		p, err := faultproxy.New(addr)
		s.must(err)
		s.Cleanup(func() { p.Close() })
		all[addr] = p
	}
	return all, func(ctx context.Context, addr string) (net.Conn, error) {
		if p := all[addr]; p != nil {
			addr = p.Addr()
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}

// sum fills the row with what all drills have: calls, those answered locally, the largest
// excess with its bound, and the longest call. bound is asked for each key and name.
func (s *stage) sum(all history, bound func(calls history, name string) int64) {
	s.Helper()
	s.row.calls, s.row.local, s.row.longest = len(all), len(all.local()), all.longest()
	for key := range 8 {
		mine := all.of(key)
		for _, name := range mine.names() {
			calls := mine.named(name)
			over, most := calls.over(limitOf(name), byDecider), bound(calls, name)
			if over > most {
				s.fault("key %d, %s: got %d units beyond %v, want at most %d", key, name, over, limitOf(name), most)
			}
			if over > s.row.over || s.row.bound == 0 {
				s.row.over, s.row.bound = over, most
			}
		}
	}
	for _, c := range all.where(func(c call) bool { return c.err != nil }) {
		s.fault("a caller got an error: %v", c.err)
		break
	}
	s.Log(all)
}

// exact holds every key and limit against the definition, and says that nothing but the
// store decided.
func (s *stage) exact(all history) {
	s.Helper()
	s.sum(all.central(), func(history, string) int64 { return 0 })
	s.row.calls, s.row.local, s.row.longest = len(all), len(all.local()), all.longest()
	for key := range 8 {
		mine := all.of(key)
		for _, name := range mine.names() {
			if err := mine.named(name).check(limitOf(name)); err != nil {
				s.fault("key %d, %s: %v", key, name, err)
			}
		}
	}
}

// once says that no question was executed twice: the tally of each key has at most the
// units that callers were given, and those of whom the answer was lost. Nothing may have
// been forgotten where least is true: then it has at least the units given.
func (s *stage) once(c *crew, all history, least bool) {
	s.Helper()
	for key := range c.keys {
		mine := all.of(key).named("tally")
		given := mine.central().taken()
		unknown := int64(len(mine.where(func(c call) bool { return c.unknown })))
		used := tally.Units() - c.peek(key)
		if used > given+unknown || least && used < given {
			s.fault("key %d: the store executed %d questions, want %d given and up to %d whose answer was lost", key, used, given, unknown)
		}
	}
}

// recovered fills in how long after a moment the key was central again.
func (s *stage) recovered(calls history, from time.Duration) {
	s.row.first, s.row.whole = -1, 0
	for _, c := range calls {
		switch {
		case c.central() && c.asked >= from && (s.row.first < 0 || c.ended()-from < s.row.first):
			s.row.first = c.ended() - from
		case !c.central() && c.ended()-from > s.row.whole:
			s.row.whole = c.ended() - from
		}
	}
}

// wantOnly says that failures were put into the right class, and none but those beside it.
// A busy machine is a reason for some of the short form to be late.
func (s *stage) wantOnly(failed history, class redisstore.Class, beside ...redisstore.Class) {
	s.Helper()
	count := failed.classes()
	found := count[class]
	delete(count, class)
	if !s.full {
		beside = append(beside, redisstore.Timeout, redisstore.Unreachable)
	}
	for _, other := range beside {
		delete(count, other)
	}
	if found == 0 || len(count) > 0 {
		s.fault("got the classes %v, want %s, and beside it only %v", failed.classes(), class, beside)
	}
}

func (r row) verdict() string {
	if len(r.faults) > 0 {
		return "**failed**: " + strings.Join(r.faults, "; ")
	}
	return "passed"
}
