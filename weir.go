// Package weir decides whether a request may go on: it is a rate limiter for one
// process or for many that share a store.
//
// A [Limiter] asks a [Store] about one named [Limit]; the store remembers, and
// decides each question in one atomic step. Being over the limit is an answer
// (Decision.Allowed is false), never an error; an error means that nothing could
// decide. A denied request changes nothing, whatever its cost.
//
// Stores are in memstore (counters of this process) and redisstore (Redis or Valkey);
// lease stands before one and asks it less often, and storetest proves one of your own.
package weir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Never is the RetryAfter of a request that no waiting would let pass: it costs more
// than the limit's capacity, or the limit is 0.
const Never time.Duration = math.MaxInt64

// MaxNameLen is the longest name of a limit, in bytes.
const MaxNameLen = 128

// Ask is one question to a Store: may Key take Cost units of the limit called Name?
type Ask struct {
	Name    string        // which limit: state lives under Name and Key, so a Limit may change and keep its state
	Key     Key           // who; the zero Key is an error
	Limit   Limit         // how much; never Unlimited, which needs no store
	Cost    int64         // units; 0 is a peek, which changes nothing and says whether one unit would pass
	MaxWait time.Duration // longest Delay to accept, at most one period; 0: a LeakyBucket's own bound, else none
	Partial bool          // take as many of Cost as there are, at least one
	Alone   bool          // in TakeAll: neither holds the others back nor is held back by them
}

// Validate returns an error that says what is wrong with the question, or nil. Stores
// call it before they decide.
func (a *Ask) Validate() error {
	if a.Name != "" && a.Key.kind != noKey && a.Cost >= 0 && a.MaxWait >= 0 &&
		a.Limit != (Limit{}) && a.Limit.interned.asksStore && (a.MaxWait == 0 || a.MaxWait <= a.Limit.Period()) {
		return nil
	}
	var errs []error
	if a.Name == "" {
		errs = append(errs, errors.New("no name: say which limit is asked"))
	}
	if a.Key.IsZero() {
		errs = append(errs, errors.New("no key: make one with Text, Parts or Addr"))
	}
	if a.Cost < 0 {
		errs = append(errs, fmt.Errorf("a cost of %d: a cost is 1 or more units, or 0 to peek; to give units back use Refund", a.Cost))
	}
	if err := a.Limit.Validate(); err != nil {
		errs = append(errs, err)
	} else if a.Limit.IsUnlimited() {
		errs = append(errs, errors.New("an unlimited limit asks no store"))
	} else if a.MaxWait < 0 || a.MaxWait > a.Limit.Period() {
		errs = append(errs, fmt.Errorf("a longest wait of %v is outside 0 to the limit's period of %v", a.MaxWait, a.Limit.Period()))
	}
	return fmt.Errorf("limit %q: %w", a.Name, errors.Join(errs...))
}

// ValidateAll returns an error that says what is wrong with which of several questions, or
// that there is not room for one decision each, or nil. Stores call it in TakeAll.
func ValidateAll(asks []Ask, decisions []Decision) error {
	if len(asks) != len(decisions) {
		return fmt.Errorf("%d questions and room for %d decisions: pass as many of each", len(asks), len(decisions))
	}
	for i := range asks {
		if err := asks[i].Validate(); err != nil {
			return fmt.Errorf("question %d: %w", i, err)
		}
	}
	return nil
}

// Source is who made a Decision.
type Source uint8

// The sources of a decision.
const (
	FromStore    Source = iota // the store
	FromLease                  // units that this process had taken ahead
	FromCache                  // a remembered denial
	FromFallback               // the fallback store, because the store could not decide
	FromPolicy                 // no store: an unlimited limit, or the failure mode
)

var sourceNames = [...]string{"store", "lease", "cache", "fallback", "policy"}

// String returns "store", "lease", "cache", "fallback" or "policy".
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// Decision is the answer to one Ask, and the receipt with which it can be refunded.
//
// With a limit of 5 a minute by FixedWindow, asked at 12:00:20 for 2 units: Allowed,
// Taken 2, Remaining 3, RetryAfter 0, ResetAfter 40 s. Asked for 4 more: not Allowed,
// Taken 0, Remaining 3, RetryAfter 40 s.
type Decision struct {
	Allowed   bool
	Shadow    bool   // allowed only because the limit does not enforce yet
	Source    Source // who decided
	Taken     int64  // units charged: 0 when denied, peeked, or held back by another ask
	Remaining int64  // units that could be taken now, 0 to the capacity
	// RetryAfter is when the same question, coming back alone, will be allowed: 0 when
	// allowed, Never when no waiting helps. Coming back 1 µs earlier is denied.
	RetryAfter time.Duration
	ResetAfter time.Duration // when the key is as new if nobody asks: 0 exactly when it is
	Delay      time.Duration // how long an allowed request must wait before it starts
	AtMicros   int64         // the store's clock at the decision, in microseconds since 1970
	Cause      error         // why the store did not decide, where something else did
}

// Store remembers and decides. Implementations are safe for concurrent use, decide
// each question atomically, and return an error only when they could not decide; then
// nothing was taken as far as they know. Package storetest says what else they owe.
type Store interface {
	// Take answers one question.
	Take(ctx context.Context, ask Ask) (Decision, error)
	// TakeAll answers several, in order: all are charged, or none of those that are
	// not Alone. decisions[i] answers asks[i]; the two are of one length. Where a part
	// of the store is away its decisions have a Cause, are not Allowed, and the others
	// stand.
	TakeAll(ctx context.Context, asks []Ask, decisions []Decision) error
	// Refund gives back ask.Cost of the units that d took, under ask's name, key and
	// limit, and returns how many came back: at most d.Taken, once for each decision,
	// and never more than if they had not been taken.
	Refund(ctx context.Context, ask Ask, d Decision) (int64, error)
	// Reset forgets what the key has used of the named limit, under every algorithm.
	Reset(ctx context.Context, name string, key Key) error
}

// ValidateName returns an error unless name can name a limit: 1 to MaxNameLen bytes
// of printable ASCII without braces, quotes, backslashes or spaces.
func ValidateName(name string) error {
	if name == "" || len(name) > MaxNameLen {
		return fmt.Errorf("a limit's name has %d bytes: write 1 to %d", len(name), MaxNameLen)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c <= ' ' || c > '~', c == '{', c == '}', c == '"', c == '\\':
			return fmt.Errorf("a limit's name %.80q has %q at byte %d: use printable ASCII without spaces, braces, quotes or backslashes", name, c, i)
		}
	}
	return nil
}
