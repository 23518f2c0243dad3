package rls

import (
	"context"
	"testing"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
	"weir.dev/weir/server/rules"
)

func (f *fixture) rule(t *testing.T, e ...rules.Entry) *rules.Rule {
	t.Helper()
	_, r := f.service.Explain("shop", e)
	if r == nil {
		t.Fatalf("%v: no rule", e)
	}
	return r
}

func TestPeekSaysWhatIsThereAndChargesNothing(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), candidates, withFallback(t, 2))
	for range 2 {
		f.ask(t, descriptor("lower=x"))
	}
	x := []rules.Entry{{Key: "lower", Value: "x"}}
	r := f.rule(t, x...)
	for range 3 {
		for l, want := range map[*rules.Limit]int64{&r.Limits[0]: 3, r.Limits[0].Candidate: 1} {
			d, err := f.service.Peek(t.Context(), r, l, x)
			if err != nil || d.Remaining != want {
				t.Errorf("%v: got %+v, %v, want %d left", l, d, err, want)
			}
		}
	}
	if got := f.service.Decisions(r)["allowed"]; got != 2 {
		t.Errorf("%d allowed, want 2: a peek is no request", got)
	}
	if _, err := f.service.Peek(t.Context(), r, &rules.Limit{}, x); err == nil {
		t.Error("a limit of another rule: got no error")
	}
	if err := f.service.SetRules(parse(t, candidates)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.service.Peek(t.Context(), r, &r.Limits[0], x); err != errChanged {
		t.Errorf("after a reload: got %v, want %v", err, errChanged)
	}
}

func TestResetReachesAllThatRemembersTheKeyAndNothingElse(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), candidates, withFallback(t, 1))
	for range 20 { // until the denial is remembered in front of the store
		f.ask(t, descriptor("lower=x"))
		f.ask(t, descriptor("both=x"))
		f.ask(t, descriptor("other=x"))
	}
	f.ask(t, descriptor("lower=y"))
	if got := origin(f.ask(t, descriptor("other=x"))); got != "cache" {
		t.Fatalf("the denial came from %q, want the cache", got)
	}
	for _, key := range []string{"lower", "both", "other"} {
		x := []rules.Entry{{Key: key, Value: "x"}}
		r := f.rule(t, x...)
		if err := f.service.Reset(t.Context(), r, x); err != nil {
			t.Fatal(err)
		}
		for i := range r.Limits {
			if d, err := f.service.Peek(t.Context(), r, &r.Limits[i], x); err != nil || d.Remaining != r.Limits[i].Units() {
				t.Errorf("%s, limit %d: got %+v, %v, want all of %v", key, i+1, d, err, r.Limits[i])
			}
			if c := r.Limits[i].Candidate; c != nil {
				if d, err := f.service.Peek(t.Context(), r, c, x); err != nil || d.Remaining != c.Units() {
					t.Errorf("%s, candidate %d: got %+v, %v, want all of %v", key, i+1, d, err, c)
				}
			}
		}
	}
	f.expect(t, "OK: OK 3", descriptor("lower=y"))
	f.expect(t, "OK: OK 1", descriptor("other=x"))
}

func TestResetReachesTheFallback(t *testing.T) {
	t.Parallel()
	f := startWith(t, forgetful{away{err: errGone}}, resilient, withFallback(t, 2))
	for _, want := range []string{"OK: OK 3", "OK: OK 2"} {
		f.expect(t, want, descriptor("local=x"))
	}
	x := []rules.Entry{{Key: "local", Value: "x"}}
	if err := f.service.Reset(t.Context(), f.rule(t, x...), x); err != nil {
		t.Fatal(err)
	}
	f.expect(t, "OK: OK 3", descriptor("local=x"))
}

// forgetful is a store that can do nothing but forget.
type forgetful struct{ away }

func (forgetful) Reset(context.Context, string, weir.Key) error { return nil }

func TestInCompatTheApiMatchesAndResetsAsTheOriginalCounts(t *testing.T) {
	t.Parallel()
	counters, err := memstore.NewCounters(memstore.CountersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const vip = "domain: shop\ndescriptors: [{key: user, value: vip, rate_limit: {unit: year, requests_per_unit: 3}}]\n"
	f := startWith(t, inMemory(t), vip, Options{Compat: &Compat{Counters: counters}})
	joined := []rules.Entry{{Key: "user_vip"}}
	steps, r := f.service.Explain("shop", joined)
	if r == nil || len(steps) != 1 || steps[0].How != rules.ByKey || steps[0].Level != "user=vip" {
		t.Fatalf("got %+v and %v, want the rule of the value, by the key alone", steps, r)
	}
	for range 2 {
		f.ask(t, descriptor("user_vip="))
	}
	if d, err := f.service.Peek(t.Context(), r, &r.Limits[0], joined); err != nil || d.Remaining != 1 {
		t.Errorf("got %+v, %v, want 1 left", d, err)
	}
	if err := f.service.Reset(t.Context(), r, joined); err != nil {
		t.Fatal(err)
	}
	f.expect(t, "OK: OK 2", descriptor("user_vip="))
}
