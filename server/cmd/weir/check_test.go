package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check runs "weir check" on a file of the given text, which it calls limits.yaml.
func check(t *testing.T, text string, flags ...string) (out, errs string, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	root := newRootCommand()
	root.SetArgs(append([]string{"check", path}, flags...))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	err = root.ExecuteContext(t.Context())
	return stdout.String(), strings.ReplaceAll(stderr.String(), path, "limits.yaml"), err
}

func TestCheckPrintsEachRuleWithItsWorstCase(t *testing.T) {
	t.Parallel()
	out, errs, err := check(t, `
domain: shop
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 100, algorithm: gcra, burst: 20}}
- {key: user, value: white}
- {key: user, value: bad, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: free, rate_limit: {unlimited: true}}
- key: tenant
  shadow_mode: true
  limits:
  - {window: 90s, requests_per_unit: 5, algorithm: sliding_log}
  - {window: 36h, requests_per_unit: 50, algorithm: sliding_window}
- {key: "a*", rate_limit: {window: 2h30m, requests_per_unit: 6}}
`)
	want := `DOMAIN  RULE        LIMIT                                                  WORST CASE         WITHOUT STORE
shop    user        100 per minute burst 20 by gcra                                   119 in any minute  error
shop    user=white  none: allows and counts nothing                                   
shop    user=bad    denies everything                                                 
shop    free        unlimited                                                         
shop    tenant      5 per 1m30s by sliding_log, in shadow: never denies               5 in any 1m30s     error
          and       50 per 36h by sliding_window, in shadow: never denies             99 in any 36h      error
shop    a*          6 per 2h30m by fixed_window                                       12 in any 2h30m    error
`
	if err != nil || trimLines(out) != trimLines(want) {
		t.Errorf("got %v and\n%s\nwant\n%s", err, out, want)
	}
	if want := `limits.yaml:13:9: warning: the * in the key "a*" stands for any text: write it in the value, if that was meant` + "\n"; errs != want {
		t.Errorf("got the warnings %q, want %q", errs, want)
	}
}

func TestCheckSaysWhatALimitDoesWithoutTheStoreAndWhatItsLeaseCosts(t *testing.T) {
	t.Parallel()
	const text = `
domain: shop
instances: 8
descriptors:
- {key: user, rate_limit: {unit: second, requests_per_unit: 5000, algorithm: gcra, lease: {max: 50, refill: 0.2, expiry: 500ms}}}
- {key: slow, rate_limit: {unit: hour, requests_per_unit: 5000, algorithm: gcra, lease: {max: 50}}}
- {key: page, on_store_error: allow, rate_limit: {unit: hour, requests_per_unit: 5000, lease: {max: 50}}}
- {key: login, on_store_error: deny, rate_limit: {unit: minute, requests_per_unit: 5, lease: {max: 5}}}
`
	for _, test := range []struct{ flags, want string }{
		// 8 instances x 26 units, a block of 26 being a twentieth of 5,000 / (8 x 1.2), x 1.2.
		{"", `DOMAIN RULE LIMIT WORST CASE WITHOUT STORE
shop user 5000 per second by gcra, lease 50 9999 in any second, and 250 more by leases 1/8 in each instance
shop slow 5000 per hour by gcra, lease 50 9999 in any hour, and 1 more by leases 1/8 in each instance
shop page 5000 per hour by fixed_window, lease 50 10000 in any hour allow
shop login 5 per minute by fixed_window, lease without effect: too little for 8 instances 10 in any minute deny
`},
		{"--instances=2", `DOMAIN RULE LIMIT WORST CASE WITHOUT STORE
shop user 5000 per second by gcra, lease 50 9999 in any second, and 120 more by leases 1/2 in each instance
shop slow 5000 per hour by gcra, lease 50 9999 in any hour, and 1 more by leases 1/2 in each instance
shop page 5000 per hour by fixed_window, lease 50 10000 in any hour allow
shop login 5 per minute by fixed_window, lease without effect: too little for 2 instances 10 in any minute deny
`},
	} {
		var flags []string
		if test.flags != "" {
			flags = append(flags, test.flags)
		}
		out, errs, err := check(t, text, flags...)
		if err != nil || errs != "" || trimLines(out) != test.want {
			t.Errorf("%s: got %v, %s and\n%s\nwant\n%s", test.flags, err, errs, trimLines(out), test.want)
		}
	}
}

func TestCheckRefusesLocalWithoutInstances(t *testing.T) {
	t.Parallel()
	text := "domain: shop\non_store_error: local\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	if _, errs, err := check(t, text); err == nil || !strings.HasPrefix(errs, "limits.yaml:2:17: on_store_error: local needs to know how many instances") {
		t.Errorf("got %v and %s, want a fault in line 2", err, errs)
	}
	if _, errs, err := check(t, text, "--instances", "3"); err != nil {
		t.Errorf("with --instances 3: got %v and %s, want no fault", err, errs)
	}
	if _, errs, err := check(t, text, "--instances", "0"); err == nil || !strings.Contains(errs, "write a number from 1") {
		t.Errorf("with --instances 0: got %v and %s, want an error that says what to write", err, errs)
	}
}

// trimLines leaves single spaces: how wide columns are is not what a test is for.
func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return strings.Join(lines, "\n")
}

func TestCheckPrintsEveryFaultAndFails(t *testing.T) {
	t.Parallel()
	out, errs, err := check(t, "domain: d\nfoo: 1\ndescriptors: [{key: a, rate_limit: {unit: days, requests_per_unit: 1}}]\n")
	want := `limits.yaml:2:1: unknown key "foo": write algorithm, descriptors, domain, http_check, instances, name or on_store_error
limits.yaml:3:43: unknown unit "days": write day
Error: 2 faults in 1 file
`
	if err == nil || out != "" || errs != want {
		t.Errorf("got the error %v, the output %q and\n%s\nwant no output and\n%s", err, out, errs, want)
	}
}

func TestCheckPrintsJSON(t *testing.T) {
	t.Parallel()
	out, _, err := check(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 5}}]\n", "--json")
	want := checkReport{OK: true, Rules: []checkedRule{{Domain: "d", Rule: "a", Limits: []checkedLimit{
		{Algorithm: "fixed_window", Units: 5, Seconds: 1, WorstCase: 10},
	}, SharedInCompat: true}}}
	wantJSON, _ := json.MarshalIndent(want, "", "  ")
	// An empty list is a list, for those who read it.
	wantText := strings.ReplaceAll(string(wantJSON), "null", "[]") + "\n"
	if err != nil || out != wantText {
		t.Errorf("got %v and %s\nwant %s", err, out, wantText)
	}

	out, _, err = check(t, "domain: d\nfoo: 1\n", "--json")
	var got checkReport
	if json.Unmarshal([]byte(out), &got) != nil || err == nil || got.OK || len(got.Faults) != 1 || got.Faults[0].Line != 2 || got.Faults[0].Column != 1 {
		t.Errorf("got %v and %s, want an error and the fault in line 2", err, out)
	}
}

func TestCheckNamesAPathThatIsNotThere(t *testing.T) {
	t.Parallel()
	root := newRootCommand()
	root.SetArgs([]string{"check", filepath.Join(t.TempDir(), "missing.yaml")})
	root.SetOut(&bytes.Buffer{})
	root.SetErr(&bytes.Buffer{})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("got %v, want an error that names missing.yaml", err)
	}
}

func TestTheExampleConfigurationHasNeitherFaultsNorWarnings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../examples/quickstart/ratelimit.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if out, errs, err := check(t, string(text)); err != nil || errs != "" || out == "" {
		t.Errorf("got %v, %q and the output %q, want the rules alone", err, errs, out)
	}
}

func TestCheckPrintsACandidateBelowItsLimit(t *testing.T) {
	t.Parallel()
	const text = "domain: shop\ndescriptors:\n- {key: user, rate_limit: {unit: minute, requests_per_unit: 9}, candidate: {unit: hour, requests_per_unit: 50, algorithm: gcra}}\n"
	out, errs, err := check(t, text)
	want := `DOMAIN RULE LIMIT WORST CASE WITHOUT STORE
shop user 9 per minute by fixed_window 18 in any minute error
candidate 50 per hour by gcra, only counted 99 in any hour
`
	if err != nil || errs != "" || trimLines(out) != want {
		t.Errorf("got %v, %s and\n%s\nwant\n%s", err, errs, trimLines(out), want)
	}
	out, _, err = check(t, text, "--json")
	var report checkReport
	if err != nil || json.Unmarshal([]byte(out), &report) != nil || report.Rules[0].Limits[0].Candidate == nil || report.Rules[0].Limits[0].Candidate.Units != 50 {
		t.Errorf("got %v and %s, want a candidate of 50", err, out)
	}
}

func TestCheckSaysWhichLimitsHaveTheOriginalsCountersInCompat(t *testing.T) {
	t.Parallel()
	const text = `
domain: d
descriptors:
- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: b, rate_limit: {unit: day, requests_per_unit: 1, algorithm: fixed_window}}
- {key: c, rate_limit: {window: 1500ms, requests_per_unit: 1}}
- {key: d, limits: [{unit: day, requests_per_unit: 1}, {unit: hour, requests_per_unit: 1}]}
- {key: e, rate_limit: {unlimited: true}}
`
	out, _, err := check(t, text, "--json")
	var report checkReport
	if err != nil || json.Unmarshal([]byte(out), &report) != nil || len(report.Rules) != 5 {
		t.Fatalf("got %v and %s, want 5 rules", err, out)
	}
	for _, r := range report.Rules {
		if want := r.Rule == "a"; r.SharedInCompat != want {
			t.Errorf("%s: got %v, want %v", r.Rule, r.SharedInCompat, want)
		}
	}
}

func TestCheckUpstreamGivesTheVerdictOfTheOriginal(t *testing.T) {
	t.Parallel()
	const ours = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1, algorithm: gcra}}]\n"
	if _, errs, err := check(t, ours, "--upstream"); err == nil || !strings.HasPrefix(errs, "limits.yaml:2:70: algorithm is weir's own") {
		t.Errorf("weir's key: got %v and %s, want a fault", err, errs)
	}
	if _, errs, err := check(t, ours); err != nil || errs != "" {
		t.Errorf("weir's key without --upstream: got %v and %s, want none", err, errs)
	}
	const twice = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1, requests_per_unit: 2}}]\n"
	out, errs, err := check(t, twice, "--upstream")
	if err != nil || !strings.Contains(errs, "warning: requests_per_unit is here twice") || !strings.Contains(out, "2 per day") {
		t.Errorf("a key twice: got %v, %s and %s, want a warning and the last", err, errs, out)
	}
	if _, errs, err := check(t, twice); err == nil {
		t.Errorf("a key twice without --upstream: got no error and %s, want a fault", errs)
	}
}

func TestCheckReadsSeveralFilesOfADomainWithMergeDomains(t *testing.T) {
	t.Parallel()
	const text = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	second := filepath.Join(t.TempDir(), "more.yaml")
	if err := os.WriteFile(second, []byte(strings.Replace(text, "key: a", "key: b", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, errs, err := check(t, text, second); err == nil || !strings.Contains(errs, "or set --merge-domains") {
		t.Errorf("got %v and %s, want a fault that says what to do", err, errs)
	}
	out, errs, err := check(t, text, second, "--merge-domains")
	if err != nil || errs != "" || strings.Count(out, "1 per day") != 2 {
		t.Errorf("with --merge-domains: got %v, %s and %s, want two rules", err, errs, out)
	}
}

func TestCheckWithoutAFileSaysWhatToWrite(t *testing.T) {
	t.Parallel()
	if out, status := commandStatus(t, "check"); status != 1 || !strings.Contains(out, "name one or more files") {
		t.Errorf("status %d and %q, want 1 and what to name", status, out)
	}
}

func TestCheckUpstreamReadsEachFileAsTheOriginalDoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"limits.yaml": "domain: a\n", "limits": "domain: a\n", ".hidden": "domain: a\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, status := commandStatus(t, "check", dir); status != 0 {
		t.Errorf("check: status %d, want 0 of one file\n%s", status, out)
	}
	if out, status := commandStatus(t, "check", "--upstream", dir); status != 1 || !strings.Contains(out, `limits.yaml:1:9: domain "a" is in`) {
		t.Errorf("check --upstream: status %d, want 1 and that the domain is there twice\n%s", status, out)
	}
}
