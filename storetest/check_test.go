package storetest

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir.dev/weir"
)

func TestCheckTellsWhatIsWrongWithAHistory(t *testing.T) {
	took := func(at, units int64) Event { return Event{AtMicros: at, Cost: units, Taken: units, Allowed: true} }
	denied := func(at, units int64) Event { return Event{AtMicros: at, Cost: units} }
	lost := func(at, units int64) Event { return Event{AtMicros: at, Cost: units, Unknown: true} }
	const beyond, wrongly = "admitted beyond", "denied though"
	ten := weir.Per(10, time.Second)
	for _, tt := range []struct {
		name    string
		limit   weir.Limit
		history []Event
		want    string // empty: nothing
	}{
		{"the burst", ten, []Event{took(day, 10), denied(day, 1), took(day+100_000, 1), denied(day+199_999, 1)}, ""},
		{"one more than the burst", ten, []Event{took(day, 10), took(day, 1)}, "event 1 at 1750032000000000 µs, cost 1, taken 1: admitted beyond"},
		{"one unit 1 µs early", ten, []Event{took(day, 10), took(day+99_999, 1)}, beyond},
		{"a denial when it is earned", ten, []Event{took(day, 10), denied(day+100_000, 1)}, wrongly},
		{"idle time saved up", ten, []Event{took(day, 1), took(day+3600*second, 11)}, beyond},
		{"a third of a second, less 1 µs", weir.PerSecond(3), []Event{took(day, 3), took(day+333_333, 1)}, beyond},
		{"a third of a second, rounded up", weir.PerSecond(3), []Event{took(day, 3), denied(day+333_333, 1), took(day+333_334, 1)}, ""},
		{"the clock stepped back", ten, []Event{took(day, 10), took(day-second, 1)}, beyond},
		{"a cost ignored", ten, []Event{took(day, 9), {AtMicros: day, Cost: 2, Taken: 1, Allowed: true}, took(day, 1)}, beyond},
		{"fewer than there are", ten, []Event{{AtMicros: day, Cost: 5, Taken: 3, Allowed: true}}, "given fewer"},
		{"all that there are", ten, []Event{{AtMicros: day, Cost: 50, Taken: 10, Allowed: true}}, ""},
		{"above the capacity", ten, []Event{denied(day, 11), took(day, 10)}, ""},
		{"a denial charged", ten, []Event{{AtMicros: day, Cost: 1, Taken: 1}}, "denied and charged"},
		{"more than asked", ten, []Event{{AtMicros: day, Cost: 1, Taken: 2, Allowed: true}}, "no such event"},
		{"what is lost may have been taken", ten, []Event{lost(day, 10), denied(day, 1)}, ""},
		{"what is lost may not have been taken", ten, []Event{lost(day, 10), took(day, 10), denied(day, 1)}, ""},
		{"what is lost admits nothing", ten, []Event{lost(day, 10), took(day, 10), took(day, 1)}, beyond},
		{"a peek", ten, []Event{{AtMicros: day, Allowed: true}, took(day, 10), denied(day, 0)}, ""},
		{"a peek that is wrong", ten, []Event{took(day, 10), {AtMicros: day, Allowed: true}}, beyond},
		{"held back by another", ten, []Event{{AtMicros: day, Cost: 10, Allowed: true}, took(day, 10)}, ""},
		{"a limit of none", weir.PerSecond(0), []Event{denied(day, 1)}, ""},
		{"one of none", weir.PerSecond(0), []Event{took(day, 1)}, beyond},

		{"a full window", ten.By(weir.FixedWindow), []Event{took(day-1, 10), denied(day-1, 1), took(day, 10), denied(day+second-1, 1)}, ""},
		{"too many in a window", ten.By(weir.FixedWindow), []Event{took(day, 10), took(day+second-1, 1)}, beyond},
		{"a window that came back", ten.By(weir.FixedWindow), []Event{took(day-1, 10), took(day, 10), took(day-1, 1)}, beyond},
		{"a window not begun", ten.By(weir.FixedWindow), []Event{took(day-1, 10), denied(day, 1)}, wrongly},

		{"half of the window before", ten.By(weir.SlidingWindow), []Event{took(day-1, 10), took(day+second/2, 5), denied(day+second/2, 1)}, ""},
		{"more than half", ten.By(weir.SlidingWindow), []Event{took(day-1, 10), took(day+second/2, 6)}, beyond},
		{"half, 1 µs early", ten.By(weir.SlidingWindow), []Event{took(day-1, 10), took(day+second/2-1, 5)}, beyond},
		{"half, denied", ten.By(weir.SlidingWindow), []Event{took(day-1, 10), denied(day+second/2, 5)}, wrongly},

		{"a log", ten.By(weir.SlidingLog), []Event{took(day, 10), denied(day+second-1, 1), took(day+second, 10)}, ""},
		{"a log, 1 µs early", ten.By(weir.SlidingLog), []Event{took(day, 10), took(day+second-1, 1)}, beyond},
		{"a log, denied", ten.By(weir.SlidingLog), []Event{took(day, 10), denied(day+second, 1)}, wrongly},

		{"no limit", weir.Limit{}, nil, "no limit is set"},
		{"unlimited", weir.Unlimited(), nil, "unlimited"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(tt.limit, tt.history)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got the error %v, want %q in it, or none where that is empty", err, tt.want)
			}
		})
	}
}

// Whatever is changed in a history that is exact, Check sees it.
func TestCheckSeesOneChangedDecisionInAHistory(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, a := range []weir.Algorithm{weir.GCRA, weir.LeakyBucket, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog} {
		limit := weir.Per(7, time.Second).By(a)
		s := newPlain("")
		at := int64(day)
		var history []Event
		for range 300 {
			at += r.Int64N(300_000)
			ask := weir.Ask{Name: "n", Key: someone, Limit: limit, Cost: 1 + r.Int64N(3)}
			var d [1]weir.Decision
			if err := s.TakeAt(t.Context(), at, []weir.Ask{ask}, d[:]); err != nil {
				t.Fatal(err)
			}
			history = append(history, EventOf(ask, d[0]))
		}
		if err := Check(limit, history); err != nil {
			t.Fatalf("%v: an exact history: got %v, want no error", a, err)
		}
		for i, e := range history {
			changed := append([]Event(nil), history...)
			if changed[i].Allowed = !e.Allowed; e.Allowed {
				changed[i].Taken = 0
			} else {
				changed[i].Taken = e.Cost
			}
			if Check(limit, changed) == nil {
				t.Errorf("%v: event %d, %+v, turned around: got no error, want one", a, i, e)
			}
		}
	}
}
