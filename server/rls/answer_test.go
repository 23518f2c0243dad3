package rls

import (
	"math"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func TestAppendWritesTheMessage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := Answer{OverLimit: rapid.Bool().Draw(t, "over")}
		if rapid.Bool().Draw(t, "delays") {
			a.Delay = time.Duration(rapid.Int64Range(1, 1e15).Draw(t, "delay"))
		}
		a.Source = rapid.SampledFrom([]string{"", "store", "lease", "cache", "fallback", "policy"}).Draw(t, "source")
		if rapid.Bool().Draw(t, "is without the store") {
			a.Cause = rapid.SampledFrom([]string{"timeout", "oom"}).Draw(t, "cause")
		}
		for range rapid.IntRange(0, 4).Draw(t, "statuses") {
			s := Status{
				OverLimit:    rapid.Bool().Draw(t, "status over"),
				Remaining:    rapid.Uint32().Draw(t, "remaining"),
				ResetSeconds: rapid.Int64Range(0, math.MaxInt64).Draw(t, "reset"),
			}
			if rapid.Bool().Draw(t, "has a limit") {
				unit := pb.RateLimitResponse_RateLimit_Unit(rapid.Int32Range(0, 7).Draw(t, "unit"))
				named, err := newCurrentLimit(rapid.String().Draw(t, "name"), rapid.Uint32().Draw(t, "requests"), unit, rapid.Uint32().Draw(t, "multiplier"))
				if err != nil {
					t.Fatal(err)
				}
				s.Limit = named
			}
			a.Statuses = append(a.Statuses, s)
		}
		var got pb.RateLimitResponse
		if err := proto.Unmarshal(a.Append(nil), &got); err != nil {
			t.Fatal(err)
		}
		if want := a.Message(); !proto.Equal(&got, want) {
			t.Fatalf("Append writes %v\nwant %v", &got, want)
		}
	})
}
