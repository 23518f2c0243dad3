package rules

import (
	"errors"
	"testing"

	"weir.dev/weir"
)

func TestACandidateStandsBesideTheLimitItIsComparedWith(t *testing.T) {
	t.Parallel()
	c := parse(t, `
domain: shop
algorithm: gcra
descriptors:
- key: user
  rate_limit: {unit: minute, requests_per_unit: 100}
  candidate: {unit: minute, requests_per_unit: 50, burst: 10, name: lower}
- key: tenant
  limits:
  - {unit: second, requests_per_unit: 5}
  - {unit: day, requests_per_unit: 50, candidate: {window: 36h, requests_per_unit: 60, algorithm: fixed_window}}
- key: path
  rate_limit: {unit: second, requests_per_unit: 1}
`)
	user := c.Rules()[0].Limits[0]
	if got, want := user.Candidate.Limit, weir.PerMinute(50).Burst(10); got != want || user.Candidate.Name != "lower" {
		t.Errorf("user: got %v called %q, want %v called lower", got, user.Candidate.Name, want)
	}
	if got, want := user.Limit, weir.PerMinute(100); got != want {
		t.Errorf("user: got the limit %v, want %v: a candidate changes nothing", got, want)
	}
	tenant := c.Rules()[1].Limits
	if tenant[0].Candidate != nil || tenant[1].Candidate == nil || tenant[1].Candidate.String() != "60 per 36h by fixed_window" {
		t.Errorf("tenant: got the candidates %v and %v, want none and 60 per 36h", tenant[0].Candidate, tenant[1].Candidate)
	}
	if c.Rules()[2].Limits[0].Candidate != nil {
		t.Error("path: got a candidate, want none")
	}
	for name, want := range map[string]string{
		user.Candidate.StateName:      "shop#candidate|user",
		tenant[1].Candidate.StateName: "shop#2#candidate|tenant",
	} {
		if name != want {
			t.Errorf("got the state %s, want %s", name, want)
		}
	}
	if w := c.Warnings; len(w) > 0 {
		t.Errorf("got the warnings %v, want none", w)
	}
}

func TestACandidateThatCannotBeComparedIsAFault(t *testing.T) {
	t.Parallel()
	const one = "unit: day, requests_per_unit: 1"
	for _, test := range []struct{ name, text, want string }{
		{"no limit", descriptor("key: a, candidate: {" + one + "}"), "3:14: candidate has no limit to be compared with: write a rate_limit beside it"},
		{"null limit", descriptor("key: a, rate_limit: null, candidate: {" + one + "}"), "3:32: candidate has no limit to be compared with: write a rate_limit beside it"},
		{"unlimited", descriptor("key: a, rate_limit: {unlimited: true}, candidate: {" + one + "}"), "3:45: candidate has no limit to be compared with: write it as the rate_limit in place of unlimited, with shadow_mode: true"},
		{"several limits", descriptor("key: a, limits: [{" + one + "}], candidate: {" + one + "}"), "3:59: candidate stands beside several limits: write it in the item of limits that it is compared with"},
		{"inside of rate_limit", limit(one + ", candidate: {" + one + "}"), "3:60: candidate has no meaning here: write it beside rate_limit"},
		{"unlimited and inside", limit("unlimited: true, candidate: {" + one + "}"), "3:44: candidate has no meaning beside unlimited: leave one of them out"},
		{"at the root", "domain: d\ncandidate: {" + one + "}", "2:1: candidate has no meaning here: write it in the descriptor, beside key or in rate_limit"},
		{"empty", descriptor("key: a, rate_limit: {" + one + "}, candidate: "), "3:61: candidate is empty: write unit: and requests_per_unit: below it, or leave it out"},
		{"a number", descriptor("key: a, rate_limit: {" + one + "}, candidate: 5"), "3:72: a candidate is the number 5: write keys and values below it"},
		{"no number", descriptor("key: a, rate_limit: {" + one + "}, candidate: {unit: day}"), "3:61: the candidate has no requests_per_unit: write how many requests it would let pass"},
		{"no unit", descriptor("key: a, rate_limit: {" + one + "}, candidate: {requests_per_unit: 1}"), "3:72: the limit has no unit: write unit: and second, minute, hour, day, week, month or year, or window: and a duration such as 30s"},
		{"bad unit", descriptor("key: a, rate_limit: {" + one + "}, candidate: {unit: days, requests_per_unit: 1}"), `3:79: unknown unit "days": write day`},
		{"unlimited itself", descriptor("key: a, rate_limit: {" + one + "}, candidate: {" + one + ", unlimited: true}"), "3:106: unlimited has no meaning in a candidate, which changes no answer: leave it out"},
		{"a policy", descriptor("key: a, rate_limit: {" + one + "}, candidate: {" + one + ", on_store_error: deny}"), "3:106: on_store_error has no meaning in a candidate, which changes no answer: leave it out"},
		{"of a candidate", descriptor("key: a, rate_limit: {" + one + "}, candidate: {" + one + ", candidate: {}}"), "3:106: candidate has no meaning in a candidate, which changes no answer: leave it out"},
		{"unknown key", descriptor("key: a, rate_limit: {" + one + "}, candidate: {" + one + ", foo: 1}"), `3:106: unknown key "foo": write algorithm, burst, name, requests_per_unit, unit or window`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse(File{"limits.yaml", []byte(test.text)})
			var faults Faults
			if c != nil || !errors.As(err, &faults) {
				t.Fatalf("got %v and the error %v, want a fault\n%s", c, err, test.text)
			}
			if got, want := err.Error(), "limits.yaml:"+test.want; got != want {
				t.Errorf("got  %s\nwant %s\n%s", got, want, test.text)
			}
		})
	}
}
