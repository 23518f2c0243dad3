package preview

import (
	"compress/gzip"
	"encoding/csv"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/redisstore"
	"weir.dev/weir/server/internal/reference"
)

// apacheWants is what an independent reference in rational arithmetic found for a public
// log of 10,000 requests, one limit a line.
var apacheWants = []struct {
	rateLimit                   string
	allowed, denied, keysDenied int
}{
	{"{unit: minute, requests_per_unit: 10, algorithm: gcra}", 8987, 1013, 54},
	{"{unit: minute, requests_per_unit: 10, algorithm: gcra, burst: 20}", 9503, 497, 31},
	{"{unit: second, requests_per_unit: 1, algorithm: gcra, burst: 5}", 9909, 91, 5},
	{"{unit: minute, requests_per_unit: 30, algorithm: token_bucket}", 9908, 92, 2},
	{"{unit: second, requests_per_unit: 1, algorithm: leaky_bucket, burst: 10}", 9935, 65, 2},
	{"{unit: minute, requests_per_unit: 10}", 8271, 1729, 79},
	{"{unit: hour, requests_per_unit: 100, algorithm: fixed_window}", 9992, 8, 1},
	{"{unit: minute, requests_per_unit: 10, algorithm: sliding_window}", 8271, 1729, 79},
	{"{window: 1h, requests_per_unit: 100, algorithm: sliding_window}", 9888, 112, 2},
	{"{unit: minute, requests_per_unit: 10, algorithm: sliding_log}", 8271, 1729, 79},
	{"{unit: hour, requests_per_unit: 100, algorithm: sliding_log}", 9990, 10, 1},
}

func TestPublicLogGivesWhatTheReferenceFoundInMemory(t *testing.T) {
	t.Parallel()
	replayApache(t, func(t *testing.T) Store { return newMemory(t) })
}

func TestPublicLogGivesWhatTheReferenceFoundInRedis(t *testing.T) {
	t.Parallel()
	traces(t) // before a server is started for nothing
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	store, err := redisstore.New(redisstore.Options{Addrs: []string{server.Addr}, Budget: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	t.Run("limits", func(t *testing.T) { // ends when all replays have
		replayApache(t, func(*testing.T) Store { return store })
	})
	if left := server.Do("DBSIZE"); left != int64(0) {
		t.Errorf("the replays left %v keys in the store; want none", left)
	}
}

// replayApache replays the log under every limit, all at once.
func replayApache(t *testing.T, store func(*testing.T) Store) {
	t.Helper()
	log := newLog(t, "client={addr}")
	f, err := os.Open(filepath.Join(traces(t), "apache_combined_2015.log.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := log.Read(f.Name(), f); err != nil {
		t.Fatal(err)
	}
	log.sort()
	for _, want := range apacheWants {
		t.Run(want.rateLimit, func(t *testing.T) {
			t.Parallel()
			config := parse(t, "domain: site\ndescriptors:\n- key: client\n  rate_limit: "+want.rateLimit+"\n")
			report, err := Replay{Config: config, Domain: "site", Store: store(t)}.Run(t.Context(), log)
			if err != nil {
				t.Fatal(err)
			}
			if report.Requests != 10000 || report.Skipped != 0 || report.Unmatched != 0 || len(report.Rules) != 1 {
				t.Fatalf("got %d requests, %d skipped, %d unmatched, %d rules; want 10000, 0, 0, 1",
					report.Requests, report.Skipped, report.Unmatched, len(report.Rules))
			}
			got := report.Rules[0]
			if got.Allowed != want.allowed || got.Denied != want.denied || got.Keys != 1753 || got.KeysDenied != want.keysDenied {
				t.Errorf("got %d allowed, %d denied, %d keys, %d of them denied; want %d, %d, 1753, %d",
					got.Allowed, got.Denied, got.Keys, got.KeysDenied, want.allowed, want.denied, want.keysDenied)
			}
		})
	}
}

// TestPublicTraceOfCostsGivesWhatTheReferenceFound replays requests to a language model,
// whose cost is the tokens of question and answer, through the arithmetic alone.
func TestPublicTraceOfCostsGivesWhatTheReferenceFound(t *testing.T) {
	t.Parallel()
	calls := readAzure(t, filepath.Join(traces(t), "azure_llm_code_2023.csv.gz"))
	if len(calls) != 8819 {
		t.Fatalf("got %d calls, want 8819", len(calls))
	}
	for _, want := range []struct {
		limit           weir.Limit
		allowed, denied int
	}{
		{weir.PerMinute(100_000).Burst(20_000), 3323, 5496},
		{weir.PerMinute(200_000).By(weir.TokenBucket).Burst(50_000), 4690, 4129},
		{weir.PerMinute(150_000).By(weir.FixedWindow), 2929, 5890},
		{weir.PerMinute(150_000).By(weir.SlidingWindow), 3715, 5104},
	} {
		store := newMemory(t)
		allowed, denied := 0, 0
		for _, call := range calls {
			var d [1]weir.Decision
			ask := weir.Ask{Name: "tokens", Key: weir.Text("all"), Limit: want.limit, Cost: call.cost}
			if err := store.TakeAt(t.Context(), call.atMicros, []weir.Ask{ask}, d[:]); err != nil {
				t.Fatal(err)
			}
			if d[0].Allowed {
				allowed++
			} else {
				denied++
			}
		}
		if allowed != want.allowed || denied != want.denied {
			t.Errorf("%v: got %d allowed, %d denied; want %d, %d", want.limit, allowed, denied, want.allowed, want.denied)
		}
	}
}

type call struct{ atMicros, cost int64 }

// readAzure reads rows of time, context tokens and generated tokens, sorted by time.
func readAzure(t *testing.T, path string) (calls []call) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rows := csv.NewReader(text)
	if _, err := rows.Read(); err != nil { // the heading
		t.Fatal(err)
	}
	for {
		row, err := rows.Read()
		if err == io.EOF {
			return calls
		}
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse("2006-01-02 15:04:05", row[0])
		if err != nil {
			t.Fatal(err)
		}
		asked, err := strconv.ParseInt(row[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		answered, err := strconv.ParseInt(row[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(calls); n > 0 && at.UnixMicro() < calls[n-1].atMicros {
			t.Fatalf("row %d is before the one above it", n)
		}
		calls = append(calls, call{at.UnixMicro(), asked + answered})
	}
}

// traces returns the folder of the public logs.
func traces(t *testing.T) string {
	t.Helper()
	return reference.Folder(t, "traces")
}
