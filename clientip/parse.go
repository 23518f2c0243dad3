package clientip

import (
	"net/netip"
	"strconv"
	"strings"
)

// cutLast returns what is behind the last separator outside of quotes, what is before it,
// and whether there is one. It reads from the right, so that a quote which a client left
// open on the left swallows nothing of what proxies wrote.
func cutLast(s string, separator byte) (before, last string, found bool) {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch c := s[i]; {
		case c == '"' && !escaped(s, i):
			quoted = !quoted
		case c == separator && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return "", s, false
}

// escaped reports whether an odd number of backslashes stands before s[i].
func escaped(s string, i int) bool {
	n := 0
	for i--; i >= 0 && s[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// plainNode returns the address within an entry of X-Forwarded-For.
func plainNode(entry string) (string, bool) { return strings.Trim(entry, " \t"), true }

// forwardedNode returns the address within an element of Forwarded: its one parameter
// "for", whatever others there are.
func forwardedNode(element string) (node string, ok bool) {
	for more := true; more; {
		var pair string
		element, pair, more = cutLast(element, ';')
		name, value, found := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !found || !strings.EqualFold(name, "for") {
			continue
		}
		if ok { // a second one: which of them is meant?
			return "", false
		}
		if node, ok = unquote(value); !ok {
			return "", false
		}
	}
	return node, ok
}

// unquote returns the text of a token or of a quoted string.
func unquote(value string) (string, bool) {
	if !strings.HasPrefix(value, `"`) {
		return value, true
	}
	value = value[1:]
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			return b.String(), i == len(value)-1
		case '\\':
			if i++; i == len(value) {
				return "", false
			}
		}
		b.WriteByte(value[i])
	}
	return "", false
}

// parseAddr reads an address with or without a port, an IPv6 address with or without
// brackets. A colon alone separates a port only from an IPv4 address.
func parseAddr(s string) (netip.Addr, bool) {
	host, port := s, ""
	if inner, isBracketed := strings.CutPrefix(s, "["); isBracketed {
		var rest string
		var closed bool
		if host, rest, closed = strings.Cut(inner, "]"); !closed || !strings.Contains(host, ":") {
			return netip.Addr{}, false
		}
		if rest != "" && (rest[0] != ':' || !isPort(rest[1:])) {
			return netip.Addr{}, false
		}
	} else if strings.Count(s, ":") == 1 {
		if host, port, _ = strings.Cut(s, ":"); !isPort(port) {
			return netip.Addr{}, false
		}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return fold(addr), true
}

// isPort reports whether s is a port, or what RFC 7239 (6) allows in place of one: "_"
// and a name, by which a proxy hides it.
func isPort(s string) bool {
	if name, hidden := strings.CutPrefix(s, "_"); hidden {
		return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
	}
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
