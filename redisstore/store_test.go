package redisstore

import (
	"testing"
	"time"

	"os"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/storetest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// patient is the budget of tests that are not about time, on machines that do much else.
const patient = 10 * time.Second

func conforms(t *testing.T, opts Options) {
	t.Helper()
	opts.Budget = patient
	s := open(t, opts)
	storetest.Run(t, storetest.Subject{New: func(*testing.T) weir.Store { return s }})
}

func TestEachServerIsAStore(t *testing.T) {
	t.Parallel()
	for _, v := range redistest.Versions() {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			conforms(t, Options{Addrs: []string{redistest.Shared(t, v).Addr}})
		})
	}
}

func TestServerWithTLSAndAUserOfFewRightsIsAStore(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Redis7, redistest.Options{TLS: true, Rules: leastRights})
	conforms(t, Options{Addrs: []string{s.Addr}, TLS: s.TLS, Username: s.User, Password: s.Password})
}

func TestServerSpokenToInRESP2IsAStore(t *testing.T) {
	t.Parallel()
	conforms(t, Options{Addrs: []string{redistest.Shared(t, redistest.Redis7).Addr}, RESP2: true, DB: 3})
}

func TestSentinelGroupIsAStore(t *testing.T) {
	t.Parallel()
	g := redistest.StartSentinel(t, redistest.Redis7, 1)
	conforms(t, Options{Addrs: g.Addrs(), Master: g.MasterName})
}

func TestClusterIsAStore(t *testing.T) {
	t.Parallel()
	for _, v := range []redistest.Version{redistest.Redis7, redistest.Valkey9} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			conforms(t, Options{Addrs: redistest.SharedCluster(t, v).Addrs(), Cluster: true})
		})
	}
}

// leastRights are the rights that docs/redis.md names: the scripts, what they call, and
// our keys.
const leastRights = "~weir:* +eval +evalsha +get +set +incrby +pexpire +pttl +time +unlink +del " +
	"+getrange +setrange +zadd +zscore +zcount +zrangebyscore +zremrangebyscore +zrem " +
	"+ping +hello +client|setname +select"
