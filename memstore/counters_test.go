package memstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/countercases"
)

func counters(t testing.TB, opts CountersOptions) *Counters {
	t.Helper()
	c, err := NewCounters(opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCountersAnswerAsEnvoysServiceDoes(t *testing.T) {
	t.Parallel()
	countercases.Run(t, func(t *testing.T, o countercases.Options) countercases.Store {
		return counters(t, CountersOptions{CalendarMonths: o.CalendarMonths, StopWhenOver: o.StopWhenOver})
	})
}

func TestCountersAreForgottenAfterTheirWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := counters(t, CountersOptions{MaxKeys: 100})
		for range 20 {
			for i := range 100 {
				ask := countercases.AskOf(fmt.Sprint("k", i), 1, time.Second, 1)
				if d, err := c.Take(t.Context(), ask); err != nil || !d.Allowed {
					t.Fatalf("key %d: got %+v, %v", i, d, err)
				}
			}
			time.Sleep(2 * time.Second)
		}
		if st := c.Stats(); st.Keys > 100 || st.Shared > 0 {
			t.Errorf("got %+v, want at most 100 keys and none shared", st)
		}
	})
}

func TestCountersWithoutRoomAreSharedByNewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := counters(t, CountersOptions{MaxKeys: 10})
		passed := 0
		for i := range 100 {
			if d, _ := c.Take(t.Context(), countercases.AskOf(fmt.Sprint("k", i), 5, 24*time.Hour, 1)); d.Allowed {
				passed++
			}
		}
		if st := c.Stats(); passed != 10+5 || st.Keys != 10 || st.Shared != 90 {
			t.Errorf("%d passed, %+v; want those that fit and one limit for the rest", passed, st)
		}
		time.Sleep(24*time.Hour + 2*time.Second)
		if d, _ := c.Take(t.Context(), countercases.AskOf("new", 5, 24*time.Hour, 1)); d.Remaining != 4 {
			t.Errorf("on the next day: got %+v, want a counter of its own", d)
		}
	})
}

func TestCountersLoseNothingToConcurrency(t *testing.T) {
	t.Parallel()
	c := counters(t, CountersOptions{})
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if d, _ := c.Take(t.Context(), countercases.AskOf("a", 5000, 365*24*time.Hour, 1)); d.Allowed {
					passed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if passed.Load() != 5000 {
		t.Errorf("%d passed, want 5000", passed.Load())
	}
}

func TestCountersNameABadOption(t *testing.T) {
	t.Parallel()
	if _, err := NewCounters(CountersOptions{MaxKeys: -1}); err == nil {
		t.Error("got no error for MaxKeys -1")
	}
}

func BenchmarkCounters(b *testing.B) {
	c := counters(b, CountersOptions{})
	asks, decisions := []weir.Ask{countercases.AskOf("domain_key_value_", 1000, time.Minute, 1)}, make([]weir.Decision, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.TakeAll(b.Context(), asks, decisions); err != nil {
			b.Fatal(err)
		}
	}
}
