package weir

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"time"
	"weak"
)

// Bounds of a Limit. Within them every step of the arithmetic is exact in 64-bit
// integers and in the doubles of a Redis script.
const (
	// MaxUnits is the largest count and the largest burst: 2^32.
	MaxUnits = 1 << 32
	// MaxLogUnits is the largest count of a SlidingLog, which remembers each unit.
	MaxLogUnits = 100_000
	// MaxPeriod is the longest period: 366 days. The shortest is one microsecond.
	MaxPeriod = 366 * 24 * time.Hour

	// maxTolerance bounds burst x interval + period: 35.7 years in microseconds.
	maxTolerance = 1 << 50
	// maxExact bounds the products of the fractional part.
	maxExact = 1 << 53
)

// Algorithm is how a Limit counts.
type Algorithm uint8

// The algorithms. Their worst cases in one rolling period, for N units a period and
// a burst of B, are: GCRA less than B+N, LeakyBucket N+1 leaving, FixedWindow 2N,
// SlidingWindow 2N-1, SlidingLog N.
const (
	// GCRA is the generic cell rate algorithm (ITU-T I.371): one number a key. It
	// decides exactly as a token bucket of the same rate and burst does.
	GCRA Algorithm = iota
	// LeakyBucket is GCRA for callers who queue: units leave at a constant rate, and a
	// Decision tells each caller how long to wait (Delay).
	LeakyBucket
	// FixedWindow counts in windows aligned to the Unix epoch.
	FixedWindow
	// SlidingWindow weighs the count of the window before by how much of it is still
	// in the last period.
	SlidingWindow
	// SlidingLog remembers when each unit was taken. It alone never lets more than N
	// units pass in any period; it is also the dearest in memory.
	SlidingLog

	// TokenBucket is another name for GCRA.
	TokenBucket = GCRA
)

var algorithmNames = [...]string{"gcra", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"}

// String returns the algorithm's name as configuration writes it, such as "sliding_window".
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// ParseAlgorithm is the inverse of String; it also takes "token_bucket".
func ParseAlgorithm(name string) (Algorithm, error) {
	if name == "token_bucket" {
		return TokenBucket, nil
	}
	for i, n := range algorithmNames {
		if n == name {
			return Algorithm(i), nil
		}
	}
	return 0, fmt.Errorf("unknown algorithm %q: write gcra, token_bucket, leaky_bucket, fixed_window, sliding_window or sliding_log", name)
}

// rated says whether the algorithm keeps a theoretical arrival time, and so has a burst.
func (a Algorithm) rated() bool { return a == GCRA || a == LeakyBucket }

// Limit is how much is allowed: units a period, by an algorithm, with a burst. It is
// a small comparable value; limits with the same meaning are equal. The zero Limit
// is "not set" and every use of it is an error. A limit that cannot be computed
// exactly, or makes no sense, is refused when it is used: see Validate.
type Limit struct{ interned *spec }

// spec is a Limit spelled out. Fields below emission are as the caller gave them.
type spec struct {
	emission  Emission
	capacity  int64 // burst, or units; 0 denies
	valid     bool
	asksStore bool // valid and not unlimited
	unlimited bool

	algorithm Algorithm
	units     int64
	period    time.Duration
	burst     int64 // as given; meaningful if burstSet
	burstSet  bool
	stretch   int64 // fallback limits: the period is this many times longer; else 1
}

// Emission is a limit's rate in the terms of GCRA, for those who implement a Store:
// one unit takes Micros + Rem/Den microseconds, in lowest terms, and a key may run
// TolMicros + TolRem/Den microseconds ahead of the clock (the capacity's worth of
// units). Rem and TolRem are less than Den. All are 0 for a limit of 0 units.
type Emission struct{ Micros, Rem, Den, TolMicros, TolRem int64 }

// Per allows units in each period by GCRA with a burst of units. Zero units deny
// everybody. The period is in whole microseconds, from 1 µs to MaxPeriod.
func Per(units int64, period time.Duration) Limit {
	return makeLimit(spec{units: units, period: period, stretch: 1})
}

// PerSecond is Per(units, time.Second).
func PerSecond(units int64) Limit { return Per(units, time.Second) }

// PerMinute is Per(units, time.Minute).
func PerMinute(units int64) Limit { return Per(units, time.Minute) }

// PerHour is Per(units, time.Hour).
func PerHour(units int64) Limit { return Per(units, time.Hour) }

// Unlimited allows everything, counts nothing, and asks no store.
func Unlimited() Limit { return makeLimit(spec{unlimited: true}) }

// By returns the same limit counted by another algorithm.
func (l Limit) By(a Algorithm) Limit {
	s := *l.spec()
	s.algorithm = a
	return makeLimit(s)
}

// Burst returns the same limit with another burst: how many units may pass at once
// after a rest (for a LeakyBucket: how many may be in the queue, the one in service
// included). Only GCRA and LeakyBucket have one; the windows and the log allow
// exactly their count.
func (l Limit) Burst(units int64) Limit {
	s := *l.spec()
	s.burst, s.burstSet = units, true
	return makeLimit(s)
}

// Algorithm returns how the limit counts.
func (l Limit) Algorithm() Algorithm { return l.spec().algorithm }

// Units returns the count a period.
func (l Limit) Units() int64 { return l.spec().units }

// Period returns the time that Units are for.
func (l Limit) Period() time.Duration {
	s := l.spec()
	return s.period * time.Duration(s.stretch)
}

// Capacity returns the most units that one question can take: the burst, or the
// count where the algorithm has none.
func (l Limit) Capacity() int64 { return l.spec().capacity }

// Emission returns the rate in the terms of GCRA.
func (l Limit) Emission() Emission { return l.spec().emission }

// IsUnlimited reports whether l was made by Unlimited.
func (l Limit) IsUnlimited() bool { return l.spec().unlimited }

// String returns the limit as people say it: "100 per 1m0s burst 20 by gcra".
func (l Limit) String() string {
	s := l.spec()
	switch {
	case l == Limit{}:
		return "no limit set"
	case s.unlimited:
		return "unlimited"
	case s.burstSet:
		return fmt.Sprintf("%d per %v burst %d by %v", s.units, l.Period(), s.burst, s.algorithm)
	}
	return fmt.Sprintf("%d per %v by %v", s.units, l.Period(), s.algorithm)
}

// Validate returns nil, or an error that names everything wrong with the limit and
// what to write instead.
func (l Limit) Validate() error {
	if l == (Limit{}) {
		return errors.New("no limit is set: make one with Per, PerSecond, PerMinute, PerHour or Unlimited")
	}
	if !l.interned.valid {
		return l.interned.faults()
	}
	return nil
}

// unset is the spec of the zero Limit.
var unset spec

// spec is by pointer, and not a unique.Handle, because a decision reads it ten times
// and the handle's Value is a copy each time.
func (l Limit) spec() *spec {
	if l.interned == nil {
		return &unset
	}
	return l.interned
}

// makeLimit completes what the caller gave and interns it, so that a Limit is one
// word and equal limits are the same word.
func makeLimit(s spec) Limit {
	s.valid, s.asksStore, s.emission, s.capacity = false, false, Emission{}, 0
	if s.burstSet && s.burst == s.units {
		s.burst, s.burstSet = 0, false // the default, spelled out
	}
	if s.unlimited {
		s.valid = true
	} else if s.faults() == nil {
		s.valid, s.asksStore = true, true
		s.capacity = s.units
		if s.burstSet {
			s.capacity = s.burst
		}
		if s.algorithm.rated() && s.units > 0 {
			s.emission = s.computeEmission()
		}
	}
	return Limit{intern(s)}
}

// specs holds one of each spec that is in use, so that equal limits are one pointer.
var specs = struct {
	sync.RWMutex
	known map[spec]weak.Pointer[spec]
}{known: map[spec]weak.Pointer[spec]{}}

// intern returns the one pointer to s.
func intern(s spec) *spec {
	specs.RLock()
	p := specs.known[s].Value()
	specs.RUnlock()
	if p != nil {
		return p
	}
	specs.Lock()
	defer specs.Unlock()
	if p := specs.known[s].Value(); p != nil {
		return p
	}
	p = new(s)
	specs.known[s] = weak.Make(p)
	runtime.AddCleanup(p, forget, s)
	return p
}

// forget drops a spec that is not in use, unless it has come back meanwhile.
func forget(s spec) {
	specs.Lock()
	defer specs.Unlock()
	if specs.known[s].Value() == nil {
		delete(specs.known, s)
	}
}

func (s spec) micros() int64 { return s.period.Microseconds() * s.stretch }

func (s spec) computeEmission() Emission {
	period := s.micros()
	g := gcd(period, s.units)
	p, n := period/g, s.units/g
	e := Emission{Micros: p / n, Rem: p % n, Den: n}
	e.TolMicros, e.TolRem = e.Span(s.capacity)
	return e
}

// Span returns how long units take at this rate: whole microseconds and a remainder
// in parts of Den. It is exact for any units up to a valid limit's capacity.
func (e Emission) Span(units int64) (micros, rem int64) {
	if e.Rem == 0 {
		return units * e.Micros, 0
	}
	r := units * e.Rem
	return units*e.Micros + r/e.Den, r % e.Den
}

// faults returns everything wrong with the limit, or nil.
func (s spec) faults() error {
	var errs []error
	if int(s.algorithm) >= len(algorithmNames) {
		errs = append(errs, fmt.Errorf("algorithm %d does not exist: use weir.GCRA, LeakyBucket, FixedWindow, SlidingWindow or SlidingLog", s.algorithm))
	}
	if s.units < 0 || s.units > MaxUnits {
		errs = append(errs, fmt.Errorf("%d units are outside 0 to %d", s.units, int64(MaxUnits)))
	}
	switch {
	case s.period < time.Microsecond || s.period > MaxPeriod:
		errs = append(errs, fmt.Errorf("a period of %v is outside 1µs to %v (366 days)", s.period, MaxPeriod))
	case s.period%time.Microsecond != 0:
		errs = append(errs, fmt.Errorf("a period of %v is not in whole microseconds: write %v", s.period, max(s.period.Round(time.Microsecond), time.Microsecond)))
	case s.stretch > maxTolerance/s.period.Microseconds():
		errs = append(errs, fmt.Errorf("%d times a period of %v is too long to compute: let fewer share it", s.stretch, s.period))
	}
	if s.burstSet {
		switch {
		case !s.algorithm.rated():
			errs = append(errs, fmt.Errorf("a burst of %d by %v: only gcra, token_bucket and leaky_bucket have a burst; leave it out", s.burst, s.algorithm))
		case s.units == 0:
			errs = append(errs, fmt.Errorf("a burst of %d with 0 units, which deny everybody: leave the burst out", s.burst))
		case s.burst < 1 || s.burst > MaxUnits:
			errs = append(errs, fmt.Errorf("a burst of %d is outside 1 to %d", s.burst, int64(MaxUnits)))
		}
	}
	if s.algorithm == SlidingLog && s.units > MaxLogUnits {
		errs = append(errs, fmt.Errorf("%d units by sliding_log, which remembers each: at most %d; use sliding_window for more", s.units, MaxLogUnits))
	}
	if len(errs) == 0 && s.algorithm.rated() && s.units > 0 && !s.exact() {
		errs = append(errs, s.inexact())
	}
	return errors.Join(errs...)
}

// exact reports whether every number of the arithmetic stays exact.
func (s spec) exact() bool {
	period, burst := s.micros(), s.units
	if s.burstSet {
		burst = s.burst
	}
	g := gcd(period, s.units)
	p, n := period/g, s.units/g
	u, v := p/n, p%n
	hi, lo := bits.Mul64(uint64(burst), uint64(v))
	if hi != 0 || lo >= maxExact {
		return false
	}
	hi, lo = bits.Mul64(uint64(burst), uint64(u+1))
	return hi == 0 && lo+uint64(period) < maxTolerance
}

// inexact explains a limit that exact refuses, with the nearest that it takes.
func (s spec) inexact() error {
	if s.stretch > 1 {
		return fmt.Errorf("%d per %v cannot be counted exactly over %d times that: use a shorter period, or let fewer share it", s.units, s.period, s.stretch)
	}
	got := fmt.Sprintf("%d per %v", s.units, s.period)
	if s.burstSet {
		got += fmt.Sprintf(" with a burst of %d", s.burst)
	}
	// Counts that share a power of ten, or of two, with the period have a short
	// fraction. Take the nearer; not one that is off by a tenth.
	var best int64
	for _, base := range []int64{10, 2} {
		for step := base; step <= s.units/10; step *= base {
			near := s
			near.units = (s.units + step/2) / step * step
			if near.units < MaxUnits && near.exact() { // configuration counts in 32 bits
				if best == 0 || distance(near.units, s.units) < distance(best, s.units) {
					best = near.units
				}
				break
			}
		}
	}
	if best > 0 {
		return fmt.Errorf("%s cannot be counted exactly: write %d per %v, which can", got, best, s.period)
	}
	near := s
	near.burstSet = true
	for lo, hi := int64(1), s.capacityGiven(); lo < hi; {
		near.burst = lo + (hi-lo)/2
		if near.exact() {
			lo = near.burst + 1
		} else {
			hi = near.burst
		}
		near.burst = lo - 1
	}
	if near.burst >= 1 {
		return fmt.Errorf("%s cannot be counted exactly: write a burst of %d, the largest that can", got, near.burst)
	}
	return fmt.Errorf("%s cannot be counted exactly: use a shorter period", got)
}

func (s spec) capacityGiven() int64 {
	if s.burstSet {
		return s.burst
	}
	return s.units
}

// share is the limit that one of several processes may serve alone while the store
// is away: the same units over a period that is longer by the number of processes,
// and that part of the burst, at least cost. A burst of the cost itself makes a
// larger cost pass only from rest. It is never a window: the share is always GCRA.
func (l Limit) share(instances int, cost int64) Limit {
	s := *l.spec()
	burst := max(s.capacity/int64(instances), 1, cost)
	if cost > s.capacity {
		burst = max(s.capacity/int64(instances), 1)
	}
	s.algorithm, s.burst, s.burstSet, s.stretch = GCRA, burst, s.units > 0, int64(instances)
	return makeLimit(s)
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
