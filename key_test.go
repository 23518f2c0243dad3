package weir_test

import (
	"hash/maphash"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir.dev/weir"
)

var odd = []string{
	"", "a", "127.0.0.1", "{", "}", "{}", "}a{", "a b", "a:b", "\r\n", "\x00", "\x1b[31m", "\xff\xfe", "\u202e",
	"~", "@", "@127.0.0.1", "~00000000000000000000000000000000", strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("x", 1<<20),
}

func TestKeysOfDifferentClientsNeverMeet(t *testing.T) {
	t.Parallel()
	var keys []weir.Key
	for _, s := range odd {
		keys = append(keys, weir.Text(s), weir.Parts(s), weir.Parts(s, ""), weir.Parts("", s))
	}
	keys = append(keys, weir.Parts(), weir.Parts("a", "bc"), weir.Parts("ab", "c"), weir.Parts("abc"), weir.Text("abc"))
	// Spelled as Parts("a") and Parts("") are inside.
	keys = append(keys, weir.Text("\x01a"), weir.Text("\x00"))
	for _, a := range []string{"127.0.0.1", "::1", "2001:db8::1", "0.0.0.0", "::"} {
		keys = append(keys, weir.Addr(netip.MustParseAddr(a)))
	}
	seen := map[string]weir.Key{}
	x, y := maphash.MakeSeed(), maphash.MakeSeed()
	hashes := map[[2]uint64]weir.Key{}
	for _, k := range keys {
		if other, ok := seen[k.String()]; ok && other != k {
			t.Errorf("%.40q is the text of two keys", k.String())
		}
		seen[k.String()] = k
		hi, lo := k.Hash(x, y)
		if other, ok := hashes[[2]uint64{hi, lo}]; ok && other != k {
			t.Errorf("%.40q and %.40q have one hash", k, other)
		}
		hashes[[2]uint64{hi, lo}] = k
	}
	// Parts("", "") stands twice in the list, as do Parts() of nothing else.
	slices.SortFunc(keys, func(a, b weir.Key) int { return strings.Compare(a.String(), b.String()) })
	if distinct := slices.Compact(keys); len(seen) != len(distinct) {
		t.Errorf("got %d texts of %d keys", len(seen), len(distinct))
	}
}

func TestOnlyAKeyOfTextHasAText(t *testing.T) {
	t.Parallel()
	for _, s := range odd {
		if got, ok := weir.Text(s).Text(); got != s || !ok {
			t.Errorf("the text of Text(%.20q): got %.20q, %v", s, got, ok)
		}
		if _, ok := weir.Parts(s).Text(); ok {
			t.Errorf("Parts(%.20q) has a text, want none", s)
		}
	}
	for _, k := range []weir.Key{{}, weir.Addr(netip.MustParseAddr("::1"))} {
		if _, ok := k.Text(); ok {
			t.Errorf("%q has a text, want none", k)
		}
	}
}

func TestAKeyIsSafeToWriteAnywhere(t *testing.T) {
	t.Parallel()
	safe := regexp.MustCompile(`^[A-Za-z0-9._:@~-]{1,64}$`)
	for _, s := range odd {
		for _, k := range []weir.Key{weir.Text(s), weir.Parts(s, s)} {
			if !safe.MatchString(k.String()) {
				t.Errorf("the key of %.20q is written %q", s, k.String())
			}
		}
	}
	if got := weir.Text("acme-1.2_x").String(); got != "acme-1.2_x" {
		t.Errorf("got %q, want a plain text as it is", got)
	}
}

func TestOneAddressIsOneKey(t *testing.T) {
	t.Parallel()
	want := weir.Addr(netip.MustParseAddr("1.2.3.4"))
	for _, form := range []string{"::ffff:1.2.3.4", "::ffff:102:304"} {
		if got := weir.Addr(netip.MustParseAddr(form)); got != want {
			t.Errorf("%s: got key %v, want %v", form, got, want)
		}
	}
	if a, b := weir.Addr(netip.MustParseAddr("::ffff:1.2.3.4")), weir.Addr(netip.MustParseAddr("::ffff:9.9.9.9")); a == b {
		t.Error("two mapped addresses share a key")
	}
	if a, b := weir.Addr(netip.MustParseAddr("fe80::1%eth0")), weir.Addr(netip.MustParseAddr("fe80::1")); a != b {
		t.Errorf("got %v and %v different: a zone is not part of who", a, b)
	}
	if got := want.String(); got != "@1.2.3.4" {
		t.Errorf("got %q, want @1.2.3.4", got)
	}
	if !weir.Addr(netip.Addr{}).IsZero() || weir.Text("").IsZero() {
		t.Error("the invalid address must give the zero key, and the empty text must not")
	}
}

// FuzzKeysAreInjective holds the written form of keys to their parts.
func FuzzKeysAreInjective(f *testing.F) {
	f.Add("a", "bc", "ab", "c")
	f.Add("", "", "\x00", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		same := a == c && b == d
		if got := weir.Parts(a, b).String() == weir.Parts(c, d).String(); got != same {
			t.Errorf("(%q, %q) and (%q, %q): one key %v, want %v", a, b, c, d, got, same)
		}
		if got := weir.Text(a).String() == weir.Text(c).String(); got != (a == c) {
			t.Errorf("%q and %q: one key %v, want %v", a, c, got, a == c)
		}
		if weir.Text(a).String() == weir.Parts(a).String() {
			t.Errorf("%q as text and as the only part are one key", a)
		}
	})
}
