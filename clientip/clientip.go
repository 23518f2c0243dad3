// Package clientip finds the address of a request's client where requests come through
// proxies: it believes what trusted proxies say, and nobody else.
//
// A proxy appends the address that it was called from to the header X-Forwarded-For, so
// the entries on the right are the ones that proxies wrote, and everything left of them
// is whatever the client sent. A [Resolver] begins with the connection itself, walks from
// the right past the proxies that it was told to trust, and stops at the first address
// that is none of them. It never reads a header of a peer that is not trusted.
package clientip

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// MaxEntries is how many entries of the header are looked at, from the right: more
// proxies than any chain has.
const MaxEntries = 64

// Resolver finds the address of a request's client. It does not change, and is safe for
// concurrent use.
type Resolver struct {
	trusted []netip.Prefix
	header  string
	node    func(entry string) (text string, ok bool) // the address within an entry
}

// Options of a Resolver.
type Options struct {
	// Forwarded reads the header Forwarded (RFC 7239) in place of X-Forwarded-For. Set it
	// only where every trusted proxy writes that header; the two are never mixed, since a
	// client can send the one that its proxies leave alone.
	Forwarded bool
}

// New returns a Resolver that trusts the proxies with these addresses. Without any, the
// client is whoever made the connection. The error names every prefix that ParsePrefix
// would refuse.
func New(trusted []netip.Prefix, opts Options) (*Resolver, error) {
	r := &Resolver{header: "X-Forwarded-For", node: plainNode}
	if opts.Forwarded {
		r.header, r.node = "Forwarded", forwardedNode
	}
	var errs []error
	for _, p := range trusted {
		checked, err := check(p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.trusted = append(r.trusted, checked)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

// ParsePrefix reads the address of a proxy, "192.0.2.7", or of all in a network,
// "192.0.2.0/24". It refuses a network of all addresses, since then a client could name
// any as its own, and one with bits set behind its length, which means less or more than
// it seems to.
func ParsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%.60q is no address: write one as 192.0.2.7 or 2001:db8::7, or a network as 192.0.2.0/24", text)
		}
		addr = fold(addr)
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%.60q is no network: write one as 192.0.2.0/24 or 2001:db8::/32", text)
	}
	return check(p)
}

// check returns p, with IPv4 mapped to IPv6 as IPv4, or an error that says what is wrong
// with it.
func check(p netip.Prefix) (netip.Prefix, error) {
	const mapped = 96 // bits before the IPv4 address in ::ffff:192.0.2.7
	if p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	switch {
	case !p.IsValid():
		return p, errors.New("an invalid prefix: make it with ParsePrefix, or with netip.PrefixFrom")
	case p.Bits() == 0:
		return p, fmt.Errorf("%v trusts everybody, and so clients could name any address as theirs: write the proxies' own", p)
	case p != p.Masked():
		return p, fmt.Errorf("%v has bits behind its length: write %v for the network, or %v for the address", p, p.Masked(), p.Addr())
	}
	return p, nil
}

// Addr returns the address of the client of a request: remoteAddr is its RemoteAddr, and
// header its Header. IPv4 mapped to IPv6 is the IPv4 address, and a zone is left out.
//
// An entry that is no address ends the walk, and so do more than MaxEntries of them: who
// wrote what is left of it cannot be known, and the answer is the address of the
// connection. Where all entries are trusted, the leftmost is the client. Entries may have
// ports, and the header several lines.
//
// The error says that remoteAddr is no address, as on a Unix socket.
func (r *Resolver) Addr(remoteAddr string, header map[string][]string) (netip.Addr, error) {
	peer, ok := parseAddr(remoteAddr)
	if !ok {
		return netip.Addr{}, fmt.Errorf("the connection comes from %.60q, which is no address", remoteAddr)
	}
	if !r.Trusts(peer) {
		return peer, nil
	}
	client, seen := peer, 0
	for _, line := range slices.Backward(header[r.header]) {
		for more := true; more; {
			var entry string
			line, entry, more = cutLast(line, ',')
			text, ok := r.node(entry)
			if seen++; seen > MaxEntries || !ok {
				return peer, nil
			}
			if client, ok = parseAddr(text); !ok {
				return peer, nil
			}
			if !r.Trusts(client) {
				return client, nil
			}
		}
	}
	return client, nil
}

// Trusts reports whether an address is that of a trusted proxy.
func (r *Resolver) Trusts(addr netip.Addr) bool {
	addr = fold(addr)
	return slices.ContainsFunc(r.trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Network returns the network that one client surely has to itself: an IPv4 address
// alone, and of IPv6 the first bits, of which 64 is the least that a provider gives
// anybody. Limited by its whole address, such a client would have 2^64 limits.
// The key of a limit is weir.Addr(network.Addr()). Bits are from 0 to 128.
func Network(addr netip.Addr, bits int) netip.Prefix {
	addr = fold(addr)
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(min(max(bits, 0), 128)) // fails for no other bits
	return p
}

// fold returns the one form of an address that has several.
func fold(addr netip.Addr) netip.Addr { return addr.WithZone("").Unmap() }
