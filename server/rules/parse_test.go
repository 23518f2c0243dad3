package rules

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir.dev/weir"
)

// parse reads one file, which must have no faults.
func parse(t testing.TB, text string) *Config {
	t.Helper()
	c, err := Parse(File{"limits.yaml", []byte(text)})
	if err != nil {
		t.Fatalf("Parse: %v\n%s", err, text)
	}
	return c
}

// descriptor is a file with one descriptor, written in line 3 from column 5.
func descriptor(text string) string { return "domain: d\ndescriptors:\n  - {" + text + "}" }

// limit is a file with one limit: its braces open in line 3, column 26.
func limit(text string) string { return descriptor("key: a, rate_limit: {" + text + "}") }

func TestMessagesAreShortWhateverTheyQuote(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("*", 1<<20)
	for _, text := range []string{
		"domain: *" + strings.Repeat("a", 1<<20),
		descriptor("key: a, value: '" + long + "'}\n  - {key: a, value: '" + long + "b'"),
		strings.Repeat("a", 1<<20) + ": 1",
		"domain: !!" + strings.Repeat("a", 1<<20) + " d",
	} {
		c, err := Parse(File{"limits.yaml", []byte(text)})
		var faults Faults
		errors.As(err, &faults)
		if c != nil {
			faults = c.Warnings
		}
		for _, f := range faults {
			if len(f.Message) > maxMessage+len("…") {
				t.Errorf("%.60s: got a message of %d bytes, want at most %d", text, len(f.Message), maxMessage)
			}
		}
	}
}

func TestEveryFaultIsNamedWithItsPlaceAndWhatToWriteInstead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "1:1: the file is empty: write domain: and descriptors:"},
		{"comments only", "# nothing\n", "1:1: the file is empty: write domain: and descriptors:"},
		{"null", "~", "1:1: the file has no domain: write domain: and the name that the proxy sends"},
		{"not YAML", "domain: d\ndescriptors: [", "3:1: not YAML: while parsing a flow node: did not find expected node content"},
		{"a text", "hello", `1:1: the file is the text "hello": write keys and values below it`},
		{"no domain", "descriptors: []", "1:1: the file has no domain: write domain: and the name that the proxy sends"},
		{"empty domain", "domain: ''", "1:1: domain is empty: write the name that the proxy sends"},
		{"domain a fraction", "domain: 1.0", `1:9: domain is the number 1.0: write it in quotes, "1.0"`},
		{"domain a list", "domain: [d]", "1:9: domain is a list: write a text"},
		{"domain in base64", "domain: !!binary ZA==", "1:9: domain is in base64: write the text itself"},
		{"second document", "domain: d\n---\ndomain: e", "2:1: a second document begins here: a file has one; put it in a file of its own"},
		{"duplicate key", "domain: d\ndomain: e", "2:1: domain is here twice, first in line 1: remove one"},
		{"unknown key", "domain: d\nfoo: 1", `2:1: unknown key "foo": write algorithm, descriptors, domain, http_check, instances, name or on_store_error`},
		{"misspelt key", descriptor("key: a, ratelimit: {}"), `3:14: unknown key "ratelimit": write rate_limit`},
		{"unknown key below one without effect", descriptor("key: a, unit: {seconds: 1}"), `3:21: unknown key "seconds": remove it`},
		{"a list as a key", "domain: d\n? [a]\n: b", "2:3: a key of the file is a list: write a word"},
		{"descriptors a mapping", "domain: d\ndescriptors: {key: a}", "2:14: descriptors is keys and values: write a list, each item after a dash"},
		{"descriptor a text", "domain: d\ndescriptors: [a]", `2:15: a descriptor is the text "a": write keys and values below it`},
		{"no key", descriptor("value: a"), "3:5: the descriptor has no key: write key: and the key of the proxy's descriptor entry"},
		{"empty key", descriptor("key: "), "3:6: key is empty: write the key of the proxy's descriptor entry"},
		{"value a fraction", descriptor("key: a, value: 1.0"), `3:21: value is the number 1.0: write it in quotes, "1.0"`},
		{"flag in quotes", descriptor("key: a, shadow_mode: 'true'"), `3:27: shadow_mode is the text "true": write true or false, without quotes`},
		{"flag a number", descriptor("key: a, shadow_mode: 1"), "3:27: shadow_mode is the number 1: write true or false, without quotes"},
		{"shared without *", descriptor("key: a, value: b, share_threshold: true"), "3:24: share_threshold needs a * in the value, for values that share one count: write one, or leave share_threshold out"},
		{"metadata a text", descriptor("key: a, metadata: b"), `3:24: metadata is the text "b": write keys and values below it`},
		{"twice", "domain: d\ndescriptors:\n- key: a\n- key: a", "4:3: the descriptor a is here twice, first in line 3: write it once, with all limits (limits:)"},
		{"twice as the original joins", "domain: d\ndescriptors:\n- {key: a, value: b}\n- key: a_b", "4:3: the descriptor a_b is here twice, first in line 3: write it once, with all limits (limits:)"},
		{"both", descriptor("key: a, rate_limit: {unit: day, requests_per_unit: 1}, limits: [{unit: day, requests_per_unit: 1}]"), "3:61: rate_limit and limits are both here: write all of the limits in limits"},
		{"no limits", descriptor("key: a, limits: []"), "3:14: limits is empty: write a list of limits, or leave it out"},
		{"limit a number", descriptor("key: a, rate_limit: 5"), "3:26: a limit is the number 5: write keys and values below it"},

		{"no unit", limit("requests_per_unit: 1"), "3:26: the limit has no unit: write unit: and second, minute, hour, day, week, month or year, or window: and a duration such as 30s"},
		{"empty unit", limit("unit: '', requests_per_unit: 1"), `3:33: unknown unit "": write second, minute, hour, day, week, month or year`},
		{"plural", limit("unit: Minutes, requests_per_unit: 1"), `3:33: unknown unit "Minutes": write minute`},
		{"short for one", limit("unit: sec, requests_per_unit: 1"), `3:33: unknown unit "sec": write second`},
		{"short for two", limit("unit: m, requests_per_unit: 1"), `3:33: unknown unit "m": write second, minute, hour, day, week, month or year`},
		{"unit unknown", limit("unit: unknown, requests_per_unit: 1"), `3:33: unknown unit "unknown": write second, minute, hour, day, week, month or year`},
		{"negative", limit("unit: day, requests_per_unit: -5"), "3:57: requests_per_unit is -5, less than nothing: write 0 to 4294967295"},
		{"one too many", limit("unit: day, requests_per_unit: 4294967296"), "3:57: requests_per_unit is 4294967296, more than 4294967295: write at most that"},
		{"past 64 bits", limit("unit: day, requests_per_unit: 99999999999999999999"), "3:57: requests_per_unit is 99999999999999999999, more than 4294967295: write at most that"},
		{"in quotes", limit(`unit: day, requests_per_unit: "5"`), `3:57: requests_per_unit is the text "5": write the number 5 without quotes`},
		{"a fraction", limit("unit: day, requests_per_unit: 1.5"), "3:57: requests_per_unit is 1.5: write a whole number, without a point or an exponent"},
		{"an exponent", limit("unit: day, requests_per_unit: 1e308"), "3:57: requests_per_unit is 1e308: write a whole number, without a point or an exponent"},
		{"not a number", limit("unit: day, requests_per_unit: many"), `3:57: requests_per_unit is the text "many": write a whole number from 0 to 4294967295`},
		{"no octal", limit("unit: day, requests_per_unit: 08"), `3:57: requests_per_unit is "08", which is no whole number: write 0 to 4294967295`},
		{"unlimited with a unit", limit("unlimited: true, unit: day"), "3:44: unit has no meaning beside unlimited: leave one of them out"},
		{"unlimited with a burst", limit("unlimited: true, burst: 5"), "3:44: burst has no meaning beside unlimited: leave one of them out"},
		{"unlimited of several", descriptor("key: a, limits: [{unlimited: true}]"), "3:24: unlimited is one of several limits: leave it out of the list"},
		{"replaces itself", limit("name: x, replaces: [{name: x}], unit: day, requests_per_unit: 1"), `3:54: the limit "x" replaces itself: write the name of another`},
		{"replaces nobody", limit("replaces: [{name: ''}], unit: day, requests_per_unit: 1"), "3:39: an item of replaces has an empty name: write the name of the limit to replace"},
		{"replaces without a name", limit("replaces: [{}], unit: day, requests_per_unit: 1"), "3:38: an item of replaces has no name: write name: and the name of the limit to replace"},

		{"algorithm", limit("algorithm: tokenbucket, unit: day, requests_per_unit: 1"), `3:38: unknown algorithm "tokenbucket": write token_bucket`},
		{"algorithm of the file", "domain: d\nalgorithm: redis", `2:12: unknown algorithm "redis": write fixed_window, sliding_window, sliding_log, token_bucket, leaky_bucket or gcra`},
		{"algorithm in a wrong place", descriptor("key: a, algorithm: gcra"), "3:14: algorithm has no meaning here: write it in rate_limit or in candidate or in the file, beside domain"},
		{"burst by a window", limit("burst: 5, unit: day, requests_per_unit: 1"), "3:27: burst has no meaning by fixed_window: write algorithm: gcra, token_bucket or leaky_bucket, or leave burst out"},
		{"no burst", limit("algorithm: gcra, burst: 0, unit: day, requests_per_unit: 1"), "3:51: a burst of 0 lets nothing pass: write 1 or more, or requests_per_unit: 0 to deny everything"},
		{"negative burst", limit("algorithm: gcra, burst: -1, unit: day, requests_per_unit: 1"), "3:51: burst is -1, less than nothing: write 0 to 4294967296"},
		{"burst of nothing", limit("algorithm: gcra, burst: 5, unit: day, requests_per_unit: 0"), "3:51: a burst of 5 with 0 units, which deny everybody: leave the burst out"},
		{"window and unit", limit("window: 5s, unit: day, requests_per_unit: 1"), "3:27: unit and window are both here: leave one of them out"},
		{"window without a unit", limit("window: 30, requests_per_unit: 1"), "3:35: window is 30 without a unit: write a duration from 1us to 8784h, such as 90s, 15m or 36h"},
		{"window in days", limit("window: 2d, requests_per_unit: 1"), `3:35: window is "2d", which is no duration: write a duration from 1us to 8784h, such as 90s, 15m or 36h`},
		{"rate as a window", limit("window: 1/0s, requests_per_unit: 1"), `3:35: window is "1/0s", which is no duration: write a duration from 1us to 8784h, such as 90s, 15m or 36h`},
		{"negative window", limit("window: -5s, requests_per_unit: 1"), "3:35: a window of -5s is too short: write a duration from 1us to 8784h, such as 90s, 15m or 36h"},
		{"long window", limit("window: 8785h, requests_per_unit: 1"), "3:35: a window of 8785h is too long: write a duration from 1us to 8784h, such as 90s, 15m or 36h"},
		{"fine window", limit("window: 1500ns, requests_per_unit: 1"), "3:35: a window of 1500ns is not in whole microseconds: write 2µs"},
		{"no exact arithmetic", limit("algorithm: gcra, unit: month, requests_per_unit: 4000000007"), "3:76: 4000000007 per 720h0m0s cannot be counted exactly: write 4000000000 per 720h0m0s, which can"},
		{"a long log", limit("algorithm: sliding_log, unit: day, requests_per_unit: 200000"), "3:81: 200000 units by sliding_log, which remembers each: at most 100000; use sliding_window for more"},
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

func TestOnePassNamesEveryFaultOfEveryFile(t *testing.T) {
	t.Parallel()
	c, err := Parse(
		File{"b.yaml", []byte("domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: days, requests_per_unit: -1, burst: x}}\n- {}\n")},
		File{"a.yaml", []byte("domain: d\nfoo: 1\n")},
		File{"c.yaml", []byte("domain: [")},
	)
	want := []string{
		`a.yaml:1:9: domain "d" is in b.yaml already, line 1: write its descriptors in one file, or set --merge-domains`,
		`a.yaml:2:1: unknown key "foo": write algorithm, descriptors, domain, http_check, instances, name or on_store_error`,
		`b.yaml:3:31: unknown unit "days": write day`,
		`b.yaml:3:56: requests_per_unit is -1, less than nothing: write 0 to 4294967295`,
		`b.yaml:3:67: burst is the text "x": write a whole number from 0 to 4294967296`,
		`b.yaml:4:3: the descriptor has no key: write key: and the key of the proxy's descriptor entry`,
		`c.yaml:2:1: not YAML: while parsing a flow node: did not find expected node content`,
	}
	if c != nil || err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

func TestWhatTheOriginalAcceptsIsAcceptedWithAWarning(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"no requests_per_unit", limit("unit: day"), "3:26: without requests_per_unit the limit is 0 and denies everything: write requests_per_unit: 0 if that is meant"},
		{"null requests", limit("unit: day, requests_per_unit: "), "3:26: without requests_per_unit the limit is 0 and denies everything: write requests_per_unit: 0 if that is meant"},
		{"octal", limit("unit: day, requests_per_unit: 010"), "3:57: requests_per_unit: 010 begins with 0 and so is octal: it means 8"},
		{"unknown replaces", limit("unit: day, requests_per_unit: 1, replaces: [{name: x}]"), `3:78: no limit of this domain has the name "x": this replaces nothing`},
		{"replaces two", "domain: d\ndescriptors:\n- key: a\n  limits: [{name: x, unit: day, requests_per_unit: 1}, {name: x, unit: hour, requests_per_unit: 1}]\n- {key: b, rate_limit: {unlimited: true, replaces: [{name: x}]}}", `4:63: another limit of this domain has the name "x", in line 4: answers and replaces cannot tell them apart
limits.yaml:5:60: 2 limits of this domain have the name "x": this replaces each of them`},
		{"shadowed wildcard", "domain: d\ndescriptors:\n- {key: user, value: svc-*}\n- {key: user, value: svc-b*}", "4:4: nothing reaches user=svc-b*: user=svc-* before it takes all of its values; the first wildcard in the file goes"},
		{"shadow in rate_limit", limit("unit: day, requests_per_unit: 1, shadow_mode: true"), "3:60: shadow_mode has no effect here: write it in the descriptor, beside key"},
		{"rate_limit at root", "domain: d\nrate_limit: {unit: bad}", "2:1: rate_limit has no effect here: write it in the descriptor, beside key"},
		{"shadow without a limit", descriptor("key: a, shadow_mode: true"), "3:14: shadow_mode has no effect without a rate_limit beside it"},
		{"* in the key", descriptor("key: a*"), `3:11: the * in the key "a*" stands for any text: write it in the value, if that was meant`},
		{"unlimited with requests", limit("unlimited: true, requests_per_unit: 5"), "3:44: requests_per_unit has no effect beside unlimited: leave one of them out"},
		{"unlimited with a bad unit", limit("unlimited: true, unit: x"), "3:44: unit has no effect beside unlimited: leave one of them out"},
		{"number as a value", descriptor("key: a, value: 123"), `3:21: value is taken as the text "123": write it in quotes`},
		{"bool as a value", descriptor("key: a, value: true"), `3:21: value is taken as the text "true": write it in quotes`},
		{"merge over a key", "domain: d\ndescriptors:\n- &a {key: a}\n- {key: b, value: c, <<: *a}", "4:22: << takes the place of key in line 4: write << first"},
		{"metadata that no answer carries", descriptor("key: a, metadata: {a: .nan}"), `3:28: an answer cannot carry this: it is taken as the text ".nan"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, w := range parse(t, test.text).Warnings {
				got = append(got, w.String())
			}
			if want := strings.Split("limits.yaml:"+test.want, "\n"); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %q\nwant %q\n%s", got, want, test.text)
			}
		})
	}
}

func TestWhatTheOriginalAcceptsSilentlyAndRightlyHasNoWarning(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"name: xds\ndomain: d",
		"domain: d\ndescriptors:",
		"%YAML 1.1\n---\ndomain: d\n...\n",
		"{\"domain\": \"d\", \"descriptors\": [{\"key\": \"a\", \"rate_limit\": null}]}",
		limit("unit: DAY, requests_per_unit: 0"),
		limit("unit: Week, requests_per_unit: 0x10"),
		limit("unit: day, requests_per_unit: 1_000"),
		limit("unit: day, requests_per_unit: +5"),
		limit("unlimited: yes"),
		limit("unlimited: true, unit: '', requests_per_unit: 0, name: '', replaces: []"),
		descriptor("key: a, value: '1.0', shadow_mode: false, descriptors: []"),
		descriptor("key: yes, value: 2026-11-30"),
		descriptor("key: a, metadata: "),
	} {
		if w := parse(t, text).Warnings; len(w) > 0 {
			t.Errorf("got warnings %v\n%s", w, text)
		}
	}
}

func TestUnitsAndWindowsMeanWhatTheySay(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, test := range []struct {
		text       string
		want       weir.Limit
		unit       Unit
		multiplier uint32
	}{
		{"unit: second", weir.PerSecond(7).By(weir.FixedWindow), UnitSecond, 1},
		{"unit: MINUTE", weir.PerMinute(7).By(weir.FixedWindow), UnitMinute, 1},
		{"unit: hour", weir.PerHour(7).By(weir.FixedWindow), UnitHour, 1},
		{"unit: day", weir.Per(7, day).By(weir.FixedWindow), UnitDay, 1},
		{"unit: week", weir.Per(7, 7*day).By(weir.FixedWindow), UnitWeek, 1},
		{"unit: month", weir.Per(7, 30*day).By(weir.FixedWindow), UnitMonth, 1},
		{"unit: year", weir.Per(7, 365*day).By(weir.FixedWindow), UnitYear, 1},
		{"window: 30s", weir.Per(7, 30*time.Second).By(weir.FixedWindow), UnitSecond, 30},
		{"window: 90s", weir.Per(7, 90*time.Second).By(weir.FixedWindow), UnitSecond, 90},
		{"window: 2m", weir.Per(7, 2*time.Minute).By(weir.FixedWindow), UnitMinute, 2},
		{"window: 8784h", weir.Per(7, weir.MaxPeriod).By(weir.FixedWindow), UnitDay, 366},
		{"window: 1500ms", weir.Per(7, 1500*time.Millisecond).By(weir.FixedWindow), UnitUnknown, 0},
		{"window: 1us", weir.Per(7, time.Microsecond).By(weir.FixedWindow), UnitUnknown, 0},
		{"unit: day, algorithm: sliding_window", weir.Per(7, day).By(weir.SlidingWindow), UnitDay, 1},
		{"unit: day, algorithm: sliding_log", weir.Per(7, day).By(weir.SlidingLog), UnitDay, 1},
		{"unit: day, algorithm: leaky_bucket", weir.Per(7, day).By(weir.LeakyBucket), UnitDay, 1},
		{"unit: day, algorithm: gcra, burst: 3", weir.Per(7, day).Burst(3), UnitDay, 1},
		{"unit: day, algorithm: token_bucket", weir.Per(7, day), UnitDay, 1},
	} {
		got := parse(t, limit("requests_per_unit: 7, "+test.text)).Rules()[0].Limits[0]
		if got.Limit != test.want || got.RequestsPerUnit != 7 || got.Unit != test.unit || got.Multiplier != test.multiplier {
			t.Errorf("%s: got %v, %d per %d %v; want %v, 7 per %d %v",
				test.text, got.Limit, got.RequestsPerUnit, got.Multiplier, got.Unit, test.want, test.multiplier, test.unit)
		}
	}
}

func TestTheFilesAlgorithmIsTheDefaultOfItsLimits(t *testing.T) {
	t.Parallel()
	c := parse(t, `
domain: d
algorithm: gcra
descriptors:
- {key: a, rate_limit: {unit: second, requests_per_unit: 5, burst: 10}}
- {key: b, rate_limit: {unit: second, requests_per_unit: 5, algorithm: fixed_window}}
`)
	want := []weir.Limit{weir.PerSecond(5).Burst(10), weir.PerSecond(5).By(weir.FixedWindow)}
	for i, r := range c.Rules() {
		if got := r.Limits[0].Limit; got != want[i] {
			t.Errorf("%s: got %v, want %v", r.Path, got, want[i])
		}
	}
}

func TestARuleHasAllThatTheFileSays(t *testing.T) {
	t.Parallel()
	c := parse(t, `
domain: d
descriptors:
- key: route
  value: api*
  share_threshold: true
  descriptors:
  - key: user
    value_to_metric: true
    detailed_metric: true
    shadow_mode: true
    quota_mode: true
    metadata: {tier: gold, weight: 2.5, n: 3, on: true, list: [a, ~], day: 2026-11-30}
    limits:
    - {name: second, unit: second, requests_per_unit: 5, replaces: [{name: other}]}
    - {name: day, unit: day, requests_per_unit: 50}
- key: other
  rate_limit: {name: other, unit: hour, requests_per_unit: 1}
`)
	want := &Rule{
		Domain: "d",
		Path:   "route=api*|user",
		Levels: []Entry{{"route", "api*"}, {"user", ""}},
		Limits: []Limit{
			{Limit: weir.PerSecond(5).By(weir.FixedWindow), StateName: "d|route=api*|user", Name: "second", RequestsPerUnit: 5, Unit: UnitSecond, Multiplier: 1, ByDefault: true},
			{Limit: weir.Per(50, 24*time.Hour).By(weir.FixedWindow), StateName: "d#2|route=api*|user", Name: "day", RequestsPerUnit: 50, Unit: UnitDay, Multiplier: 1, ByDefault: true},
		},
		Shadow:         true,
		Quota:          true,
		Replaces:       []string{"other"},
		DetailedMetric: true,
		Metadata: map[string]any{
			"tier": "gold", "weight": 2.5, "n": 3, "on": true, "list": []any{"a", nil}, "day": "2026-11-30",
		},
		ValueToMetric: []bool{false, true},
		Shared:        []string{"api*", ""},
	}
	if got := c.Rules()[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestRulesAreInTheOrderOfTheFiles(t *testing.T) {
	t.Parallel()
	c, err := Parse(
		File{"2.yaml", []byte("domain: two\ndescriptors: [{key: b, descriptors: [{key: c}, {key: a}]}, {key: a, rate_limit: {unlimited: true}}]")},
		File{"1.yaml", []byte("domain: one\ndescriptors: [{key: z}]")},
	)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range c.Rules() {
		got = append(got, r.Domain+":"+r.Path)
	}
	if want := []string{"two:b|c", "two:b|a", "two:a", "one:z"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := c.Domains(), []string{"two", "one"}; !reflect.DeepEqual(got, want) || !c.Has("one") || c.Has("three") {
		t.Errorf("got the domains %q, want %q", got, want)
	}
}

func TestAliasesAndMergesAreWrittenOut(t *testing.T) {
	t.Parallel()
	c := parse(t, `
domain: d
descriptors:
- &a
  key: a
  rate_limit: &limit {unit: minute, requests_per_unit: 5}
- <<: *a
  key: b
- key: c
  rate_limit: {<<: [*limit, {unit: day}], algorithm: gcra}
- key: d
  rate_limit: *limit
`)
	want := map[string]weir.Limit{
		"a": weir.PerMinute(5).By(weir.FixedWindow), "b": weir.PerMinute(5).By(weir.FixedWindow),
		"c": weir.PerMinute(5), "d": weir.PerMinute(5).By(weir.FixedWindow),
	}
	for _, r := range c.Rules() {
		if got := r.Limits[0].Limit; got != want[r.Path] {
			t.Errorf("%s: got %v, want %v", r.Path, got, want[r.Path])
		}
	}
	if len(c.Rules()) != len(want) {
		t.Errorf("got %d rules, want %d", len(c.Rules()), len(want))
	}
}

func TestSmallFilesThatMeanHugeOnesAreRefused(t *testing.T) {
	t.Parallel()
	bomb := "name: &a0 [1, 1]\n"
	for i := range 60 {
		bomb += fmt.Sprintf("k%d: &a%d [*a%d, *a%d]\n", i, i+1, i, i)
	}
	for _, test := range []struct{ name, text, want string }{
		{"aliases of aliases", bomb, "the aliases repeat more than 100000 values"},
		{"an alias of itself", "domain: d\ndescriptors: &a [{key: a, descriptors: *a}]", "*a is inside of what it repeats"},
		{"deep descriptors", "domain: d\ndescriptors: " + strings.Repeat("[{key: a, descriptors: ", 101) + strings.Repeat("}]", 101), "descriptors nest deeper than 100 levels"},
		{"deep metadata", descriptor("key: a, metadata: {a: " + strings.Repeat("[", 30) + strings.Repeat("]", 30) + "}"), "metadata nests deeper than 20 levels"},
		{"deep YAML", "domain: " + strings.Repeat("[", 20000), "not YAML"},
		{"a large file", "domain: d\n#" + strings.Repeat(" ", MaxFileBytes), "the file has 4194315 bytes, more than 4194304"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if _, err := Parse(File{"limits.yaml", []byte(test.text)}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got the error %.200v, want one that says %q", err, test.want)
			}
		})
	}
}

func TestOfManyFaultsTheFirstThousandAreTold(t *testing.T) {
	t.Parallel()
	_, err := Parse(File{"limits.yaml", []byte("domain: d\ndescriptors:\n" + strings.Repeat("- {}\n", 5000))})
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 1001 {
		t.Fatalf("got %d faults, want 1001", len(faults))
	}
	if got, want := faults[1000].Message, "there is more than this: only 1000 are told"; got != want {
		t.Errorf("the last says %q, want %q", got, want)
	}
}

func TestNoFilesAreAnEmptyConfiguration(t *testing.T) {
	t.Parallel()
	c, err := Parse()
	if err != nil || len(c.Rules()) != 0 || c.Match("d", nil) != nil {
		t.Errorf("got %v, %v, want an empty configuration", c, err)
	}
}
