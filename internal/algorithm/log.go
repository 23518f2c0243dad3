package algorithm

import (
	"math"
	"sort"

	"weir.dev/weir"
)

// Log is the state of SlidingLog: when each unit of the last period was taken, oldest
// first, in a ring that grows. The zero Log is a key never seen.
type Log struct {
	ring []int64
	head int // index of the oldest
	n    int
}

// Len returns how many units the log remembers.
func (l *Log) Len() int { return l.n }

// Cap returns how many units the log has room for.
func (l *Log) Cap() int { return len(l.ring) }

// at returns the i-th oldest entry.
func (l *Log) at(i int) int64 { return l.ring[(l.head+i)%len(l.ring)] }

func (l *Log) newest() int64 {
	if l.n == 0 {
		return math.MinInt64
	}
	return l.at(l.n - 1)
}

// live returns the index of the first entry later than the time.
func (l *Log) live(after int64) int {
	return sort.Search(l.n, func(i int) bool { return l.at(i) > after })
}

// TakeLog decides by SlidingLog, in O(log n): an entry made at t counts in [t, t + P).
// It changes l, and reports whether it did.
func TakeLog(l *Log, now int64, ask *weir.Ask) (Verdict, bool) {
	now = max(now, l.newest())
	dead := l.live(now - ask.Limit.Period().Microseconds())
	v := grant(ask, ask.Limit.Units()-int64(l.n-dead))
	v.At = now
	if v.Taken == 0 {
		return v, false
	}
	l.drop(dead)
	l.add(now, int(v.Taken), int(ask.Limit.Units()))
	return v, true
}

func (l *Log) drop(n int) {
	if l.n -= n; l.n == 0 {
		l.head = 0
		return
	}
	l.head = (l.head + n) % len(l.ring)
}

// add adds n entries of the time t to a log that will hold at most that many.
func (l *Log) add(t int64, n, most int) {
	if need := l.n + n; need > len(l.ring) {
		ring := make([]int64, max(need, min(2*len(l.ring), most)))
		for i := range l.n {
			ring[i] = l.at(i)
		}
		l.ring, l.head = ring, 0
	}
	for range n {
		l.ring[(l.head+l.n)%len(l.ring)] = t
		l.n++
	}
}

// Dead returns the entries that a TakeLog with the same arguments forgets if it takes any
// units: those that count no more under the ask's limit. Another limit of the same state
// may have a longer period.
func (l *Log) Dead(now int64, ask *weir.Ask) (dead []int64) {
	now = max(now, l.newest())
	for i := range l.live(now - ask.Limit.Period().Microseconds()) {
		dead = append(dead, l.at(i))
	}
	return dead
}

// Untake is the undo of a TakeLog: it forgets the newest n entries, which that took, and
// remembers those again that it forgot.
func (l *Log) Untake(n int, dead []int64) {
	if l.n -= n; len(dead) == 0 {
		return
	}
	l.head = (l.head - len(dead) + len(l.ring)) % len(l.ring) // a ring never shrinks
	l.n += len(dead)
	for i, t := range dead {
		l.ring[(l.head+i)%len(l.ring)] = t
	}
}

// remove forgets up to n entries made at t, and returns how many.
func (l *Log) remove(t int64, n int) int {
	end := l.live(t)
	start := max(l.live(t-1), end-n)
	for i := end; i < l.n; i++ {
		l.ring[(l.head+start+i-end)%len(l.ring)] = l.at(i)
	}
	l.n -= end - start
	return end - start
}

// DescribeLog puts a verdict into words: l is the state after it.
func DescribeLog(l *Log, v Verdict, ask *weir.Ask) weir.Decision {
	dead := l.live(v.At - ask.Limit.Period().Microseconds())
	facts := LogFacts{Live: int64(l.n - dead), Newest: l.newest()}
	if over := facts.over(ask); !v.Allowed && over > 0 && over <= facts.Live {
		facts.Blocker = l.at(dead + int(over) - 1)
	}
	return facts.Describe(v, ask)
}

// LogFacts is what must be known of a log to describe a decision.
type LogFacts struct {
	Live    int64 // entries that count
	Newest  int64 // when the newest was made
	Blocker int64 // when denied: when the last entry that must go was made
}

// over returns how many entries must go before the ask is allowed.
func (f LogFacts) over(ask *weir.Ask) int64 { return f.Live + wanted(ask) - ask.Limit.Units() }

// Describe puts a verdict into words: f is of the log after it.
func (f LogFacts) Describe(v Verdict, ask *weir.Ask) weir.Decision {
	period := ask.Limit.Period().Microseconds()
	d := weir.Decision{Allowed: v.Allowed, Taken: v.Taken, AtMicros: v.At, Remaining: max(ask.Limit.Units()-f.Live, 0)}
	if f.Live > 0 {
		d.ResetAfter = micros(f.Newest + period - v.At)
	}
	switch {
	case v.Allowed:
	case hopeless(ask):
		d.RetryAfter = weir.Never
	default:
		d.RetryAfter = micros(f.Blocker + period - v.At)
	}
	return d
}
