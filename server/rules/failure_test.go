package rules

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestTheNearestPolicyCounts(t *testing.T) {
	t.Parallel()
	c := parse(t, `
domain: d
on_store_error: deny
instances: 3
descriptors:
- {key: file, rate_limit: {unit: day, requests_per_unit: 1}}
- key: descriptor
  on_store_error: allow
  rate_limit: {unit: day, requests_per_unit: 1}
  descriptors:
  - {key: below, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: below, value: own, on_store_error: local, rate_limit: {unit: day, requests_per_unit: 1}}
- key: limit
  on_store_error: allow
  limits:
  - {unit: hour, requests_per_unit: 1, on_store_error: local}
  - {unit: day, requests_per_unit: 1}
`)
	got := map[string]string{}
	for _, r := range c.Rules() {
		for i := range r.Limits {
			got[r.Limits[i].StateName] = fmt.Sprint(r.Limits[i].Fallback(0), " ", r.Limits[i].InstancesOf(0))
		}
	}
	want := map[string]string{
		"d|file": "deny 3", "d|descriptor": "allow 3", "d|descriptor|below": "allow 3", "d|descriptor|below=own": "local 3",
		"d|limit": "local 3", "d#2|limit": "allow 3",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	r, err := c.Override("d", []Entry{{"x", "y"}}, Override{1, UnitDay})
	if err != nil || r.Limits[0].OnStoreError != Deny || r.Limits[0].Instances != 3 {
		t.Errorf("a request's own limit: got %+v, %v, want the file's policy and instances", r, err)
	}
}

func TestLocalIsTheDefaultWhereTheInstancesAreKnown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		policy        Policy
		file, service int
		want          string
	}{
		{Unsaid, 0, 0, "unsaid 0"}, {Unsaid, 4, 0, "local 4"}, {Unsaid, 0, 5, "local 5"},
		{Local, 4, 0, "local 4"}, {Local, 4, 5, "local 5"}, {Local, 0, 0, "local 0"},
		{Allow, 4, 5, "allow 5"}, {Deny, 0, 5, "deny 5"},
	} {
		l := Limit{OnStoreError: test.policy, Instances: test.file}
		if got := fmt.Sprint(l.Fallback(test.service), " ", l.InstancesOf(test.service)); got != test.want {
			t.Errorf("%v with %d instances in the file and %d of the service: got %s, want %s", test.policy, test.file, test.service, got, test.want)
		}
	}
}

func TestLocalWithoutInstancesIsAFaultThatSaysWhatToWrite(t *testing.T) {
	t.Parallel()
	const unknown = "on_store_error: local needs to know how many instances of the service share the limit: " + writeInstances
	for _, test := range []struct {
		name, text string
		service    int
		want       string
	}{
		{"at the limit", limit("unit: day, requests_per_unit: 1, on_store_error: local"), 0, "limits.yaml:3:76: " + unknown},
		{"at the file, told once for all limits", "domain: d\non_store_error: local\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1}}", 0, "limits.yaml:2:17: " + unknown},
		{"known to the service", limit("unit: day, requests_per_unit: 1, on_store_error: local"), 2, ""},
		{"known to the file", "instances: 2\n" + limit("unit: day, requests_per_unit: 1, on_store_error: local"), 0, ""},
		{"a lease", limit("unit: day, requests_per_unit: 9, lease: {max: 5}"), 0, "limits.yaml:3:26: a lease needs to know how many instances of the service share the limit: " + writeInstances},
		{"a lease of a denied limit", limit("unit: day, requests_per_unit: 9, on_store_error: deny, lease: {max: 5}"), 2, ""},
		{"not local", limit("unit: day, requests_per_unit: 1"), 0, ""},
		{"too many for a year", limit("algorithm: gcra, unit: year, requests_per_unit: 1"), 50, "limits.yaml:3:26: the limit cannot be shared by so many instances ("},
		{"too many, but denied", limit("algorithm: gcra, unit: year, requests_per_unit: 1, on_store_error: deny"), 50, ""},
	} {
		err := parse(t, test.text).CheckInstances(test.service)
		var faults Faults
		if test.want == "" && err != nil {
			t.Errorf("%s: got %v, want no fault", test.name, err)
		}
		if test.want != "" && (!errors.As(err, &faults) || len(faults) != 1 || !strings.HasPrefix(err.Error(), test.want)) {
			t.Errorf("%s:\ngot  %v\nwant %s", test.name, err, test.want)
		}
	}
}

func TestALeaseIsReadWithItsDefaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		want Lease
	}{
		{"max: 50, refill: 0.3, expiry: 100ms", Lease{50, 0.3, 100 * time.Millisecond}},
		{"max: 100", Lease{100, 0.2, 500 * time.Millisecond}},
		{"max: 1, refill: 1e-2, expiry: 1s", Lease{1, 0.01, time.Second}},
	} {
		c := parse(t, limit("unit: minute, requests_per_unit: 100, lease: {"+test.text+"}"))
		if got := c.Rules()[0].Limits[0].Lease; got != test.want {
			t.Errorf("lease: {%s}: got %+v, want %+v", test.text, got, test.want)
		}
	}
	for _, text := range []string{"off", "false", "~", ""} {
		c := parse(t, limit("unit: minute, requests_per_unit: 100, algorithm: sliding_log, lease: "+text))
		if got := c.Rules()[0].Limits[0].Lease; got != (Lease{}) || len(c.Warnings) > 0 {
			t.Errorf("lease: %s: got %+v and the warnings %v, want none", text, got, c.Warnings)
		}
	}
}

func TestFaultsOfWhatHappensWithoutTheStore(t *testing.T) {
	t.Parallel()
	leased := func(text string) string {
		return limit("unit: day, requests_per_unit: 9, lease: " + text)
	}
	for _, test := range []struct{ name, text, want string }{
		{"unknown policy", "on_store_error: open\n" + descriptor("key: a"), `1:17: unknown policy "open": write local, allow or deny`},
		{"misspelt policy", limit("unit: day, requests_per_unit: 1, on_store_error: allowed"), `3:76: unknown policy "allowed": write allow`},
		{"unsaid is no policy", descriptor("key: a, on_store_error: unsaid"), `3:30: unknown policy "unsaid": write local, allow or deny`},
		{"policy a list", descriptor("key: a, on_store_error: [deny]"), "3:30: on_store_error is a list: write a text"},
		{"0 instances", "instances: 0\n" + descriptor("key: a"), "1:12: 0 instances share no limit: write how many instances of the service run, 1 or more"},
		{"instances below 0", "instances: -2\n" + descriptor("key: a"), "1:12: instances is -2, less than nothing: write 0 to 1000000"},
		{"too many instances", "instances: 2000000\n" + descriptor("key: a"), "1:12: instances is 2000000, more than 1000000: write at most that"},
		{"instances elsewhere", descriptor("key: a, instances: 3"), "3:14: instances has no meaning here: write it in the file, beside domain"},
		{"policy of an unlimited rule", limit("unlimited: true, on_store_error: deny"), "3:44: on_store_error has no meaning beside unlimited: leave one of them out"},
		{"lease of an unlimited rule", limit("unlimited: true, lease: {max: 5}"), "3:44: lease has no meaning beside unlimited: leave one of them out"},
		{"lease on", leased("on"), `3:67: lease is the text "on": write {max: 50, refill: 0.2, expiry: 500ms}, or off`},
		{"lease a number", leased("50"), "3:67: lease is the number 50: write {max: 50, refill: 0.2, expiry: 500ms}, or off"},
		{"lease without max", leased("{refill: 0.5}"), "3:60: the lease has no max: write max: and how many units an instance of the service may take ahead"},
		{"lease of 0", leased("{max: 0}"), "3:73: a lease of 0 units takes nothing ahead: write 1 or more, or lease: off"},
		{"lease above the limit", leased("{max: 10}"), "3:73: a lease of 10 units is more than the limit lets pass at once: write at most 9"},
		{"lease above the burst", limit("unit: day, requests_per_unit: 9, algorithm: gcra, burst: 4, lease: {max: 5}"), "3:100: a lease of 5 units is more than the limit lets pass at once: write at most 4"},
		{"lease of nothing", limit("unit: day, requests_per_unit: 0, lease: {max: 1}"), "3:73: a lease of a limit of 0, which denies everything: write lease: off"},
		{"lease of a log", limit("unit: day, requests_per_unit: 9, algorithm: sliding_log, lease: {max: 5}"), "3:84: a lease has no meaning by sliding_log, whose promise it would break: write algorithm: gcra, fixed_window or sliding_window, or lease: off"},
		{"lease of a queue", limit("unit: day, requests_per_unit: 9, algorithm: leaky_bucket, lease: {max: 5}"), "3:85: a lease has no meaning by leaky_bucket, whose promise it would break: write algorithm: gcra, fixed_window or sliding_window, or lease: off"},
		{"refill of 1", leased("{max: 5, refill: 1}"), "3:84: refill is the number 1: write a share above 0 and below 1, such as 0.2"},
		{"refill of 0", leased("{max: 5, refill: 0}"), "3:84: refill is the number 0: write a share above 0 and below 1, such as 0.2"},
		{"refill no number", leased("{max: 5, refill: .nan}"), "3:84: refill is the number .nan: write a share above 0 and below 1, such as 0.2"},
		{"expiry of 0", leased("{max: 5, expiry: 0}"), "3:84: an expiry of 0 is too short: write a duration from 1ms to 1s, such as 500ms"},
		{"expiry without a unit", leased("{max: 5, expiry: 500}"), "3:84: expiry is 500 without a unit: write a duration from 1ms to 1s, such as 500ms"},
		{"long expiry", leased("{max: 5, expiry: 1h}"), "3:84: an expiry of 1h is too long: write a duration from 1ms to 1s, such as 500ms"},
		{"unknown key of a lease", leased("{max: 5, ttl: 1s}"), `3:76: unknown key "ttl": write expiry, max or refill`},
		{"max elsewhere", limit("unit: day, requests_per_unit: 9, max: 5"), "3:60: max has no meaning here: write it in lease"},
	} {
		_, err := Parse(File{"limits.yaml", []byte(test.text)})
		if want := "limits.yaml:" + test.want; err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", test.name, err, want)
		}
	}
}

func TestAPolicyWithoutALimitIsAWarning(t *testing.T) {
	t.Parallel()
	c := parse(t, "domain: d\ndescriptors:\n- {key: a, on_store_error: deny}\n- {key: b, on_store_error: deny, descriptors: [{key: c, rate_limit: {unit: day, requests_per_unit: 1}}]}")
	want := "limits.yaml:3:12: on_store_error has no effect without a rate_limit beside or below it"
	if len(c.Warnings) != 1 || c.Warnings[0].String() != want {
		t.Errorf("got  %v\nwant %s", c.Warnings, want)
	}
}
