package redisstore

import (
	"context"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
)

func TestLossesAreWhatStatisticsGrewBy(t *testing.T) {
	t.Parallel()
	var node tally
	for _, step := range []struct {
		is   statistics
		want Losses
		why  string
	}{
		{statistics{"a", 7, 3}, Losses{}, "what was lost before the first look"},
		{statistics{"a", 9, 3}, Losses{Evicted: 2}, "two keys evicted"},
		{statistics{"a", 9, 4}, Losses{Evicted: 2, Flushed: 1}, "a flush"},
		{statistics{"a", 1, 4}, Losses{Evicted: 3, Flushed: 1}, "statistics set to 0, then a key evicted"},
		{statistics{"b", 5, 0}, Losses{Evicted: 8, Flushed: 1, Restarts: 1}, "another process, which evicted five keys"},
		{statistics{"b", 5, 0}, Losses{Evicted: 8, Flushed: 1, Restarts: 1}, "nothing"},
	} {
		node.add(step.is)
		if got := node.get(); got != step.want {
			t.Errorf("after %s: got %+v, want %+v", step.why, got, step.want)
		}
	}
}

func TestStatisticsAreReadFromWhatServersSay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]statistics{
		"# Server\r\nrun_id:abc\r\n# Stats\r\nevicted_keys:12\r\ncmdstat_flushall:calls=2,usec=9\r\ncmdstat_flushdb:calls=1,usec=3\r\n": {"abc", 12, 3},
		"run_id:abc\n": {"abc", 0, 0},
		"run_id:abc\nevicted_keys:many\ncmdstat_flushall:\ncmdstat_flushdb:calls=\n": {"abc", 0, 0},
	} {
		if got, ok := parseStatistics(text); !ok || got != want {
			t.Errorf("of %q: got %+v, %v, want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "evicted_keys:5\r\n", "run_id:\r\n", "run_id"} {
		if got, ok := parseStatistics(text); ok {
			t.Errorf("of %q: got %+v, want none: no process is named", text, got)
		}
	}
}

func TestNodesTellFlushesAndRestarts(t *testing.T) {
	t.Parallel()
	for _, version := range []redistest.Version{redistest.Redis62, redistest.Redis7, redistest.Valkey9} {
		t.Run(version.String(), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, version, redistest.Options{})
			store := open(t, Options{Addrs: []string{server.Addr}, Budget: 5 * time.Second})
			until := func(what string, done func(Losses) bool) {
				t.Helper()
				for deadline := time.Now().Add(20 * time.Second); ; {
					store.link.losses.next.Store(0) // do not wait for the next time
					store.Take(context.Background(), weir.Ask{Name: "api", Key: weir.Text("k"), Limit: weir.PerHour(9), Cost: 1})
					lost := store.Nodes()[0].Lost
					if done(lost) {
						return
					}
					if time.Now().After(deadline) {
						t.Fatalf("waited 20 s for %s: got %+v", what, lost)
					}
				}
			}
			until("a first look", func(Losses) bool {
				node := &store.link.nodes.one.tally
				node.mu.Lock()
				defer node.mu.Unlock()
				return node.last.process != ""
			})
			server.Do("FLUSHALL")
			server.Do("FLUSHDB")
			until("two flushes", func(l Losses) bool { return l == Losses{Flushed: 2} })
			server.Restart()
			until("a restart", func(l Losses) bool { return l.Restarts == 1 })
		})
	}
}
