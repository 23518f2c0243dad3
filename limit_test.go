package weir_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"weir.dev/weir"
)

func TestLimitSaysEverythingThatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit weir.Limit
		want  []string // parts of the error; none: valid
	}{
		{weir.PerSecond(10), nil},
		{weir.PerSecond(0), nil},
		{weir.Per(1_234_567, 24*time.Hour), nil},
		{weir.PerSecond(10_000_000), nil},
		{weir.Per(1, 30*24*time.Hour), nil},
		{weir.Per(weir.MaxUnits, time.Microsecond), nil},
		{weir.Per(weir.MaxUnits, weir.MaxPeriod).By(weir.FixedWindow), nil},
		{weir.Per(weir.MaxUnits-5, weir.MaxPeriod).By(weir.SlidingWindow), nil},
		{weir.PerHour(weir.MaxLogUnits).By(weir.SlidingLog), nil},
		{weir.PerHour(5).By(weir.FixedWindow).Burst(5), nil},
		{weir.Unlimited(), nil},
		{weir.Limit{}, []string{"no limit is set"}},
		{weir.PerSecond(-1), []string{"-1 units"}},
		{weir.PerSecond(weir.MaxUnits + 1), []string{"4294967297 units"}},
		{weir.Per(1, 0), []string{"a period of 0s"}},
		{weir.Per(1, -time.Second), []string{"a period of -1s"}},
		{weir.Per(1, 367*24*time.Hour), []string{"366 days"}},
		{weir.Per(1, 1500*time.Nanosecond), []string{"whole microseconds", "write 2µs"}},
		{weir.Per(-3, 0).Burst(0).By(99), []string{"-3 units", "a period of 0s", "algorithm 99", "a burst of 0"}},
		{weir.PerSecond(10).Burst(0), []string{"a burst of 0 is outside 1"}},
		{weir.PerSecond(10).Burst(weir.MaxUnits + 1), []string{"is outside 1"}},
		{weir.PerSecond(0).Burst(5), []string{"leave the burst out"}},
		{weir.PerSecond(10).Burst(20).By(weir.SlidingWindow), []string{"a burst of 20 by sliding_window"}},
		{weir.PerHour(weir.MaxLogUnits + 1).By(weir.SlidingLog), []string{"use sliding_window"}},
		{weir.Per(1<<32-1, 24*time.Hour), []string{"write 4294967000 per", "which can"}},
		{weir.Per(4_294_967_291, 24*time.Hour), []string{"cannot be counted exactly", "write 4294967000 per", "which can"}},
		{weir.Per(1, weir.MaxPeriod).Burst(100), []string{"cannot be counted exactly", "write a burst of 34"}},
	} {
		err := tt.limit.Validate()
		if (err == nil) != (tt.want == nil) {
			t.Errorf("%v: got error %v, want one with %q", tt.limit, err, tt.want)
			continue
		}
		for _, part := range tt.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v: got error %q, want it to say %q", tt.limit, err, part)
			}
		}
	}
}

// The error of a limit that cannot be computed names one that can.
func TestNearestLimitIsOneThatIsTaken(t *testing.T) {
	t.Parallel()
	for _, units := range []int64{4_294_967_291, 4_294_967_279, 3_999_999_979, 2_147_483_647} {
		for _, period := range []time.Duration{24 * time.Hour, 7 * 24 * time.Hour, weir.MaxPeriod, 86399999999 * time.Microsecond} {
			err := weir.Per(units, period).Validate()
			if err == nil {
				continue
			}
			var near int64
			_, advice, _ := strings.Cut(err.Error(), "write ")
			if _, err := fmt.Sscanf(advice, "a burst of %d", &near); err == nil {
				if err := weir.Per(units, period).Burst(near).Validate(); err != nil {
					t.Errorf("%d per %v: was told a burst of %d, which gives: %v", units, period, near, err)
				}
			} else if _, err := fmt.Sscanf(advice, "%d per", &near); err != nil || weir.Per(near, period).Validate() != nil {
				t.Errorf("%d per %v: was told %q, which is not taken", units, period, advice)
			}
		}
	}
}

func TestEqualLimitsAreEqual(t *testing.T) {
	t.Parallel()
	if a, b := weir.PerMinute(60), weir.Per(60, time.Minute).Burst(60).By(weir.TokenBucket); a != b {
		t.Errorf("got %v and %v different, want equal", a, b)
	}
	if a, b := weir.PerMinute(60), weir.PerSecond(1); a == b {
		t.Errorf("got %v and %v equal: their bursts differ", a, b)
	}
}

func TestAlgorithmsAreNamedAndRead(t *testing.T) {
	t.Parallel()
	for a := weir.GCRA; a <= weir.SlidingLog; a++ {
		if got, err := weir.ParseAlgorithm(a.String()); got != a || err != nil {
			t.Errorf("%v: got %v, %v", a, got, err)
		}
	}
	if got, err := weir.ParseAlgorithm("token_bucket"); got != weir.GCRA || err != nil {
		t.Errorf("token_bucket: got %v, %v; want gcra", got, err)
	}
	if _, err := weir.ParseAlgorithm("tocken_bucket"); err == nil || !strings.Contains(err.Error(), "write gcra") {
		t.Errorf("got %v, want an error that lists the names", err)
	}
}

// FuzzEmissionIsExact holds the arithmetic of intervals against math/big.
func FuzzEmissionIsExact(f *testing.F) {
	f.Add(int64(3), int64(1_000_000), int64(3), int64(2))
	f.Add(int64(1_234_567), int64(86_400_000_000), int64(1_234_567), int64(1_234_566))
	f.Add(int64(10_000_000), int64(1_000_000), int64(10_000_000), int64(1))
	f.Add(int64(4_294_967_291), int64(1), int64(4_294_967_296), int64(4_294_967_296))
	f.Fuzz(func(t *testing.T, units, micros, burst, cost int64) {
		l := weir.Per(units, time.Duration(micros)*time.Microsecond).Burst(burst)
		if micros < 1 || micros > int64(weir.MaxPeriod/time.Microsecond) || l.Validate() != nil || units == 0 {
			t.Skip()
		}
		if cost < 0 || cost > l.Capacity() {
			cost = l.Capacity()
		}
		e := l.Emission()
		us, rem := e.Span(cost)
		got := new(big.Rat).Add(big.NewRat(us, 1), big.NewRat(rem, e.Den))
		want := new(big.Rat).Mul(big.NewRat(micros, units), big.NewRat(cost, 1))
		if got.Cmp(want) != 0 || rem < 0 || rem >= e.Den {
			t.Errorf("%v: %d units take %v µs (%d + %d/%d), want %v", l, cost, got, us, rem, e.Den, want)
		}
		tol := new(big.Rat).Add(big.NewRat(e.TolMicros, 1), big.NewRat(e.TolRem, e.Den))
		if want := new(big.Rat).Mul(big.NewRat(micros, units), big.NewRat(l.Capacity(), 1)); tol.Cmp(want) != 0 {
			t.Errorf("%v: got a tolerance of %v µs, want %v", l, tol, want)
		}
		if bound := new(big.Rat).SetInt64(1 << 50); tol.Cmp(bound) > 0 {
			t.Errorf("%v: a tolerance of %v µs was taken, beyond 2^50", l, tol)
		}
	})
}
