package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/faultproxy"
	"weir.dev/weir/internal/redistest"
)

var ctx = context.Background()

// limits are one of each algorithm, too long for a test to see units earned.
var limits = []weir.Limit{
	weir.PerHour(1000).Burst(50),
	weir.PerHour(7).Burst(50), // with a fraction
	weir.PerHour(1000).Burst(50).By(weir.LeakyBucket),
	weir.PerHour(50).By(weir.FixedWindow),
	weir.PerHour(50).By(weir.SlidingWindow),
	weir.PerHour(50).By(weir.SlidingLog),
}

func askOf(name string, who string, limit weir.Limit, cost int64) weir.Ask {
	return weir.Ask{Name: name, Key: weir.Text(who), Limit: limit, Cost: cost}
}

// classOf returns the class of an error of the store, and whether the question may have
// been decided.
func classOf(t *testing.T, err error) (Class, bool) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want an *Error", err)
	}
	return e.Class, e.Executed
}

func wantClass(t *testing.T, err error, class Class, executed bool) {
	t.Helper()
	if got, ran := classOf(t, err); got != class || ran != executed {
		t.Errorf("got class %q, executed %v (%v); want %q, %v", got, ran, err, class, executed)
	}
}

func TestServerThatHangsCostsTheBudget(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s := open(t, Options{Addrs: []string{server.Addr}})
	ask := askOf("hang", "a", limits[0], 1)
	take(t, s, ask)
	server.Pause()
	_, err := s.Take(ctx, ask)
	wantClass(t, err, Timeout, true)
	err = s.TakeAll(ctx, []weir.Ask{ask, ask}, make([]weir.Decision, 2))
	wantClass(t, err, Unreachable, false) // the connection was given up
	server.Resume()
	eventually(t, func() error { _, err := s.Take(ctx, ask); return err })
}

func TestServerThatIsAwayIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	for _, opts := range []Options{{}, {Cluster: true}, {Master: "m"}} {
		opts.Addrs = []string{addr}
		_, err = open(t, opts).Take(ctx, askOf("away", "a", limits[0], 1))
		wantClass(t, err, Unreachable, false)
	}
}

func TestServerThatComesBackIsUsedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s := open(t, Options{Addrs: []string{server.Addr}})
	ask := askOf("back", "a", limits[0], 1)
	take(t, s, ask)
	server.Kill()
	if _, err := s.Take(ctx, ask); err == nil {
		t.Error("a server that was killed answered")
	}
	server.Restart()
	eventually(t, func() error { _, err := s.Take(ctx, ask); return err })
}

func TestCallerWhoHasLeftIsNotServed(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Addrs: []string{redistest.Shared(t, redistest.Redis7).Addr}, Budget: patient})
	left, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Take(left, askOf("left", "a", limits[0], 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if d := take(t, s, askOf("left", "a", limits[0], 0)); d.Remaining != 50 {
		t.Errorf("got %d remaining, want 50: a caller who had left was charged", d.Remaining)
	}
}

func TestScriptsThatAreForgottenAreSentAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s := open(t, Options{Addrs: []string{server.Addr}, Budget: patient})
	for n, limit := range limits {
		asks := []weir.Ask{askOf(fmt.Sprint("flush", n), "a", limit, 1), askOf(fmt.Sprint("flush2", n), "a", limit, 1)}
		for range 3 {
			server.Do("SCRIPT", "FLUSH")
			take(t, s, asks[0])
			server.Do("SCRIPT", "FLUSH")
			if err := s.TakeAll(ctx, asks, make([]weir.Decision, 2)); err != nil {
				t.Fatal(err)
			}
		}
		if d := take(t, s, askOf(asks[0].Name, "a", limit, 0)); d.Remaining != 44 {
			t.Errorf("%v: got %d remaining after 6 takes, want 44", limit, d.Remaining)
		}
	}
}

func TestWrongCredentialsAreAFaultOfConfiguration(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{Password: true})
	_, err := open(t, Options{Addrs: []string{server.Addr}, Password: "not it", Budget: patient}).Take(ctx, askOf("auth", "a", limits[0], 1))
	wantClass(t, err, Config, false)
	if strings.Contains(err.Error(), "not it") {
		t.Errorf("the error tells the password: %v", err)
	}
	few := redistest.Start(t, redistest.Redis7, redistest.Options{Rules: "~weir:* +eval +evalsha +time +get +ping +hello"})
	_, err = open(t, Options{Addrs: []string{few.Addr}, Username: few.User, Password: few.Password, Budget: patient}).Take(ctx, askOf("auth", "a", limits[0], 1))
	wantClass(t, err, Config, false)
}

func TestServerWithoutMemoryIsClassedAsSuch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{Config: []string{"maxmemory 1mb", "maxmemory-policy noeviction"}})
	s := open(t, Options{Addrs: []string{server.Addr}, Budget: patient})
	var err error
	for n := 0; n < 50_000 && err == nil; n++ {
		_, err = s.Take(ctx, askOf("oom", fmt.Sprint(n), limits[n%len(limits)], 1))
	}
	if class, _ := classOf(t, err); class != OutOfMemory {
		t.Errorf("got class %q (%v), want %q", class, err, OutOfMemory)
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	take(t, s, askOf("oom", "a", limits[0], 1))
}

// What stands alone in a question, such as a limit in shadow, fails by itself.
func TestStateThatIsNotOursOfAnAskAloneFailsNoOther(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	cluster := redistest.SharedCluster(t, redistest.Redis7)
	for name, opts := range map[string]Options{
		"one server": {Addrs: []string{server.Addr}, Budget: patient},
		"a cluster":  {Addrs: cluster.Addrs(), Cluster: true, Budget: patient},
	} {
		s := open(t, opts)
		for n, limit := range limits {
			key := fmt.Sprint("apart", n)
			group, bad, good := askOf("group", key, limit, 1), askOf("bad", key, limit, 1), askOf("good", key, limit, 1)
			bad.Alone, good.Alone = true, true
			elsewhere := askOf("group", key+"elsewhere", limit, 1)
			state := stateKey(bad.Key, bad.Name, kindOf(limit))
			node := server
			if opts.Cluster {
				node = cluster.Node(cluster.Owner(cluster.Slot(state)))
			}
			node.Do("DEL", state)
			node.Do("RPUSH", state, "x")
			ds := make([]weir.Decision, 4)
			if err := s.TakeAll(ctx, []weir.Ask{bad, group, good, elsewhere}, ds); err != nil {
				t.Fatalf("%s, %v: got the error %v, want decisions", name, limit, err)
			}
			if class, _ := classOf(t, ds[0].Cause); class != Corrupt || ds[0].Allowed {
				t.Errorf("%s, %v: got %+v, want a Cause of class corrupt", name, limit, ds[0])
			}
			for i, d := range ds[1:] {
				if !d.Allowed || d.Taken != 1 || d.Cause != nil {
					t.Errorf("%s, %v: ask %d: got %+v, want it taken", name, limit, i+1, d)
				}
			}
			if d := take(t, s, askOf("group", key, limit, 0)); d.Remaining != ds[1].Remaining {
				t.Errorf("%s, %v: got %d remaining, want %d: it was charged twice", name, limit, d.Remaining, ds[1].Remaining)
			}
			node.Do("DEL", state)
		}
	}
}

func TestStateThatIsNotOursIsAnErrorOfItsKeyAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s := open(t, Options{Addrs: []string{server.Addr}, Budget: patient})
	for n, limit := range limits {
		ask := askOf(fmt.Sprint("foreign", n), "a", limit, 1)
		key := stateKey(ask.Key, ask.Name, kindOf(limit))
		for _, write := range [][]string{{"SET", key, "not a state"}, {"SET", key, ""}, {"HSET", key, "a", "b"}, {"SET", key, "nan"}, {"SET", key, "1:2:3:4:5"}} {
			server.Do("DEL", key)
			server.Do(write...)
			_, err := s.Take(ctx, ask)
			if err == nil && write[2] == "" && kindOf(limit) == 'l' {
				continue // an empty string is an empty log
			}
			wantClass(t, err, Corrupt, false)
			err = s.TakeAll(ctx, []weir.Ask{ask, askOf("neighbour", "a", limit, 1)}, make([]weir.Decision, 2))
			wantClass(t, err, Corrupt, false)
			if got := fmt.Sprint(server.Do("TYPE", key)); got == "none" {
				t.Errorf("%v: the foreign key was deleted", limit)
			}
		}
		take(t, s, askOf(ask.Name, "b", limit, 1))
		if d := take(t, s, askOf("neighbour", "a", limit, 0)); d.Remaining != 50 {
			t.Errorf("%v: got %d remaining of the neighbour, want 50: it was charged though the question failed", limit, d.Remaining)
		}
	}
}

// TestEveryKeyHasATimeToLive holds keys to their TTL: until nobody could tell them from
// new ones, and at most a second and a refresh longer.
func TestEveryKeyHasATimeToLive(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t, redistest.Redis7)
	s := open(t, Options{Addrs: []string{server.Addr}, Budget: patient})
	pttl := func(name string, kind byte) int64 {
		return server.Do("PTTL", stateKey(weir.Text("a"), name, kindByte(kind))).(int64)
	}
	for n, limit := range limits {
		name := fmt.Sprint("ttl", n)
		var last weir.Decision
		for range 12 {
			last = take(t, s, askOf(name, "a", limit, 4))
			left := pttl(name, byte(kindOf(limit)))
			// Up to a second may pass between the two questions on a busy machine.
			if least := last.ResetAfter.Milliseconds(); left < least || left > least+least/4+12_000 {
				t.Errorf("%v: got a TTL of %d ms with a reset after %v, want at least that and at most %d ms", limit, left, last.ResetAfter, least+least/4+12_000)
			}
		}
		if back, err := s.Refund(ctx, askOf(name, "a", limit, 2), last); err != nil || back < 1 {
			t.Errorf("%v: a refund gave %d, %v; want 1 or 2", limit, back, err)
		}
		if left := pttl(name, 'r'); left < last.ResetAfter.Milliseconds() {
			t.Errorf("%v: got a ledger's TTL of %d ms, want at least %v", limit, left, last.ResetAfter)
		}
	}
}

func TestALimitThatGrowsKeepsItsKeysAliveLongEnough(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t, redistest.Redis7)
	s := open(t, Options{Addrs: []string{server.Addr}, Budget: patient})
	for _, a := range []weir.Algorithm{weir.GCRA, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog} {
		name := "grow-" + a.String()
		take(t, s, askOf(name, "a", weir.PerSecond(100).By(a), 1))
		d := take(t, s, askOf(name, "a", weir.PerHour(100).By(a), 40))
		left := server.Do("PTTL", stateKey(weir.Text("a"), name, kindOf(weir.PerHour(1).By(a)))).(int64)
		if least := d.ResetAfter.Milliseconds(); left < least {
			t.Errorf("%v: got a TTL of %d ms with a reset after %v", a, left, d.ResetAfter)
		}
	}
	// Windows of both periods that begin together: the time to live is the longer one's.
	hour := time.Hour.Microseconds()
	at := 500_000*hour + 100
	for _, limit := range []weir.Limit{weir.PerSecond(100).By(weir.FixedWindow), weir.PerHour(100).By(weir.FixedWindow)} {
		if err := s.TakeAt(ctx, at, []weir.Ask{askOf("grow-together", "a", limit, 1)}, make([]weir.Decision, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if left := server.Do("PTTL", stateKey(weir.Text("a"), "grow-together", 'f')).(int64); left < time.Hour.Milliseconds()-1 {
		t.Errorf("windows that begin together: got a TTL of %d ms, want an hour", left)
	}
}

func TestWhatMayHaveRunIsNotSentTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	proxy, err := faultproxy.New(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	s := open(t, Options{Addrs: []string{proxy.Addr()}})
	direct := open(t, Options{Addrs: []string{server.Addr}, Budget: patient})
	limit := weir.PerHour(1_000_000).By(weir.FixedWindow)
	ask := askOf("dropped", "a", limit, 1)
	eventually(t, func() error { _, err := s.Take(ctx, ask); return err })
	before := take(t, direct, askOf("dropped", "a", limit, 0)).Remaining
	var sent atomic.Int64
	proxy.Set(faultproxy.Faults{Replies: faultproxy.Flow{Hole: true}})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := s.Take(ctx, ask); err != nil {
				if class, executed := classOf(t, err); executed || class == Timeout {
					sent.Add(1)
				}
			}
		})
	}
	wg.Wait()
	used := before - take(t, direct, askOf("dropped", "a", limit, 0)).Remaining
	if used > sent.Load() {
		t.Errorf("%d questions whose replies were dropped were charged %d times", sent.Load(), used)
	}
}

// eventually asks until it is answered.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still failing: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func take(t *testing.T, s *Store, ask weir.Ask) weir.Decision {
	t.Helper()
	d, err := s.Take(ctx, ask)
	if err != nil {
		t.Fatalf("%s: %v", ask.Name, err)
	}
	return d
}

func TestNobodyWaitsForAConnectionBeyondTheBudget(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	proxy, err := faultproxy.New(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	s := open(t, Options{Addrs: []string{proxy.Addr()}, Budget: 20 * time.Millisecond})
	ask := askOf("connecting", "a", limits[0], 1)
	eventually(t, func() error { _, err := s.Take(ctx, ask); return err })
	proxy.Set(faultproxy.Faults{Replies: faultproxy.Flow{Hole: true}})
	proxy.Reset()
	asked, waited := 0, 0
	for begin := time.Now(); time.Since(begin) < 2*time.Second; asked++ {
		at := time.Now()
		if _, err := s.Take(ctx, ask); err == nil {
			t.Error("got an answer out of a hole")
		}
		// An attempt to connect takes a second: who waits for it takes that long too.
		if time.Since(at) > 700*time.Millisecond {
			waited++
		}
		time.Sleep(time.Millisecond)
	}
	if waited > asked/10 { // a machine may stall, but not that often
		t.Errorf("with a budget of 20 ms %d of %d questions waited for a connection, want none", waited, asked)
	}
	proxy.Set(faultproxy.Faults{})
	eventually(t, func() error { _, err := s.Take(ctx, ask); return err })
}

// Behind a name another server may take over, without a Sentinel or a Cluster that would
// tell. The old one, a replica now, answers on.
func TestServerThatBecameAReplicaIsLookedUpAgain(t *testing.T) {
	t.Parallel()
	old, next := redistest.Start(t, redistest.Redis7, redistest.Options{}), redistest.Start(t, redistest.Redis7, redistest.Options{})
	var behind atomic.Pointer[string]
	behind.Store(&old.Addr)
	opts := Options{Addrs: []string{"redis.example:6379"}, Budget: time.Second, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", *behind.Load())
	}}
	s, c := open(t, opts), openCounters(t, CountersOptions{Options: opts})
	ask := askOf("replica", "a", weir.PerHour(50).By(weir.FixedWindow), 1)
	take(t, s, ask)
	if _, err := c.Take(ctx, ask); err != nil {
		t.Fatal(err)
	}
	behind.Store(&next.Addr)
	host, port, _ := net.SplitHostPort(next.Addr)
	old.Do("REPLICAOF", host, port)
	for _, store := range []weir.Store{s, c} {
		_, err := store.Take(ctx, ask)
		if class, _ := classOf(t, err); class != ReadOnly { // the last time without an answer, perhaps
			t.Errorf("%T: got %v, want readonly", store, err)
		}
		if d, err := store.Take(ctx, ask); err != nil || !d.Allowed {
			t.Errorf("%T: got %+v, %v; want the new server's answer", store, d, err)
		}
	}
}
