package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir.dev/weir/internal/redistest"
)

// allCases are the cases of the library's own tests.
func allCases(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../../../storetest/testdata/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("got %d files of cases, %v", len(paths), err)
	}
	return paths
}

func TestVerifyFindsEveryStoreExact(t *testing.T) {
	t.Parallel()
	single := func(v redistest.Version) func(*testing.T) string {
		return func(t *testing.T) string { return "redis://" + redistest.Start(t, v, redistest.Options{}).Addr }
	}
	for name, store := range map[string]func(t *testing.T) string{
		"memory":   func(*testing.T) string { return "memory:" },
		"Redis 7":  single(redistest.Redis7),
		"Valkey 9": single(redistest.Valkey9),
		"cluster": func(t *testing.T) string {
			return "redis+cluster://" + strings.Join(redistest.StartCluster(t, redistest.Redis7, 3, 0).Addrs(), ",")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, err := run(t, append([]string{"verify", "--store", store(t)}, allCases(t)...)...)
			if want := "360 passed, 0 failed\n"; err != nil || out != want {
				t.Errorf("got %q, %q, %v; want %q", out, errs, err, want)
			}
		})
	}
}

const twoCases = `[
{"name":"right","limit":{"algorithm":"fixed_window","rate":1,"period_us":1000000,"burst":1},"steps":[
 {"at_us":1750000000250000,"cost":1,"allowed":true,"remaining":0,"retry_after_us":0,"reset_after_us":750000,"delay_us":0}]},
{"name":"wrong","limit":{"algorithm":"fixed_window","rate":1,"period_us":1000000,"burst":1},"steps":[
 {"at_us":1750000000250000,"cost":1,"allowed":true,"remaining":0,"retry_after_us":0,"reset_after_us":750000,"delay_us":0},
 {"at_us":1750000000250000,"cost":1,"allowed":true,"remaining":0,"retry_after_us":0,"reset_after_us":750000,"delay_us":0}]}
]`

func TestVerifyPrintsTheFirstDifferenceOfACase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cases.json")
	if err := os.WriteFile(path, []byte(twoCases), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := run(t, "verify", path)
	want := `wrong: step 1, a cost of 1 at 1750000000250000 µs:
  got  allowed false, remaining 0, retry_after_us 750000, reset_after_us 750000, delay_us 0
  want allowed true, remaining 0, retry_after_us 0, reset_after_us 750000, delay_us 0
1 passed, 1 failed
`
	if err == nil || out != want {
		t.Errorf("got %v and\n%s\nwant an error and\n%s", err, out, want)
	}
}

func TestVerifyRefusesWhatHoldsNoCases(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"empty.json": {"[]", "holds no case"},
		"prose.json": {"hello", "not a JSON array of cases"},
		"steps.json": {`[{"name":"a","limit":{"algorithm":"gcra","rate":1,"period_us":1,"burst":1},"steps":[]}]`, "it has no steps"},
		"huge.json":  {strings.Repeat(" ", 64<<20+1), "more than 67108864 bytes"},
		"limit.json": {strings.Replace(twoCases, `"period_us":1000000`, `"period_us":0`, 1), "period_us 0 is outside"},
	} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, errs, err := run(t, "verify", path); err == nil || !strings.Contains(errs, c.want) {
			t.Errorf("%s: got %q; want %q", name, errs, c.want)
		}
	}
	if _, errs, err := run(t, "verify"); err == nil || !strings.Contains(errs, "name one or more JSON files of cases") {
		t.Errorf("without a file: got %q, want an error that says what to name", errs)
	}
}

func TestVerifyOnAServerThatIsAwayFailsEachCase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cases.json")
	if err := os.WriteFile(path, []byte(twoCases), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := run(t, "verify", "--store", "redis://127.0.0.1:1?budget=100ms", path)
	if err == nil || !strings.HasSuffix(out, "\n0 passed, 2 failed\n") || !strings.HasPrefix(out, "right: step 0: ") {
		t.Errorf("got %v and\n%s\nwant 2 failures", err, out)
	}
}
