package lease_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// link is a process's way to the store, with the budget that redisstore has.
type link struct {
	p    *process
	mu   sync.Mutex
	rand *rand.Rand
}

// fate is what happens to one request.
type fate struct {
	there, back time.Duration
	lost        bool // on the way there
	unanswered  bool
	twice       bool
	refused     bool
}

func (l *link) fate() fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	delay := func() time.Duration {
		return 100*time.Microsecond + time.Duration(l.rand.ExpFloat64()*float64(time.Millisecond))
	}
	f := fate{there: delay(), back: delay()}
	l.p.w.mu.Lock()
	quiet := l.p.w.ended
	l.p.w.mu.Unlock()
	if quiet {
		return f
	}
	switch l.rand.IntN(100) {
	case 0:
		f.there *= 40
	case 1:
		f.back *= 40
	case 2:
		f.lost = true
	case 3:
		f.unanswered = true
	case 4:
		f.twice = true
	case 5:
		f.refused = true
	}
	return f
}

// send sends a request, and returns its answer if that comes in time.
func (l *link) send(ctx context.Context, r simRequest) (a simAnswer, err error) {
	f := l.fate()
	deadline := time.Now().Add(simBudget)
	if own, ok := ctx.Deadline(); ok && own.Before(deadline) {
		deadline = own
	}
	// The answer of the network comes at its time, whether anybody waits or not.
	answer := make(chan simAnswer, 1)
	refused := make(chan struct{}, 1)
	store := &l.p.w.store
	time.AfterFunc(f.there, func() {
		switch {
		case f.lost || store.isAway():
			return
		case f.refused:
			refused <- struct{}{}
			return
		}
		a := store.do(r)
		if f.twice {
			if again := store.do(r); r.verb == simRefund && a.back > 0 && again.back > 0 {
				l.p.w.t.Errorf("seed %d: a refund that came twice gave %d units, then %d", l.p.w.seed, a.back, again.back)
			}
		}
		if !f.unanswered {
			time.AfterFunc(f.back, func() { answer <- a })
		}
	})
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case a = <-answer:
	case <-refused:
		err = errRefused
	case <-timer.C:
		err = context.DeadlineExceeded
	}
	l.p.standStill() // it sees the answer when it goes on
	return a, err
}

func (l *link) Take(ctx context.Context, ask weir.Ask) (d weir.Decision, err error) {
	a, err := l.send(ctx, simRequest{asks: []weir.Ask{ask}})
	if err == nil {
		d = a.decisions[0]
	}
	return d, err
}

func (l *link) TakeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	a, err := l.send(ctx, simRequest{asks: slices.Clone(asks)})
	copy(decisions, a.decisions)
	return err
}

func (l *link) Refund(ctx context.Context, ask weir.Ask, d weir.Decision) (int64, error) {
	a, err := l.send(ctx, simRequest{verb: simRefund, asks: []weir.Ask{ask}, of: d})
	return a.back, err
}

func (l *link) Reset(ctx context.Context, _ string, key weir.Key) error {
	_, err := l.send(ctx, simRequest{verb: simReset, asks: []weir.Ask{{Key: key}}})
	return err
}

// simStore is the store of all processes, on the algorithms of every store. It keeps what it
// was asked, so that it can become a replica that has not heard of the last of it.
type simStore struct {
	mu     sync.Mutex
	gone   bool
	states map[weir.Key]*simState
	past   []simRequest
	lost   map[weir.Key]int64 // units that failovers forgot

	skew    time.Duration   // of its clock, now
	jumps   []time.Duration // ahead
	behind  time.Duration   // all jumps back together
	theTrue map[int64]int64 // clock at its times
}

func newSimStore() simStore {
	return simStore{states: map[weir.Key]*simState{}, lost: map[weir.Key]int64{}, theTrue: map[int64]int64{}}
}

type simVerb int

const (
	simTake simVerb = iota
	simRefund
	simReset
)

// simRequest is one request, and when it was done.
type simRequest struct {
	verb   simVerb
	asks   []weir.Ask
	of     weir.Decision // what is to be refunded
	at     int64         // by the store's clock
	answer simAnswer
}

type simAnswer struct {
	decisions []weir.Decision
	back      int64
}

// do does what is requested, at a time at which nothing else was done.
func (s *simStore) do(r simRequest) simAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for r.at = now.Add(s.skew).UnixMicro(); s.theTrue[r.at] != 0; r.at++ {
	}
	s.theTrue[r.at] = now.UnixMicro()
	r.answer = s.apply(&r)
	s.past = append(s.past, r)
	return r.answer
}

func (s *simStore) apply(r *simRequest) (a simAnswer) {
	switch r.verb {
	case simRefund:
		return simAnswer{back: s.state(r.asks[0].Key).refund(r.at, &r.asks[0], &r.of)}
	case simReset:
		st := s.state(r.asks[0].Key)
		ledger := st.ledger
		ledger.Reset(r.at, r.at+int64(time.Hour/time.Microsecond))
		*st = simState{ledger: ledger}
		return a
	}
	refused := false
	next := make([]simState, len(r.asks))
	a.decisions = make([]weir.Decision, len(r.asks))
	for i := range r.asks {
		next[i] = *s.state(r.asks[i].Key)
		a.decisions[i] = next[i].take(r.at, &r.asks[i])
		refused = refused || !a.decisions[i].Allowed
	}
	for i, ask := range r.asks {
		switch st := s.state(ask.Key); {
		case !refused:
			*st = next[i]
		case a.decisions[i].Allowed: // held back
			ask.Cost = 0
			a.decisions[i] = st.take(r.at, &ask)
		}
	}
	return a
}

func (s *simStore) state(key weir.Key) *simState {
	if s.states[key] == nil {
		s.states[key] = &simState{ledger: &algorithm.Ledger{}}
	}
	return s.states[key]
}

// failOver goes back to what a replica had that lags behind, with a clock of its own.
func (s *simStore) failOver(lag, skew time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ahead := skew - s.skew; ahead > 0 {
		s.jumps = append(s.jumps, ahead)
	} else {
		s.behind -= ahead
	}
	s.skew = skew
	then, n := time.Now().Add(-lag).UnixMicro(), len(s.past)
	for ; n > 0 && s.theTrue[s.past[n-1].at] > then; n-- {
		for i, d := range s.past[n-1].answer.decisions {
			s.lost[s.past[n-1].asks[i].Key] += d.Taken
		}
	}
	s.past = s.past[:n]
	clear(s.states)
	for i := range s.past {
		s.apply(&s.past[i])
	}
}

// early returns how many units more than by the true clock a jumping one lets pass.
func (s *simStore) early(limit weir.Limit) (units float64) {
	for _, ahead := range s.jumps {
		earned := float64(limit.Units()) * float64(ahead) / float64(limit.Period())
		units += min(earned, float64(limit.Capacity()))
	}
	return units
}

// steady reports whether the store's clock was always right.
func (s *simStore) steady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jumps) == 0 && s.behind == 0
}

// lag returns by how much the store's clock jumped back, all together.
func (s *simStore) lag() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind
}

// trueTime returns when it was a time of the store's.
func (s *simStore) trueTime(at int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.theTrue[at]
}

func (s *simStore) away(gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = gone
}

func (s *simStore) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// simState is what the store knows of one key.
type simState struct {
	tat     algorithm.TAT
	window  algorithm.Window
	sliding algorithm.Sliding
	ledger  *algorithm.Ledger
}

func (s *simState) take(at int64, ask *weir.Ask) weir.Decision {
	var v algorithm.Verdict
	switch ask.Limit.Algorithm() {
	case weir.FixedWindow:
		s.window, v, _ = algorithm.TakeWindow(s.window, at, ask)
		return algorithm.DescribeWindow(s.window, v, ask)
	case weir.SlidingWindow:
		s.sliding, v, _ = algorithm.TakeSliding(s.sliding, at, ask)
		return algorithm.DescribeSliding(s.sliding, v, ask)
	}
	s.tat, v, _ = algorithm.TakeGCRA(s.tat, at, ask)
	return algorithm.DescribeGCRA(s.tat, v, ask)
}

func (s *simState) refund(at int64, ask *weir.Ask, d *weir.Decision) (back int64) {
	switch ask.Limit.Algorithm() {
	case weir.FixedWindow:
		s.window, back = s.ledger.RefundWindow(s.window, at, ask, d)
	case weir.SlidingWindow:
		s.sliding, back = s.ledger.RefundSliding(s.sliding, at, ask, d)
	default:
		s.tat, back = s.ledger.RefundGCRA(s.tat, at, ask, d)
	}
	return back
}
