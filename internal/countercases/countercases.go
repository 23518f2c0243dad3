// Package countercases holds the stores that count as envoyproxy/ratelimit does to what
// that service answers. It is for tests.
package countercases

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir.dev/weir"
)

// Options are what the stores may be told.
type Options struct{ CalendarMonths, StopWhenOver bool }

// Store is what such a store can do beyond weir.Store.
type Store interface {
	weir.Store
	TakeAt(ctx context.Context, atMicros int64, asks []weir.Ask, decisions []weir.Decision) error
	GiveBack(ctx context.Context, ask weir.Ask) (weir.Decision, error)
}

type testCase struct {
	name  string
	opts  Options
	steps []step
}

// step is questions that are asked together at a time, such as "2026-11-30T12:00:20Z".
type step struct {
	at   string
	asks []question
}

type question struct {
	key    string
	units  int64
	period time.Duration
	cost   int64
	want   answer
}

type answer struct {
	allowed          bool
	taken, remaining int64
	reset            time.Duration
	retry            time.Duration
}

func yes(taken, remaining int64, reset time.Duration) answer {
	return answer{true, taken, remaining, reset, 0}
}

func no(taken int64, reset time.Duration) answer { return answer{false, taken, 0, reset, reset} }

func never(taken int64, reset time.Duration) answer {
	return answer{false, taken, 0, reset, weir.Never}
}

const (
	noon = "2026-11-30T12:00:00Z" // the start of a second, minute and hour
	sec  = time.Second
	hour = time.Hour
	day  = 24 * hour
)

func one(at, key string, units int64, period time.Duration, cost int64, want answer) step {
	return step{at, []question{{key, units, period, cost, want}}}
}

var cases = []testCase{
	{name: "the limit is counted down, then denied", steps: []step{
		one(noon, "a", 3, hour, 1, yes(1, 2, hour)), one(noon, "a", 3, hour, 2, yes(2, 0, hour)),
		one(noon, "a", 3, hour, 1, no(0, hour)), one(noon, "b", 3, hour, 1, yes(1, 2, hour)),
	}},
	{name: "a denial is charged in full", steps: []step{
		one(noon, "a", 10, hour, 8, yes(8, 2, hour)), one(noon, "a", 10, hour, 5, no(2, hour)),
		one(noon, "a", 10, hour, 1, no(0, hour)), one(noon, "a", 20, hour, 1, yes(1, 5, hour)), // 8+5+1+1
	}},
	{name: "more than the limit is never there", steps: []step{
		one(noon, "a", 3, hour, 5, never(3, hour)), one(noon, "a", 3, hour, 1, no(0, hour)),
	}},
	{name: "a cost of 0 passes at a full counter, not above", steps: []step{
		one(noon, "a", 3, hour, 0, yes(0, 3, hour)), one(noon, "a", 3, hour, 3, yes(3, 0, hour)),
		one(noon, "a", 3, hour, 0, yes(0, 0, hour)), one(noon, "a", 3, hour, 1, no(0, hour)), one(noon, "a", 3, hour, 0, no(0, hour)),
	}},
	{name: "a limit of 0 denies all that costs", steps: []step{
		one(noon, "a", 0, hour, 0, yes(0, 0, hour)), one(noon, "a", 0, hour, 1, never(0, hour)), one(noon, "a", 0, hour, 0, no(0, hour)),
	}},
	{name: "two of one key are both charged", steps: []step{
		{noon, []question{{"a", 3, hour, 1, yes(1, 2, hour)}, {"a", 3, hour, 1, yes(1, 1, hour)}}},
		{noon, []question{{"a", 3, hour, 2, no(1, hour)}, {"b", 3, hour, 1, yes(1, 2, hour)}, {"a", 3, hour, 1, no(0, hour)}}},
	}},
	{name: "neither the limit nor its period is in the key", steps: []step{
		one(noon, "a", 5, hour, 3, yes(3, 2, hour)), one(noon, "a", 3, hour, 1, no(0, hour)),
		one(noon, "a", 5, time.Minute, 1, yes(1, 0, time.Minute)),
		one("2026-11-30T12:01:00Z", "a", 5, time.Minute, 1, yes(1, 4, time.Minute)),
	}},
	{name: "windows are aligned, and the rest is in whole seconds rounded up", steps: []step{
		one("2026-11-30T12:00:20.7Z", "a", 3, time.Minute, 1, yes(1, 2, 40*sec)),
		one("2026-11-30T12:00:59.999999Z", "a", 3, time.Minute, 1, yes(1, 1, sec)),
		one("2026-11-30T12:01:00Z", "a", 3, time.Minute, 1, yes(1, 2, time.Minute)),
		one("2026-11-30T12:00:59.999999Z", "a", 3, time.Minute, 1, yes(1, 0, sec)),
		{"2026-11-30T12:00:59.5Z", []question{{"a", 3, time.Minute, 1, answer{false, 0, 0, sec, 500 * time.Millisecond}}}},
	}},
	{name: "a week begins on Thursday, a month has 30 days and a year 365", steps: []step{
		one("2026-11-30T00:00:00Z", "w", 3, 7*day, 1, yes(1, 2, 3*day)),
		one("2026-11-30T00:00:00Z", "m", 3, 30*day, 1, yes(1, 2, 3*day)),
		one("2026-11-30T00:00:00Z", "y", 3, 365*day, 1, yes(1, 2, 18*day)),
		one("1970-01-30T23:59:59Z", "e", 3, 30*day, 1, yes(1, 2, sec)),
	}},
	{name: "a second, and a period without a unit", steps: []step{
		one("2026-11-30T12:00:00.25Z", "s", 3, sec, 4, answer{false, 3, 0, sec, weir.Never}),
		one("2026-11-30T12:00:40Z", "h", 3, 30*sec, 1, yes(1, 2, 20*sec)),
	}},
	{name: "calendar months", opts: Options{CalendarMonths: true}, steps: []step{
		one("2024-02-29T23:59:59Z", "a", 3, 30*day, 1, yes(1, 2, sec)),
		one("2024-02-01T00:00:00Z", "a", 3, 30*day, 1, yes(1, 1, 29*day)),
		one("2024-03-01T00:00:00Z", "a", 3, 30*day, 1, yes(1, 2, 31*day)),
		one("2026-12-31T00:00:00Z", "a", 3, 30*day, 1, yes(1, 2, day)),
		one("2027-01-01T00:00:00Z", "a", 3, 30*day, 1, yes(1, 2, 31*day)),
		one("2026-11-30T00:00:00Z", "w", 3, 7*day, 1, yes(1, 2, 3*day)),
	}},
	{name: "what would go over holds the others back", opts: Options{StopWhenOver: true}, steps: []step{
		{noon, []question{{"a", 9, hour, 1, yes(1, 8, hour)}, {"b", 1, hour, 1, yes(1, 0, hour)}, {"c", 9, hour, 0, yes(0, 9, hour)}}},
		{noon, []question{{"a", 9, hour, 1, yes(0, 8, hour)}, {"b", 1, hour, 1, no(0, hour)}, {"c", 9, hour, 5, yes(0, 9, hour)}}},
		{noon, []question{{"a", 9, hour, 20, never(8, hour)}, {"b", 1, hour, 1, no(0, hour)}, {"c", 9, hour, 9, yes(0, 9, hour)}}},
		{noon, []question{{"a", 30, hour, 9, yes(9, 0, hour)}}},
	}},
	{name: "both of one key that fit singly are added", opts: Options{StopWhenOver: true}, steps: []step{
		{noon, []question{{"a", 1, hour, 1, yes(1, 0, hour)}, {"a", 1, hour, 1, no(0, hour)}}},
	}},
	{name: "a cost counts as what is above every limit at most", steps: []step{
		one(noon, "a", weir.MaxUnits, hour, math.MaxInt64, never(weir.MaxUnits, hour)),
		one(noon, "a", weir.MaxUnits, hour, math.MaxInt64, never(0, hour)),
		one(noon, "b", weir.MaxUnits, hour, weir.MaxUnits, yes(weir.MaxUnits, 0, hour)),
	}},
}

var fresh atomic.Int64

// Fresh returns a prefix for the texts of keys that no other test has.
func Fresh() string { return fmt.Sprintf("test%d_", fresh.Add(1)) }

// Run holds a store to the cases.
func Run(t *testing.T, open func(t *testing.T, o Options) Store) {
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			s, prefix := open(t, c.opts), Fresh()
			for i, step := range c.steps {
				step.run(t, s, prefix, i)
			}
		})
	}
	t.Run("what_no_counter_answers", func(t *testing.T) { refuses(t, open(t, Options{})) })
	t.Run("giving_back", func(t *testing.T) { givesBack(t, open(t, Options{})) })
	t.Run("reset", func(t *testing.T) { resets(t, open(t, Options{CalendarMonths: true})) })
}

func (s step) run(t *testing.T, store Store, prefix string, n int) {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s.at)
	if err != nil {
		t.Fatal(err)
	}
	asks, decisions := make([]weir.Ask, len(s.asks)), make([]weir.Decision, len(s.asks))
	for i, q := range s.asks {
		asks[i] = AskOf(prefix+q.key, q.units, q.period, q.cost)
	}
	if err := store.TakeAt(t.Context(), at.UnixMicro(), asks, decisions); err != nil {
		t.Fatalf("step %d: %v", n, err)
	}
	for i, q := range s.asks {
		d := decisions[i]
		if got := (answer{d.Allowed, d.Taken, d.Remaining, d.ResetAfter, d.RetryAfter}); got != q.want || d.Cause != nil || d.AtMicros != at.UnixMicro() {
			t.Errorf("step %d, question %d (%s, %d of %d): got %+v (%+v), want %+v", n, i, q.key, q.cost, q.units, got, d, q.want)
		}
	}
}

// AskOf returns a question about the text of a key.
func AskOf(text string, units int64, period time.Duration, cost int64) weir.Ask {
	return weir.Ask{Name: "rule", Key: weir.Text(text), Limit: weir.Per(units, period).By(weir.FixedWindow), Cost: cost, Alone: true}
}

func refuses(t *testing.T, s Store) {
	good := AskOf(Fresh(), 5, hour, 1)
	for want, spoil := range map[string]func(*weir.Ask){
		"gcra":          func(a *weir.Ask) { a.Limit = weir.PerHour(5) },
		"sliding_log":   func(a *weir.Ask) { a.Limit = a.Limit.By(weir.SlidingLog) },
		"whole seconds": func(a *weir.Ask) { a.Limit = weir.Per(5, 1500*time.Millisecond).By(weir.FixedWindow) },
		"not of text":   func(a *weir.Ask) { a.Key = weir.Parts("a") },
		"no key":        func(a *weir.Ask) { a.Key = weir.Key{} },
		"cost of -1":    func(a *weir.Ask) { a.Cost = -1 },
	} {
		bad := good
		spoil(&bad)
		if _, err := s.Take(t.Context(), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one that says %q", err, want)
		}
		err := s.TakeAll(t.Context(), []weir.Ask{good, bad}, make([]weir.Decision, 2))
		if err == nil || !strings.Contains(err.Error(), "question 1") || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one that says %q of question 1", err, want)
		}
	}
	if err := s.TakeAll(t.Context(), []weir.Ask{good}, nil); err == nil {
		t.Error("no room for the decisions: got no error")
	}
	peek := good
	peek.Cost = 0
	if d, err := s.Take(t.Context(), peek); err != nil || d.Remaining != 5 {
		t.Errorf("after refusals: got %+v, %v; want nothing counted", d, err)
	}
}

func givesBack(t *testing.T, s Store) {
	const year = 365 * day // a test will not see one end
	text := Fresh()
	ask := func(cost int64) weir.Ask { return AskOf(text, 5, year, cost) }
	give := func(cost, remaining int64) {
		t.Helper()
		if d, err := s.GiveBack(t.Context(), ask(cost)); err != nil || !d.Allowed || d.Taken != 0 || d.Remaining != remaining || d.RetryAfter != 0 || d.ResetAfter < sec {
			t.Errorf("giving %d back: got %+v, %v; want %d remaining", cost, d, err, remaining)
		}
	}
	take := func(cost int64, allowed bool, remaining int64) weir.Decision {
		t.Helper()
		d, err := s.Take(t.Context(), ask(cost))
		if err != nil || d.Allowed != allowed || d.Remaining != remaining {
			t.Errorf("taking %d: got %+v, %v; want allowed %v and %d remaining", cost, d, err, allowed, remaining)
		}
		return d
	}
	give(3, 5) // nothing is there, nothing is made
	take(4, true, 1)
	give(2, 3)
	take(9, false, 0) // 11
	give(1, 0)        // allowed, and still over
	take(0, false, 0)
	give(100, 5) // not below 0
	d := take(3, true, 2)
	for _, c := range []struct{ cost, want int64 }{{2, 2}, {3, 1}, {1, 0}, {0, 0}} {
		if back, err := s.Refund(t.Context(), ask(c.cost), d); err != nil || back != c.want {
			t.Errorf("a refund of %d: got %d, %v; want %d", c.cost, back, err, c.want)
		}
	}
	if _, err := s.Refund(t.Context(), ask(4), d); err == nil {
		t.Error("a refund of more than was taken: got no error")
	}
	past := d
	past.AtMicros -= year.Microseconds()
	take(3, true, 2)
	if back, err := s.Refund(t.Context(), ask(3), past); err != nil || back != 0 {
		t.Errorf("a refund in a window that is over: got %d, %v; want 0", back, err)
	}
	take(0, true, 2)
}

func resets(t *testing.T, s Store) {
	text := Fresh()
	for _, period := range []time.Duration{day, 7 * day, 30 * day, 365 * day} {
		full := AskOf(text+period.String(), 5, period, 5)
		if d, err := s.Take(t.Context(), full); err != nil || d.Remaining != 0 {
			t.Fatalf("got %+v, %v", d, err)
		}
		if err := s.Reset(t.Context(), "rule", full.Key); err != nil {
			t.Error(err)
		}
		if d, err := s.Take(t.Context(), full); err != nil || !d.Allowed {
			t.Errorf("%v: after a reset got %+v, %v; want allowed", period, d, err)
		}
	}
	if err := s.Reset(t.Context(), "rule", weir.Parts("a")); err == nil {
		t.Error("a reset of a key without a text: got no error")
	}
}
