package rules

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir.dev/weir"
)

// entries reads "key=value key=value"; a key alone has the empty value.
func entries(text string) []Entry {
	var list []Entry
	for _, field := range strings.Fields(text) {
		key, value, _ := strings.Cut(field, "=")
		list = append(list, Entry{key, value})
	}
	return list
}

const tree = `
domain: d
descriptors:
- {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}
- {key: user, value: vip, rate_limit: {unit: hour, requests_per_unit: 100}}
- {key: user, value: white}
- {key: user, value: svc-*, rate_limit: {unit: hour, requests_per_unit: 7}}
- {key: user, value: svc-b*, rate_limit: {unit: hour, requests_per_unit: 9}}
- {key: user, value: svc-exact, rate_limit: {unit: hour, requests_per_unit: 10}}
- key: nested
  rate_limit: {unit: minute, requests_per_unit: 5}
  descriptors:
  - {key: sub, rate_limit: {unit: day, requests_per_unit: 2}}
- key: nested
  value: exact
  descriptors:
  - {key: other}
- {key: path, value: "/a*b*c", rate_limit: {unit: day, requests_per_unit: 4}}
- {key: all, value: "*", rate_limit: {unit: day, requests_per_unit: 6}}
- {key: "h-*", rate_limit: {unit: day, requests_per_unit: 8}}
- {key: "g-*", value: x, rate_limit: {unit: day, requests_per_unit: 11}}
- {key: a_b, rate_limit: {unit: day, requests_per_unit: 12}}
`

func TestExactGoesBeforeWildcardsAndTheseBeforeTheBareKey(t *testing.T) {
	t.Parallel()
	c := parse(t, tree)
	for _, test := range []struct{ entries, want string }{
		{"user=vip", "user=vip"},
		{"user=eve", "user"},
		{"user", "user"},
		{"user=white", "user=white"},
		{"user=svc-b1", "user=svc-*"}, // the first in the file, not the longest
		{"user=svc-exact", "user=svc-exact"},
		{"user=svc-*", "user=svc-*"},
		{"user=svc-b*", "user=svc-b*"}, // the text itself is exact
		{"user=xsvc-", "user"},
		{"User=vip", ""},
		{"user=vip extra=z", ""},
		{"nested=x", "nested"},
		{"nested=x sub=y", "nested|sub"},
		{"nested=x sub=y extra=z", ""},
		{"nested=exact", ""},
		{"nested=exact sub=y", ""}, // what a level chose is never taken back
		{"nested=exact other=y", "nested=exact|other"},
		{"sub=y nested=x", ""},
		{"path=/abc", "path=/a*b*c"},
		{"path=/a..b..c", "path=/a*b*c"},
		{"path=/abbcc", "path=/a*b*c"},
		{"path=/ac", ""},
		{"path=/acb", ""},
		{"path=x/abc", ""},
		{"all", "all=*"},
		{"all=x", "all=*"},
		{"h-1=x", "h-*"},
		{"h-", "h-*"},
		{"g-1=x", "g-*=x"},
		{"g-1=y", ""},
		{"user_vip", ""}, // no joining by _
		{"a=b", ""},
		{"a_b=c", "a_b"},
		{"", ""},
	} {
		got := ""
		if r := c.Match("d", entries(test.entries)); r != nil {
			got = r.Path
		}
		if got != test.want {
			t.Errorf("%q: got the rule %q, want %q", test.entries, got, test.want)
		}
	}
	if r := c.Match("other", entries("user=vip")); r != nil {
		t.Errorf("an unknown domain matches %q, want nothing", r.Path)
	}
}

func TestARuleWithoutALimitAllowsAndCountsNothing(t *testing.T) {
	t.Parallel()
	r := parse(t, tree).Match("d", entries("user=white"))
	if r == nil || len(r.Limits) != 0 || r.Unlimited {
		t.Errorf("got %+v, want a rule without limits", r)
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	c := parse(t, tree)
	for _, text := range []string{"user=vip", "user=eve", "user=svc-b1", "nested=x sub=y", "nothing=x"} {
		e := entries(text)
		if n := testing.AllocsPerRun(100, func() { c.Match("d", e) }); n != 0 {
			t.Errorf("%q: got %v allocations, want 0", text, n)
		}
	}
}

func TestExplainTakesTheStepsOfMatch(t *testing.T) {
	t.Parallel()
	c := parse(t, tree)
	for _, test := range []struct {
		entries string
		want    []Step
	}{
		{"user=vip", []Step{{Entry{"user", "vip"}, ByValue, "user=vip", nil}}},
		{"user=svc-b1", []Step{{Entry{"user", "svc-b1"}, ByWildcard, "user=svc-*", nil}}},
		{"nested=x sub=y", []Step{{Entry{"nested", "x"}, ByKey, "nested", nil}, {Entry{"sub", "y"}, ByKey, "sub", nil}}},
		{"nested=exact sub=y more=z", []Step{
			{Entry{"nested", "exact"}, ByValue, "nested=exact", nil},
			{Entry{"sub", "y"}, ByNothing, "", []string{"other"}},
		}},
	} {
		if got := c.Explain("d", entries(test.entries)); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.entries, got, test.want)
		}
	}
	if got := c.Explain("other", entries("user=vip")); got != nil {
		t.Errorf("an unknown domain: got %v, want nothing", got)
	}
}

func TestKeysOfDifferentEntriesDiffer(t *testing.T) {
	t.Parallel()
	r := &Rule{}
	seen := map[weir.Key][]Entry{}
	for _, e := range [][]Entry{
		{{"foo", "1_bar_2"}}, {{"foo", "1"}, {"bar", "2"}}, {{"foo", "1"}}, {{"foo", ""}}, {{"", "foo"}},
		{{"fo", "o"}}, {{"foo", "1"}, {"", "bar2"}}, {{"foo", "1bar2"}}, {{"foo", "1"}, {"bar", ""}, {"2", ""}},
	} {
		k := r.Key(e)
		if before, met := seen[k]; met {
			t.Errorf("%q and %q have one key", before, e)
		}
		seen[k] = e
	}
}

func TestValuesOfASharedLevelHaveOneKey(t *testing.T) {
	t.Parallel()
	c := parse(t, `
domain: d
descriptors:
- key: files
  value: files/*
  share_threshold: true
  descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}
`)
	key := func(text string) weir.Key {
		e := entries(text)
		return c.Match("d", e).Key(e)
	}
	if a, b := key("files=files/a user=eve"), key("files=files/b user=eve"); a != b {
		t.Errorf("two files have the keys %v and %v, want one", a, b)
	}
	if a, b := key("files=files/a user=eve"), key("files=files/a user=adam"); a == b {
		t.Errorf("two users have one key %v, want two", a)
	}
}

func TestARequestsOwnLimitStandsInAKnownDomain(t *testing.T) {
	t.Parallel()
	c := parse(t, tree)
	for _, test := range []struct{ entries, path string }{{"user=vip", "user=vip"}, {"nothing=x", "<override>"}} {
		r, err := c.Override("d", entries(test.entries), Override{5, UnitDay})
		if err != nil || r == nil {
			t.Fatalf("%s: got %v, %v, want a rule", test.entries, r, err)
		}
		want := Limit{Limit: weir.Per(5, 24*time.Hour).By(weir.FixedWindow), StateName: "d|<override>day", RequestsPerUnit: 5, Unit: UnitDay, Multiplier: 1, ByDefault: true}
		if r.Path != test.path || len(r.Limits) != 1 || r.Limits[0] != want || r.Shadow {
			t.Errorf("%s: got %+v, want the path %q and the limit %+v", test.entries, r, test.path, want)
		}
	}
	if r, err := c.Override("other", entries("a=b"), Override{5, UnitUnknown}); r != nil || err != nil {
		t.Errorf("an unknown domain: got %v, %v, want nothing", r, err)
	}
}

func TestARequestsOwnLimitWithoutAUnitIsAnError(t *testing.T) {
	t.Parallel()
	c := parse(t, tree)
	for _, unit := range []Unit{UnitUnknown, UnitWeek + 1, 255} {
		r, err := c.Override("d", entries("user=vip"), Override{5, unit})
		want := "the request's own limit has the unit " + unit.String() + ": write second, minute, hour, day, week, month or year"
		if r != nil || err == nil || err.Error() != want {
			t.Errorf("%v: got %v, %v, want the error %q", unit, r, err, want)
		}
	}
	exact := parse(t, "domain: d\nalgorithm: gcra")
	if r, err := exact.Override("d", nil, Override{4294967291, UnitMonth}); r != nil || err == nil {
		t.Errorf("a limit without exact arithmetic: got %v, %v, want an error", r, err)
	}
}

func BenchmarkMatch(b *testing.B) {
	c := parse(b, tree)
	for _, text := range []string{"user=vip", "user=eve", "user=svc-b1", "nested=x sub=y"} {
		e := entries(text)
		b.Run(strconv.Quote(text), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Match("d", e)
			}
		})
	}
}
