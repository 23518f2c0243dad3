package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/cases"
	"weir.dev/weir/memstore"
)

var (
	_   weir.Store = (*memstore.Store)(nil)
	ctx            = context.Background()
)

func newStore(t testing.TB, maxKeys int) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Options{MaxKeys: maxKeys})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// takeAt asks one question at a time.
func takeAt(t testing.TB, s *memstore.Store, at int64, ask weir.Ask) weir.Decision {
	t.Helper()
	var d [1]weir.Decision
	if err := s.TakeAt(ctx, at, []weir.Ask{ask}, d[:]); err != nil {
		t.Fatal(err)
	}
	return d[0]
}

func TestEveryCaseOfTheReferenceIsAnswered(t *testing.T) {
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
				d := takeAt(t, s, step.AtMicros, weir.Ask{Name: "case", Key: key, Limit: c.Limit, Cost: step.Cost})
				if got := cases.AnswerOf(d); !step.Want.Agrees(got) {
					t.Fatalf("%s: step %d at %d, cost %d:\n got %+v\nwant %+v", c.Name, n, step.AtMicros, step.Cost, got, step.Want)
				}
			}
		}
	}
}

var _ = errors.Is
var _ = math.Inf
var _ = rand.N[int]
var _ netip.Addr
var _ sync.Mutex
var _ time.Time
