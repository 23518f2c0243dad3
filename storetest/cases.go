package storetest

import (
	"embed"
	"fmt"
	"sync"

	"weir.dev/weir/internal/cases"
)

// files are limits and what a reference in rational arithmetic answers under them.
//
//go:embed testdata/*.json
var files embed.FS

var referenceCases = sync.OnceValues(func() ([]cases.Case, error) {
	entries, err := files.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	var all []cases.Case
	for _, entry := range entries {
		f, err := files.Open("testdata/" + entry.Name())
		if err != nil {
			return nil, err
		}
		more, err := cases.Read(f)
		if err := f.Close(); err != nil {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name(), err)
		}
		all = append(all, more...)
	}
	return all, nil
})

// caseRows hold a store to the reference, each case on a name of its own.
var caseRows = []row{
	{name: "every reference case is answered", timed: true, check: func(tr *trial) {
		all, err := referenceCases()
		if err != nil {
			tr.Fatalf("the reference cases: %v", err)
		}
		for _, c := range all {
			if c.Limit.Algorithm() == tr.algorithm {
				tr.afresh().answers(c)
			}
		}
	}},
}

// answers puts one case to the store, and leaves it at the first difference.
func (tr *trial) answers(c cases.Case) {
	tr.Helper()
	for i, s := range c.Steps {
		got := cases.AnswerOf(tr.takeAt(s.AtMicros, tr.of(c.Limit, s.Cost)))
		if !s.Want.Agrees(got) {
			tr.Errorf("case %q, step %d at %d µs, cost %d:\n got %+v\nwant %+v", c.Name, i, s.AtMicros, s.Cost, got, s.Want)
			return
		}
	}
}
