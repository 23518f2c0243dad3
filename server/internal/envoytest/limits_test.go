package envoytest

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

var (
	once  = []int{200, 429}
	twice = []int{200, 200, 429}
)

func TestEachAddressHasALimitOfItsOwn(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		n := rand.Uint32()
		v4, other := fmt.Sprintf("10.%d.%d.3", n>>8&255, n&255), fmt.Sprintf("10.%d.%d.4", n>>8&255, n&255)
		c.expect(t, twice, "/address", "X-Forwarded-For", v4)
		c.expect(t, twice, "/address", "X-Forwarded-For", other)
		c.expect(t, []int{429}, "/address", "X-Forwarded-For", "192.0.2.9, "+v4) // what the client claims is before it
		c.expect(t, twice, "/address", "X-Forwarded-For", fmt.Sprintf("2001:db8::%x:1", n&0xffff))
		c.expect(t, []int{429}, "/address", "X-Forwarded-For", fmt.Sprintf("2001:DB8:0:0:0:0:%X:1", n&0xffff))
	})
}

func TestEachValueOfAHeaderHasALimitOfItsOwn(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		bob := fresh("bob")
		c.expect(t, twice, "/user", "x-user", bob)
		c.expect(t, twice, "/user", "x-user", strings.ToUpper(bob))
		c.expect(t, []int{200, 200, 200}, "/user")
	})
}

func TestValueThatIsNotUTF8IsLimitedLikeAnyOther(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		cafe := fresh("caf")
		c.expect(t, twice, "/user", "x-user", cafe+"\xe9")
		c.expect(t, twice, "/user", "x-user", cafe+"\xe8")
		c.expect(t, twice, "/user", "x-user", cafe+"é")
	})
}

func TestNestedDescriptorsLimitByTheWholePath(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		bob := fresh("bob")
		c.expect(t, once, "/nested", "x-plan", "free", "x-user", bob)
		c.expect(t, []int{200, 200, 200, 429}, "/nested", "x-plan", "gold", "x-user", bob)
		c.expect(t, []int{200, 200, 200, 200}, "/nested", "x-plan", "gold", "x-user", "root")
		c.expect(t, []int{200, 200, 200, 200}, "/nested", "x-plan", "other", "x-user", bob)
	})
}

func TestWildcardCountsEachValueOrAllTogether(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		bob := fresh("bob")
		c.expect(t, once, "/path/each/a", "x-user", bob)
		c.expect(t, once, "/path/each/b", "x-user", bob)
		c.expect(t, []int{200}, "/path/all/a", "x-user", bob)
		c.expect(t, []int{429}, "/path/all/b", "x-user", bob)
	})
}

func TestShadowLetsPassAndSaysThatNothingIsLeft(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		var last response
		bob := fresh("bob")
		for range 3 {
			last = c.get(t, "/", "x-rule", "shadowed", "x-user", bob)
			if last.status != 200 {
				t.Errorf("status %d, want 200", last.status)
			}
		}
		if got := last.header.Get("X-Ratelimit-Remaining"); got != "0" {
			t.Errorf("X-RateLimit-Remaining is %q, want 0", got)
		}
		if got := last.header.Get("Retry-After"); got != "" {
			t.Errorf("Retry-After is %q on what was let pass, want none", got)
		}
	})
}

// override is an x-override header that puts a limit into the request's metadata.
func override(t *testing.T, limit map[string]any) string {
	t.Helper()
	value, err := structpb.NewValue(limit)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := proto.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(wire)
}

func TestMetadataOverridesTheLimit(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		c.expect(t, once, "/override", "x-user", fresh("plain"))
		three := override(t, map[string]any{"requests_per_unit": 3, "unit": "YEAR"})
		c.expect(t, []int{200, 200, 200, 429}, "/override", "x-user", fresh("bob"), "x-override", three)
		none := override(t, map[string]any{"requests_per_unit": 0, "unit": "DAY"})
		c.expect(t, []int{429}, "/override", "x-user", fresh("eve"), "x-override", none)
		most := override(t, map[string]any{"requests_per_unit": -1, "unit": "MONTH"}) // arrives as 4294967295
		c.expect(t, []int{200, 200, 200}, "/override", "x-user", fresh("eve"), "x-override", most)
		// What Envoy cannot read it drops, and the rule holds.
		for _, limit := range []map[string]any{{"requests_per_unit": 3, "unit": "WEEK"}, {"unit": "DAY"}, {"requests_per_unit": "3", "unit": "DAY"}} {
			c.expect(t, once, "/override", "x-user", fresh("unread"), "x-override", override(t, limit))
		}
	})
}

// The original ends its process on this.
func TestOverrideWithoutAUnitIsRefusedAndHarmsNobodyElse(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		unknown := override(t, map[string]any{"requests_per_unit": 3, "unit": "UNKNOWN"})
		c.expect(t, []int{500, 500}, "/override", "x-user", fresh("mallory"), "x-override", unknown)
		c.expect(t, once, "/override", "x-user", fresh("alice"))
	})
}

func TestDescriptorsOwnHitsAreChargedAndNoneIsAPeek(t *testing.T) {
	ownServices(t, func(t *testing.T, c client) {
		bob, eve := []string{"x-user", fresh("bob")}, []string{"x-user", fresh("eve")}
		c.expect(t, []int{200, 200, 200}, "/peek", bob...)
		c.expect(t, []int{200, 200, 429}, "/cost", bob...) // 4 and 4 of 10; 4 more are too many
		left := c.get(t, "/peek", bob...)
		if got := left.header.Get("X-Ratelimit-Remaining"); left.status != 200 || got != "2" {
			t.Errorf("a peek: status %d with %q left, want 200 with 2", left.status, got)
		}
		c.expect(t, []int{200}, "/said", append(bob, "x-cost", "2")...)
		c.expect(t, []int{429}, "/peek", bob...)
		c.expect(t, []int{429}, "/said", append(eve, "x-cost", "1000000000")...) // the most that Envoy lets through
		c.expect(t, []int{200, 429}, "/said", append(eve, "x-cost", "10")...)
	})
}

func TestExactlyTheLimitPassesOf200AtOnce(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		if passed, denied := crush(t, 200, fresh("crowd"), c); passed != 50 || denied != 150 {
			t.Errorf("%d passed and %d were denied, want 50 and 150", passed, denied)
		}
	})
}

// crush sends requests of one user all at once, by each client in turn.
func crush(t *testing.T, requests int, user string, clients ...client) (passed, denied int) {
	t.Helper()
	answers := make(chan int, requests)
	for i := range requests {
		go func() {
			r, err := clients[i%len(clients)].try("/", "x-rule", "fifty", "x-user", user)
			if err != nil {
				t.Error(err)
			}
			answers <- r.status
		}()
	}
	for range requests {
		switch <-answers {
		case 200:
			passed++
		case 429:
			denied++
		}
	}
	return passed, denied
}

func TestLongHeaderInTenDescriptorsIsLimited(t *testing.T) {
	everyService(t, func(t *testing.T, c client) {
		long := fresh(strings.Repeat("a", 8<<10))
		c.expect(t, once, "/ten", "x-user", long)
		c.expect(t, once, "/ten", "x-user", long+"b")
	})
}
