package rls

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/memstore"
	"weir.dev/weir/redisstore"
	"weir.dev/weir/server/internal/reference"
	"weir.dev/weir/server/rules"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// configurations returns the original's configurations, by the names of their recordings.
func configurations(t *testing.T) map[string]*rules.Config {
	configs := map[string]*rules.Config{}
	for name, all := range reference.Configurations(t) {
		var files []rules.File
		for _, f := range all {
			files = append(files, rules.File(f))
		}
		var err error
		if configs[name], err = rules.Parse(files...); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return configs
}

// recorded is one request, and what the original answered to it with all counters at 0.
type recorded struct {
	Case     string
	Request  json.RawMessage
	HTTP     int
	Response map[string]any
}

func recordings(t *testing.T, name string) (all []recorded) {
	data, err := os.ReadFile(filepath.Join(reference.Folder(t, "rls/golden"), name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r recorded
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, r)
	}
	return all
}

// mask hides how long windows have left.
func mask(response map[string]any) {
	statuses, _ := response["statuses"].([]any)
	for _, s := range statuses {
		if s := s.(map[string]any); s["durationUntilReset"] != nil {
			s["durationUntilReset"] = "MASKED"
		}
	}
	headers, _ := response["responseHeadersToAdd"].([]any)
	for _, h := range headers {
		if h := h.(map[string]any); strings.HasSuffix(h["key"].(string), "Reset") {
			h["value"] = "MASKED"
		}
	}
}

// compat returns a service that answers as the original does.
func compat(t testing.TB, store weir.Store, counters Counters, opts Options) *Service {
	t.Helper()
	opts.Compat = &Compat{Counters: counters}
	s, err := New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// replay holds the answers of a service to all that is recorded. fresh gives it counters
// that are at 0.
func replay(t *testing.T, fresh func(t *testing.T) *Service) {
	compared := 0
	for name, config := range configurations(t) {
		for _, want := range recordings(t, name) {
			s := fresh(t)
			if err := s.SetRules(config); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", bytes.NewReader(want.Request)))
			var got map[string]any
			text, _ := io.ReadAll(w.Body)
			json.Unmarshal(text, &got) // of an error it is no JSON, and none is wanted
			mask(got)
			if w.Code != want.HTTP || !reflect.DeepEqual(got, want.Response) {
				t.Errorf("%s, %s: %s\n got %d %s\nwant %d %v", name, want.Case, want.Request, w.Code, text, want.HTTP, want.Response)
			}
			compared++
		}
	}
	t.Logf("%d answers compared", compared)
	if compared == 0 {
		t.Error("no answer was compared")
	}
}

func TestCompatAnswersAsRecordedOnRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	counters, err := redisstore.NewCounters(redisstore.CountersOptions{Options: redisstore.Options{Addrs: []string{redis.Addr}, Budget: 10 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counters.Close() })
	s := compat(t, inMemory(t), counters, Options{Budget: 10 * time.Second, Headers: Headers{Counts: true}})
	replay(t, func(*testing.T) *Service {
		redis.Do("FLUSHALL")
		return s
	})
}

func TestCompatAnswersAsRecordedInMemory(t *testing.T) {
	t.Parallel()
	replay(t, func(t *testing.T) *Service {
		counters, err := memstore.NewCounters(memstore.CountersOptions{MaxKeys: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return compat(t, inMemory(t), counters, Options{Headers: Headers{Counts: true}})
	})
}
