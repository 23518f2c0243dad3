package preview

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
	"weir.dev/weir/server/rules"
)

const site = `
domain: site
descriptors:
- key: client
  rate_limit: {unit: minute, requests_per_unit: 2}
- key: client
  value: trusted
  rate_limit: {unlimited: true}
- key: client
  value: candidate
  shadow_mode: true
  rate_limit: {unit: minute, requests_per_unit: 1, algorithm: gcra}
`

func newMemory(t *testing.T) *memstore.Store {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func parse(t *testing.T, files ...string) *rules.Config {
	t.Helper()
	parsed := make([]rules.File, len(files))
	for i, text := range files {
		parsed[i] = rules.File{Name: fmt.Sprintf("rules%d.yaml", i), Data: []byte(text)}
	}
	config, err := rules.Parse(parsed...)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func replayText(t *testing.T, config, log string) *Report {
	t.Helper()
	l := newLog(t, "client={addr}")
	if err := l.Read("a.log", strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	report, err := Replay{Config: parse(t, config), Domain: "site", Store: newMemory(t)}.Run(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestReportHasTheFormThatProgramsRead(t *testing.T) {
	t.Parallel()
	log := line("b", 1) + line("a", 2) + line("b", 3) + line("b", 4) + line("b", 5) + line("a", 6) + line("a", 7) +
		line("trusted", 8) + line("candidate", 9) + line("candidate", 10) + "junk\n"
	got, err := json.Marshal(replayText(t, site, log))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"requests":10,"skipped":1,"rules":[` +
		`{"domain":"site","rule":"client","algorithm":"fixed_window","allowed":4,"denied":3,"keys":2,"keys_denied":2,"top":[{"key":"b","denied":2},{"key":"a","denied":1}]},` +
		`{"domain":"site","rule":"client=trusted","algorithm":"unlimited","allowed":1,"denied":0,"keys":1,"keys_denied":0,"top":[]},` +
		`{"domain":"site","rule":"client=candidate","algorithm":"gcra","allowed":1,"denied":1,"keys":1,"keys_denied":1,"top":[{"key":"candidate","denied":1}]}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSeveralLimitsOfARuleDenyTogether(t *testing.T) {
	t.Parallel()
	report := replayText(t, `
domain: site
descriptors:
- key: client
  limits:
  - {unit: second, requests_per_unit: 1}
  - {unit: hour, requests_per_unit: 2, algorithm: sliding_log}
`, line("a", 1)+line("a", 1)+line("a", 2)+line("a", 3))
	rule := report.Rules[0]
	if rule.Allowed != 2 || rule.Denied != 2 || rule.Algorithm != "fixed_window+sliding_log" {
		t.Errorf("got %d allowed, %d denied by %s; want 2, 2 by fixed_window+sliding_log", rule.Allowed, rule.Denied, rule.Algorithm)
	}
}

func TestWorstMinuteIsTheOneWithTheMostDenials(t *testing.T) {
	t.Parallel()
	at := func(clock string) string {
		return "a - - [17/May/2015:" + clock + " +0000] \"GET / HTTP/1.1\" 200 5\n"
	}
	log := strings.Repeat(at("10:05:59"), 4) + strings.Repeat(at("10:06:00"), 5) + strings.Repeat(at("10:07:00"), 5)
	rule := replayText(t, site, log).Rules[0]
	if got := rule.WorstMinute.Format(clock); got != "2015-05-17 10:06" || rule.WorstDenied != 3 {
		t.Errorf("got %s with %d denials; want 2015-05-17 10:06 with 3", got, rule.WorstDenied)
	}
}

func TestRequestsWithoutARuleAreTold(t *testing.T) {
	t.Parallel()
	report := replayText(t, "domain: site\ndescriptors:\n- key: client\n  value: a\n  rate_limit: {unit: day, requests_per_unit: 0}\n", line("a", 1)+line("b", 2))
	if report.Unmatched != 1 || report.Rules[0].Denied != 1 {
		t.Errorf("got %d unmatched, %d denied; want 1, 1", report.Unmatched, report.Rules[0].Denied)
	}
	var b bytes.Buffer
	if err := report.WriteText(&b); err != nil || !strings.Contains(b.String(), "1 request matched no rule and would have passed.") {
		t.Errorf("got %v and\n%s", err, &b)
	}
}

func TestUnknownDomainAndEmptyLogAreErrors(t *testing.T) {
	t.Parallel()
	empty := newLog(t, "client={addr}")
	for domain, want := range map[string]string{"sit": `no rules for domain "sit": the configuration has ["site"]`, "site": "the logs are empty"} {
		_, err := Replay{Config: parse(t, site), Domain: domain, Store: newMemory(t)}.Run(t.Context(), empty)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("domain %q: got %v; want %q", domain, err, want)
		}
	}
}

// brokenStore is a store that cannot decide; with cause, it says so in the decision.
type brokenStore struct{ cause bool }

var errBroken = errors.New("broken")

func (s brokenStore) TakeAt(_ context.Context, _ int64, _ []weir.Ask, decisions []weir.Decision) error {
	if !s.cause {
		return errBroken
	}
	for i := range decisions {
		decisions[i] = weir.Decision{Cause: errBroken}
	}
	return nil
}

func (brokenStore) Forget(context.Context, string, weir.Key) error { return nil }

func TestStoreThatCannotDecideEndsTheReplay(t *testing.T) {
	t.Parallel()
	for _, store := range []Store{brokenStore{}, brokenStore{cause: true}} {
		log := newLog(t, "client={addr}")
		if err := log.Read("a.log", strings.NewReader(line("a", 1))); err != nil {
			t.Fatal(err)
		}
		report, err := Replay{Config: parse(t, site), Domain: "site", Store: store}.Run(t.Context(), log)
		if !errors.Is(err, errBroken) || report != nil {
			t.Errorf("got %v, %v; want no report and %v", report, err, errBroken)
		}
	}
}

func TestTextOfALogCannotDisturbATerminal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain.text":                       "plain.text",
		"\x1b[2J":                          `"\x1b[2J"`,
		"a\tb":                             `"a\tb"`,
		"\xff":                             `"\xff"`,
		"caf\u00e9":                        "caf\u00e9",
		"\u202eabc":                        `"\u202eabc"`,
		strings.Repeat("x", 100):           strings.Repeat("x", shownKey) + "...",
		strings.Repeat("\u00e9", 50) + "y": strings.Repeat("\u00e9", 32) + "...",
		"x" + strings.Repeat("\u00e9", 50): "x" + strings.Repeat("\u00e9", 31) + "...",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestSharesAreNeverRoundedToNoneOrAll(t *testing.T) {
	t.Parallel()
	for want, c := range map[string][2]int{"0%": {0, 0}, "100%": {7, 7}, "<0.1%": {1, 100_000}, ">99.9%": {99_999, 100_000}, "10.1%": {1013, 10000}} {
		if got := percent(c[0], c[1]); got != want {
			t.Errorf("%d of %d: got %s, want %s", c[0], c[1], got, want)
		}
	}
}
