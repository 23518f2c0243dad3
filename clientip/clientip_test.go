package clientip

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func resolver(t testing.TB, opts Options, trusted ...string) *Resolver {
	t.Helper()
	var prefixes []netip.Prefix
	for _, text := range trusted {
		p, err := ParsePrefix(text)
		if err != nil {
			t.Fatal(err)
		}
		prefixes = append(prefixes, p)
	}
	r, err := New(prefixes, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// client is one question: the connection, the header's lines, and the answer.
type client struct {
	name, peer string
	lines      []string
	want       string
}

func checkAll(t *testing.T, r *Resolver, header string, clients []client) {
	t.Helper()
	for _, c := range clients {
		got, err := r.Addr(c.peer, http.Header{header: c.lines})
		if err != nil || got.String() != c.want {
			t.Errorf("%s: from %s with %.100q: got %v, %v; want %s", c.name, c.peer, c.lines, got, err, c.want)
		}
	}
}

func TestClientIsTheFirstFromTheRightThatIsNoTrustedProxy(t *testing.T) {
	t.Parallel()
	r := resolver(t, Options{}, "10.0.0.0/8", "2001:db8:ffff::/48")
	const proxy = "10.0.0.1:4711"
	checkAll(t, r, "X-Forwarded-For", []client{
		{"a peer that is no proxy", "203.0.113.9:80", []string{"1.1.1.1"}, "203.0.113.9"},
		{"no header", proxy, nil, "10.0.0.1"},
		{"an empty header", proxy, []string{""}, "10.0.0.1"},
		{"one proxy", proxy, []string{"203.0.113.9"}, "203.0.113.9"},
		{"a forged entry", proxy, []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"},
		{"two lines, two proxies", proxy, []string{"1.1.1.1", "203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		{"a line for each proxy", proxy, []string{"1.1.1.1", "203.0.113.9", "10.0.0.3", "10.0.0.2"}, "203.0.113.9"},
		{"what no address is, left of the client", proxy, []string{"evil, 203.0.113.9:5123"}, "203.0.113.9"},
		{"a quote left open by the client", proxy, []string{`"evil, 203.0.113.9`}, "203.0.113.9"},
		{"what no address is, right of the client", proxy, []string{"6.6.6.6, unknown"}, "10.0.0.1"},
		{"the same behind another proxy", proxy, []string{"6.6.6.6, unknown, 10.0.0.2"}, "10.0.0.1"},
		{"an empty entry", proxy, []string{"6.6.6.6,, 10.0.0.2"}, "10.0.0.1"},
		{"an empty line", proxy, []string{"6.6.6.6", "", "10.0.0.2"}, "10.0.0.1"},
		{"nothing but proxies", proxy, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"spaces and tabs", proxy, []string{" \t203.0.113.9\t , 10.0.0.2 "}, "203.0.113.9"},
		{"IPv4 mapped to IPv6", proxy, []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		{"the same in hexadecimal", proxy, []string{"::FFFF:cb00:7109"}, "203.0.113.9"},
		{"a proxy as a mapped address", proxy, []string{"203.0.113.9, ::ffff:10.0.0.2"}, "203.0.113.9"},
		{"the peer as a mapped address", "[::ffff:10.0.0.1]:80", []string{"203.0.113.9"}, "203.0.113.9"},
		{"IPv6", proxy, []string{"2001:db8::1"}, "2001:db8::1"},
		{"IPv6 in capitals with zeros", proxy, []string{"2001:DB8:0:0::01"}, "2001:db8::1"},
		{"IPv6 in brackets", proxy, []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"IPv6 with a port", proxy, []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"IPv6 with a zone", proxy, []string{"fe80::1%eth0"}, "fe80::1"},
		{"an IPv6 proxy", "[2001:db8:ffff::2]:443", []string{"203.0.113.9, 2001:db8:ffff::1"}, "203.0.113.9"},
		{"a peer without a port", "10.0.0.1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"a peer with a zone", "[fe80::1%eth0]:80", []string{"1.1.1.1"}, "fe80::1"},
	})
	for _, bad := range []string{"203.0.113.9.", "203.0.113.09", "203.0.113", "203.0.113.9:", "203.0.113.9:x", "203.0.113.9:65536",
		"203.0.113.9:+1", "203.0.113.9/32", "[203.0.113.9]", "[2001:db8::1", "[2001:db8::1]x", "[2001:db8::1]443", "[]:80", "[::1]:", "localhost", "_hidden", "-", `"203.0.113.9"`} {
		checkAll(t, r, "X-Forwarded-For", []client{{"an entry that is no address", proxy, []string{"6.6.6.6, " + bad}, "10.0.0.1"}})
	}
}

func TestForwardedIsReadByItsOwnGrammar(t *testing.T) {
	t.Parallel()
	r := resolver(t, Options{Forwarded: true}, "10.0.0.0/8")
	const proxy = "10.0.0.1:4711"
	checkAll(t, r, "Forwarded", []client{
		{"a peer that is no proxy", "203.0.113.9:80", []string{"for=1.1.1.1"}, "203.0.113.9"},
		{"IPv6 with a port, behind a proxy", proxy, []string{`for="[2001:db8::1]:4711";proto=https, for=10.0.0.3`}, "2001:db8::1"},
		{"other parameters around it", proxy, []string{`by=10.0.0.1; FOR = 1.1.1.1`, `proto=http;For=203.0.113.9;host="a,b;for=1.1.1.1"`}, "203.0.113.9"},
		{"a quoted IPv4 address", proxy, []string{`for="203.0.113.9:80"`}, "203.0.113.9"},
		{"an escape", proxy, []string{`for="203\.0.113.9"`}, "203.0.113.9"},
		{"a hidden port", proxy, []string{`for="203.0.113.9:_a.b"`}, "203.0.113.9"},
		{"a quote left open by the client", proxy, []string{`for="evil, for=203.0.113.9`}, "203.0.113.9"},
		{"the same before a quoted string", proxy, []string{`for="evil, for="203.0.113.9:1"`}, "203.0.113.9"},
		{"a backslash left by the client", proxy, []string{`for=evil\, for="203.0.113.9"`}, "203.0.113.9"},
		{"unknown", proxy, []string{"for=6.6.6.6, for=unknown"}, "10.0.0.1"},
		{"a hidden name", proxy, []string{"for=6.6.6.6, for=_hidden"}, "10.0.0.1"},
		{"no for", proxy, []string{"for=6.6.6.6, proto=https"}, "10.0.0.1"},
		{"two of them", proxy, []string{"for=6.6.6.6;for=7.7.7.7"}, "10.0.0.1"},
		{"a string that does not end", proxy, []string{`for="203.0.113.9`}, "10.0.0.1"},
		{"text behind a string", proxy, []string{`for="203.0.113.9"x`}, "10.0.0.1"},
		{"a bare address", proxy, []string{"203.0.113.9"}, "10.0.0.1"},
		{"a space before the value", proxy, []string{"for= 203.0.113.9"}, "10.0.0.1"},
	})
	got, err := r.Addr(proxy, http.Header{"X-Forwarded-For": {"6.6.6.6"}})
	if err != nil || got.String() != "10.0.0.1" {
		t.Errorf("with X-Forwarded-For alone: got %v, %v; want the peer, for the two headers are never mixed", got, err)
	}
}

func TestAtMostSixtyFourEntriesAreLookedAt(t *testing.T) {
	t.Parallel()
	r := resolver(t, Options{}, "10.0.0.0/8")
	for proxies, want := range map[int]string{MaxEntries - 1: "203.0.113.9", MaxEntries: "10.9.9.9"} {
		line := "203.0.113.9" + strings.Repeat(", 10.0.0.1", proxies)
		lines := append([]string{"203.0.113.9"}, slices.Repeat([]string{"10.0.0.1"}, proxies)...)
		checkAll(t, r, "X-Forwarded-For", []client{{"one line", "10.9.9.9:1", []string{line}, want}, {"many lines", "10.9.9.9:1", lines, want}})
	}
	checkAll(t, r, "X-Forwarded-For", []client{{"commas", "10.9.9.9:1", []string{strings.Repeat(",", 10_000)}, "10.9.9.9"}})
}

func TestWithoutTrustedProxiesNoHeaderIsRead(t *testing.T) {
	t.Parallel()
	checkAll(t, resolver(t, Options{}), "X-Forwarded-For", []client{{"anybody", "127.0.0.1:1", []string{"203.0.113.9"}, "127.0.0.1"}})
}

func TestConnectionWithoutAnAddressIsAnError(t *testing.T) {
	t.Parallel()
	r := resolver(t, Options{}, "10.0.0.0/8")
	for _, peer := range []string{"", "@", "/run/weir.sock", "localhost:80"} {
		if got, err := r.Addr(peer, http.Header{"X-Forwarded-For": {"203.0.113.9"}}); err == nil || got.IsValid() {
			t.Errorf("from %q: got %v, %v; want an error", peer, got, err)
		}
	}
}

func TestPrefixesThatTrustTooMuchAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"192.0.2.7":            "192.0.2.7/32",
		"192.0.2.0/24":         "192.0.2.0/24",
		"2001:db8::7":          "2001:db8::7/128",
		"fe80::7%eth0":         "fe80::7/128",
		"2001:db8::/32":        "2001:db8::/32",
		"::ffff:192.0.2.7":     "192.0.2.7/32",
		"::ffff:192.0.2.0/120": "192.0.2.0/24",
	} {
		if got, err := ParsePrefix(text); err != nil || got.String() != want {
			t.Errorf("%s: got %v, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                  "no address",
		"proxy.example":     "no address",
		"192.0.2.7:80":      "no address",
		"192.0.2.0/33":      "no network",
		"192.0.2.0/":        "no network",
		"fe80::%eth0/64":    "no network",
		"0.0.0.0/0":         "trusts everybody",
		"::/0":              "trusts everybody",
		"::ffff:0.0.0.0/96": "trusts everybody",
		"192.0.2.7/24":      "write 192.0.2.0/24 for the network, or 192.0.2.7 for the address",
	} {
		if got, err := ParsePrefix(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v; want an error with %q", text, got, err, want)
		}
	}
	_, err := New([]netip.Prefix{{}, netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.2.3/8")}, Options{})
	if err == nil || !strings.Contains(err.Error(), "invalid prefix") || !strings.Contains(err.Error(), "10.1.2.3/8 has bits") {
		t.Errorf("got %v, want an error that names both bad prefixes", err)
	}
}

func TestClientHasANetworkOfIPv6(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr string
		bits int
		want string
	}{
		{"203.0.113.9", 64, "203.0.113.9/32"},
		{"::ffff:203.0.113.9", 64, "203.0.113.9/32"},
		{"2001:db8:1:2:aaaa::1", 64, "2001:db8:1:2::/64"},
		{"2001:db8:1:2:bbbb::2", 64, "2001:db8:1:2::/64"},
		{"2001:db8:1:2:bbbb::2", 48, "2001:db8:1::/48"},
		{"2001:db8::1", 128, "2001:db8::1/128"},
		{"fe80::1%eth0", 64, "fe80::/64"},
		{"2001:db8::1", 1000, "2001:db8::1/128"},
		{"2001:db8::1", -1, "::/0"},
	} {
		if got := Network(netip.MustParseAddr(c.addr), c.bits); got.String() != c.want {
			t.Errorf("%s in %d bits: got %v, want %s", c.addr, c.bits, got, c.want)
		}
	}
	if got := Network(netip.Addr{}, 64); got.IsValid() {
		t.Errorf("no address: got %v, want no network", got)
	}
}

// FuzzAddr: whatever a client sends, it is who its proxy says, and whoever is no proxy
// is nobody but themselves.
func FuzzAddr(f *testing.F) {
	for _, s := range []string{"", "1.1.1.1", "1.1.1.1, 10.0.0.2", `for="`, `for="\`, "[::1]:80", "::ffff:10.0.0.1", strings.Repeat(",", 100), `";\,`, "for=1.1.1.1;for=2.2.2.2"} {
		f.Add(s, s)
	}
	plain := resolver(f, Options{}, "10.0.0.0/8")
	forwarded := resolver(f, Options{Forwarded: true}, "10.0.0.0/8")
	f.Fuzz(func(t *testing.T, sent, more string) {
		for _, c := range []struct {
			r              *Resolver
			header, append string
		}{
			{plain, "X-Forwarded-For", "203.0.113.9"},
			{forwarded, "Forwarded", "for=203.0.113.9"},
			{forwarded, "Forwarded", `for="203.0.113.9:80";proto=http`},
		} {
			anything, err := c.r.Addr("10.0.0.1:1", http.Header{c.header: {more, sent}})
			if err != nil || !anything.IsValid() || anything.Zone() != "" || anything.Is4In6() {
				t.Errorf("%q, %q: got %v, %v; want an address in its one form", more, sent, anything, err)
			}
			for _, lines := range [][]string{{more, sent + ", " + c.append}, {more, sent, c.append}, {sent + "," + c.append, c.append}} {
				got, err := c.r.Addr("10.0.0.1:1", http.Header{c.header: lines})
				if err != nil || got.String() != "203.0.113.9" {
					t.Errorf("%q: got %v, %v; want what the proxy appended", lines, got, err)
				}
			}
			got, err := c.r.Addr("203.0.113.9:1", http.Header{c.header: {more, sent}})
			if err != nil || got.String() != "203.0.113.9" {
				t.Errorf("%q, %q: got %v, %v; want the peer", more, sent, got, err)
			}
		}
	})
}

// FuzzParsePrefix: what is accepted is accepted by New, and trusts less than everybody.
func FuzzParsePrefix(f *testing.F) {
	for _, s := range []string{"", "10.0.0.1", "10.0.0.0/8", "::/0", "::ffff:0:0/96", "::ffff:1.2.3.4/95", "fe80::1%eth0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePrefix(text)
		if err != nil {
			return
		}
		if _, err := New([]netip.Prefix{p}, Options{}); err != nil || p.Bits() == 0 || p != p.Masked() {
			t.Errorf("%q: got %v, and New says %v", text, p, err)
		}
	})
}
