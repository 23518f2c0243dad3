package rules

import (
	"errors"
	"strings"
	"testing"
)

// verdict is what the original does with a file.
type verdict string

const (
	loads   verdict = "accepted" // and its user regrets it
	refuses verdict = "rejected"
	panics  verdict = "panic"
)

// measured are the files whose verdict was measured on the original.
var measured = []struct {
	name string
	verdict
	text string
}{
	{"requests_per_unit missing", loads, limit("unit: day")},
	{"unknown replaces", loads, limit("unit: day, requests_per_unit: 1, replaces: [{name: x}]")},
	{"shadowed wildcard", loads, "domain: d\ndescriptors:\n- {key: user, value: svc-*, rate_limit: {unit: hour, requests_per_unit: 7}}\n- {key: user, value: svc-b*, rate_limit: {unit: hour, requests_per_unit: 9}}"},
	{"shadow_mode inside rate_limit", loads, limit("unit: day, requests_per_unit: 1, shadow_mode: true")},
	{"rate_limit at root", loads, "domain: d\nrate_limit: {unit: day, requests_per_unit: 1}"},
	{"shadow_mode without limit", loads, descriptor("key: a, shadow_mode: true")},
	{"star in key", loads, descriptor("key: a*, rate_limit: {unit: day, requests_per_unit: 1}")},
	{"unlimited and requests_per_unit", loads, limit("unlimited: true, requests_per_unit: 5")},
	{"unlimited and bad unit", loads, limit("unlimited: true, unit: hours")},
	{"duplicate names", loads, "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1, name: n}}\n- {key: b, rate_limit: {unit: day, requests_per_unit: 2, name: n}}"},
	{"duplicate YAML key", loads, limit("unit: day, requests_per_unit: 1, requests_per_unit: 2")},
	{"second document", loads, limit("unit: day, requests_per_unit: 1") + "\n---\ndomain: e\n"},
	{"number as value", loads, descriptor("key: a, value: 123, rate_limit: {unit: day, requests_per_unit: 1}")},
	{"bool as value", loads, descriptor("key: a, value: true, rate_limit: {unit: day, requests_per_unit: 1}")},

	{"bad unit", refuses, limit("unit: fortnight, requests_per_unit: 1")},
	{"plural unit", refuses, limit("unit: seconds, requests_per_unit: 1")},
	{"unknown unit", refuses, limit("unit: unknown, requests_per_unit: 1")},
	{"unlimited and valid unit", refuses, limit("unlimited: true, unit: day")},
	{"duplicate composite key", refuses, "domain: d\ndescriptors:\n- {key: a, value: b}\n- {key: a_b}"},
	{"two units on one key", refuses, "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: second, requests_per_unit: 1}}\n- {key: a, rate_limit: {unit: day, requests_per_unit: 9}}"},
	{"share_threshold without star", refuses, descriptor("key: a, value: b, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}")},
	{"empty domain", refuses, "domain: ''\ndescriptors: [{key: a}]"},
	{"empty key", refuses, descriptor("key: ''")},
	{"empty file", refuses, ""},
	{"replaces self", refuses, limit("unit: day, requests_per_unit: 1, name: x, replaces: [{name: x}]")},
	{"replaces empty", refuses, limit("unit: day, requests_per_unit: 1, replaces: [{name: ''}]")},

	{"negative number", panics, limit("unit: day, requests_per_unit: -1")},
	{"more than uint32", panics, limit("unit: day, requests_per_unit: 4294967296")},
	{"quoted number", panics, limit(`unit: day, requests_per_unit: "5"`)},
	{"fraction", panics, limit("unit: day, requests_per_unit: 1.5")},
	{"whole fraction", panics, limit("unit: day, requests_per_unit: 1.0")},
	{"fraction as value", panics, descriptor("key: a, value: 1.0")},
}

func TestUpstreamHasTheOriginalsVerdictAndWarnsOfWhatItLoadsAndShouldNot(t *testing.T) {
	t.Parallel()
	for _, test := range measured {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, err := Options{Upstream: true}.Parse(File{"limits.yaml", []byte(test.text)})
			switch {
			case test.verdict == loads && (err != nil || len(c.Warnings) == 0):
				t.Errorf("got %v and the error %v, want a warning and no fault\n%s", c, err, test.text)
			case test.verdict != loads && !errors.As(err, new(Faults)):
				t.Errorf("got %v, want faults: the verdict there is %s\n%s", err, test.verdict, test.text)
			}
		})
	}
}

// With Compat the verdicts are the same, for a service that takes the original's place
// must start where that did. Without, what loses a part of the file is a fault.
func TestCompatLoadsWhatTheOriginalLoads(t *testing.T) {
	t.Parallel()
	lost := map[string]bool{"duplicate YAML key": true, "second document": true}
	for _, test := range measured {
		file := File{"limits.yaml", []byte(test.text)}
		if _, err := (Options{Compat: true}).Parse(file); (err == nil) != (test.verdict == loads) {
			t.Errorf("%s: got %v, want the original's verdict: %s", test.name, err, test.verdict)
		}
		if _, err := Parse(file); (err == nil) != (test.verdict == loads && !lost[test.name]) {
			t.Errorf("%s: got %v without options", test.name, err)
		}
	}
}

func TestUpstreamKnowsNoneOfWeirsKeys(t *testing.T) {
	t.Parallel()
	const one = "unit: day, requests_per_unit: 1"
	for name, text := range map[string]string{
		"limits":         descriptor("key: a, limits: [{" + one + "}]"),
		"algorithm":      limit(one + ", algorithm: fixed_window"),
		"burst":          "algorithm: gcra\n" + limit(one+", burst: 1"),
		"window":         limit("window: 1h, requests_per_unit: 1"),
		"lease":          limit(one + ", lease: off"),
		"on_store_error": "on_store_error: allow\n" + limit(one),
		"instances":      "instances: 2\n" + limit(one),
		"candidate":      descriptor("key: a, rate_limit: {" + one + "}, candidate: {" + one + "}"),
	} {
		c, err := Options{Upstream: true}.Parse(File{"limits.yaml", []byte(text)})
		if want := name + " is weir's own, and an unknown key to envoyproxy/ratelimit: leave it out"; c != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want a fault that says %q", c, err, want)
		}
		if _, err := (Options{Compat: true}).Parse(File{"limits.yaml", []byte(text)}); err != nil {
			t.Errorf("%s with Compat: got %v, want no fault", name, err)
		}
	}
	for name := range ours {
		if strings.Contains(strings.Join((&parser{options: Options{Upstream: true}}).keysOf(placeOf[name][0]), " "), name+" ") {
			t.Errorf("%s is advised, want the original's keys alone", name)
		}
	}
}

func TestOfAKeyWrittenTwiceTheLastCountsWithCompat(t *testing.T) {
	t.Parallel()
	c, err := Options{Compat: true}.Parse(File{"limits.yaml", []byte(`
domain: d
descriptors: [{key: gone}]
descriptors:
- key: a
  rate_limit: {unit: hour, requests_per_unit: 1}
  rate_limit: {requests_per_unit: 5, requests_per_unit: 7}
---
broken: [
`)})
	if err != nil {
		t.Fatal(err)
	}
	// Of two mappings the original's reader fills one struct: the unit stays.
	if len(c.Rules()) != 1 || c.Rules()[0].Path != "a" || c.Rules()[0].Limits[0].String() != "7 per hour by fixed_window" {
		t.Errorf("got %v, want 7 per hour for a alone", c.Rules()[0])
	}
	var got []string
	for _, w := range c.Warnings {
		got = append(got, w.String())
	}
	want := `limits.yaml:4:1: descriptors is here twice, and not what line 3 says but this counts: remove one
limits.yaml:7:3: rate_limit is here twice, and not what line 6 says but this counts: remove one
limits.yaml:7:16: requests_per_unit is here twice, and not what line 6 says but this counts: remove one
limits.yaml:7:38: requests_per_unit is here twice, and not what line 7 says but this counts: remove one`
	if text := strings.Join(got, "\n"); !strings.Contains(text, want) || len(got) != 5 || !strings.Contains(text, "a second document is not read") {
		t.Errorf("got\n%s\nwant one of the second document and\n%s", text, want)
	}
}

func TestWhatStandsBelowAKeyWithoutEffectIsCheckedAsTheOriginalDoes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		descriptor("key: a, unit: 1.5"):                          "3:20: 1.5 is a number that is used nowhere: remove it",
		descriptor("key: a, unit: {name: 1e3}"):                  "3:27: 1e3 is a number that is used nowhere: remove it",
		descriptor("key: a, unit: [b]"):                          `3:21: an item of this list is the text "b", which no list here has: remove it`,
		descriptor("key: a, unit: [{name: b, foo: c}]"):          `3:31: unknown key "foo": remove it`,
		descriptor("key: a, unit: {burst: 5}"):                   `3:21: unknown key "burst": remove it`,
		descriptor("key: a, value: 99999999999999999999"):        `3:21: value is the number 99999999999999999999: write it in quotes, "99999999999999999999"`,
		descriptor("key: a, shadow_mode: tRUE"):                  `3:27: shadow_mode is the text "tRUE": write true or false, without quotes`,
		descriptor("key: a, unit: {metadata: {foo: [1.5, b]}}"):  "",
		descriptor("key: a, unit: [{name: b}], domain: {}"):      "",
		descriptor("key: a, value: -9223372036854775808"):        "",
		descriptor("key: a, shadow_mode: TRUE, quota_mode: Off"): "",
	} {
		_, err := Parse(File{"limits.yaml", []byte(text)})
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != "limits.yaml:"+want) {
			t.Errorf("got %v, want %q\n%s", err, want, text)
		}
	}
}
