package redistest

import "testing"

func TestSentinelsPromoteTheReplicaWhenAskedOrWhenTheMasterDies(t *testing.T) {
	t.Parallel()
	for _, v := range Versions() {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			s := StartSentinel(t, v, 1)
			first := s.Master()
			if first != s.Nodes[0] {
				t.Fatalf("master: got %s, want %s", first.Addr, s.Nodes[0].Addr)
			}
			second := s.Failover()
			if second != s.Nodes[1] {
				t.Errorf("after Failover: got %s, want %s", second.Addr, s.Nodes[1].Addr)
			}
		})
	}
	t.Run("three sentinels and a dead master", func(t *testing.T) {
		t.Parallel()
		s := StartSentinel(t, Redis7, 3)
		if got := len(s.Addrs()); got != 3 {
			t.Errorf("got %d addresses, want 3", got)
		}
		if got := s.KillMaster(); got != s.Nodes[1] {
			t.Errorf("after KillMaster: got %s, want %s", got.Addr, s.Nodes[1].Addr)
		}
	})
}
