package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
	"weir.dev/weir/internal/redistest"
)

type kindByte = algorithm.Kind

func kindOf(l weir.Limit) algorithm.Kind { return algorithm.KindOf(l.Algorithm()) }

// hammer asks from several goroutines until stop returns, and returns how many units
// were allowed. Any error fails the test.
func hammer(t *testing.T, stop func(), ask func(n int) (taken int64, err error)) int64 {
	t.Helper()
	var taken, n atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				k, err := ask(int(n.Add(1)))
				if err != nil {
					t.Error(err)
					return
				}
				taken.Add(k)
			}
		})
	}
	stop()
	close(done)
	wg.Wait()
	return taken.Load()
}

func TestSlotThatMovesUnderTrafficLosesNothing(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Redis7, 3, 0)
	s := open(t, Options{Addrs: c.Addrs(), Cluster: true, Budget: patient})
	limit := weir.PerHour(1_000_000).By(weir.FixedWindow)
	key := stateKey(weir.Text("hot"), "move", kindOf(limit))
	slot := c.Slot(key)
	taken := hammer(t, func() {
		for range 4 {
			c.MoveSlot(slot, (c.Owner(slot)+1)%3)
			c.FlushScripts()
		}
	}, func(n int) (int64, error) {
		d, err := s.Take(ctx, askOf("move", "hot", limit, 1))
		return d.Taken, err
	})
	if d := take(t, s, askOf("move", "hot", limit, 0)); 1_000_000-d.Remaining != taken {
		t.Errorf("got %d units used, want the %d that were allowed", 1_000_000-d.Remaining, taken)
	}
}

func TestSlotThatIsHalfMovedAnswersOldAndNewKeys(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Redis7, 3, 0)
	s := open(t, Options{Addrs: c.Addrs(), Cluster: true, Budget: patient})
	limit := weir.PerHour(1_000_000).By(weir.FixedWindow)
	old := stateKey(weir.Text("half"), "old", kindOf(limit))
	slot := c.Slot(old)
	take(t, s, askOf("old", "half", limit, 1))
	to := (c.Owner(slot) + 1) % 3
	c.OpenSlot(slot, to)
	taken := hammer(t, func() {
		c.MoveKeys(slot, to, old)
		c.CloseSlot(slot, to)
	}, func(n int) (int64, error) {
		decisions := make([]weir.Decision, 2)
		err := s.TakeAll(ctx, []weir.Ask{askOf("old", "half", limit, 1), askOf("new", "half", limit, 1)}, decisions)
		return decisions[0].Taken, err
	})
	for _, name := range []string{"old", "new"} {
		d := take(t, s, askOf(name, "half", limit, 0))
		want := taken
		if name == "old" {
			want++
		}
		if 1_000_000-d.Remaining != want {
			t.Errorf("%s: got %d units used, want %d", name, 1_000_000-d.Remaining, want)
		}
	}
}

func TestDenialInOneSlotGivesBackInTheOthers(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Addrs: redistest.SharedCluster(t, redistest.Redis7).Addrs(), Cluster: true, Budget: patient})
	for n, limit := range limits {
		full := askOf(fmt.Sprint("full", n), "x", limit, 50)
		take(t, s, full)
		asks := []weir.Ask{full}
		for who := range 8 {
			asks = append(asks, askOf(fmt.Sprint("other", n), fmt.Sprint(who), limit, 3))
		}
		decisions := make([]weir.Decision, len(asks))
		if err := s.TakeAll(ctx, asks, decisions); err != nil {
			t.Fatal(err)
		}
		for i, d := range decisions {
			if d.Taken != 0 || d.Allowed != (i > 0) {
				t.Errorf("%v: ask %d: got %+v, want nothing taken", limit, i, d)
			}
		}
		for who := range 8 {
			if d := take(t, s, askOf(fmt.Sprint("other", n), fmt.Sprint(who), limit, 0)); d.Remaining != 50 {
				t.Errorf("%v: client %d: got %d remaining, want 50", limit, who, d.Remaining)
			}
		}
	}
}

// A slot has moved, which the client has not heard of, and is on the move again: the old
// owner says MOVED, the next one ASK.
func TestSlotOnTheMoveAgainIsFollowedByWhoMissedItsLastMove(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Redis7, 3, 0)
	limit := weir.PerHour(1_000_000).By(weir.FixedWindow)
	ask := askOf("old", "again", limit, 1)
	key := stateKey(ask.Key, ask.Name, kindOf(limit))
	slot := c.Slot(key)
	for _, moved := range []bool{true, false} { // the key that is asked for, to the third node
		s := open(t, Options{Addrs: c.Addrs(), Cluster: true, Budget: patient})
		var beside []weir.Ask
		for n := range 100 {
			beside = append(beside, askOf("beside", fmt.Sprint(n), limit, 1))
		}
		eventually(t, func() error { // the map is known, and every node reached
			known := len(s.Nodes())
			if err := firstCause(s, beside); err != nil || known == 3 {
				return err
			}
			return fmt.Errorf("%d nodes are known, want 3", known)
		})
		used := 1_000_000 - take(t, s, askOf("old", "again", limit, 0)).Remaining
		from := c.Owner(slot)
		next, third := (from+1)%3, (from+2)%3
		take(t, s, ask)
		c.MoveSlot(slot, next)
		c.OpenSlot(slot, third)
		if moved {
			c.MoveKeys(slot, third, key)
		}
		if d := take(t, s, ask); 1_000_000-d.Remaining != used+2 {
			t.Errorf("moved %v: got %d units used, want %d", moved, 1_000_000-d.Remaining, used+2)
		}
		// One that asks again until it has heard of the move is told more often.
		var told int
		if fmt.Sscanf(c.Node(from).Info("errorstats", "errorstat_MOVED"), "count=%d", &told); told < 1 || told > 4 {
			t.Errorf("moved %v: the old owner said %d times that the slot has moved, want 1 to 4", moved, told)
		}
		c.CloseSlot(slot, third)
	}
}

// slowRefunds is a connection that keeps refunds back until it is let go, or for as long as
// anybody may wait.
type slowRefunds struct {
	net.Conn
	free <-chan struct{}
}

func (c slowRefunds) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(live.refund.sha)) || bytes.Contains(b, []byte(live.refund.text)) {
		select {
		case <-c.free:
		case <-time.After(patient):
		}
	}
	return c.Conn.Write(b)
}

func TestNobodyWaitsBeyondHisDeadlineForWhatIsGivenBack(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	s := open(t, Options{
		Addrs: redistest.SharedCluster(t, redistest.Redis7).Addrs(), Cluster: true, Budget: patient,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", addr)
			return slowRefunds{conn, free}, err
		},
	})
	full, other := askOf("slow refund", "full", limits[0], 50), askOf("slow refund", "other", limits[0], 3)
	take(t, s, full)
	take(t, s, other)
	hurried, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	decisions := make([]weir.Decision, 2)
	asked := time.Now()
	if err := s.TakeAll(hurried, []weir.Ask{full, other}, decisions); err != nil || decisions[0].Allowed || decisions[1].Taken != 0 {
		t.Errorf("got %+v, %v; want a denial and nothing taken", decisions, err)
	}
	if took := time.Since(asked); took > patient-2*time.Second {
		t.Errorf("with a deadline of 2 s a question took %v", took)
	}
	close(free)
	other.Cost = 0
	eventually(t, func() error {
		if d := take(t, s, other); d.Remaining != 47 {
			return fmt.Errorf("got %d remaining, want the 47 there were", d.Remaining)
		}
		return nil
	})
}

func TestNodeThatIsAwayFailsItsOwnAsksAlone(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Redis7, 3, 0)
	s := open(t, Options{Addrs: c.Addrs(), Cluster: true})
	limit := limits[0]
	var asks []weir.Ask
	for who := range 30 {
		asks = append(asks, askOf("part", fmt.Sprint(who), limit, 1))
	}
	eventually(t, func() error { return firstCause(s, asks) })
	victim := 0
	c.Node(victim).Pause()
	defer c.Node(victim).Resume()
	decisions := make([]weir.Decision, len(asks))
	if err := s.TakeAll(ctx, asks, decisions); err != nil {
		t.Fatal(err)
	}
	for i, d := range decisions {
		away := c.Owner(c.Slot(stateKey(asks[i].Key, "part", kindOf(limit)))) == victim
		if away != (d.Cause != nil) || away == d.Allowed {
			t.Errorf("client %d, whose node is away %v: got allowed %v, cause %v", i, away, d.Allowed, d.Cause)
		}
	}
}

// firstCause returns why one of the asks was not decided, or may not be the next time.
func firstCause(s *Store, asks []weir.Ask) error {
	decisions := make([]weir.Decision, len(asks))
	if err := s.TakeAll(ctx, asks, decisions); err != nil {
		return err
	}
	for _, d := range decisions {
		if d.Cause != nil {
			return d.Cause
		}
	}
	for _, n := range s.Nodes() {
		if n.State != Healthy {
			return fmt.Errorf("node %s is %v", n.Addr, n.State)
		}
	}
	return nil
}

func TestSlotThatTwoNodesSendToEachOtherFailsItsOwnAsksAlone(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Redis7, 3, 0)
	s := open(t, Options{Addrs: c.Addrs(), Cluster: true, Budget: time.Second})
	ask := askOf("loop", "a", limits[0], 0)
	slot := c.Slot(stateKey(ask.Key, ask.Name, kindOf(ask.Limit)))
	owner := c.Owner(slot)
	beside := ask
	for n := 0; ; n++ { // a key of the same node
		beside.Key = weir.Text(fmt.Sprint("b", n))
		if other := c.Slot(stateKey(beside.Key, ask.Name, kindOf(ask.Limit))); other != slot && c.Owner(other) == owner {
			break
		}
	}
	eventually(t, func() error { _, err := s.Take(ctx, beside); return err })
	away := c.Node((owner+1)%3).Do("CLUSTER", "MYID").(string)
	c.Node(owner).Do("CLUSTER", "SETSLOT", fmt.Sprint(slot), "NODE", away)
	for range 8 {
		_, err := s.Take(ctx, ask)
		if class, _ := classOf(t, err); class != Moving {
			t.Errorf("got class %s (%v), want %s", class, err, Moving)
		}
	}
	decisions := make([]weir.Decision, 2)
	if err := s.TakeAll(ctx, []weir.Ask{ask, beside}, decisions); err != nil {
		t.Fatal(err)
	}
	if class, _ := classOf(t, decisions[0].Cause); class != Moving {
		t.Errorf("of two: got class %s, want %s", class, Moving)
	}
	take(t, s, beside)
	for _, n := range s.Nodes() {
		if n.State != Healthy {
			t.Errorf("%s is %v, want healthy: a slot is no reason to avoid a node", n.Addr, n.State)
		}
	}
}
