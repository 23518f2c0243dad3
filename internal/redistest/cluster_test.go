package redistest

import (
	"strings"
	"testing"
)

func TestClusterMovesASlotWithItsKeys(t *testing.T) {
	t.Parallel()
	for _, v := range Versions() {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			c := StartCluster(t, v, 3, 0)
			slot := c.Slot("{a}1")
			from := c.Owner(slot)
			to := (from + 1) % 3
			c.Node(from).Do("SET", "{a}1", "one")
			c.Node(from).Do("SET", "{a}2", "two")

			c.OpenSlot(slot, to)
			c.MoveKeys(slot, to, "{a}1")
			wantRefusal(t, c.Node(from), "ASK ", "GET", "{a}1")
			half := "TRYAGAIN "
			if v == Redis62 { // sends the client on, to be told TRYAGAIN there
				half = "ASK "
			}
			wantRefusal(t, c.Node(from), half, "MGET", "{a}1", "{a}2")
			c.CloseSlot(slot, to)

			if got := c.Owner(slot); got != to {
				t.Errorf("owner of slot %d: got node %d, want %d", slot, got, to)
			}
			if got := c.Node(to).Do("GET", "{a}2"); got != "two" {
				t.Errorf("key on the new owner: got %v, want two", got)
			}
			wantRefusal(t, c.Node(from), "MOVED ", "GET", "{a}1")
			c.WaitReady()
		})
	}
}

func TestReplicaBecomesMasterInEachMode(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Redis7, 3, 1)
	for i, mode := range []FailoverMode{Planned, Force, Takeover} {
		slot := i*slots/3 + 10
		if got := c.Owner(slot); got != i {
			t.Fatalf("owner of slot %d before: got node %d, want %d", slot, got, i)
		}
		c.Failover(i+3, mode)
		c.WaitReady()
		if got := c.Owner(slot); got != i+3 {
			t.Errorf("owner of slot %d after failover %q: got node %d, want %d", slot, mode, got, i+3)
		}
	}
}

func TestReplicaFollowsADeadOrSilentMaster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Valkey9, 3, 1)
	for i, fault := range []struct{ begin, end func() }{
		{c.Node(0).Kill, c.Node(0).Restart},
		{c.Node(1).Pause, c.Node(1).Resume},
	} {
		fault.begin()
		c.WaitReady()
		slot := i*slots/3 + 10
		if got, want := c.Owner(slot), i+3; got != want {
			t.Errorf("owner of slot %d: got node %d, want %d", slot, got, want)
		}
		fault.end()
		c.WaitReady()
		if got := c.Node(i).Info("replication", "role"); got != "slave" {
			t.Errorf("role of node %d after its return: got %s, want slave", i, got)
		}
	}
}

func TestSharedClusterForgetsItsScripts(t *testing.T) {
	t.Parallel()
	c := SharedCluster(t, Redis7)
	if got, want := c.Addrs(), SharedCluster(t, Redis7).Addrs(); strings.Join(got, ",") != strings.Join(want, ",") {
		t.Errorf("got %v and %v, want one cluster", got, want)
	}
	hash := c.Node(0).Do("SCRIPT", "LOAD", "return 1").(string)
	c.FlushScripts()
	wantRefusal(t, c.Node(0), "NOSCRIPT ", "EVALSHA", hash, "0")
}

func wantRefusal(t *testing.T, s *Server, prefix string, command ...string) {
	t.Helper()
	if got, err := s.Try(command...); err == nil || !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("%v: got %v, %v, want %s", command, got, err, prefix)
	}
}
