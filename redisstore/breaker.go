package redisstore

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A breaker keeps questions from a node that does not answer, so that a dead node costs
// its keys a bounded delay once and the other nodes' keys nothing. It opens after failures
// in a row, or when half of the calls of the last two seconds fail; lets one question
// try after a pause that doubles; and when some have succeeded lets the rest back in
// over a second, in which it opens for the same reasons: a node that fails now and then
// would else never be let back. Its functions take the time.
type breaker struct {
	mu       sync.Mutex
	state    State
	inFlight int
	row      int            // failures in a row; while Tried, successes
	pause    time.Duration  // how long it stays open
	until    time.Time      // open: when a question may try; returning: when all may
	last     *Error         // the failure that opened it
	buckets  [buckets]slice // the last two seconds
	opened   int64
}

// State is whether a node is asked.
type State uint8

// The states of a node.
const (
	Healthy   State = iota // asked
	Avoided                // not asked: it fails
	Tried                  // one question at a time finds out whether it answers
	Returning              // it answers: asked by a growing part of the questions
)

var stateNames = [...]string{"healthy", "avoided", "tried", "returning"}

// String returns "healthy", "avoided", "tried" or "returning".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// slice counts the calls of a fifth of a second.
type slice struct {
	number int64
	calls  int
	failed int
}

const (
	buckets      = 10
	sliceLength  = 200 * time.Millisecond
	failRow      = 5    // failures in a row that open
	leastCalls   = 20   // calls in two seconds before their ratio counts
	mostInFlight = 1024 // questions waiting for one node
	firstPause   = 250 * time.Millisecond
	longestPause = time.Second
	successRow   = 3 // successes in a row that end the trial
	returnTime   = time.Second
)

// enter asks for leave to send a question. An error says why it must not be sent.
func (b *breaker) enter(now time.Time) *Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Avoided && !now.Before(b.until) {
		b.state, b.row = Tried, 0
	}
	switch {
	case b.state == Avoided, b.state == Tried && b.inFlight > 0:
		return b.refusal()
	case b.state == Returning:
		left := b.until.Sub(now)
		if left <= 0 {
			b.state, b.pause = Healthy, 0
		} else if rand.N(returnTime) < left*9/10 {
			return b.refusal()
		}
	}
	if b.inFlight >= mostInFlight {
		return &Error{Busy, false, fmt.Errorf("%d questions wait for this node already", b.inFlight)}
	}
	b.inFlight++
	return nil
}

// refusal is the error of a question that was not sent.
func (b *breaker) refusal() *Error {
	return &Error{b.last.Class, false, fmt.Errorf("not asked: it failed lately: %w", b.last.Err)}
}

// leave reports how a question that was let in ended: nil, or why the node did not decide.
// An end that says nothing about the node is told by excluded.
func (b *breaker) leave(now time.Time, failure *Error, excluded bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight--
	if excluded {
		return
	}
	s := b.slice(now)
	s.calls++
	if failure != nil {
		s.failed++
		b.fail(now, failure)
		return
	}
	switch b.state {
	case Healthy, Returning:
		b.row = 0
	case Tried:
		if b.row++; b.row >= successRow {
			b.state, b.until, b.row = Returning, now.Add(returnTime), 0
			b.buckets = [buckets]slice{}
		}
	}
}

// fail counts a failure, and opens if it is one too many.
func (b *breaker) fail(now time.Time, failure *Error) {
	switch b.state {
	case Avoided: // an answer to what was sent before
		return
	case Healthy, Returning:
		b.row++
		calls, failed := b.recent(now)
		if b.row < failRow && (calls < leastCalls || 2*failed < calls) {
			return
		}
	}
	b.pause = min(max(2*b.pause, firstPause), longestPause)
	b.state, b.row, b.last = Avoided, 0, failure
	b.until = now.Add(b.pause/2 + rand.N(b.pause)/2)
	b.opened++
}

// slice returns the counts of now.
func (b *breaker) slice(now time.Time) *slice {
	n := now.UnixNano() / int64(sliceLength)
	s := &b.buckets[n%buckets]
	if s.number != n {
		*s = slice{number: n}
	}
	return s
}

// recent returns the calls of the last two seconds, and how many failed.
func (b *breaker) recent(now time.Time) (calls, failed int) {
	n := now.UnixNano() / int64(sliceLength)
	for _, s := range b.buckets {
		if s.number > n-buckets && s.number <= n {
			calls, failed = calls+s.calls, failed+s.failed
		}
	}
	return calls, failed
}

// tells reports whether the error says that the node is not well. Faults of configuration
// and of one key's state do not, nor does an answer that cannot be read.
func (e *Error) tells() bool {
	switch e.Class {
	case Config, Corrupt, Garbage, Closed, Moving:
		return false
	}
	return true
}
