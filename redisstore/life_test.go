package redisstore

import (
	"fmt"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
)

// life is how long a key lives, counted from a time before it was written. What has
// passed since is counted too, so a slow machine makes it longer and never shorter.
func life(server *redistest.Server, ask weir.Ask, from time.Time) time.Duration {
	left := server.Do("PTTL", stateKey(ask.Key, ask.Name, kindOf(ask.Limit))).(int64)
	if left < 0 {
		return -1 // it has none
	}
	return time.Duration(left)*time.Millisecond + time.Since(from)
}

// wantLife holds a key to its life: until it is as new, and the slack, less the
// millisecond that servers round by.
func wantLife(t *testing.T, what string, ask weir.Ask, got, resetAfter, slack time.Duration) {
	t.Helper()
	if least := resetAfter + slack - time.Millisecond; got < least {
		t.Errorf("%v, %s: got a life of %v with a reset after %v, want at least %v", ask.Limit, what, got, resetAfter, least)
	}
	most := resetAfter + resetAfter/8 + slack + 9*time.Second + time.Minute // the minute is for the machine
	if got > most {
		t.Errorf("%v, %s: got a life of %v with a reset after %v, want at most %v", ask.Limit, what, got, resetAfter, most)
	}
}

func TestAKeyLivesASecondLongerThanItMattersWhateverTheVerb(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t, redistest.Redis7)
	s := open(t, Options{Addrs: []string{server.Addr}, Budget: patient})
	for n, limit := range limits {
		ask := askOf(fmt.Sprint("life", n), "a", limit, 3)
		from := time.Now()
		d := take(t, s, ask)
		wantLife(t, "taken", ask, life(server, ask, from), d.ResetAfter, time.Second)

		two := []weir.Ask{ask, askOf(fmt.Sprint("life-other", n), "a", limit, 3)}
		each := make([]weir.Decision, 2)
		from = time.Now()
		if err := s.TakeAll(ctx, two, each); err != nil {
			t.Fatal(err)
		}
		for i := range two {
			wantLife(t, "taken with another", two[i], life(server, two[i], from), each[i].ResetAfter, time.Second)
		}

		back := two[1]
		back.Cost = 1
		if units, err := s.Refund(ctx, back, each[1]); err != nil || units != 1 {
			t.Fatalf("%v: a refund gave %d, %v; want 1", limit, units, err)
		}
		wantLife(t, "taken and given back", back, life(server, back, from), each[1].ResetAfter, time.Second)

		alone := []weir.Ask{askOf(fmt.Sprint("life-group", n), "a", limit, 3), askOf(fmt.Sprint("life-alone", n), "a", limit, 3)}
		alone[1].Alone = true
		from = time.Now()
		apart := make([]weir.Decision, 2)
		if err := s.TakeAll(ctx, alone, apart); err != nil {
			t.Fatal(err)
		}
		for i := range alone {
			wantLife(t, "taken beside one alone", alone[i], life(server, alone[i], from), apart[i].ResetAfter, time.Second)
		}
	}
}

// A key in use is not given a new life at each question, but in time. The server's clock
// does not move with the times that are asked at, so each key's life is cut by as much.
func TestAKeyInUseNeverRunsOutOfLife(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t, redistest.Redis7)
	s := open(t, Options{Addrs: []string{server.Addr}, Budget: patient})
	for n, limit := range limits {
		ask := askOf(fmt.Sprint("use", n), "a", limit, 1)
		key := stateKey(ask.Key, ask.Name, kindOf(limit))
		from, at, step := time.Now(), time.Now(), limit.Period()/30
		for i := range 60 {
			var d [1]weir.Decision
			if err := s.TakeAt(ctx, at.UnixMicro(), []weir.Ask{ask}, d[:]); err != nil {
				t.Fatal(err)
			}
			wantLife(t, fmt.Sprint("step ", i), ask, life(server, ask, from), d[0].ResetAfter, time.Minute)
			at = at.Add(step)
			left := server.Do("PTTL", key).(int64)
			server.Do("PEXPIRE", key, decimal(left-step.Milliseconds()))
		}
	}
}
