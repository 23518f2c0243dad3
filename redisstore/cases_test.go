package redisstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"weir.dev/weir"
	"weir.dev/weir/internal/cases"
	"weir.dev/weir/internal/redistest"
)

// open returns a store on a server, closed at the end of the test.
func open(t testing.TB, opts Options) *Store {
	t.Helper()
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestEveryCaseOfTheReferenceIsAnsweredByTheScripts(t *testing.T) {
	s := open(t, Options{Addrs: []string{redistest.Shared(t, redistest.Redis7).Addr}, Budget: 5e9})
	files, _ := filepath.Glob("../storetest/testdata/*.json")
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all, err := cases.Read(f)
		if err != nil {
			t.Fatal(err)
		}
		for n, c := range all {
			var d [1]weir.Decision
			for i, step := range c.Steps {
				ask := weir.Ask{Name: "case", Key: weir.Parts(name, fmt.Sprint(n)), Limit: c.Limit, Cost: step.Cost}
				if err := s.TakeAt(context.Background(), step.AtMicros, []weir.Ask{ask}, d[:]); err != nil {
					t.Fatal(err)
				}
				if got := cases.AnswerOf(d[0]); !step.Want.Agrees(got) {
					t.Errorf("%s: step %d at %d, cost %d:\n got %+v\nwant %+v", c.Name, i, step.AtMicros, step.Cost, got, step.Want)
					break
				}
			}
		}
	}
}
