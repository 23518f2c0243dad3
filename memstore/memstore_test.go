package memstore_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/cases"
	"weir.dev/weir/memstore"
)

var (
	_   weir.Store = (*memstore.Store)(nil)
	ctx            = context.Background()
)

// noon is an hour's beginning, in microseconds since 1970.
const noon = 1_700_000_000_000_000 / hour * hour

const hour = int64(time.Hour / time.Microsecond)

var algorithms = []weir.Algorithm{weir.GCRA, weir.LeakyBucket, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog}

func newStore(t testing.TB, maxKeys int) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Options{MaxKeys: maxKeys})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func take(t testing.TB, s *memstore.Store, ask weir.Ask) weir.Decision {
	t.Helper()
	d, err := s.Take(ctx, ask)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// takeAt asks several questions at a time.
func takeAt(t testing.TB, s *memstore.Store, at int64, asks ...weir.Ask) []weir.Decision {
	t.Helper()
	d := make([]weir.Decision, len(asks))
	if err := s.TakeAt(ctx, at, asks, d); err != nil {
		t.Fatal(err)
	}
	return d
}

func number(i int) weir.Key { return weir.Text(fmt.Sprint(i)) }

func TestEveryCaseOfTheReferenceIsAnswered(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob("../storetest/testdata/*.json")
	if len(files) != 6 {
		t.Fatalf("got %d files of cases, want 6", len(files))
	}
	s := newStore(t, 0)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all, err := cases.Read(f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, c := range all {
			key := weir.Parts(name, fmt.Sprint(i))
			for n, step := range c.Steps {
				d := takeAt(t, s, step.AtMicros, weir.Ask{Name: "case", Key: key, Limit: c.Limit, Cost: step.Cost})[0]
				if got := cases.AnswerOf(d); !step.Want.Agrees(got) {
					t.Fatalf("%s: step %d at %d, cost %d:\n got %+v\nwant %+v", c.Name, n, step.AtMicros, step.Cost, got, step.Want)
				}
			}
		}
	}
}

func TestAMillionKeysStayWithinTheBoundAndForgetNobodyWhoOwes(t *testing.T) {
	t.Parallel()
	const maxKeys = 10_000
	s := newStore(t, maxKeys)
	limit := weir.PerHour(5)
	owing := make([]weir.Key, 100)
	for i := range owing {
		owing[i] = weir.Parts("owing", fmt.Sprint(i))
		take(t, s, weir.Ask{Name: "api", Key: owing[i], Limit: limit, Cost: 5})
	}
	keys, allowed := 1_000_000, 0
	if testing.Short() {
		keys = 100_000
	}
	for i := range keys {
		if take(t, s, weir.Ask{Name: "api", Key: number(i), Limit: limit, Cost: 5}).Allowed {
			allowed++
		}
	}
	if st := s.Stats(); st.Keys > maxKeys || st.Shared == 0 {
		t.Errorf("after %d keys: %+v, want at most %d keys and some that shared a counter", keys, st, maxKeys)
	}
	// Each key that was remembered took its burst, and the shared counter one.
	if want := maxKeys - len(owing) + 1; allowed > want {
		t.Errorf("%d of %d new keys were allowed, want at most %d", allowed, keys, want)
	}
	for _, k := range owing {
		if d := take(t, s, weir.Ask{Name: "api", Key: k, Limit: limit, Cost: 1}); d.Allowed {
			t.Fatalf("a key that owed was forgotten: %+v", d)
		}
	}
}

func TestNewKeysWithoutRoomShareOneCounterForEachName(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms {
		s := newStore(t, 10)
		limit := weir.PerHour(4).By(a)
		for i := range 100 {
			takeAt(t, s, noon, weir.Ask{Name: "fill", Key: number(i), Limit: weir.PerHour(1), Cost: 1})
		}
		for _, name := range []string{"api", "login"} {
			allowed := 0
			for i := range 20 {
				d := takeAt(t, s, noon, weir.Ask{Name: name, Key: number(i), Limit: limit, Cost: 1})[0]
				if d.Allowed {
					allowed++
				}
			}
			if allowed != 4 {
				t.Errorf("%v, %s: %d of 20 new keys were allowed together, want 4", a, name, allowed)
			}
			if d := takeAt(t, s, noon, weir.Ask{Name: name, Key: number(21), Limit: limit})[0]; d.Allowed || d.Remaining != 0 {
				t.Errorf("%v, %s: a peek of a new key says %+v, want nothing left", a, name, d)
			}
		}
	}
}

func TestKeysThatAreAsNewMakeRoom(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms {
		s := newStore(t, 1000)
		for round := range int64(5) {
			for i := range 900 {
				takeAt(t, s, noon+round*3*hour, weir.Ask{Name: "api", Key: weir.Parts(fmt.Sprint(round, i)), Limit: weir.PerHour(1).By(a), Cost: 1})
			}
		}
		if a == weir.SlidingLog {
			continue // counts as two keys, and so shares
		}
		// A new key looks at some slots, not at all, so a few may miss the last that are free.
		if st := s.Stats(); st.Shared > 20 || st.Keys > 1000 {
			t.Errorf("%v: %+v, want at most 1,000 keys and hardly one that shared", a, st)
		}
	}
}

func TestIdleKeysGoAwayByThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, 0)
		for i := range 100_000 {
			take(t, s, weir.Ask{Name: "api", Key: number(i), Limit: weir.PerMinute(10), Cost: 1})
		}
		if st := s.Stats(); st.Keys != 100_000 {
			t.Fatalf("%d keys are remembered, want all 100,000", st.Keys)
		}
		time.Sleep(time.Minute)
		for i := range 30_000 {
			take(t, s, weir.Ask{Name: "api", Key: weir.Parts(fmt.Sprint(i)), Limit: weir.PerMinute(10), Cost: 1})
		}
		if st := s.Stats(); st.Keys > 35_000 {
			t.Errorf("a minute and 30,000 keys later %d are remembered, want about 30,000", st.Keys)
		}
	})
}

func TestALongIdleKeyIsAsNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, a := range algorithms {
			s := newStore(t, 0)
			ask := weir.Ask{Name: "api", Key: number(1), Limit: weir.PerMinute(10).By(a), Cost: 10}
			first := take(t, s, ask)
			time.Sleep(first.ResetAfter)
			second := take(t, s, ask)
			if !first.Allowed || !second.Allowed || first.Remaining != second.Remaining {
				t.Errorf("%v: got %+v and after its reset %+v, want the same", a, first, second)
			}
		}
	})
}

func TestTheClockIsTheWallClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, 0)
		time.Sleep(90 * time.Minute)
		d := take(t, s, weir.Ask{Name: "api", Key: number(1), Limit: weir.PerHour(1), Cost: 1})
		if want := time.Now().UnixMicro(); d.AtMicros != want {
			t.Errorf("decided at %d µs, want %d", d.AtMicros, want)
		}
	})
}

func TestKeysOfDifferentKindsNamesAndAlgorithmsNeverMeet(t *testing.T) {
	t.Parallel()
	s := newStore(t, 0)
	keys := []weir.Key{
		weir.Text("127.0.0.1"), weir.Addr(netip.MustParseAddr("127.0.0.1")), weir.Parts("127.0.0.1"),
		weir.Text(""), weir.Parts(), weir.Parts(""), weir.Addr(netip.MustParseAddr("::1")), weir.Addr(netip.MustParseAddr("2001:db8::1")),
	}
	for _, name := range []string{"a", "b"} {
		for _, a := range algorithms {
			if a == weir.LeakyBucket {
				continue // shares GCRA's state
			}
			for _, k := range keys {
				if d := take(t, s, weir.Ask{Name: name, Key: k, Limit: weir.PerHour(1).By(a), Cost: 1}); !d.Allowed {
					t.Errorf("%s, %v, %v: denied at its first ask", name, a, k)
				}
			}
		}
	}
	mapped := weir.Addr(netip.MustParseAddr("::ffff:127.0.0.1"))
	if d := take(t, s, weir.Ask{Name: "a", Key: mapped, Limit: weir.PerHour(1), Cost: 1}); d.Allowed {
		t.Error("a mapped IPv4 address is another client than the address, want the same")
	}
}

func TestResetForgetsOneKeyUnderEveryAlgorithm(t *testing.T) {
	t.Parallel()
	s := newStore(t, 0)
	for _, k := range []int{1, 2} {
		for _, a := range algorithms {
			take(t, s, weir.Ask{Name: "api", Key: number(k), Limit: weir.PerHour(1).By(a), Cost: 1})
		}
	}
	if err := s.Reset(ctx, "api", number(1)); err != nil {
		t.Fatal(err)
	}
	for _, a := range algorithms {
		for k, want := range map[int]int64{1: 1, 2: 0} {
			if d := take(t, s, weir.Ask{Name: "api", Key: number(k), Limit: weir.PerHour(1).By(a)}); d.Remaining != want {
				t.Errorf("%v: key %d has %d left, want %d", a, k, d.Remaining, want)
			}
		}
	}
	if err := s.Reset(ctx, "api", weir.Key{}); err == nil {
		t.Error("Reset of the zero key: got no error")
	}
}

func TestForgetLeavesNothingOfAKeyNotEvenOfItsRefunds(t *testing.T) {
	t.Parallel()
	s := newStore(t, 0)
	for _, a := range algorithms {
		ask := weir.Ask{Name: "api", Key: number(1), Limit: weir.PerHour(2).By(a), Cost: 1}
		d := take(t, s, ask)
		if back, err := s.Refund(ctx, ask, d); back != 1 || err != nil {
			t.Fatalf("%v: got %d back and %v, want 1", a, back, err)
		}
		take(t, s, ask)
	}
	if err := s.Forget(ctx, "api", number(1)); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Keys != 0 || st.Room != memstore.DefaultMaxKeys {
		t.Errorf("got %+v, want no keys and room for %d", st, memstore.DefaultMaxKeys)
	}
	if err := s.Forget(ctx, "api", weir.Key{}); err == nil {
		t.Error("Forget of the zero key: got no error")
	}
}

func TestAPeekAndADenialLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	s := newStore(t, 0)
	for _, a := range algorithms {
		take(t, s, weir.Ask{Name: "api", Key: number(1), Limit: weir.PerHour(1).By(a)})
		take(t, s, weir.Ask{Name: "api", Key: number(1), Limit: weir.PerHour(1).By(a), Cost: 2})
		take(t, s, weir.Ask{Name: "api", Key: number(1), Limit: weir.PerHour(0).By(a), Cost: 1})
	}
	if st := s.Stats(); st.Keys != 0 || st.Room != memstore.DefaultMaxKeys {
		t.Errorf("got %+v, want no keys and all of the room", st)
	}
}

func TestOneKeyIsNeverOverdrawnByManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms {
		s := newStore(t, 0)
		ask := weir.Ask{Name: "api", Key: number(1), Limit: weir.Per(100, 24*time.Hour).By(a), Cost: 1}
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 200 {
					if d, err := s.Take(ctx, ask); err == nil && d.Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if got := allowed.Load(); got != 100 {
			t.Errorf("%v: 8 goroutines took %d units of 100", a, got)
		}
	}
}

func TestTakeDoesNotAllocate(t *testing.T) {
	s := newStore(t, 0)
	limiter, err := weir.New(s, "api", weir.PerSecond(1000), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []weir.Key{weir.Text("alice"), weir.Addr(netip.MustParseAddr("203.0.113.9"))} {
		if n := testing.AllocsPerRun(100, func() { limiter.Take(ctx, key, 1) }); n != 0 {
			t.Errorf("%v: %v allocations, want 0", key, n)
		}
	}
	asks := []weir.Ask{
		{Name: "a", Key: number(1), Limit: weir.PerSecond(1000), Cost: 1},
		{Name: "b", Key: number(1), Limit: weir.PerSecond(1000).By(weir.SlidingWindow), Cost: 1},
	}
	decisions := make([]weir.Decision, len(asks))
	if n := testing.AllocsPerRun(100, func() { s.TakeAll(ctx, asks, decisions) }); n != 0 {
		t.Errorf("TakeAll of 2: %v allocations, want 0", n)
	}
}

func TestBadInputIsAnErrorThatSaysWhatToWrite(t *testing.T) {
	t.Parallel()
	if _, err := memstore.New(memstore.Options{MaxKeys: -1}); err == nil || !strings.Contains(err.Error(), "MaxKeys -1") {
		t.Errorf("MaxKeys -1: got %v", err)
	}
	s := newStore(t, 0)
	good := weir.Ask{Name: "api", Key: number(1), Limit: weir.PerHour(1), Cost: 1}
	if _, err := s.Take(ctx, weir.Ask{}); err == nil {
		t.Error("Take of the zero Ask: got no error")
	}
	if err := s.TakeAll(ctx, []weir.Ask{good, {}}, make([]weir.Decision, 2)); err == nil || !strings.Contains(err.Error(), "question 1") {
		t.Errorf("TakeAll with a bad question: got %v, want its number", err)
	}
	if err := s.TakeAll(ctx, []weir.Ask{good}, nil); err == nil {
		t.Error("TakeAll without room for the decisions: got no error")
	}
	for _, at := range []int64{-1, 1 << 52} {
		if err := s.TakeAt(ctx, at, []weir.Ask{good}, make([]weir.Decision, 1)); err == nil {
			t.Errorf("TakeAt %d: got no error", at)
		}
	}
	for _, d := range []weir.Decision{{}, {Taken: 1, AtMicros: -1}, {Taken: 1, ResetAfter: -1}, {Taken: 1, AtMicros: 1 << 53}} {
		if _, err := s.Refund(ctx, good, d); err == nil {
			t.Errorf("Refund of %+v: got no error", d)
		}
	}
	if st := s.Stats(); st.Keys != 0 {
		t.Errorf("bad questions left %d keys", st.Keys)
	}
}
