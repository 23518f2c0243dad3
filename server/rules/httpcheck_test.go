package rules

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// checkFile is a file with an http_check of these lines, and rules for what it asks.
func checkFile(lines ...string) string {
	return "domain: web\nhttp_check:\n  " + strings.Join(lines, "\n  ") + `
descriptors:
- key: addr
  rate_limit: {unit: minute, requests_per_unit: 5}
- key: host
  descriptors:
  - key: path
    value: /export/*
    rate_limit: {unit: minute, requests_per_unit: 5}
`
}

func TestHTTPCheckSaysWhatAGatewayAsks(t *testing.T) {
	t.Parallel()
	c, err := Parse(File{"web.yaml", []byte(checkFile(
		"trusted_proxies: [10.0.0.1, 192.0.2.0/24]",
		"denied_status: 403",
		"undecided_status: 200",
		"descriptors:",
		"- addr={addr}",
		`- ["host={host}", "path={method} {path}={header.x-api-key}."]`,
		`- "addr={addr/48}"`,
	))})
	if err != nil {
		t.Fatal(err)
	}
	got := c.HTTPCheck()
	want := [][]CheckEntry{
		{{"addr", []CheckPart{{Field: CheckAddr, Bits: 64}}}},
		{{"host", []CheckPart{{Field: CheckHost}}}, {"path", []CheckPart{
			{Field: CheckMethod}, {Text: " "}, {Field: CheckPath}, {Text: "="}, {Field: CheckHeader, Header: "X-Api-Key"}, {Text: "."}}}},
		{{"addr", []CheckPart{{Field: CheckAddr, Bits: 48}}}},
	}
	if !reflect.DeepEqual(got.Descriptors, want) {
		t.Errorf("descriptors: got %+v, want %+v", got.Descriptors, want)
	}
	if got.Domain != "web" || got.DeniedStatus != 403 || got.UndecidedStatus != 200 {
		t.Errorf("got domain %q, statuses %d and %d; want web, 403 and 200", got.Domain, got.DeniedStatus, got.UndecidedStatus)
	}
	for addr, want := range map[string]bool{"10.0.0.1": true, "192.0.2.77": true, "10.0.0.2": false} {
		if got.Proxies.Trusts(netip.MustParseAddr(addr)) != want {
			t.Errorf("%s: trusted %t, want %t", addr, !want, want)
		}
	}
	if len(c.Warnings) > 0 {
		t.Errorf("got the warnings %v, want none", c.Warnings)
	}
}

func TestHTTPCheckAnswers429And503UnlessItSaysOtherwise(t *testing.T) {
	t.Parallel()
	c, err := Parse(File{"web.yaml", []byte(checkFile(`descriptors: ["addr={host}"]`))}, File{"other.yaml", []byte("domain: d")})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.HTTPCheck(); got.DeniedStatus != 429 || got.UndecidedStatus != 503 {
		t.Errorf("got %d and %d, want 429 and 503", got.DeniedStatus, got.UndecidedStatus)
	}
	if c, err = Parse(File{"other.yaml", []byte("domain: d")}); err != nil || c.HTTPCheck() != nil {
		t.Errorf("without http_check: got %v, %v; want none", c.HTTPCheck(), err)
	}
}

func TestEveryFaultOfAnHTTPCheckIsNamedWithItsPlace(t *testing.T) {
	t.Parallel()
	const proxies = "trusted_proxies: [10.0.0.1]"
	for _, tt := range []struct{ lines, want string }{
		{"", "web.yaml:2:1: http_check has no descriptors"},
		{"5", "web.yaml:3:3: http_check is the number 5"},
		{"descriptors:", "web.yaml:3:3: descriptors has 0 items: write 1 to 100"},
		{"descriptors: x", "descriptors is the text \"x\""},
		{"descriptors: [[]]", "web.yaml:3:17: the descriptor has 0 entries"},
		{"descriptors: [5]", "an entry is the number 5: write a text such as \"addr={addr}\""},
		{"descriptors: [{key: addr}]", "an entry is keys and values"},
		{"descriptors: [~]", "an entry is empty"},
		{"descriptors: [addr]", "the entry \"addr\" has no \"=\""},
		{`descriptors: ["{addr}"]`, "has no \"=\""},
		{`descriptors: ["={host}"]`, "lacks its key or its value"},
		{`descriptors: ["host="]`, "lacks its key or its value"},
		{`descriptors: ["{host}=a"]`, "brace in its key"},
		{`descriptors: ["host={hots}"]`, "unknown field {hots}: write {addr}, {host}"},
		{`descriptors: ["host={query}"]`, "unknown field {query}"},
		{`descriptors: ["host={}"]`, "unknown field {}"},
		{`descriptors: ["host={host"]`, "a \"{\" is not closed"},
		{`descriptors: ["host=host}"]`, "a \"}\" closes nothing"},
		{`descriptors: ["host={header.}"]`, "{header.} names no header"},
		{`descriptors: ["host={header.a b}"]`, "{header.a b} names no header"},
		{`descriptors: ["host={header.host}"]`, "{header.Host} is the check's own host: write {host}"},
		{`descriptors: ["addr={addr/15}"]`, "write {addr/16} to {addr/128}"},
		{`descriptors: ["addr={addr/129}"]`, "names no network"},
		{`descriptors: ["addr={addr/+64}"]`, "names no network"},
		{`descriptors: ["addr={addr/}"]`, "names no network"},
		{`descriptors: ["addr={addr}"]`, "web.yaml:3:17: without trusted_proxies {addr} is the gateway's own address"},
		{`trusted_proxies: []` + "\n  " + `descriptors: ["addr={addr}"]`, "without trusted_proxies"},
		{"trusted_proxies: 10.0.0.1", "trusted_proxies is the text"},
		{"trusted_proxies: [10.0.0.0/33]", "web.yaml:3:21: trusted_proxies: \"10.0.0.0/33\" is no network"},
		{"trusted_proxies: [0.0.0.0/0]", "trusts everybody"},
		{"trusted_proxies: [10.0.0.1/8]", "write 10.0.0.0/8 for the network"},
		{"trusted_proxies: [[10.0.0.1]]", "trusted_proxies is a list"},
		{"trusted_proxies: [7]", "\"7\" is no address"},
		{"denied_status: 200", "web.yaml:3:18: denied_status is 200, which lets the request pass: write 400 to 599"},
		{"denied_status: 0", "denied_status is 0"},
		{"denied_status: 600", "more than 599"},
		{"denied_status: forbidden", "write a whole number"},
		{"undecided_status: 204", "undecided_status is 204, which lets the request pass: write 200 or 400 to 599"},
		{"domain: other", "domain has no meaning here: write it in the file"},
		{"trusted: []", "unknown key \"trusted\": write trusted_proxies"},
		{"key: a", "key has no meaning here: write it in the descriptor"},
		{"lease: {}", "lease has no meaning here"},
	} {
		text := checkFile(tt.lines)
		c, err := Parse(File{"web.yaml", []byte(text)})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if c != nil {
			for _, w := range c.Warnings {
				got += w.String() + "\n"
			}
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: got\n%s\nwant %s", tt.lines, got, tt.want)
		}
	}
	_, err := Parse(File{"a.yaml", []byte(checkFile(proxies, `descriptors: ["addr={addr}"]`))},
		File{"b.yaml", []byte("domain: other\nhttp_check: {descriptors: [a=b]}\n")})
	if err == nil || !strings.Contains(err.Error(), "b.yaml:2:1: http_check is in a.yaml already, line 2") {
		t.Errorf("two of them: got %v, want a fault that names both places", err)
	}
	_, err = Options{Upstream: true}.Parse(File{"a.yaml", []byte(checkFile(`descriptors: ["addr={host}"]`))})
	if err == nil || !strings.Contains(err.Error(), "a.yaml:2:1: http_check is weir's own") {
		t.Errorf("for the original: got %v, want http_check refused", err)
	}
}

func TestWhatAnHTTPCheckAsksInVainIsAWarning(t *testing.T) {
	t.Parallel()
	for entries, want := range map[string]string{
		`- "addr={host}"`:                             "",
		`- ["host={host}", "path={path}"]`:            "",
		`- ["host={host}"]`:                           "web.yaml:4:5: the domain has no rule for the keys host: this limits nothing",
		`- ["path={path}", "host={host}"]`:            "no rule for the keys path, host",
		`- ["addr={host}", "path={path}"]`:            "no rule for the keys addr, path",
		`- "addr={header.x-forwarded-for}"`:           "clients can write anything into X-Forwarded-For: {addr} is the client's address",
		`- "addr={header.forwarded}"`:                 "clients can write anything into Forwarded",
		`- "addr={host}"` + "\n  " + `- "adr={host}"`: "web.yaml:5:5: the domain has no rule for the keys adr",
	} {
		c, err := Parse(File{"web.yaml", []byte(checkFile("descriptors:", entries))})
		if err != nil {
			t.Errorf("%s: %v", entries, err)
			continue
		}
		got := ""
		for _, w := range c.Warnings {
			got += w.String() + "\n"
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", entries, got, want)
		}
	}
}
