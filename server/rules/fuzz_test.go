package rules

import (
	"errors"
	"strings"
	"testing"

	"weir.dev/weir"
)

// seeds are files of every kind, right and wrong.
var seeds = []string{
	"", "~", "domain: d", "domain: d\n---\n", "&a [*a]", "domain: &d [*d]", "\xff\xfed\x00", "a: \x00", "%YAML 2.0\n---\n",
	tree,
	limit("unit: minute, requests_per_unit: 5"),
	limit("algorithm: gcra, window: 1m30s, burst: 0x10, requests_per_unit: 010, name: n, replaces: [{name: m}]"),
	limit("unlimited: yes, unit: x, requests_per_unit: -1"),
	descriptor("key: a, value: b*, share_threshold: on, value_to_metric: on, metadata: {a: [.inf, !!binary /w==, 1e3]}"),
	descriptor("key: a, limits: [{unit: day}, 5, {}, ~]"),
	"domain: d\ndescriptors:\n- &a {key: a, <<: {value: b}}\n- {<<: [*a, *a], key: c}\n- *a\n",
	"? - a\n: <<",
	"on_store_error: deny\ninstances: 3\n" + limit("unit: day, requests_per_unit: 9, on_store_error: local, lease: {max: 5, refill: 1e-1, expiry: 10ms}"),
	limit("unit: day, requests_per_unit: 9, lease: off, on_store_error: [x]"),
	checkFile("trusted_proxies: [10.0.0.0/8, &p '::1', *p]", "denied_status: 0x193", `descriptors: ["addr={addr/48}", ["host={header.a}{path}", "path=x"]]`),
}

// FuzzParse: reading never panics; it gives rules that can be used, or faults with a
// place each.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(File{"limits.yaml", data})
		_, errCompat := Options{Compat: true}.Parse(File{"limits.yaml", data})
		_, errUpstream := Options{Upstream: true}.Parse(File{"limits.yaml", data})
		if err == nil && errCompat != nil || errCompat != nil && errUpstream == nil {
			t.Errorf("got %v, with Compat %v, and with Upstream %v; want Compat to load most", err, errCompat, errUpstream)
		}
		merged, errMerged := Options{MergeDomains: true}.Parse(File{"limits.yaml", data}, File{"empty.yaml", []byte("domain: other")})
		if errAlone := err; (errAlone == nil) != (errMerged == nil) && !(errMerged != nil && strings.Contains(errMerged.Error(), "whose domain this is too")) {
			t.Errorf("got %v alone, and %v beside another domain", errAlone, errMerged)
		}
		if err == nil && errMerged == nil && len(merged.Rules()) != len(c.Rules()) {
			t.Errorf("got %d rules alone, and %d beside another domain", len(c.Rules()), len(merged.Rules()))
		}
		if err != nil {
			var faults Faults
			if c != nil || !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("got %v and %v, want faults alone", c, err)
			}
			for _, fault := range faults {
				if fault.File != "limits.yaml" || fault.Line < 1 || fault.Column < 1 || fault.Message == "" {
					t.Errorf("got the fault %+v, want a file, a place and a message", fault)
				}
			}
			return
		}
		for _, instances := range []int{0, 1, 1000} {
			if err := c.CheckInstances(instances); err != nil && len(err.(Faults)) == 0 {
				t.Errorf("%d instances: got %v, want faults or nil", instances, err)
			}
		}
		if check := c.HTTPCheck(); check != nil {
			for _, entries := range check.Descriptors {
				for _, e := range entries {
					if e.Key == "" || len(e.Value) == 0 {
						t.Errorf("got the entry %+v, want a key and a value", e)
					}
				}
				if len(entries) == 0 {
					t.Error("got a descriptor without entries")
				}
			}
			if check.DeniedStatus < 400 || check.UndecidedStatus != 200 && check.UndecidedStatus < 400 || !c.Has(check.Domain) {
				t.Errorf("got %+v, want statuses that refuse, and a domain", check)
			}
		}
		paths, states := map[string]bool{}, map[string]bool{}
		for _, r := range c.Rules() {
			if r.Path == "" || paths[r.Path] || len(r.Path) > maxPath {
				t.Errorf("got the path %q, want one of its own", r.Path)
			}
			paths[r.Path] = true
			for _, l := range r.Limits {
				err := l.Validate()
				if err != nil || l.IsUnlimited() || weir.ValidateName(l.StateName) != nil || states[l.StateName] {
					t.Errorf("%s: got the limit %v of the name %q (%v), want one that can be used", r.Path, l.Limit, l.StateName, err)
				}
				states[l.StateName] = true
				if c := l.Candidate; c != nil {
					if c.Validate() != nil || c.IsUnlimited() || weir.ValidateName(c.StateName) != nil || states[c.StateName] || c.Candidate != nil || c.Lease != (Lease{}) {
						t.Errorf("%s: got the candidate %+v, want one that can be used", r.Path, c)
					}
					states[c.StateName] = true
				}
				if lease := l.Lease; lease != (Lease{}) && (lease.Max < 1 || lease.Max > l.Capacity() || lease.Expiry <= 0 || !(lease.Refill > 0 && lease.Refill < 1)) {
					t.Errorf("%s: got the lease %+v of %v, want one that can be used", r.Path, lease, l.Limit)
				}
			}
		}
	})
}

// FuzzMatch: the globs agree with a plain recursive reading of them, entries make
// injective keys, and a match ends at the level of the last entry.
func FuzzMatch(f *testing.F) {
	f.Add("a*b*c", "aXbYc", "user", "vip")
	f.Add("*", "", "nested", "exact")
	f.Add("**a", "a", "h-", "\xff")
	f.Add("a", "a", "path", "/a/b/c")
	c := parse(f, tree)
	f.Fuzz(func(t *testing.T, pattern, text, key, value string) {
		if len(pattern) > 50 || len(text) > 50 {
			return // the plain reading takes exponential time
		}
		if got, want := makeGlob(pattern).match(text), plainGlob(pattern, text); got != want {
			t.Errorf("%q matches %q: got %v, want %v", pattern, text, got, want)
		}
		one, two := []Entry{{key, value}}, []Entry{{key, value}, {pattern, text}}
		if r := c.Match("d", one); r != nil && len(r.Shared) != 1 {
			t.Errorf("one entry: got the rule %q, want one of the first level", r.Path)
		}
		if r := c.Match("d", two); r != nil && len(r.Shared) != 2 {
			t.Errorf("two entries: got the rule %q, want one of the second level", r.Path)
		}
		for _, entries := range [][]Entry{one, two} {
			for _, way := range []struct {
				steps []Step
				rule  *Rule
			}{{c.Explain("d", entries), c.Match("d", entries)}, {c.ExplainJoined("d", entries), c.MatchJoined("d", entries)}} {
				last := way.steps[len(way.steps)-1]
				if missed := last.How == ByNothing; missed != (last.Level == "") || missed && way.rule != nil || way.rule != nil && len(way.steps) != len(entries) {
					t.Errorf("%q: got the rule %v by the steps %v", entries, way.rule, way.steps)
				}
			}
		}
		swapped := []Entry{{key, text}, {pattern, value}}
		r := &Rule{}
		if r.Key(one) == r.Key(two) || (r.Key(two) == r.Key(swapped)) != (value == text) {
			t.Errorf("%q and %q have one key", two, swapped)
		}
	})
}

func plainGlob(pattern, text string) bool {
	star := strings.IndexByte(pattern, '*')
	if star < 0 {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, pattern[:star])
	for ; ok; rest = rest[1:] {
		if plainGlob(pattern[star+1:], rest) {
			return true
		}
		if rest == "" {
			return false
		}
	}
	return false
}
