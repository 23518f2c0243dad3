package algorithm

import (
	"errors"
	"fmt"
	"time"

	"weir.dev/weir"
)

// The counters of envoyproxy/ratelimit: a fixed window each, aligned to the Unix epoch in
// whole seconds of the caller's clock, to which every question adds its cost, the denied
// too. They are not weir's FixedWindow, which charges what it admits.

// CounterWindow is the window of a counter, in Unix seconds, and how long its key is kept.
type CounterWindow struct{ Start, End, TTL int64 }

const (
	micro = 1_000_000 // a second
	month = 30 * 24 * time.Hour
)

// counterPeriods are those that the protocol has units for.
var counterPeriods = []time.Duration{
	time.Second, time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, month, 365 * 24 * time.Hour,
}

// CounterWindowAt returns the window of a period at a time in microseconds since 1970. With
// calendarMonths one of 30 days is the month in UTC.
func CounterWindowAt(at int64, period time.Duration, calendarMonths bool) CounterWindow {
	now := at / micro
	if calendarMonths && period == month {
		t := time.Unix(now, 0).UTC()
		first := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
		end := first.AddDate(0, 1, 0).Unix()
		return CounterWindow{first.Unix(), end, end - now}
	}
	seconds := int64(period / time.Second)
	start := now - now%seconds
	return CounterWindow{start, start + seconds, seconds}
}

// CounterWindows returns the windows at a time of all periods that have a unit.
func CounterWindows(at int64, calendarMonths bool) []CounterWindow {
	windows := make([]CounterWindow, 0, len(counterPeriods))
	for _, period := range counterPeriods {
		windows = append(windows, CounterWindowAt(at, period, calendarMonths))
	}
	return windows
}

// ValidateCounter returns the text of the key that an ask is about, or an error that says
// why a counter cannot answer it.
func ValidateCounter(ask *weir.Ask) (string, error) {
	if err := ask.Validate(); err != nil {
		return "", err
	}
	var errs []error
	text, ok := ask.Key.Text()
	if !ok {
		errs = append(errs, fmt.Errorf("the key %s is not of text: make it with Text, of what the counter's key is to say", ask.Key))
	}
	if a := ask.Limit.Algorithm(); a != weir.FixedWindow {
		errs = append(errs, fmt.Errorf("a limit by %v: counters shared with envoyproxy/ratelimit are fixed_window; ask another store for the rest", a))
	}
	if p := ask.Limit.Period(); p%time.Second != 0 {
		errs = append(errs, fmt.Errorf("a period of %v: counters have windows of whole seconds", p))
	}
	if len(errs) > 0 {
		return "", fmt.Errorf("limit %q: %w", ask.Name, errors.Join(errs...))
	}
	return text, nil
}

// CounterCost returns what an ask adds to its counter: its cost, but no more than puts any
// limit's counter over it, so that no counter wraps around.
func CounterCost(ask *weir.Ask) int64 { return min(ask.Cost, weir.MaxUnits+1) }

// DescribeCounter answers an ask at a time: count is the counter after it, and added what
// of that is the ask's. Over is what is above the limit; of a denied ask Taken is the part
// that was within, which the service's statistics tell apart.
func DescribeCounter(ask *weir.Ask, w CounterWindow, at, count, added int64) weir.Decision {
	units := ask.Limit.Units()
	d := weir.Decision{
		Allowed:    count <= units,
		Taken:      max(min(added, units-(count-added)), 0),
		Remaining:  max(units-count, 0),
		ResetAfter: time.Duration(w.End-at/micro) * time.Second,
		AtMicros:   at,
	}
	if !d.Allowed {
		d.RetryAfter = micros(w.End*micro - at)
		if ask.Cost > units {
			d.RetryAfter = weir.Never
		}
	}
	return d
}
