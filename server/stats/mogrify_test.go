package stats

import (
	"slices"
	"strings"
	"testing"
)

func TestMogrifierReplacesTheWholeName(t *testing.T) {
	t.Parallel()
	all, err := newMogrifiers([]Mogrifier{
		{Label: "RULE", Pattern: `rate_limit\.([^.]+)\.([^.]+)\.(\w+)$`, Name: "limits.$3", Tags: map[string]string{"key": "$2", "domain": "$1", "all": "$0", "cost": "$"}},
		{Label: "REST", Pattern: `^(?:ratelimit)?\.?(x?)`, Name: "${1}$1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, made string
		tags       []tag
	}{
		{"ratelimit.service.rate_limit.d.k_$1.over_limit", "limits.over_limit",
			[]tag{{"all", "rate_limit.d.k_$1.over_limit"}, {"cost", "$"}, {"domain", "d"}, {"key", "k_$1"}}},
		{"ratelimit.service.config_load_success", "${1}", nil},
	} {
		made, tags := all.apply(c.name)
		if made != c.made || !slices.Equal(tags, c.tags) {
			t.Errorf("%s: got %q %v, want %q %v", c.name, made, tags, c.made, c.tags)
		}
	}
	if made, tags := mogrifiers(nil).apply("a.b"); made != "a.b" || tags != nil {
		t.Errorf("without mogrifiers: got %q %v", made, tags)
	}
}

func TestBadMogrifiersAreAllNamed(t *testing.T) {
	t.Parallel()
	_, err := newMogrifiers([]Mogrifier{
		{Label: "A"},
		{Label: "B", Pattern: "(", Name: "x"},
		{Label: "C", Pattern: "(a)", Name: "$2", Tags: map[string]string{"": "x", "k": "", "l": "$99999999999999999999"}},
	})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{
		"MOGRIFIER_A_PATTERN is empty", "MOGRIFIER_A_NAME is empty", `MOGRIFIER_B_PATTERN "("`,
		`MOGRIFIER_C_NAME "$2": the pattern has 1 groups, not $2`, `MOGRIFIER_C_TAGS: the tag of "x" has no key`,
		"MOGRIFIER_C_TAGS k is empty", "not $99999999999999999999",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got\n%v\nwant %s in it", err, want)
		}
	}
}

func FuzzMogrifierEndsInALineOrAnError(f *testing.F) {
	f.Add(`^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.(.*)$`, "ratelimit.service.rate_limit.$3", "$1", "ratelimit.service.rate_limit.d.k.total_hits")
	f.Add(`(a)?`, "$1", "$0$1$2", "b")
	f.Add(`.`, "x\n:1|c", "a,b:c|#", "name")
	f.Fuzz(func(t *testing.T, pattern, name, value, counted string) {
		l, err := newLines(Options{Dogstatsd: true, Mogrifiers: []Mogrifier{{Label: "X", Pattern: pattern, Name: name, Tags: map[string]string{"tag": value}}}})
		if err != nil {
			return
		}
		r := New()
		r.Counter(counted).Add(1)
		var out strings.Builder
		if err := l.write(&out, r.read()); err != nil {
			t.Fatal(err)
		}
		line, end, _ := strings.Cut(out.String(), "\n")
		made, rest, _ := strings.Cut(line, ":")
		kind, tags, tagged := strings.Cut(rest, "|#")
		if end != "" || made == "" || kind != "1|c" || tagged && (strings.ContainsAny(tags, "|#,") || !strings.HasPrefix(tags, "tag:")) {
			t.Errorf("%q by %q to %q, %q: got %q", counted, pattern, name, value, out.String())
		}
	})
}
