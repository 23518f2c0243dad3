package rls

import (
	"context"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
	"weir.dev/weir/server/rules"
)

// candidates has limits with lower and with higher candidates.
const candidates = `
domain: shop
descriptors:
  - key: lower
    rate_limit: {unit: year, requests_per_unit: 5}
    candidate: {unit: year, requests_per_unit: 3}
  - key: higher
    rate_limit: {unit: year, requests_per_unit: 5, algorithm: gcra}
    candidate: {unit: year, requests_per_unit: 7, algorithm: sliding_log}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 5}
    candidate: {unit: year, requests_per_unit: 6}
  - key: both
    limits:
      - {unit: year, requests_per_unit: 5}
      - {unit: day, requests_per_unit: 50, algorithm: gcra, candidate: {unit: year, requests_per_unit: 4}}
  - key: other
    rate_limit: {unit: year, requests_per_unit: 2}
`

// compared returns the verdicts of the rule's candidate that are above 0, by the API and,
// which must be the same, by the metric.
func (f *fixture) compared(t *testing.T, rule string) map[string]uint64 {
	t.Helper()
	got := map[string]uint64{}
	for _, r := range f.service.Rules().Rules() {
		for i := range r.Limits {
			if r.Path == rule {
				maps.Copy(got, f.service.Compared(r, &r.Limits[i]))
			}
		}
	}
	for verdict, n := range got {
		metric := 0.0
		for _, m := range f.family(t, "rate_limit_candidate_decisions_total") {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["rule"] == rule && labels["verdict"] == verdict {
				metric += m.GetCounter().GetValue()
			}
		}
		if metric != float64(n) {
			t.Errorf("%s: %d are %s, and %v by the metric", rule, n, verdict, metric)
		}
		if n == 0 {
			delete(got, verdict)
		}
	}
	return got
}

func TestACandidateIsComparedAndNeverEnforced(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rule    string
		asks    int
		allowed int
		want    map[string]uint64
	}{
		{"lower", 7, 5, map[string]uint64{"both_allow": 3, "would_deny": 2, "both_deny": 2}},
		{"higher", 9, 5, map[string]uint64{"both_allow": 5, "would_allow": 2, "both_deny": 2}},
		{"trial", 8, 8, map[string]uint64{"both_allow": 5, "would_allow": 1, "both_deny": 2}},
		{"both", 6, 5, map[string]uint64{"both_allow": 4, "would_deny": 2}}, // the second limit never denies
		{"other", 3, 2, map[string]uint64{}},
	} {
		f := startWith(t, inMemory(t), candidates, Options{})
		allowed := 0
		for range test.asks {
			if f.ask(t, descriptor(test.rule+"=x")).OverallCode == pb.RateLimitResponse_OK {
				allowed++
			}
		}
		if allowed != test.allowed {
			t.Errorf("%s: %d of %d passed, want the limit's %d", test.rule, allowed, test.asks, test.allowed)
		}
		if got := f.compared(t, test.rule); !maps.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.rule, got, test.want)
		}
	}
}

func TestAnswersAreTheSameWithAndWithoutCandidates(t *testing.T) {
	t.Parallel()
	without := ""
	for line := range strings.Lines(candidates) {
		if i := strings.Index(line, ", candidate:"); i >= 0 {
			line = line[:i] + "}\n"
		}
		if !strings.Contains(line, "candidate:") {
			without += line
		}
	}
	plain := startWith(t, inMemory(t), without, Options{})
	compared := startWith(t, inMemory(t), candidates, Options{})
	r := rand.New(rand.NewPCG(1, 2))
	keys := []string{"lower=x", "higher=x", "trial=x", "both=x", "other=x", "lower=y", "nothing=x"}
	for range 300 {
		request := Request{Domain: "shop"}
		for range 1 + r.IntN(3) {
			key, value, _ := strings.Cut(keys[r.IntN(len(keys))], "=")
			d := Descriptor{Entries: []rules.Entry{{Key: key, Value: value}}}
			if hits := r.Uint64N(4); hits < 3 {
				d.Hits = &hits
			}
			request.Descriptors = append(request.Descriptors, d)
		}
		want, err := plain.service.Decide(t.Context(), &request)
		if err != nil {
			t.Fatal(err)
		}
		got, err := compared.service.Decide(t.Context(), &request)
		if err != nil || summary(got.Message()) != summary(want.Message()) {
			t.Fatalf("%v: got %v, %v, want %v", request, got, err, want)
		}
	}
}

func TestAPeekIsNotComparedNorChargedToTheCandidate(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), candidates, Options{})
	for range 5 {
		f.ask(t, withHits(descriptor("lower=x"), 0))
	}
	if got := f.compared(t, "lower"); len(got) != 0 {
		t.Errorf("got %v, want nothing compared", got)
	}
	f.ask(t, descriptor("lower=x"))
	if got := f.compared(t, "lower"); got["both_allow"] != 1 {
		t.Errorf("got %v, want both to allow", got)
	}
}

// halfAway is a store that has no answer about candidates.
type halfAway struct{ weir.Store }

func (h halfAway) TakeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	err := h.Store.TakeAll(ctx, asks, decisions)
	for i := range asks {
		if strings.Contains(asks[i].Name, "#candidate") {
			decisions[i] = weir.Decision{Cause: errGone}
		}
	}
	return err
}

func TestACandidateWithoutStateFailsNothing(t *testing.T) {
	t.Parallel()
	f := startWith(t, halfAway{inMemory(t)}, candidates, withFallback(t, 2))
	for _, want := range []string{"OK: OK 4", "OK: OK 3", "OK: OK 2", "OK: OK 1", "OK: OK 0", "OVER_LIMIT: OVER_LIMIT 0"} {
		if got := origin(f.expect(t, want, descriptor("lower=x"))); got != "store" {
			t.Errorf("decided by %q, want the store", got)
		}
	}
	if got, want := f.compared(t, "lower"), map[string]uint64{"not_compared": 6}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}

	f = startWith(t, away{err: errGone}, candidates, withFallback(t, 1))
	for range 3 {
		f.ask(t, descriptor("lower=x"))
	}
	if got, want := f.compared(t, "lower"), map[string]uint64{"not_compared": 3}; !maps.Equal(got, want) {
		t.Errorf("without the store: got %v, want %v", got, want)
	}
}

func TestALeaseAndARememberedDenialOutliveTheStoreBesideACandidate(t *testing.T) {
	t.Parallel()
	const leasing = `
domain: shop
descriptors:
  - key: hot
    rate_limit: {unit: minute, requests_per_unit: 100000, algorithm: gcra, lease: {max: 100, expiry: 1s}}
    candidate: {unit: minute, requests_per_unit: 200000, algorithm: gcra}
  - key: full
    rate_limit: {unit: minute, requests_per_unit: 1}
    candidate: {unit: minute, requests_per_unit: 1000}
`
	store := &flapping{Store: inMemory(t)}
	f := startWith(t, store, leasing, Options{Budget: time.Second, Instances: 1})
	until := func(key, want string) {
		t.Helper()
		for range 200 {
			if origin(f.ask(t, descriptor(key+"=x"))) == want {
				return
			}
		}
		t.Fatalf("%s: none of 200 requests was answered from the %s", key, want)
	}
	until("full", "cache")
	until("hot", "lease")
	store.gone.Store(true)
	for key, want := range map[string]string{"hot": "lease", "full": "cache"} {
		if got := origin(f.ask(t, descriptor(key+"=x"))); got != want {
			t.Errorf("%s without the store: decided by %q, want the %s", key, got, want)
		}
		if got := f.compared(t, key)["not_compared"]; got != 1 {
			t.Errorf("%s: %d not compared, want 1", key, got)
		}
	}
}

func TestALimitAndItsCandidateAreOneQuestion(t *testing.T) {
	t.Parallel()
	counted := &countingStore{Store: inMemory(t)}
	f := startWith(t, counted, candidates, withFallback(t, 2))
	f.ask(t, descriptor("lower=x"))
	f.ask(t, descriptor("both=x"), descriptor("higher=x"))
	if one, several := counted.calls.Load(), counted.groups.Load(); one != 0 || several != 2 {
		t.Errorf("the store was asked %d times about one limit and %d times about several, want twice about several", one, several)
	}
}

func TestAReloadForgetsTheCountsOfCandidatesThatAreGone(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), candidates, Options{})
	before := len(f.family(t, "rate_limit_candidate_decisions_total"))
	if err := f.service.SetRules(parse(t, strings.Replace(candidates, "    candidate: {unit: year, requests_per_unit: 3}\n", "", 1))); err != nil {
		t.Fatal(err)
	}
	if after := len(f.family(t, "rate_limit_candidate_decisions_total")); before-after != len(verdicts) {
		t.Errorf("%d series became %d, want %d fewer", before, after, len(verdicts))
	}
}

func TestInCompatACandidateKeepsAwayFromTheSharedCounters(t *testing.T) {
	t.Parallel()
	counters, err := memstore.NewCounters(memstore.CountersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := startWith(t, inMemory(t), candidates, Options{Compat: &Compat{Counters: counters}})
	for _, want := range []string{"OK: OK 4", "OK: OK 3", "OK: OK 2", "OK: OK 1", "OK: OK 0", "OVER_LIMIT: OVER_LIMIT 0"} {
		f.expect(t, want, descriptor("lower=x"))
	}
	if got, want := f.compared(t, "lower"), map[string]uint64{"both_allow": 3, "would_deny": 2, "both_deny": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := counters.Stats().Keys; got != 1 {
		t.Errorf("%d shared counters, want the limit's alone", got)
	}
}
