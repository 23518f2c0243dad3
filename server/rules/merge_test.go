package rules

import (
	"reflect"
	"strings"
	"testing"
)

// merging reads two files, a.yaml and b.yaml, whose domains are merged.
func merging(a, b string) (*Config, error) {
	return Options{MergeDomains: true}.Parse(File{"a.yaml", []byte(a)}, File{"b.yaml", []byte(b)})
}

func TestMergedFilesOfADomainAreOneListInTheirOrder(t *testing.T) {
	t.Parallel()
	c, err := merging(
		"domain: d\ndescriptors:\n- {key: user, value: svc-*, rate_limit: {unit: day, requests_per_unit: 7}}\n- {key: free, rate_limit: {unlimited: true, replaces: [{name: all}]}}",
		"domain: d\ndescriptors:\n- {key: user, value: '*-b', rate_limit: {unit: day, requests_per_unit: 9}}\n- {key: path, rate_limit: {unit: day, requests_per_unit: 5, name: all}}",
	)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Domains(), []string{"d"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got the domains %q, want %q", got, want)
	}
	for user, want := range map[string]string{"svc-a": "user=svc-*", "svc-b": "user=svc-*", "x-b": "user=*-b"} {
		if r := c.Match("d", []Entry{{"user", user}}); r == nil || r.Path != want {
			t.Errorf("%s: got the rule %v, want %s", user, r, want)
		}
	}
	if r := c.Match("d", []Entry{{"path", "/"}}); r == nil || r.Domain != "d" {
		t.Errorf("got %v, want the rule of the second file", r)
	}
	if len(c.Warnings) > 0 { // all is named in the other file
		t.Errorf("got the warnings %v, want none", c.Warnings)
	}
}

func TestFaultsNameWhatTheirReaderCanSetAndWrite(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		options Options
		a, b    string
		want    string
	}{
		{Options{}, "domain: d", "domain: d", "b.yaml:1:9: domain \"d\" is in a.yaml already, line 1: write its descriptors in one file, or set --merge-domains"},
		{Options{Compat: true}, "domain: d", "domain: d", "b.yaml:1:9: domain \"d\" is in a.yaml already, line 1: write its descriptors in one file, or set MERGE_DOMAIN_CONFIG=true"},
		{Options{Upstream: true}, "domain: d\ndescriptors: [{key: a}, {key: a}]", "domain: e", "a.yaml:2:25: the descriptor a is here twice, first in line 2: write it once"},
	} {
		_, err := test.options.Parse(File{"a.yaml", []byte(test.a)}, File{"b.yaml", []byte(test.b)})
		if err == nil || err.Error() != test.want {
			t.Errorf("%+v: got\n%v\nwant\n%s", test.options, err, test.want)
		}
	}
}

func TestMergedFilesStillHaveEachDescriptorOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, a, b, want string }{
		{"the same", "domain: d\ndescriptors:\n- key: user", "domain: d\ndescriptors:\n- key: path\n- key: user",
			"b.yaml:4:3: the descriptor user is in a.yaml already, line 3: write it once, with all limits (limits:)"},
		{"as the original joins them", "domain: d\ndescriptors:\n- {key: user, value: vip}", "domain: d\ndescriptors:\n- key: user_vip",
			"b.yaml:3:3: the descriptor user_vip is in a.yaml already, line 3: write it once, with all limits (limits:)"},
		{"with others below", "domain: d\ndescriptors: [{key: a, descriptors: [{key: b}]}]", "domain: d\ndescriptors: [{key: a, descriptors: [{key: c}]}]",
			"b.yaml:2:15: the descriptor a is in a.yaml already, line 2: write it once, with all limits (limits:)"},
		{"another algorithm", "domain: d\nalgorithm: gcra", "domain: d",
			"b.yaml:1:1: algorithm is another than in a.yaml, whose domain this is too: write the same in both"},
		{"another policy", "domain: d\non_store_error: deny", "domain: d\non_store_error: allow",
			"b.yaml:2:1: on_store_error is another than in a.yaml, whose domain this is too: write the same in both"},
		{"another number of instances", "domain: d\ninstances: 3", "domain: d\ninstances: 4",
			"b.yaml:2:1: instances is another than in a.yaml, whose domain this is too: write the same in both"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if c, err := merging(test.a, test.b); c != nil || err == nil || err.Error() != test.want {
				t.Errorf("got %v and\n%v\nwant\n%s", c, err, test.want)
			}
		})
	}
}

func TestMergingWarnsOfWhatOneFileHidesOfAnother(t *testing.T) {
	t.Parallel()
	c, err := merging(
		"domain: d\ndescriptors:\n- {key: user, value: 's*', rate_limit: {unit: day, requests_per_unit: 7, name: n}}",
		"domain: d\ndescriptors:\n- {key: user, value: 'sv*', rate_limit: {unit: day, requests_per_unit: 9, name: n, replaces: [{name: m}]}}",
	)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range c.Warnings {
		got = append(got, w.String())
	}
	want := []string{
		"b.yaml:3:4: nothing reaches user=sv*: user=s* before it takes all of its values; the first wildcard in the file goes",
		`b.yaml:3:81: another limit of this domain has the name "n", in a.yaml, line 3: answers and replaces cannot tell them apart`,
		`b.yaml:3:102: no limit of this domain has the name "m": this replaces nothing`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestFilesOfDifferentDomainsAreNotMerged(t *testing.T) {
	t.Parallel()
	c, err := merging("domain: a\nalgorithm: gcra\ndescriptors: [{key: x}]", "domain: b\ndescriptors: [{key: x}]")
	if err != nil || len(c.Domains()) != 2 || len(c.Rules()) != 2 {
		t.Errorf("got %v, %v, want two domains with a rule each", c, err)
	}
}
