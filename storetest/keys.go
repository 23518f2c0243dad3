package storetest

import (
	"net/netip"
	"strings"

	"weir.dev/weir"
)

// awkwardKeys returns keys that are all different, and that a careless store mixes up.
func awkwardKeys() []weir.Key {
	var keys []weir.Key
	long := strings.Repeat("x", 1<<20)
	for _, s := range []string{
		"", " ", "a", "A", "a ", "abc", "0", "00", "127.0.0.1", "::1", "@127.0.0.1", "@::1", "~",
		"{", "}", "{}", "{}a", "{a}", "a{", "a}b", "{a}b", "{a}c", "b{a}", "{{a}}", "a:b", "a:", ":a", "*", "?", "[a]",
		"\r\n", "\r", "\n", "a\r\nb", "\x00", "\x00\x00", "a\x00", "a\x00b", "\xff", "\xff\xfe", "\xc3\x28", "\u00e9", "e\u0301", "\ufffd",
		"$5\r\nhello\r\n", "%s", "..", "../a", "'", `"`, `\`, "1_bar_2", "bar_2", long, long + "x", long[1:] + "y", "y" + long[1:],
		strings.Repeat("k", 64), strings.Repeat("k", 65), strings.Repeat("k", 63) + "K",
	} {
		keys = append(keys, weir.Text(s))
	}
	parts := [][]string{
		{}, {""}, {"", ""}, {"", "", ""}, {"a"}, {"abc"}, {"a", "bc"}, {"ab", "c"}, {"a", "b", "c"}, {"", "abc"}, {"abc", ""},
		{"a:b"}, {"a", "b"}, {"a\x00b"}, {"a\x00", "b"}, {"127.0.0.1"}, {"\x01a"}, {"\x01", "a"}, {long}, {long, ""},
		{strings.Repeat("p", 127)}, {strings.Repeat("p", 128)},
	}
	for _, p := range parts {
		key := weir.Parts(p...)
		keys = append(keys, key, weir.Text(key.String()), weir.Text("weir:"+key.String()))
	}
	for _, a := range []string{"127.0.0.1", "::1", "1.2.3.4", "4.3.2.1", "::1.2.3.4", "2001:db8::1", "2001:db8:0:0:1::", "0.0.0.0", "::"} {
		keys = append(keys, addr(a))
	}
	return keys
}

func addr(s string) weir.Key { return weir.Addr(netip.MustParseAddr(s)) }
