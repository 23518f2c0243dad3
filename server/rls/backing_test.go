package rls

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
	"weir.dev/weir/server/rules"
)

// resilient has a rule for each policy. Of 8 a year, one of two instances serves 4.
const resilient = `
domain: shop
descriptors:
  - {key: local, rate_limit: {unit: year, requests_per_unit: 8, on_store_error: local}}
  - {key: allow, on_store_error: allow, rate_limit: {unit: year, requests_per_unit: 8}}
  - {key: deny, rate_limit: {unit: year, requests_per_unit: 8, on_store_error: deny}}
  - {key: unsaid, rate_limit: {unit: year, requests_per_unit: 8}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 8, on_store_error: deny}}
`

// flapping is a store that is there or not.
type flapping struct {
	weir.Store
	gone atomic.Bool
}

var errGone = errors.New("no route to the store")

func (f *flapping) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	if f.gone.Load() {
		return weir.Decision{}, errGone
	}
	return f.Store.Take(ctx, ask)
}

func (f *flapping) TakeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	if f.gone.Load() {
		return errGone
	}
	return f.Store.TakeAll(ctx, asks, decisions)
}

func inMemory(t testing.TB) *memstore.Store {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func withFallback(t testing.TB, instances int) Options {
	return Options{
		Budget: time.Second, Fallback: inMemory(t), Instances: instances,
		StoreErrorClass: func(err error) string {
			if errors.Is(err, errGone) {
				return "unreachable"
			}
			return ""
		},
	}
}

// origin is who decided an answer, and why: "fallback unreachable".
func origin(a *pb.RateLimitResponse) string {
	fields := a.GetDynamicMetadata().GetFields()
	return strings.TrimSpace(fields["source"].GetStringValue() + " " + fields["cause"].GetStringValue())
}

func TestEachPolicyAnswersWithoutTheStore(t *testing.T) {
	t.Parallel()
	f := startWith(t, away{err: errGone}, resilient, withFallback(t, 2))
	for _, test := range []struct{ key, want, origin string }{
		{"local", "OK: OK 3", "fallback unreachable"},
		{"unsaid", "OK: OK 3", "fallback unreachable"},
		{"allow", "OK: OK -", "policy unreachable"},
		{"deny", "OVER_LIMIT: OVER_LIMIT 0", "policy unreachable"},
		{"trial", "OK: OK -", "policy unreachable"},
		{"unknown", "OK: OK -", ""},
	} {
		if got := origin(f.expect(t, test.want, descriptor(test.key+"=x"))); got != test.origin {
			t.Errorf("%s: decided by %q, want %q", test.key, got, test.origin)
		}
	}
	for _, want := range []string{"OK: OK 2, OK -", "OK: OK 1, OK -", "OK: OK 0, OK -", "OVER_LIMIT: OVER_LIMIT 0, OK -"} {
		f.expect(t, want, descriptor("local=x"), descriptor("allow=x"))
	}
	if got := f.count(t, "rate_limit_fallback_activations_total", "", ""); got != 13 {
		t.Errorf("%v limits decided without the store, want 13", got)
	}
	if got := f.labels(t, "rate_limit_fallback_activations_total", "reason"); len(got) != 1 || got[0] != "unreachable" {
		t.Errorf("the reasons are %q, want the class alone", got)
	}
	for _, outcome := range []string{"error", "held_back"} {
		if got := f.count(t, "rate_limit_decisions_total", "allow", outcome); got != 0 {
			t.Errorf("allow: %v of the outcome %s, want 0", got, outcome)
		}
	}
}

func TestWithoutInstancesAndPolicyTheAnswerIsAnError(t *testing.T) {
	t.Parallel()
	f := startWith(t, away{err: errGone}, shop, withFallback(t, 0))
	if _, err := f.client.ShouldRateLimit(t.Context(), oneDescriptor(descriptor("user=a"))); err == nil {
		t.Error("got an answer, want an error")
	}
}

func TestDenialWithoutTheStoreHoldsTheOthersBack(t *testing.T) {
	t.Parallel()
	f := startWith(t, away{err: errGone}, resilient, withFallback(t, 2))
	f.expect(t, "OVER_LIMIT: OK 4, OVER_LIMIT 0", descriptor("local=x"), descriptor("deny=x"))
	f.expect(t, "OK: OK 3", descriptor("local=x"))
	if got := f.count(t, "rate_limit_decisions_total", "local", "held_back"); got != 1 {
		t.Errorf("%v held back, want 1", got)
	}
}

// However often the store goes and comes, and whatever rules are loaded meanwhile, the
// fallback lets its share pass once.
func TestFlappingAndReloadsMintNothing(t *testing.T) {
	t.Parallel()
	store := &flapping{Store: inMemory(t)}
	f := startWith(t, store, resilient, withFallback(t, 2))
	passed := 0
	for i := range 20 {
		store.gone.Store(true)
		if f.ask(t, descriptor("local=x")).GetOverallCode() == pb.RateLimitResponse_OK {
			passed++
		}
		store.gone.Store(false)
		if got := origin(f.ask(t, descriptor(fmt.Sprint("local=", i)))); got != "store" {
			t.Errorf("round %d: decided by %q with the store there, want store", i, got)
		}
		if err := f.service.SetRules(parse(t, resilient)); err != nil {
			t.Fatal(err)
		}
	}
	if passed != 4 {
		t.Errorf("%d passed without the store, want the share of 4", passed)
	}
}

func TestRulesThatCannotBeSharedAreRefused(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	var faults rules.Faults
	if err := f.service.SetRules(parse(t, resilient)); !errors.As(err, &faults) || !strings.Contains(err.Error(), "rules.yaml:4:") {
		t.Errorf("got %v, want faults with their place", err)
	}
	f.expect(t, "OK: OK 2", descriptor("user=a")) // as before
}

// A limit that a request brings along is no fault of the configuration.
func TestRequestsOwnLimitNeedNotBeShareable(t *testing.T) {
	t.Parallel()
	store := &flapping{Store: inMemory(t)}
	f := startWith(t, store, "domain: shop\nalgorithm: gcra", withFallback(t, 100))
	f.expect(t, "OK: OK 4", withLimit(descriptor("a=b"), 5, 6)) // a year
	store.gone.Store(true)
	if _, err := f.client.ShouldRateLimit(t.Context(), oneDescriptor(withLimit(descriptor("a=b"), 5, 6))); err == nil {
		t.Error("got an answer, want an error: nothing can share a year among 100")
	}
	f.expect(t, "OK: OK 0", withLimit(descriptor("a=b"), 5, 2)) // a minute; a share of less than one unit is one
}

func TestStoreHas17OfTheProxys20ms(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, test := range []struct {
		budget, caller time.Duration // 0: no deadline
		several        bool
		want           time.Duration // 0: no deadline
	}{
		{budget: 50 * ms, caller: 20 * ms, want: 17 * ms},
		{budget: 50 * ms, caller: 20 * ms, several: true, want: 17 * ms},
		{budget: 10 * ms, caller: 20 * ms, want: 20 * ms}, // one question ends by itself before
		{budget: 10 * ms, caller: 20 * ms, several: true, want: 10 * ms},
		{budget: 50 * ms, several: true, want: 50 * ms},
		{budget: 50 * ms},
		{several: true},
		{caller: 20 * ms, want: 20 * ms}, // a store in memory does not wait
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if test.caller > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.caller)
				defer cancel()
			}
			start := time.Now()
			ctx, end := (&backing{budget: test.budget}).shorten(ctx, test.several)
			defer end()
			got := time.Duration(0)
			if deadline, ok := ctx.Deadline(); ok {
				got = deadline.Sub(start)
			}
			if got != test.want {
				t.Errorf("%+v: got %v", test, got)
			}
		})
	}
}

func TestStoreThatHangsLeavesTimeForAnAnswerByPolicy(t *testing.T) {
	t.Parallel()
	f := startWith(t, hanging{}, resilient, withFallback(t, 2))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	r := Request{Domain: "shop", Descriptors: []Descriptor{{Entries: []rules.Entry{{Key: "local", Value: "a"}}}}}
	answer, err := f.service.Decide(ctx, &r)
	if err != nil || answer.Source != "fallback" || answer.Cause != "timeout" {
		t.Errorf("got %+v, %v, want an answer by the fallback because of a timeout", answer, err)
	}
}

func TestRoomIsKeptForTheAnswer(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, test := range []struct{ left, want time.Duration }{
		{20 * ms, 3 * ms}, {10 * ms, 3 * ms}, {4 * ms, 2 * ms}, {0, 0}, {-ms, 0}, {100 * ms, 15 * ms}, {math.MaxInt64 / 100, math.MaxInt64 / 100 * 15 / 100},
	} {
		if got := roomIn(test.left); got != test.want {
			t.Errorf("of %v: got %v, want %v", test.left, got, test.want)
		}
	}
}

func TestSpellBeginsAfterQuiet(t *testing.T) {
	t.Parallel()
	var s spells
	start := time.Now()
	for _, event := range []struct {
		after time.Duration
		class string
		want  bool
	}{
		{0, "timeout", true}, {time.Second, "timeout", false}, {time.Second, "oom", true}, {10 * time.Second, "timeout", false},
		{20*time.Second - 1, "timeout", false}, {30*time.Second - 1, "timeout", true}, {31 * time.Second, "oom", true},
	} {
		if got := s.begins(event.class, start.Add(event.after)); got != event.want {
			t.Errorf("%s after %v: got %v, want %v", event.class, event.after, got, event.want)
		}
	}
}

func TestLogTellsThatTheStoreFailsOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	opts := withFallback(t, 2)
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	f := startWith(t, away{err: errGone}, resilient, opts)
	for range 20 {
		f.ask(t, descriptor("allow=x"))
	}
	if got := strings.Count(log.String(), "class=unreachable"); got != 1 {
		t.Errorf("%d lines, want 1:\n%s", got, log.String())
	}
}

func TestLeasedLimitAsksTheStoreLess(t *testing.T) {
	t.Parallel()
	counted := &countingStore{Store: inMemory(t)}
	const leasing = `
domain: shop
descriptors:
  - {key: hot, rate_limit: {unit: minute, requests_per_unit: 100000, algorithm: gcra, lease: {max: 100}}}
`
	f := startWith(t, counted, leasing, withFallback(t, 2))
	const asked = 500
	leased := 0
	for range asked {
		if origin(f.ask(t, descriptor("hot=x"))) == "lease" {
			leased++
		}
	}
	if calls := counted.calls.Load(); leased == 0 || calls >= asked {
		t.Errorf("%d questions were %d calls to the store, and %d were leased; want fewer calls, and some leased", asked, calls, leased)
	}
	if got := f.count(t, "rate_limit_lease_questions_total", "", ""); got != asked {
		t.Errorf("%v questions counted, want %d", got, asked)
	}
}

type countingStore struct {
	weir.Store
	calls, groups atomic.Int64
}

func (c *countingStore) TakeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	c.groups.Add(1)
	return c.Store.TakeAll(ctx, asks, decisions)
}

func (c *countingStore) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	c.calls.Add(1)
	return c.Store.Take(ctx, ask)
}

const leasedOrNot = `
domain: shop
descriptors:
  - {key: leased, rate_limit: {unit: day, requests_per_unit: 1000, lease: {max: 10}}}
  - {key: other, rate_limit: {unit: day, requests_per_unit: 1000, lease: {max: 20, expiry: 1s}}}
  - {key: plain, rate_limit: {unit: day, requests_per_unit: 1000}}
`

func TestLimitsOfARequestAreOneQuestionWithLeasesOrWithout(t *testing.T) {
	t.Parallel()
	counted := &countingStore{Store: inMemory(t)}
	f := startWith(t, counted, leasedOrNot, withFallback(t, 2))
	f.expect(t, "OK: OK 999, OK 999, OK 999", descriptor("leased=x"), descriptor("other=x"), descriptor("plain=x"))
	if one, several := counted.calls.Load(), counted.groups.Load(); one != 0 || several != 1 {
		t.Errorf("the store was asked %d times about one limit and %d times about several, want once about several", one, several)
	}
}

func TestReloadKeepsWhatItDoesNotChange(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), leasedOrNot, withFallback(t, 2))
	load := func(text string) *front {
		if err := f.service.SetRules(parse(t, text)); err != nil {
			t.Fatal(err)
		}
		f.ask(t, descriptor("leased=x"))
		return f.service.current.Load().fronts[2]
	}
	first := load(leasedOrNot)
	if load(leasedOrNot+"  - {key: more, rate_limit: {unit: day, requests_per_unit: 1}}\n") != first {
		t.Error("what is in front of the store was replaced, though no lease has changed")
	}
	if load(strings.Replace(leasedOrNot, "max: 10", "max: 5", 1)) == first {
		t.Error("what is in front of the store is the same, though a lease has changed")
	}
	if got := f.count(t, "rate_limit_lease_questions_total", "", ""); got != 3 {
		t.Errorf("%v questions counted over all reloads, want 3", got)
	}
	if got := f.family(t, "rate_limit_lease_keys")[0].GetGauge().GetValue(); got != 1 {
		t.Errorf("%v keys watched, want 1", got)
	}
}

func TestLeaseWithoutEffectIsAWarning(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		budget time.Duration
		want   string
	}{{0, "the store is in memory"}, {time.Second, "less than a unit for each instance"}} {
		var log bytes.Buffer
		service, err := New(inMemory(t), Options{Budget: test.budget, Instances: 3, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		text := "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 9, lease: {max: 5}}}]"
		if err := service.SetRules(parse(t, text)); err != nil {
			t.Fatal(err)
		}
		if got := log.String(); !strings.Contains(got, test.want) || !strings.Contains(got, "limit=d|a") {
			t.Errorf("a budget of %v: got %q, want a warning with %q and the limit", test.budget, got, test.want)
		}
	}
}

func TestDeniedKeyIsDeniedFromMemory(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), resilient, withFallback(t, 2))
	var got []string
	for range 10 {
		got = append(got, origin(f.ask(t, descriptor("local=x"))))
	}
	want := fmt.Sprint([]string{"store", "store", "store", "store", "store", "store", "store", "store", "store", "cache"})
	if fmt.Sprint(got) != want {
		t.Errorf("decided by %v, want %v", got, want)
	}
	if got := f.count(t, "rate_limit_decisions_total", "local", "denied"); got != 2 {
		t.Errorf("%v denied, want 2: those from memory count too", got)
	}
}

func TestContextOfAQuestionEndsBeforeItsParent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ask := func() (parent, ctx context.Context, end func()) {
			parent, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			ctx, stop := (&backing{budget: time.Second}).shorten(parent, false)
			return parent, ctx, func() { stop(); cancel() }
		}
		parent, ctx, end := ask() // by those who wait for it
		defer end()
		<-ctx.Done()
		if parent.Err() != nil || ctx.Err() != context.DeadlineExceeded {
			t.Errorf("after Done: the parent %v, the context %v, want the context alone to have ended", parent.Err(), ctx.Err())
		}
		_, ctx, end = ask() // and by those who only look
		defer end()
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != 17*time.Millisecond || ctx.Err() != nil {
			t.Errorf("at first: %v left, %v, want 17 ms", time.Until(deadline), ctx.Err())
		}
		time.Sleep(17 * time.Millisecond)
		if ctx.Err() != context.DeadlineExceeded {
			t.Errorf("after 17 ms: got %v, want its end", ctx.Err())
		}
		parent, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		ctx, end = (&backing{budget: time.Second}).shorten(parent, false)
		defer end()
		cancel()
		if ctx.Err() != context.Canceled {
			t.Errorf("after its parent: got %v, want canceled", ctx.Err())
		}
	})
}
