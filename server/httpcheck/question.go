package httpcheck

import (
	"net/http"
	"net/netip"
	"path"
	"strings"

	"weir.dev/weir/clientip"
	"weir.dev/weir/server/rls"
	"weir.dev/weir/server/rules"
)

// question is what a check asks.
type question struct {
	check *rules.HTTPCheck
	asked *http.Request

	// Set when the client's address is asked for.
	client   netip.Addr // invalid: nobody knows it
	stranger bool       // the peer is no trusted proxy, and so its own client
	looked   bool
}

// request returns the descriptors of which the checked request has every value. As with
// Envoy, one that lacks a value is left out.
func (q *question) request() rls.Request {
	request := rls.Request{Domain: q.check.Domain, Draft11: true}
	for _, entries := range q.check.Descriptors {
		if filled, ok := q.fill(entries); ok {
			request.Descriptors = append(request.Descriptors, rls.Descriptor{Entries: filled})
		}
	}
	return request
}

func (q *question) fill(entries []rules.CheckEntry) ([]rules.Entry, bool) {
	filled := make([]rules.Entry, len(entries))
	for i, e := range entries {
		value, ok := q.value(e.Value)
		if !ok {
			return nil, false
		}
		filled[i] = rules.Entry{Key: e.Key, Value: value}
	}
	return filled, true
}

func (q *question) value(parts []rules.CheckPart) (string, bool) {
	if len(parts) == 1 {
		return q.part(parts[0])
	}
	var b strings.Builder
	for _, p := range parts {
		text, ok := q.part(p)
		if !ok {
			return "", false
		}
		b.WriteString(text)
	}
	return b.String(), true
}

// part returns one part of a value, and false if the request does not have it or it is
// empty: else all who lack it would share a limit.
func (q *question) part(p rules.CheckPart) (text string, ok bool) {
	switch p.Field {
	case rules.CheckText:
		text = p.Text
	case rules.CheckAddr:
		text = addrText(q.clientAddr(), p.Bits)
	case rules.CheckHost:
		text = hostOf(q.forwarded("X-Forwarded-Host"))
	case rules.CheckMethod:
		text = q.forwarded("X-Forwarded-Method")
	case rules.CheckPath:
		text = pathOf(q.forwarded("X-Forwarded-Uri"))
	case rules.CheckHeader:
		text = q.asked.Header.Get(p.Header)
	}
	return text, text != ""
}

// forwarded returns what the gateway says. Where a client sent such a header too and the
// gateway appended its own, the last is the gateway's.
func (q *question) forwarded(name string) string {
	if lines := q.asked.Header[name]; len(lines) > 0 {
		return lines[len(lines)-1]
	}
	return ""
}

// clientAddr returns the address of the checked request's client. It is invalid where the
// gateway asks over a Unix socket.
func (q *question) clientAddr() netip.Addr {
	if q.looked {
		return q.client
	}
	q.looked = true
	client, err := q.check.Proxies.Addr(q.asked.RemoteAddr, q.asked.Header)
	if err != nil {
		return netip.Addr{}
	}
	peer, err := netip.ParseAddrPort(q.asked.RemoteAddr)
	q.client, q.stranger = client, err == nil && !q.check.Proxies.Trusts(peer.Addr())
	return client
}

// addrText returns an address as Envoy's remote_address has it. Of IPv6 it is a network,
// as Envoy's masked_remote_address has it, unless it is as long as an address.
func addrText(client netip.Addr, bits int) string {
	if !client.IsValid() {
		return ""
	}
	network := clientip.Network(client, bits)
	if network.IsSingleIP() {
		return network.Addr().String()
	}
	return network.String()
}

// hostOf returns the host without a port, in lower case: the last of a list.
func hostOf(text string) string {
	host := strings.ToLower(strings.TrimSpace(text[strings.LastIndexByte(text, ',')+1:]))
	if end := strings.LastIndexByte(host, ']'); end >= 0 { // [::1]:8000
		return host[:end+1]
	}
	host, _, _ = strings.Cut(host, ":")
	return strings.TrimSuffix(host, ".")
}

// pathOf returns the path of a request's target as nginx finds locations by it: without
// the query, percent-encoding decoded, dot segments resolved and slashes merged. So there
// is one way to write a path, and a limit on it cannot be passed by another.
func pathOf(target string) string {
	if end := strings.IndexAny(target, "?#"); end >= 0 {
		target = target[:end]
	}
	if scheme, rest, absolute := strings.Cut(target, "://"); absolute && !strings.Contains(scheme, "/") {
		_, below, _ := strings.Cut(rest, "/")
		target = "/" + below
	}
	if target == "" || target[0] != '/' {
		return target // the * of OPTIONS, or nothing
	}
	decoded := decode(target)
	clean := path.Clean(decoded)
	last := decoded[strings.LastIndexByte(decoded, '/')+1:]
	if clean != "/" && (last == "" || last == "." || last == "..") {
		clean += "/"
	}
	return clean
}

// decode decodes percent-encoding, once. What is no such encoding is left as it is.
func decode(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			high, low := hexDigit(s[i+1]), hexDigit(s[i+2])
			if high >= 0 && low >= 0 {
				b = append(b, byte(high<<4|low))
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// hexDigit returns the value of a hexadecimal digit, or -1.
func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
