package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir.dev/weir"
)

// FuzzReplies feeds the decoder numbers that no script of ours would send. Whatever
// comes, it answers with a decision in bounds or with an error that says garbage.
func FuzzReplies(f *testing.F) {
	f.Add(uint8(0), int64(1), int64(196_000_000_000_000), int64(5), int64(0), int64(0), int64(0), 3)
	f.Add(uint8(4), int64(2), int64(-1), int64(-1), int64(1<<62), int64(-1<<63), int64(1), 5)
	f.Add(uint8(5), int64(0), int64(1<<53), int64(-1<<63), int64(1<<63-1), int64(7), int64(9), 6)
	f.Fuzz(func(t *testing.T, which uint8, cost, a, b, c, d, e int64, n int) {
		if cost < 0 || cost > 50 {
			cost = 1
		}
		limit := limits[int(which)%len(limits)]
		ask := &weir.Ask{Name: "fuzz", Key: weir.Text("a"), Limit: limit, Cost: cost, Partial: which&64 != 0}
		q := questionOf(ask)
		reply := []int64{a, b, c, d, e, a ^ b}[:max(0, min(n, 6))]
		asSeveral := func(ask *weir.Ask, q question, reply []int64) (verdict, error) {
			return severalVerdict(ask, q, a^c, reply)
		}
		for _, decode := range []func(*weir.Ask, question, []int64) (verdict, error){oneVerdict, asSeveral} {
			v, err := decode(ask, q, reply)
			if err != nil {
				if !errors.Is(err, errGarbage) {
					t.Errorf("%v: got %v, want it to say garbage", reply, err)
				}
				continue
			}
			got := v.decision(ask, q)
			if got.Remaining < 0 || got.Remaining > limit.Capacity() || got.Taken < 0 || got.Taken > cost || got.Allowed && got.RetryAfter != 0 {
				t.Errorf("%v, cost %d, reply %v: got %+v", limit, cost, reply, got)
			}
		}
	})
}

func TestErrorsAreClassed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text     string
		class    Class
		executed bool
	}{
		{"MOVED 3999 127.0.0.1:6381", Moving, false},
		{"ASK 3999 127.0.0.1:6381", Moving, false},
		{"TRYAGAIN Multiple keys request during rehashing of slot", Moving, false},
		{"CLUSTERDOWN The cluster is down", Down, false},
		{"CLUSTERDOWN Hash slot not served", Down, false},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Down, false},
		{"NOREPLICAS Not enough good replicas to write.", Down, false},
		{"LOADING Redis is loading the dataset in memory", Loading, false},
		{"READONLY You can't write against a read only replica.", ReadOnly, false},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", Busy, false},
		{"OOM command not allowed when used memory > 'maxmemory'.", OutOfMemory, false},
		{"OOM command not allowed when used memory > 'maxmemory'. script: abc, on @user_script:12.", OutOfMemory, true},
		{"ERR Error running script (call to f_1): @user_script:34: -OOM command not allowed when used memory > 'maxmemory'.", OutOfMemory, true},
		{"MISCONF Redis is configured to save RDB snapshots", OutOfMemory, false},
		{"NOAUTH Authentication required.", Config, false},
		{"WRONGPASS invalid username-password pair or user is disabled.", Config, false},
		{"NOPERM User weir has no permissions to run the 'evalsha' command", Config, false},
		{"ERR The user executing the script can't run this command or subcommand script: abc", Config, false},
		{"ERR unknown command 'EVALSHA'", Config, false},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", Corrupt, false},
		{"ERR user_script:9: WEIRSTATE not a window script: abc, on @user_script:9.", Corrupt, false},
		{"ERR Connection refused", Unreachable, false},
		{"no upstream host", Unreachable, false},
		{"ERR Operation timed out", Timeout, true},
		{"upstream failure", Timeout, true},
		{"ERR something that no server has said yet", Garbage, true},
	} {
		got := classifyText(tt.text, errors.New(tt.text))
		if got.Class != tt.class || got.Executed != tt.executed {
			t.Errorf("%q: got class %q, executed %v; want %q, %v", tt.text, got.Class, got.Executed, tt.class, tt.executed)
		}
	}
}

func TestNewNamesEveryBadOption(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Addrs: []string{"localhost", "a:1"}, Master: "m", Cluster: true, DB: -1, Budget: -1, ClientName: "a b"})
	for _, part := range []string{`"localhost" is not host:port`, "both Cluster and Master", "database -1", "a budget of -1ns", "client name"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want it to say %q", err, part)
		}
	}
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("got %v, want it to ask for an address", err)
	}
	if _, err := New(Options{Addrs: []string{"a:1", "b:1"}}); err == nil || !strings.Contains(err.Error(), "set Cluster, or Master") {
		t.Errorf("got %v, want it to ask which", err)
	}
}

// A key's text must put all limits of one client into one slot, and keep names, keys
// and kinds apart.
func TestKeysShareOneTagAndNeverMeet(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, name := range []string{"api", "api:g", "a:pi", "~", "x:y:z"} {
		for _, who := range []string{"a", "", "{", "}a{", "a}:b", strings.Repeat("z", 70)} {
			for _, limit := range limits[2:] {
				k := stateKey(weir.Text(who), name, kindOf(limit))
				if len(k) > 256 {
					t.Errorf("%q is %d bytes long", k, len(k))
				}
				what := fmt.Sprintf("%q %q %c", name, who, kindOf(limit))
				if other, ok := seen[k]; ok && other != what {
					t.Errorf("%s and %s share the key %q", what, other, k)
				}
				seen[k] = what
				from, to := strings.IndexByte(k, '{'), strings.IndexByte(k, '}')
				if from != len("weir:") || to <= from+1 || strings.Count(k, "{") != 1 || strings.Count(k, "}") != 1 {
					t.Errorf("%q has no single hash tag", k)
				}
			}
		}
	}
}

func TestBudgetEndsAtTheNearerDeadline(t *testing.T) {
	t.Parallel()
	b, err := newBudget(ctx, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	<-b.Done()
	if b.Err() == nil {
		t.Error("a budget that ended has no error")
	}
	b.end()
	fresh, err := newBudget(ctx, time.Hour)
	if err != nil || fresh.Err() != nil {
		t.Errorf("a new budget: got %v, %v", err, fresh.Err())
	}
	fresh.end()
}

// FuzzTextReplies feeds the decoder of replies that are strings whatever a server could
// send: it answers with a time and numbers, or with an error that says garbage.
func FuzzTextReplies(f *testing.F) {
	for _, seed := range []string{"1796034000 123456 1000", "1600000000 -5 -1001", "", "1 2", "1 2 3 4", "1  2", "-1 0 0", "17179869185 0 0", "1 2 99999999999999999999", "nan 0 0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := timed(text, nil)
		if err != nil {
			if !errors.Is(err, errGarbage) || got != nil {
				t.Errorf("%q: got %v, %v, want an error that says garbage", text, got, err)
			}
			return
		}
		if len(got) > 0 && (got[0] < -1<<55 || got[0] > 1<<55) || len(got) > len(text) {
			t.Errorf("%q: got %v, want a time and numbers", text, got)
		}
	})
}

func TestTextReplyIsTheServersTimeAndNumbers(t *testing.T) {
	t.Parallel()
	got, err := timed("1796034000 123456 -1001", nil)
	if want := []int64{196_034_000_123_456, -1001}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
