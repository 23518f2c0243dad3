package redisstore

import (
	"testing"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
)

func TestNewMasterOfASentinelGroupIsFollowed(t *testing.T) {
	t.Parallel()
	g := redistest.StartSentinel(t, redistest.Redis7, 1)
	s := open(t, Options{Addrs: g.Addrs(), Master: g.MasterName, Budget: patient})
	ask := askOf("failover", "a", weir.PerHour(1000).By(weir.FixedWindow), 1)
	take(t, s, ask)
	g.Failover()
	eventually(t, func() error { _, err := s.Take(ctx, ask); return err })
	ask.Cost = 0
	if d := take(t, s, ask); d.Remaining > 999 {
		t.Errorf("got %d remaining, want what was taken since the new master at least", d.Remaining)
	}
}
