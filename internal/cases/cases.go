// Package cases reads algorithm cases: limits, the questions asked of one fresh key at
// given times, and the answers of a reference in rational arithmetic.
package cases

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"weir.dev/weir"
)

// Case is one limit and the steps taken with one key, in order.
type Case struct {
	Name  string
	Limit weir.Limit
	Steps []Step
}

// Step is one question and its answer.
type Step struct {
	AtMicros int64 // microseconds since 1970
	Cost     int64 // 0 is a peek
	Want     Answer
}

// Answer is what a decision tells: all waits in microseconds, RetryAfter -1 for never.
type Answer struct {
	Allowed                       bool
	Remaining                     int64
	RetryAfter, ResetAfter, Delay int64
}

// AnswerOf returns a decision in the terms of a case.
func AnswerOf(d weir.Decision) Answer {
	a := Answer{d.Allowed, d.Remaining, d.RetryAfter.Microseconds(), d.ResetAfter.Microseconds(), d.Delay.Microseconds()}
	if d.RetryAfter == weir.Never {
		a.RetryAfter = -1
	}
	return a
}

// Agrees reports whether got is the answer that was wanted: waits may differ by a
// microsecond, all else is exact.
func (a Answer) Agrees(got Answer) bool {
	near := func(x, y int64) bool { return x == y || x > 0 && y > 0 && x-y <= 1 && y-x <= 1 }
	return a.Allowed == got.Allowed && a.Remaining == got.Remaining &&
		near(a.RetryAfter, got.RetryAfter) && near(a.ResetAfter, got.ResetAfter) && near(a.Delay, got.Delay)
}

// file is the form of the JSON.
type file []struct {
	Name  string `json:"name"`
	Limit struct {
		Algorithm string `json:"algorithm"`
		Rate      int64  `json:"rate"`
		PeriodUS  int64  `json:"period_us"`
		Burst     int64  `json:"burst"`
	} `json:"limit"`
	Steps []struct {
		AtUS         int64 `json:"at_us"`
		Cost         int64 `json:"cost"`
		Allowed      bool  `json:"allowed"`
		Remaining    int64 `json:"remaining"`
		RetryAfterUS int64 `json:"retry_after_us"`
		ResetAfterUS int64 `json:"reset_after_us"`
		DelayUS      int64 `json:"delay_us"`
	} `json:"steps"`
}

// maxBytes is the largest file of cases: 64 MiB.
const maxBytes = 64 << 20

// Read returns the cases of a JSON array of {name, limit, steps}. The error names the
// case that is wrong.
func Read(r io.Reader) ([]Case, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("more than %d bytes: write the cases into several files", maxBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var f file
	if err := dec.Decode(&f); err != nil {
		return nil, fmt.Errorf("not a JSON array of cases {name, limit, steps}: %w", err)
	}
	if dec.More() {
		return nil, errors.New("more text behind the array of cases")
	}
	cases := make([]Case, 0, len(f))
	for i, c := range f {
		algorithm, err := weir.ParseAlgorithm(c.Limit.Algorithm)
		if err != nil {
			return nil, fmt.Errorf("case %d, %q: %w", i, c.Name, err)
		}
		const longest = int64(weir.MaxPeriod / time.Microsecond)
		if c.Limit.PeriodUS < 1 || c.Limit.PeriodUS > longest {
			return nil, fmt.Errorf("case %d, %q: period_us %d is outside 1 to %d", i, c.Name, c.Limit.PeriodUS, longest)
		}
		limit := weir.Per(c.Limit.Rate, time.Duration(c.Limit.PeriodUS)*time.Microsecond).By(algorithm).Burst(c.Limit.Burst)
		if err := limit.Validate(); err != nil {
			return nil, fmt.Errorf("case %d, %q: %w", i, c.Name, err)
		}
		if len(c.Steps) == 0 {
			return nil, fmt.Errorf("case %d, %q: it has no steps, and so proves nothing", i, c.Name)
		}
		steps := make([]Step, len(c.Steps))
		for n, s := range c.Steps {
			if s.AtUS < 0 || s.Cost < 0 {
				return nil, fmt.Errorf("case %d, %q: step %d: at_us %d and cost %d must not be negative", i, c.Name, n, s.AtUS, s.Cost)
			}
			steps[n] = Step{s.AtUS, s.Cost, Answer{s.Allowed, s.Remaining, s.RetryAfterUS, s.ResetAfterUS, s.DelayUS}}
		}
		cases = append(cases, Case{c.Name, limit, steps})
	}
	return cases, nil
}
