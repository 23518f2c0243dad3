package redisstore

import (
	"errors"
	"testing"
	"time"
)

var errDown = &Error{Timeout, true, errors.New("no answer")}

// ask is one question at a time that takes no time.
func (b *breaker) ask(now time.Time, failure *Error) (sent bool) {
	if b.enter(now) != nil {
		return false
	}
	b.leave(now, failure, false)
	return true
}

func TestBreakerOpensAfterFailuresInARowAndTriesOneAtATime(t *testing.T) {
	t.Parallel()
	b, now := &breaker{}, time.Unix(1000, 0)
	for n := range failRow {
		if !b.ask(now, errDown) {
			t.Fatalf("question %d was not sent", n)
		}
	}
	if b.ask(now, nil) {
		t.Error("a question was sent to a node that failed five times")
	}
	if e := b.enter(now); e == nil || e.Class != Timeout || e.Executed {
		t.Errorf("got %+v, want the class of the failure, not executed", e)
	}
	now = now.Add(firstPause)
	if e := b.enter(now); e != nil {
		t.Errorf("after the pause: got %v, want one question tried", e)
	}
	if b.enter(now) == nil {
		t.Error("two questions were tried at once")
	}
	b.leave(now, errDown, false)
	if b.ask(now.Add(firstPause/4), nil) {
		t.Error("the pause after a failed trial was too short")
	}
}

func TestBreakerLetsQuestionsBackWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	b, now := &breaker{}, time.Unix(1000, 0)
	for range 50 {
		b.ask(now, errDown)
		now = now.Add(100 * time.Millisecond)
	}
	begin := now
	for b.state != Healthy {
		b.ask(now, nil)
		if now = now.Add(time.Millisecond); now.Sub(begin) > 5*time.Second {
			t.Fatal("still not healthy after five seconds of answers")
		}
	}
	if took := now.Sub(begin); took > longestPause+returnTime+time.Millisecond*10 {
		t.Errorf("took %v, want at most %v", took, longestPause+returnTime)
	}
}

func TestBreakerReturnsByAGrowingPart(t *testing.T) {
	t.Parallel()
	b := &breaker{}
	now := time.Unix(1000, 0)
	b.state, b.until, b.last = Returning, now.Add(returnTime), errDown
	early, late := 0, 0
	for range 1000 {
		if b.ask(now.Add(returnTime/10), nil) {
			early++
		}
		if b.ask(now.Add(returnTime*9/10), nil) {
			late++
		}
	}
	if early > 300 || late < 800 {
		t.Errorf("got %d of 1000 at a tenth and %d at nine tenths, want few and most", early, late)
	}
}

// An outage is over, and one question in 50 fails as before it: that opened nothing then.
func TestNodeThatFailsNowAndThenIsLetBack(t *testing.T) {
	t.Parallel()
	b, now := &breaker{}, time.Unix(1000, 0)
	for b.state != Avoided {
		b.ask(now, errDown)
	}
	for n, sent := 0, 0; b.state != Healthy; n++ {
		var failure *Error
		if sent%50 == 49 {
			failure = errDown
		}
		if b.ask(now, failure) {
			sent++
		}
		if now = now.Add(time.Millisecond); n > 3000 {
			t.Fatalf("got %v after 3 s and %d openings, want healthy", b.state, b.opened)
		}
	}
}

func TestNodeThatHangsAgainWhileItReturnsIsAvoidedForLonger(t *testing.T) {
	t.Parallel()
	b, now := &breaker{}, time.Unix(1000, 0)
	for range failRow {
		b.ask(now, errDown)
	}
	for b.state != Returning {
		b.ask(now, nil)
		now = now.Add(time.Millisecond)
	}
	sent := 0
	for n := 0; b.state == Returning; n++ {
		if b.ask(now.Add(time.Duration(n)*time.Millisecond), errDown) {
			sent++
		}
	}
	if b.state != Avoided || sent != failRow || b.pause != 2*firstPause {
		t.Errorf("got %v after %d failures, for a pause of %v; want avoided after %d, for %v", b.state, sent, b.pause, failRow, 2*firstPause)
	}
}

func TestBreakerOpensWhenHalfFailBetweenSuccesses(t *testing.T) {
	t.Parallel()
	b, now := &breaker{}, time.Unix(1000, 0)
	for n := 0; n < 100 && b.state == Healthy; n++ {
		failure := errDown
		if n%2 == 0 {
			failure = nil
		}
		b.ask(now, failure)
		now = now.Add(5 * time.Millisecond)
	}
	if b.state != Avoided {
		t.Errorf("got %v after half of 100 questions failed, want avoided", b.state)
	}
	quiet := &breaker{}
	for n := range 100 { // one in four
		failure := errDown
		if n%4 != 0 {
			failure = nil
		}
		quiet.ask(now.Add(time.Duration(n)*5*time.Millisecond), failure)
	}
	if quiet.state != Healthy {
		t.Errorf("got %v after a quarter failed, want healthy", quiet.state)
	}
}

func TestBreakerCapsTheQuestionsThatWait(t *testing.T) {
	t.Parallel()
	b, now := &breaker{}, time.Unix(1000, 0)
	for range mostInFlight {
		if e := b.enter(now); e != nil {
			t.Fatal(e)
		}
	}
	if e := b.enter(now); e == nil || e.Class != Busy || e.Executed {
		t.Errorf("got %v, want a refusal of what is one too many", e)
	}
	b.leave(now, nil, true)
	if e := b.enter(now); e != nil {
		t.Errorf("after one has left: got %v", e)
	}
}

func TestWhatSaysNothingAboutANodeIsNotCounted(t *testing.T) {
	t.Parallel()
	b, now := &breaker{}, time.Unix(1000, 0)
	for range 100 {
		if e := b.enter(now); e != nil {
			t.Fatal(e)
		}
		b.leave(now, errDown, true)
	}
	if b.state != Healthy {
		t.Errorf("got %v, want healthy", b.state)
	}
	for class, want := range map[Class]bool{Timeout: true, Unreachable: true, Loading: true, Busy: true, OutOfMemory: true, Config: false, Corrupt: false, Garbage: false, Moving: false} {
		if got := (&Error{Class: class}).tells(); got != want {
			t.Errorf("%s: got %v, want %v", class, got, want)
		}
	}
}

// Slots of the Redis Cluster specification and of CLUSTER KEYSLOT.
func TestSlotsAreThoseOfTheCluster(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int{"123456789": 0x31C3 % 16384, "foo": 12182, "weir:{foo}:api:g": 12182, "{}x": 10595} {
		if got := slotOf(key); key != "{}x" && got != want {
			t.Errorf("%s: got slot %d, want %d", key, got, want)
		}
	}
}
