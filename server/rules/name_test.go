package rules

import (
	"strings"
	"testing"

	"weir.dev/weir"
)

func TestPathsOfDifferentLevelsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, levels := range [][]Entry{
		{{"a", ""}}, {{"a", "b"}}, {{"a=b", ""}}, {{"a", "b"}, {"c", ""}}, {{"a", "b|c"}}, {{"a|c", ""}},
		{{"a", ""}, {"c", ""}}, {{`"a"`, ""}}, {{"a", `"b"`}}, {{"a", "b=c"}}, {{"a=b", "c"}}, {{"<override>", ""}}, {{"a\n", ""}}, {{`a\n`, ""}},
		{{strings.Repeat("x", 600), "1"}}, {{strings.Repeat("x", 600), "2"}}, {{strings.Repeat("ü", 400), ""}},
	} {
		path, what := "", ""
		for _, l := range levels {
			path = join(path, step(l.Key, l.Value))
			what += l.Key + " / " + l.Value + " // "
		}
		if before, met := seen[path]; met || path == overridePath {
			t.Errorf("%q and %q have the path %q", before, what, path)
		}
		if len(path) > maxPath {
			t.Errorf("%.60q has a path of %d bytes, want at most %d", what, len(path), maxPath)
		}
		seen[path] = what
	}
}

func TestNamesOfStatesAreValidStableAndDistinct(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		domain, path string
		index        int
		want         string
	}{
		{"shop", "user=vip", 0, "shop|user=vip"},
		{"shop", "user=vip", 1, "shop#2|user=vip"},
		{"shop#2", "user=vip", 0, "shop#2|user=vip~"},
		{"a|b", "c", 0, "a|b|c~"},
		{"a", "b|c", 0, "a|b|c"},
		{"shop", "user=a b{c}", 0, "shop|user=a.b.c.~"},
		{"shop", "user=a.b.c.", 0, "shop|user=a.b.c."},
		{"shop", "user=ü", 0, "shop|user=..~"},
		{"shop", "user=a~b", 0, "shop|user=a.b~"},
		{"shop", strings.Repeat("p", 200), 0, "shop|" + strings.Repeat("p", 90) + "~"},
		{strings.Repeat("d", 200), "p", 3, strings.Repeat("d", 95) + "~"},
	} {
		got := stateName(test.domain, test.path, test.index)
		if err := weir.ValidateName(got); err != nil {
			t.Errorf("%.40q %.40q: %v", test.domain, test.path, err)
		}
		hashed := strings.HasSuffix(test.want, "~") // then the hash follows
		if !strings.HasPrefix(got, test.want) || len(got) > len(test.want) != hashed {
			t.Errorf("%.40q %.40q %d: got %q, want %q", test.domain, test.path, test.index, got, test.want)
		}
		if again := stateName(test.domain, test.path, test.index); again != got {
			t.Errorf("got %q, then %q", got, again)
		}
	}
}
