package algorithm

import (
	"os"
	"path/filepath"
	"testing"

	"weir.dev/weir"
	"weir.dev/weir/internal/cases"
)

// machine holds one key's state under every algorithm, and answers as a store does.
type machine struct {
	tat     TAT
	window  Window
	sliding Sliding
	log     Log
}

func (m *machine) take(now int64, ask *weir.Ask) weir.Decision {
	var v Verdict
	switch KindOf(ask.Limit.Algorithm()) {
	case KindWindow:
		m.window, v, _ = TakeWindow(m.window, now, ask)
		return DescribeWindow(m.window, v, ask)
	case KindSliding:
		m.sliding, v, _ = TakeSliding(m.sliding, now, ask)
		return DescribeSliding(m.sliding, v, ask)
	case KindLog:
		v, _ = TakeLog(&m.log, now, ask)
		return DescribeLog(&m.log, v, ask)
	}
	m.tat, v, _ = TakeGCRA(m.tat, now, ask)
	return DescribeGCRA(m.tat, v, ask)
}

func TestEveryCaseOfTheReferenceIsAnswered(t *testing.T) {
	files, _ := filepath.Glob("../../storetest/testdata/*.json")
	if len(files) != 6 {
		t.Fatalf("got %d files of cases, want 6", len(files))
	}
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
		for _, c := range all {
			t.Run(c.Name, func(t *testing.T) {
				var m machine
				for i, s := range c.Steps {
					d := m.take(s.AtMicros, &weir.Ask{Limit: c.Limit, Cost: s.Cost})
					if got := cases.AnswerOf(d); !s.Want.Agrees(got) {
						t.Fatalf("step %d at %d, cost %d:\n got %+v\nwant %+v", i, s.AtMicros, s.Cost, got, s.Want)
					}
				}
			})
		}
	}
}
