package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runExplain runs "weir explain" on a configuration for the domain shop.
func runExplain(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	text := `
domain: shop
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: user, value: vip, rate_limit: {unlimited: true}}
- key: path
  value: /a/*
  share_threshold: true
  shadow_mode: true
  rate_limit: {unit: hour, requests_per_unit: 100}
  descriptors:
  - {key: user, value: white}
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(append([]string{"explain", "--config", path}, args...))
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestExplainSaysWhatEachEntryLeadsTo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ entries, want string }{
		{"user=eve", `1. "user" = "eve": user, by key alone
Limited by the rule user:
   3 per minute by fixed_window; at most 6 in any minute
      counted as shop|user, for the key ~`},
		{"user=vip", `1. "user" = "vip": user=vip, by exact value
Not limited: the rule user=vip is unlimited.
`},
		{"path=/a/b", `1. "path" = "/a/b": path=/a/*, by wildcard
Limited by the rule path=/a/* (in shadow: never denies):
   100 per hour by fixed_window; at most 200 in any hour
      counted as shop|path=/a/*, for the key ~`},
		{"path=/a/b user=white", `1. "path" = "/a/b": path=/a/*, by wildcard
2. "user" = "white": user=white, by exact value
Not limited: the rule path=/a/*|user=white has no limit.
`},
		{"path=/b", `1. "path" = "/b": no match among path=/a/*, user, user=vip
Not limited: no rule is at the level of the last entry.
`},
		{"user=eve x=y", `1. "user" = "eve": user, by key alone
2. "x" = "y": no match, there is no level below
Not limited: no rule is at the level of the last entry.
`},
	} {
		out, err := runExplain(t, append([]string{"--domain", "shop"}, strings.Fields(test.entries)...)...)
		if err != nil || !strings.HasPrefix(out, test.want) {
			t.Errorf("%s: got %v and\n%s\nwant\n%s", test.entries, err, out, test.want)
		}
	}
}

func TestExplainNamesEveryBadArgument(t *testing.T) {
	t.Parallel()
	_, err := runExplain(t, "alice", "=x")
	if err == nil {
		t.Fatal("got no error, want three")
	}
	want := `no domain: write --domain and one of the configuration's domains
the entry "alice" is not KEY=VALUE
the entry "=x" is not KEY=VALUE`
	if err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if _, err := runExplain(t, "--domain", "other", "a=b"); err == nil || !strings.Contains(err.Error(), `the configuration has ["shop"]`) {
		t.Errorf("got %v, want an error that names the domains there are", err)
	}
}
