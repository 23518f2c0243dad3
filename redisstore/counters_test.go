package redisstore

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/countercases"
	"weir.dev/weir/internal/redistest"
)

func openCounters(t testing.TB, opts CountersOptions) *Counters {
	t.Helper()
	if opts.Budget == 0 {
		opts.Budget = patient
	}
	c, err := NewCounters(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// counts holds counters on some servers to what envoyproxy/ratelimit answers.
func counts(t *testing.T, servers Options) {
	countercases.Run(t, func(t *testing.T, o countercases.Options) countercases.Store {
		return openCounters(t, CountersOptions{
			Options: servers, ExpirationJitter: 300 * time.Second, CalendarMonths: o.CalendarMonths, StopWhenOver: o.StopWhenOver,
		})
	})
}

func TestCountersAnswerAsEnvoysServiceDoesOnEachServer(t *testing.T) {
	t.Parallel()
	for _, v := range redistest.Versions() {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			counts(t, Options{Addrs: []string{redistest.Shared(t, v).Addr}})
		})
	}
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		counts(t, Options{Addrs: redistest.SharedCluster(t, redistest.Redis7).Addrs(), Cluster: true})
	})
	t.Run("as a user of few rights", func(t *testing.T) { // those that docs/redis.md names
		t.Parallel()
		const rights = "~* +incrby +expire +pttl +ping +get +del +eval +evalsha +exists +decrby +set"
		s := redistest.Start(t, redistest.Redis7, redistest.Options{Rules: rights})
		counts(t, Options{Addrs: []string{s.Addr}, Username: s.User, Password: s.Password, RESP2: true})
	})
}

// doer is a server, or a cluster by the node that has the key.
type doer func(args ...string) any

func doers(t *testing.T) map[string]struct {
	do   doer
	opts Options
} {
	m := map[string]struct {
		do   doer
		opts Options
	}{}
	for _, v := range []redistest.Version{redistest.Redis7, redistest.Valkey9, redistest.Redis62} {
		s := redistest.Shared(t, v)
		m[v.String()] = struct {
			do   doer
			opts Options
		}{s.Do, Options{Addrs: []string{s.Addr}}}
	}
	c := redistest.SharedCluster(t, redistest.Redis7)
	m["Cluster"] = struct {
		do   doer
		opts Options
	}{func(args ...string) any { return c.Node(c.Owner(c.Slot(args[1]))).Do(args...) }, Options{Addrs: c.Addrs(), Cluster: true}}
	return m
}

// Both services of a mixed fleet count on one key: this one, and the original, whose
// commands are written out here.
func TestAMixedFleetCountsTogether(t *testing.T) {
	t.Parallel()
	for name, server := range doers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openCounters(t, CountersOptions{Options: server.opts, KeyPrefix: "prefix:", ExpirationJitter: 300 * time.Second})
			domain := countercases.Fresh()
			const year = 365 * 24 * 3600
			for _, entries := range [][]string{{"user", "alice"}, {"path", "/a/{b}"}, {"k", "{}"}, {"bytes", "\xff\x00\r\n"}, {"empty", "", "second", "ü"}} {
				text := domain + "_" + strings.Join(entries, "_") + "_"
				key := fmt.Sprintf("prefix:%s%d", text, time.Now().Unix()/year*year)
				original := func(hits int) int64 {
					n := server.do("INCRBY", key, strconv.Itoa(hits)).(int64)
					server.do("EXPIRE", key, strconv.Itoa(year+7))
					return n
				}
				ours := func(cost int64, allowed bool, remaining int64) {
					t.Helper()
					d, err := c.Take(ctx, countercases.AskOf(text, 10, year*time.Second, cost))
					if err != nil || d.Allowed != allowed || d.Remaining != remaining {
						t.Errorf("%q: got %+v, %v; want allowed %v, %d remaining", key, d, err, allowed, remaining)
					}
				}
				original(3)
				ours(2, true, 5)
				if n := original(4); n != 9 {
					t.Errorf("%q: the original counts %d, want 9", key, n)
				}
				ours(0, true, 1)
				ours(5, false, 0)
				if n := original(1); n != 15 {
					t.Errorf("%q: the original counts %d, want 15: a denial is charged", key, n)
				}
				ours(0, false, 0)
				if ttl := server.do("TTL", key).(int64); ttl < year-5 || ttl > year+300 {
					t.Errorf("%q: expires in %d s, want a year and up to 300 s", key, ttl)
				}
			}
		})
	}
}

func TestAPeekMakesTheKeyAsTheOriginalDoes(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t, redistest.Redis7)
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{s.Addr}}})
	text := countercases.Fresh()
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var d [1]weir.Decision
	if err := c.TakeAt(ctx, at.UnixMicro(), []weir.Ask{countercases.AskOf(text, 5, time.Hour, 0)}, d[:]); err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprintf("%s%d", text, at.Unix())
	if got := s.Do("GET", key); got != "0" {
		t.Errorf("%s is %v, want 0", key, got)
	}
	if ttl := s.Do("TTL", key).(int64); ttl < 3595 || ttl > 3600 {
		t.Errorf("%s expires in %d s, want 3600", key, ttl)
	}
}

func TestACalendarMonthsKeyNamesItsFirstSecondAndEndsWithIt(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t, redistest.Redis7)
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{s.Addr}}, CalendarMonths: true})
	text := countercases.Fresh()
	at := time.Date(2024, 2, 29, 23, 0, 0, 0, time.UTC)
	var d [1]weir.Decision
	if err := c.TakeAt(ctx, at.UnixMicro(), []weir.Ask{countercases.AskOf(text, 5, 30*24*time.Hour, 1)}, d[:]); err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprintf("%s%d", text, time.Date(2024, 2, 1, 0, 0, 0, 0, time.UTC).Unix())
	if got, ttl := s.Do("GET", key), s.Do("TTL", key).(int64); got != "1" || ttl < 3595 || ttl > 3600 {
		t.Errorf("%s is %v and expires in %d s, want 1 and 3600", key, got, ttl)
	}
}

func TestWhatCannotBeCountedIsThatAsksFaultAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t, redistest.Redis7)
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{s.Addr}}})
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	prefix := countercases.Fresh()
	put := func(key string, command ...string) {
		full := fmt.Sprintf("%s%s%d", prefix, key, at.Unix())
		s.Do(append([]string{command[0], full}, command[1:]...)...)
	}
	put("text", "SET", "garbage")
	put("list", "RPUSH", "1")
	put("negative", "SET", "-5")
	put("huge", "SET", "99999999999999999999")
	put("full", "SET", strconv.FormatInt(math.MaxInt64-1, 10))
	names := []string{"text", "list", "negative", "huge", "full", "good"}
	var asks []weir.Ask
	for _, name := range names {
		asks = append(asks, countercases.AskOf(prefix+name, 5, time.Hour, 2))
	}
	decisions := make([]weir.Decision, len(asks))
	if err := c.TakeAt(ctx, at.UnixMicro(), asks, decisions); err != nil {
		t.Fatal(err)
	}
	for i, d := range decisions[:4] {
		if class, _ := classOf(t, d.Cause); class != Corrupt || d.Allowed {
			t.Errorf("%s: got %+v, want a Cause of class corrupt", names[i], d)
		}
	}
	if d := decisions[4]; d.Cause != nil || d.Allowed {
		t.Errorf("a counter that would overflow: got %+v, want denied", d)
	}
	if d := decisions[5]; d.Cause != nil || !d.Allowed || d.Remaining != 3 {
		t.Errorf("the good one: got %+v, want 3 remaining", d)
	}
	if st := c.Nodes()[0]; st.State != Healthy || st.Failures[Corrupt] == 0 {
		t.Errorf("got %+v, want healthy, and the failure counted", st)
	}
	if got := s.Do("GET", fmt.Sprintf("%sfull%d", prefix, at.Unix())); got != strconv.FormatInt(math.MaxInt64-1, 10) {
		t.Errorf("the full counter is %v, want it as it was", got)
	}
}

// The original can count up to 2^63-1, which as a number of Lua is 2^63.
func TestGivingBackToACounterThatIsFullIsAnswered(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t, redistest.Redis7)
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{s.Addr}}})
	ask := countercases.AskOf(countercases.Fresh(), 2, 360*24*time.Hour, 5)
	if _, err := c.Take(ctx, ask); err != nil {
		t.Fatal(err)
	}
	text, _ := ask.Key.Text()
	const window = 360 * 24 * 60 * 60
	key := fmt.Sprintf("%s%d", text, time.Now().Unix()/window*window)
	s.Do("SET", key, strconv.FormatInt(math.MaxInt64, 10))
	d, err := c.GiveBack(ctx, ask)
	if err != nil || !d.Allowed || d.Remaining != 0 {
		t.Errorf("got %+v, %v; want it allowed, and nothing left", d, err)
	}
	if got, want := s.Do("GET", key), strconv.FormatInt(math.MaxInt64-5, 10); got != want {
		t.Errorf("the counter is %v, want %v", got, want)
	}
}

func TestLimitsOfASecondAreCountedOnTheirOwnServer(t *testing.T) {
	t.Parallel()
	main, other := redistest.Start(t, redistest.Redis7, redistest.Options{}), redistest.Start(t, redistest.Redis7, redistest.Options{})
	c := openCounters(t, CountersOptions{
		Options: Options{Addrs: []string{main.Addr}, Budget: time.Second}, PerSecond: &Options{Addrs: []string{other.Addr}}, ExpirationJitter: 300 * time.Second,
	})
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMicro()
	asks := []weir.Ask{countercases.AskOf("a", 5, time.Second, 1), countercases.AskOf("b", 5, time.Hour, 2)}
	decisions := make([]weir.Decision, 2)
	if err := c.TakeAt(ctx, at, asks, decisions); err != nil || decisions[0].Remaining != 4 || decisions[1].Remaining != 3 {
		t.Errorf("got %+v, %v", decisions, err)
	}
	if n, m := main.Do("DBSIZE"), other.Do("DBSIZE"); n != int64(1) || m != int64(1) {
		t.Errorf("%v keys on the main server and %v on the other, want 1 each", n, m)
	}
	other.Kill()
	if err := c.TakeAt(ctx, at, asks, decisions); err != nil || decisions[0].Cause == nil || decisions[1].Cause != nil {
		t.Errorf("without the server of seconds: got %+v, want a Cause for the second alone", decisions)
	}
	if nodes := c.Nodes(); len(nodes) != 2 || nodes[0].Addr != main.Addr || nodes[1].Addr != other.Addr {
		t.Errorf("got nodes %+v, want %s and %s", nodes, main.Addr, other.Addr)
	}
}

func TestOverLimitIsRememberedUntilTheWindowEndsUnderItsLimit(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Redis7, redistest.Options{})
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{s.Addr}}, LocalCacheBytes: 1 << 16})
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMicro()
	take := func(at int64, units, cost int64) weir.Decision {
		t.Helper()
		var d [1]weir.Decision
		if err := c.TakeAt(ctx, at, []weir.Ask{countercases.AskOf("a", units, time.Minute, cost)}, d[:]); err != nil {
			t.Fatal(err)
		}
		return d[0]
	}
	calls := func() string { return s.Info("commandstats", "cmdstat_incrby") }
	take(at, 2, 2)
	if d := take(at, 2, 0); d.Source != weir.FromStore {
		t.Errorf("at the limit: got %+v, want the store's answer", d)
	}
	take(at, 2, 1)
	before := calls()
	want := weir.Decision{Source: weir.FromCache, ResetAfter: 60 * time.Second, RetryAfter: time.Minute, AtMicros: at}
	if d := take(at, 2, 1); d != want {
		t.Errorf("above it: got %+v, want %+v", d, want)
	}
	if after := calls(); after != before {
		t.Errorf("Redis was asked: %s, before %s", after, before)
	}
	if d := take(at, 10, 1); d.Source != weir.FromStore || d.Remaining != 6 {
		t.Errorf("under a higher limit: got %+v, want 6 remaining", d)
	}
	if st, want := c.LocalCache(), (LocalCache{Entries: 1, Lookups: 5, Hits: 1}); st != want {
		t.Errorf("got %+v, want %+v", st, want)
	}
	if d := take(at+60_000_000, 2, 1); d.Source != weir.FromStore || d.Remaining != 1 {
		t.Errorf("in the next window: got %+v, want 1 remaining", d)
	}
}

func TestTheLocalCacheIsBoundedAndForgetsWhatEndsFirst(t *testing.T) {
	t.Parallel()
	s := newOverSet(10 * overBucketBytes)
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMicro()
	c := &Counters{over: s}
	hitOf := func(i int, period time.Duration) *hit {
		ask := countercases.AskOf(fmt.Sprint("k", i), 1, period, 1)
		h, err := c.hit(&ask, at)
		if err != nil {
			t.Fatal(err)
		}
		return &h
	}
	const most = 10 * len(overBucket{})
	for i := range 1000 {
		s.add(hitOf(i, time.Second), at)
	}
	if st := c.LocalCache(); st.Entries > most || st.Evicted < 1000-int64(most) {
		t.Errorf("after 1000: got %+v, want at most %d entries", st, most)
	}
	s.add(hitOf(0, time.Hour), at)
	for i := range 1000 {
		s.add(hitOf(i, time.Second), at)
	}
	if !s.has(hitOf(0, time.Hour), at) {
		t.Error("what ends in an hour was forgotten for what ends in a second")
	}
	s.remove(hitOf(0, time.Hour))
	if s.has(hitOf(0, time.Hour), at) {
		t.Error("it is there after it was removed")
	}
	s.clear()
	if st := c.LocalCache(); st.Entries != 0 {
		t.Errorf("after clear: got %+v, want no entries", st)
	}
}

func TestGivingBackForgetsThatALimitWasOver(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t, redistest.Redis7)
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{s.Addr}}, LocalCacheBytes: 1 << 16})
	ask := countercases.AskOf(countercases.Fresh(), 2, 365*24*time.Hour, 3)
	for i, want := range []weir.Source{weir.FromStore, weir.FromCache} {
		if d, err := c.Take(ctx, ask); err != nil || d.Allowed || d.Source != want {
			t.Errorf("%d: got %+v, %v; want denied by the %v", i, d, err, want)
		}
	}
	if _, err := c.GiveBack(ctx, ask); err != nil {
		t.Fatal(err)
	}
	ask.Cost = 1
	if d, err := c.Take(ctx, ask); err != nil || d.Remaining != 1 {
		t.Errorf("got %+v, %v; want 1 remaining", d, err)
	}
	ask.Cost = 2
	c.Take(ctx, ask)
	if err := c.Reset(ctx, "rule", ask.Key); err != nil {
		t.Fatal(err)
	}
	if d, err := c.Take(ctx, ask); err != nil || !d.Allowed {
		t.Errorf("after a reset: got %+v, %v; want allowed", d, err)
	}
}

func TestAnswersSaysWhetherBothServersDoAndWritesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Redis7, redistest.Options{})
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{s.Addr}}, PerSecond: &Options{Addrs: []string{s.Addr}}})
	if err := c.Answers(ctx); err != nil {
		t.Errorf("got %v of servers that are there", err)
	}
	if keys := s.Do("DBSIZE"); keys != int64(0) {
		t.Errorf("%v keys, want none", keys)
	}
	away := Options{Addrs: []string{"127.0.0.1:1"}} // where nobody listens
	for _, opts := range []CountersOptions{{Options: away}, {Options: Options{Addrs: []string{s.Addr}}, PerSecond: &away}} {
		if err := openCounters(t, opts).Answers(ctx); err == nil {
			t.Errorf("%+v: got nil, want why a server does not answer", opts)
		}
	}
}

func TestAResetThatFailsSaysOnceWhy(t *testing.T) {
	t.Parallel()
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{"127.0.0.1:1"}}}) // where nobody listens
	err := c.Reset(ctx, "rule", weir.Text("a"))
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one error for the keys of all windows", err)
	}
}

func TestAKnownDenialHoldsTheOthersBackWithoutALook(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Redis7, redistest.Options{})
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{s.Addr}}, LocalCacheBytes: 1 << 16, StopWhenOver: true})
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMicro()
	asks := []weir.Ask{countercases.AskOf("a", 1, time.Hour, 2), countercases.AskOf("b", 9, time.Hour, 1)}
	decisions := make([]weir.Decision, 2)
	for range 2 {
		if err := c.TakeAt(ctx, at, asks, decisions); err != nil {
			t.Fatal(err)
		}
	}
	if decisions[0].Source != weir.FromCache || decisions[1].Taken != 0 || decisions[1].Remaining != 9 {
		t.Errorf("got %+v, want the first from the cache and the second held back", decisions)
	}
	if got := s.Info("commandstats", "cmdstat_get"); !strings.HasPrefix(got, "calls=2,") {
		t.Errorf("GET: %s, want the two of the first question", got)
	}
}

func TestCountersAskWhatCannotHaveRunAgainAndNothingElse(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Redis7, redistest.Options{})
	var deaf sync.Map // connections whose answers are lost
	addr := proxy(t, s.Addr, func(client, server net.Conn) {
		go pass(server, client, func(request []byte) bool {
			if strings.Contains(string(request), "INCRBY\r\n$") && strings.Contains(string(request), "lost") {
				deaf.Store(client, true)
			}
			return true
		})
		go pass(client, server, func([]byte) bool { _, lost := deaf.Load(client); return !lost })
	})
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{addr}}})
	_, err := c.Take(ctx, countercases.AskOf("lost", 5, 365*24*time.Hour, 1))
	wantClass(t, err, Broken, true)
	keys := s.Do("KEYS", "lost*").([]any)
	if len(keys) != 1 || s.Do("GET", keys[0].(string)) != "1" {
		t.Errorf("got keys %v, want one that was counted once", keys)
	}
	if d, err := c.Take(ctx, countercases.AskOf("other", 5, 365*24*time.Hour, 1)); err != nil || d.Remaining != 4 {
		t.Errorf("afterwards: got %+v, %v", d, err)
	}
}

func TestACounterWhoseTTLCannotBeSetIsAnErrorAlthoughItCounted(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Redis7, redistest.Options{Rules: "~* +incrby +pttl +ping +hello +client|setname"})
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{s.Addr}, Username: s.User, Password: s.Password}})
	_, err := c.Take(ctx, countercases.AskOf("a", 5, time.Hour, 1))
	wantClass(t, err, Config, true)
}

func TestServerThatHangsCostsCountersTheBudget(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Redis7, redistest.Options{})
	c := openCounters(t, CountersOptions{Options: Options{Addrs: []string{s.Addr}, Budget: 300 * time.Millisecond}})
	asks := []weir.Ask{countercases.AskOf("a", 5, time.Hour, 1), countercases.AskOf("b", 5, time.Hour, 1)}
	decisions := make([]weir.Decision, 2)
	if err := c.TakeAll(ctx, asks, decisions); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	for i := range failRow {
		if err := c.TakeAll(ctx, asks, decisions); err != nil {
			t.Fatal(err)
		}
		for _, d := range decisions {
			// After the first the connection is given up, and another is not had.
			if class, _ := classOf(t, d.Cause); d.Allowed || class != Timeout && (i == 0 || class != Unreachable) {
				t.Errorf("question %d: got %+v, want a Cause of class timeout", i, d)
			}
		}
	}
	n := c.Nodes()[0]
	if n.State != Avoided || n.InFlight != 0 || n.Failures[Timeout]+n.Failures[Unreachable] != failRow {
		t.Errorf("got %+v, want avoided after %d questions, and none in flight", n, failRow)
	}
}

// A cluster's slots move, and what is on the move is counted once.
func TestCountersFollowASlotThatMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.Redis7, 3, 0)
	c := openCounters(t, CountersOptions{Options: Options{Addrs: cluster.Addrs(), Cluster: true}})
	text := "{moving}" + countercases.Fresh()
	ask := countercases.AskOf(text, 1000, 365*24*time.Hour, 1)
	for i := range int64(30) {
		if i%10 == 5 {
			slot := cluster.Slot(text)
			cluster.MoveSlot(slot, (cluster.Owner(slot)+1)%3)
		}
		if d, err := c.Take(ctx, ask); err != nil || d.Remaining != 999-i {
			t.Fatalf("%d: got %+v, %v; want %d remaining", i, d, err, 999-i)
		}
	}
}

// strictProxy is a proxy that knows the commands of twemproxy and ends a connection that
// sends another, as that one does.
func strictProxy(t *testing.T, to string) (addr string, seen func() []string) {
	var mu sync.Mutex
	verbs := map[string]bool{}
	addr = proxy(t, to, func(client, server net.Conn) {
		known := " AUTH PING INCRBY EXPIRE GET PTTL DEL EVAL EVALSHA "
		go pass(client, server, func([]byte) bool { return true })
		go func() {
			defer client.Close()
			defer server.Close()
			for r := bufio.NewReader(client); ; {
				command, err := readCommand(r)
				if err != nil {
					return
				}
				mu.Lock()
				verbs[command[0]] = true
				mu.Unlock()
				if !strings.Contains(known, " "+command[0]+" ") {
					return
				}
				fmt.Fprintf(server, "*%d\r\n", len(command))
				for _, word := range command {
					io.WriteString(server, fmt.Sprintf("$%d\r\n%s\r\n", len(word), word))
				}
			}
		}()
	})
	return addr, func() []string {
		mu.Lock()
		defer mu.Unlock()
		var all []string
		for verb := range verbs {
			all = append(all, verb)
		}
		sort.Strings(all)
		return all
	}
}

func TestCountersWorkThroughAProxyOfFewCommands(t *testing.T) {
	t.Parallel()
	for _, o := range []redistest.Options{{}, {Password: true}} {
		s := redistest.Start(t, redistest.Redis7, o)
		addr, seen := strictProxy(t, s.Addr)
		opts := CountersOptions{Options: Options{Addrs: []string{addr}, Username: s.User, Password: s.Password, RESP2: true}, StopWhenOver: true}
		countercases.Run(t, func(t *testing.T, o countercases.Options) countercases.Store {
			opts.CalendarMonths, opts.StopWhenOver = o.CalendarMonths, o.StopWhenOver
			return openCounters(t, opts)
		})
		for _, verb := range seen() {
			if verb == "HELLO" || verb == "CLIENT" || verb == "SELECT" {
				t.Errorf("the proxy was sent %s: %v", verb, seen())
			}
		}
	}
}

func TestCountersNameEveryBadOption(t *testing.T) {
	t.Parallel()
	_, err := NewCounters(CountersOptions{
		Options:          Options{Budget: -1},
		PerSecond:        &Options{Budget: time.Second, Addrs: []string{"nowhere"}},
		ExpirationJitter: time.Millisecond, LocalCacheBytes: -1,
	})
	for _, want := range []string{"no address", "budget of -1ns", `PerSecond: address "nowhere"`, "PerSecond with a budget of 1s", "jitter of 1ms", "-1 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one that says %q", err, want)
		}
	}
}
