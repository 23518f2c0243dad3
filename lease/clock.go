package lease

import "time"

// instant is a moment on two clocks, in nanoseconds: the monotonic one, which no step of
// the wall clock reaches, and the wall clock, which goes on while a machine is suspended.
type instant struct{ mono, wall int64 }

func newClock() func() instant {
	base := time.Now()
	return func() instant {
		t := time.Now()
		return instant{int64(t.Sub(base)), t.UnixNano()}
	}
}

func (t instant) add(d time.Duration) instant {
	return instant{t.mono + int64(d), t.wall + int64(d)}
}

// reached reports whether either clock says that end has come.
func (t instant) reached(end instant) bool { return t.mono >= end.mono || t.wall >= end.wall }

// since returns the time from an earlier moment by the monotonic clock.
func (t instant) since(earlier instant) time.Duration {
	return time.Duration(t.mono - earlier.mono)
}
