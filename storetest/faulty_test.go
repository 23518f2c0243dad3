package storetest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
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

// Each fault that others shipped, or that is easily made, is seen by the rows that are
// for it.
func TestEveryFaultIsSeen(t *testing.T) {
	for _, tt := range []struct {
		fault     string
		algorithm weir.Algorithm
		rows      []string
	}{
		{"idle time saved up", weir.GCRA, []string{"an idle key earns at most one capacity", "every reference case is answered"}},
		{"less than for at most", weir.GCRA, []string{"a fresh key allows its capacity and no more", "every reference case is answered"}},
		{"less than for at most", weir.SlidingWindow, []string{"a fresh key allows its capacity and no more"}},
		{"one more than the limit", weir.FixedWindow, []string{"a fresh key allows its capacity and no more", "many callers of one key never share a unit"}},
		{"cost ignored", weir.GCRA, []string{"a cost is taken whole or not at all"}},
		{"denials charged", weir.GCRA, []string{"a denial changes nothing, whatever its cost"}},
		{"denials charged", weir.SlidingLog, []string{"a denial changes nothing, whatever its cost"}},
		{"peeks charged", weir.FixedWindow, []string{"a peek changes nothing and says whether one unit would pass"}},
		{"partial ignored", weir.GCRA, []string{"partial takes what is there and at least one", "a history of random asks is that of the limit"}},
		{"everything partial", weir.FixedWindow, []string{"a cost is taken whole or not at all"}},
		{"zero taken for no limit", weir.GCRA, []string{"a limit of zero denies everybody for ever"}},
		{"bad questions answered", weir.GCRA, []string{"what is wrong with a question is an error and changes nothing"}},
		{"never forgotten to be never", weir.GCRA, []string{"a cost above the capacity is never allowed and remaining stays true"}},
		{"retry after rounded down", weir.GCRA, []string{"retry_after is exact to the microsecond"}},
		{"retry after rounded up twice", weir.SlidingWindow, []string{"retry_after is exact to the microsecond"}},
		{"forgotten early", weir.GCRA, []string{"a key is remembered until reset_after and indistinguishable from a fresh one then"}},
		{"forgotten early", weir.SlidingWindow, []string{"a key is remembered until reset_after and indistinguishable from a fresh one then"}},
		{"renewed at each hit", weir.FixedWindow, []string{"a caller below the rate is never denied"}},
		{"the clock steps back to a fresh key", weir.FixedWindow, []string{"time that steps back mints nothing", "a window ends at its end and never comes back"}},
		{"the clock steps back and cuts short", weir.GCRA, []string{"time that steps back mints nothing", "two clocks a second apart earn no more than one"}},
		{"a double's seconds", weir.GCRA, []string{"no second of the clock is special"}},
		{"names and keys joined ambiguously", weir.GCRA, []string{"a name and a key never run into each other"}},
		{"addresses taken for texts", weir.GCRA, []string{"keys never meet, whatever their kind and bytes"}},
		{"keys without regard to case", weir.GCRA, []string{"keys never meet, whatever their kind and bytes"}},
		{"long keys cut off", weir.GCRA, []string{"keys never meet, whatever their kind and bytes"}},
		{"nothing held back", weir.GCRA, []string{"one denial holds the limits of all other keys back", "one denial holds all the others back", "two asks about one key count together", "callers of the same limits in different orders all get an answer"}},
		{"alone ignored", weir.GCRA, []string{"an ask alone neither holds back nor is held back"}},
		{"read, then write", weir.GCRA, []string{"many callers of one key never share a unit"}},
		{"gives up under contention", weir.GCRA, []string{"many callers of one key never share a unit"}},
		{"longest wait ignored", weir.GCRA, []string{"places ahead are sold once and each for its own time"}},
		{"longest wait ignored", weir.LeakyBucket, []string{"who will not wait for a place in the queue takes none"}},
		{"no delay told", weir.LeakyBucket, []string{"units leave a queue one interval apart", "starts after the delay keep to the rate"}},
		{"places ahead sold twice", weir.GCRA, []string{"places ahead are sold once and each for its own time"}},
		{"refunds twice", weir.GCRA, []string{"a refund gives back once", "many refunds of one decision give back once", "random refunds never let more through than if their units had not been taken"}},
		{"refunds twice", weir.FixedWindow, []string{"a refund gives back once", "a part of a decision is refunded once too"}},
		{"refunds what was before a reset", weir.GCRA, []string{"a decision from before a reset gives nothing back"}},
		{"refunds what was never taken", weir.FixedWindow, []string{"never more comes back than was taken"}},
		{"refunds what was earned again", weir.GCRA, []string{"what was earned again in part is given back in part"}},
		{"refunds what has ended", weir.FixedWindow, []string{"what has ended or was earned again is not given back"}},
		{"refunds any place in the queue", weir.LeakyBucket, []string{"only the last place of a queue is given back"}},
		{"no refunds", weir.SlidingLog, []string{"a refund gives back once"}},
		{"reset of one kind only", weir.GCRA, []string{"reset forgets the key under every algorithm"}},
		{"a changed limit starts afresh", weir.GCRA, []string{"another rate or burst keeps what was used", "limits that take turns give no more than one of them"}},
		{"a changed limit starts afresh", weir.SlidingWindow, []string{"another count keeps what was used"}},
		{"a limit that shrank locks keys out", weir.GCRA, []string{"a faster limit frees a key that owes under a slow one"}},
	} {
		t.Run(tt.fault+" by "+tt.algorithm.String(), func(t *testing.T) {
			t.Parallel()
			for _, name := range tt.rows {
				if faults := failures(t, name, tt.fault, tt.algorithm); len(faults) == 0 {
					t.Errorf("%q: got no failure, want one", name)
				}
			}
		})
	}
}

// failures runs one row on a faulty store and returns what it reports.
func failures(t *testing.T, name, fault string, algorithm weir.Algorithm) []string {
	t.Helper()
	for _, r := range rows() {
		if r.name != name || r.of != nil && !r.of(algorithm) {
			continue
		}
		rec := &recorder{ctx: t.Context()}
		open := func() weir.Store { return newPlain(fault) }
		tr := newTrial(rec, open(), algorithm, []weir.Algorithm{weir.GCRA, weir.LeakyBucket, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog})
		tr.open = open
		done := make(chan struct{})
		go func() { // which Fatalf may end
			defer close(done)
			r.check(tr)
		}()
		<-done
		return rec.faults
	}
	t.Fatalf("no row is named %q for %v", name, algorithm)
	return nil
}

// recorder is a reporter that remembers.
type recorder struct {
	ctx    context.Context
	mu     sync.Mutex
	faults []string
}

func (r *recorder) Helper() {}

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// spoil is the fault in what is remembered and what is asked.
func (p *plain) spoil(s state, now int64, ask weir.Ask) (state, int64, weir.Ask) {
	switch p.fault {
	case "cost ignored":
		ask.Cost = min(ask.Cost, 1)
	case "partial ignored":
		ask.Partial = false
	case "everything partial":
		ask.Partial = true
	case "peeks charged":
		ask.Cost = max(ask.Cost, 1)
	case "one more than the limit":
		ask.Limit = weir.Per(ask.Limit.Units()+1, ask.Limit.Period()).By(ask.Limit.Algorithm())
	case "a double's seconds":
		if now >= second<<31 {
			now = int64(float32(now/second)) * second
		}
	case "longest wait ignored":
		ask.MaxWait = 0
	case "places ahead sold twice":
		if ask.MaxWait > 0 {
			s.tat.Micros = min(s.tat.Micros, now+ask.Limit.Emission().TolMicros)
		}
	case "forgotten early":
		if s.until > 0 && now >= s.until-s.until%second {
			s = state{}
		}
	case "the clock steps back to a fresh key":
		if now < s.window.Start {
			s = state{}
		}
	case "the clock steps back and cuts short":
		if most := now + ask.Limit.Emission().TolMicros; s.tat.Micros > most {
			s.tat.Micros = most
			p.states[p.at(&ask)] = s
		}
	case "renewed at each hit":
		if s.window.Count > 0 {
			s.window.Start = now - now%ask.Limit.Period().Microseconds()
		}
	case "a changed limit starts afresh":
		if s.limit != ask.Limit && s.limit != (weir.Limit{}) {
			s = state{}
		}
	}
	return s, now, ask
}

// spoilState is the fault in what is kept.
func (p *plain) spoilState(before, after state, ask *weir.Ask, v algorithm.Verdict) state {
	switch p.fault {
	case "idle time saved up":
		if us, rem := after.tat.Micros, before.tat.Micros; v.Taken > 0 && rem > 0 && rem < v.At {
			after.tat.Micros = us - (v.At - rem)
		}
	case "a limit that shrank locks keys out":
		if v.Taken == 0 {
			after.tat = before.tat
		}
	case "denials charged":
		if !v.Allowed {
			some := *ask
			some.Partial = true
			after, _ = take(after, v.At, some)
			p.states[p.at(ask)] = after
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
	case "zero taken for no limit":
		if ask.Limit.Units() == 0 {
			return weir.Decision{Allowed: true, AtMicros: d.AtMicros}
		}
	case "no delay told":
		d.Delay = 0
	case "never forgotten to be never":
		d.RetryAfter = min(d.RetryAfter, year)
	}
	return d
}
