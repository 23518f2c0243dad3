package storetest

import (
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

func TestPlainStoreConforms(t *testing.T) {
	Run(t, Subject{New: func(*testing.T) weir.Store { return newPlain("") }})
}

// realTime hides TakeAt.
type realTime struct{ weir.Store }

func TestStoreWithoutTakeAtConforms(t *testing.T) {
	Run(t, Subject{New: func(*testing.T) weir.Store { return realTime{newPlain("")} }})
}

// spoil is the fault in what is remembered and what is asked.
func (p *plain) spoil(s state, now int64, ask weir.Ask) (state, weir.Ask) {
	switch p.fault {
	case "cost ignored":
		ask.Cost = min(ask.Cost, 1)
	case "partial ignored":
		ask.Partial = false
	case "everything partial":
		ask.Partial = true
	case "longest wait ignored":
		ask.MaxWait = 0
	case "forgotten early":
		if s.until > 0 && now >= s.until-s.until%second {
			s = state{}
		}
	case "the clock steps back to a fresh key":
		if now < s.window.Start {
			s = state{}
		}
	case "a changed limit starts afresh":
		if s.tat.Den > 0 && s.tat.Den != ask.Limit.Emission().Den {
			s = state{}
		}
	}
	return s, ask
}

// spoilState is the fault in what is kept.
func (p *plain) spoilState(before, after state, ask *weir.Ask, v algorithm.Verdict) state {
	switch p.fault {
	case "idle time saved up":
		if us, rem := after.tat.Micros, before.tat.Micros; v.Taken > 0 && rem > 0 && rem < v.At {
			after.tat.Micros = us - (v.At - rem)
		}
	case "denials charged":
		if !v.Allowed {
			some := *ask
			some.Partial = true
			after, _ = take(after, v.At, some)
		}
	}
	return after
}

// spoilDecision is the fault in what is told.
func (p *plain) spoilDecision(d weir.Decision, ask *weir.Ask) weir.Decision {
	switch p.fault {
	case "less than for at most":
		if d.Taken > 0 && d.Remaining == 0 {
			return weir.Decision{AtMicros: d.AtMicros, RetryAfter: d.ResetAfter}
		}
	case "retry after rounded down":
		if d.RetryAfter > 2*time.Microsecond && d.RetryAfter != weir.Never {
			d.RetryAfter -= time.Microsecond
		}
	case "retry after rounded up twice":
		if d.RetryAfter > 0 && d.RetryAfter != weir.Never {
			d.RetryAfter += time.Microsecond
		}
	case "never forgotten to be never":
		d.RetryAfter = min(d.RetryAfter, year)
	}
	return d
}
