package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	"weir.dev/weir/clientip"
)

// HTTPCheck is the http_check of a file: what a gateway that asks by HTTP asks about a
// request, and how it wants to be answered.
type HTTPCheck struct {
	Domain      string
	Proxies     *clientip.Resolver // the gateways, and the proxies before them
	Descriptors [][]CheckEntry
	// DeniedStatus is the answer over a limit, and UndecidedStatus where nothing could
	// decide, 200 among others.
	DeniedStatus, UndecidedStatus int

	at       Fault
	askedFor []Fault // where each descriptor is
}

// CheckEntry makes one entry of a descriptor from a request.
type CheckEntry struct {
	Key   string
	Value []CheckPart // joined; never empty
}

// CheckPart is a text, or something of the request.
type CheckPart struct {
	Field  CheckField
	Text   string // of CheckText
	Header string // of CheckHeader: its name in canonical form
	Bits   int    // of CheckAddr: how many bits of an IPv6 address
}

// CheckField is what of a request is asked about.
type CheckField uint8

// The fields, and how configuration writes them.
const (
	CheckText   CheckField = iota // any text
	CheckAddr                     // {addr}, {addr/48}: the client's address
	CheckHost                     // {host}
	CheckMethod                   // {method}
	CheckPath                     // {path}, without the query
	CheckHeader                   // {header.NAME}
)

// Statuses of HTTP.
const (
	statusOK              = 200
	statusTooManyRequests = 429
	statusUnavailable     = 503
)

// Bounds of an http_check.
const (
	maxCheckDescriptors = 100
	maxCheckEntries     = maxLevels
)

// HTTPCheck returns what a gateway's check asks, or nil if no file says it.
func (c *Config) HTTPCheck() *HTTPCheck { return c.check }

// httpCheck reads the file's http_check, if it has one.
func (p *parser) httpCheck(root map[string]field) {
	f, ok := root["http_check"]
	if !ok {
		return
	}
	all, ok := p.known(f.value, inHTTPCheck)
	if !ok {
		return
	}
	c := &HTTPCheck{
		Domain:          p.domain,
		DeniedStatus:    p.status(all, "denied_status", statusTooManyRequests),
		UndecidedStatus: p.status(all, "undecided_status", statusUnavailable, statusOK),
		at:              p.place(f.key),
	}
	trusted := p.trustedProxies(all)
	c.Proxies, _ = clientip.New(trusted, clientip.Options{}) // each of them is checked
	list, ok := all["descriptors"]
	if !ok {
		p.faultf(f.key, "http_check has no descriptors: write what it asks about, such as [%q]", "addr={addr}")
		return
	}
	items := p.list(list.value, "descriptors")
	if n := len(items); n == 0 || n > maxCheckDescriptors {
		p.faultf(list.key, "descriptors has %d items: write 1 to %d", n, maxCheckDescriptors)
		return
	}
	for _, item := range items {
		c.Descriptors = append(c.Descriptors, p.checkDescriptor(item, len(trusted) > 0))
		c.askedFor = append(c.askedFor, p.place(item))
	}
	if before := p.config.check; before != nil {
		p.faultf(f.key, "http_check is in %s already, line %d: the service answers one", before.at.File, before.at.Line)
		return
	}
	p.config.check = c
}

// status returns a status of HTTP that refuses a request, or one of others.
func (p *parser) status(all map[string]field, name string, otherwise int, others ...int) int {
	f, ok := all[name]
	if !ok || isNull(f.value) {
		return otherwise
	}
	faults := len(p.faults)
	code := int(p.count(f, 599))
	if len(p.faults) > faults || code >= 400 || slices.Contains(others, code) {
		return code
	}
	write := "400 to 599"
	for _, o := range others {
		write = strconv.Itoa(o) + " or " + write
	}
	p.faultf(f.value, "%s is %d, which lets the request pass: write %s", name, code, write)
	return otherwise
}

// trustedProxies returns the proxies whose word on their clients is believed.
func (p *parser) trustedProxies(all map[string]field) (trusted []netip.Prefix) {
	f, ok := all["trusted_proxies"]
	if !ok {
		return nil
	}
	for _, item := range p.list(f.value, "trusted_proxies") {
		item = follow(item)
		faults := len(p.faults)
		text := p.text(field{f.key, item})
		if len(p.faults) > faults {
			continue
		}
		prefix, err := clientip.ParsePrefix(text)
		if err != nil {
			p.faultf(item, "trusted_proxies: %v", err)
			continue
		}
		trusted = append(trusted, prefix)
	}
	return trusted
}

// checkDescriptor reads one descriptor of an http_check: a list of entries, or one alone.
func (p *parser) checkDescriptor(item *yaml.Node, addrIsKnown bool) (entries []CheckEntry) {
	items := []*yaml.Node{item}
	if n := follow(item); n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	if n := len(items); n == 0 || n > maxCheckEntries {
		p.faultf(item, "the descriptor has %d entries: write 1 to %d", n, maxCheckEntries)
	}
	for _, at := range items[:min(len(items), maxCheckEntries)] {
		n := follow(at)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			p.faultf(at, "an entry is %s: write a text such as %q", describe(n), "addr={addr}")
			continue
		}
		entry, err := parseCheckEntry(n.Value)
		if err != nil {
			p.faultf(at, "%v", err)
			continue
		}
		p.judge(at, entry, addrIsKnown)
		entries = append(entries, entry)
	}
	return entries
}

// judge notes what an entry surely does not mean.
func (p *parser) judge(at *yaml.Node, e CheckEntry, addrIsKnown bool) {
	for _, part := range e.Value {
		switch {
		case part.Field == CheckAddr && !addrIsKnown:
			p.faultf(at, "without trusted_proxies {addr} is the gateway's own address, whoever its client is: write there the addresses that gateways ask from")
		case part.Field == CheckHeader && part.Header == "Host":
			p.faultf(at, "{header.Host} is the check's own host: write {host}")
		case part.Field == CheckHeader && (part.Header == "X-Forwarded-For" || part.Header == "Forwarded"):
			p.warnf(at, "clients can write anything into %s: {addr} is the client's address", part.Header)
		}
	}
}

// parseCheckEntry reads "key={addr}" or, with texts and more fields, "who={method} {path}".
func parseCheckEntry(text string) (CheckEntry, error) {
	const write = `write it as "key={addr}"`
	key, value, found := strings.Cut(text, "=")
	switch {
	case !found:
		return CheckEntry{}, fmt.Errorf("the entry %q has no \"=\": %s", short(text), write)
	case key == "" || value == "":
		return CheckEntry{}, fmt.Errorf("the entry %q lacks its key or its value: %s", short(text), write)
	case strings.ContainsAny(key, "{}"):
		return CheckEntry{}, fmt.Errorf("the entry %q has a brace in its key: only the value has fields; %s", short(text), write)
	}
	parts, err := parseCheckValue(value)
	if err != nil {
		return CheckEntry{}, fmt.Errorf("the entry %q: %w", short(text), err)
	}
	return CheckEntry{Key: key, Value: parts}, nil
}

func parseCheckValue(value string) (parts []CheckPart, err error) {
	for value != "" {
		open := strings.IndexAny(value, "{}")
		if open < 0 {
			return append(parts, CheckPart{Text: value}), nil
		}
		if value[open] == '}' {
			return nil, errors.New("a \"}\" closes nothing")
		}
		if open > 0 {
			parts = append(parts, CheckPart{Text: value[:open]})
		}
		name, rest, closed := strings.Cut(value[open+1:], "}")
		if !closed {
			return nil, errors.New("a \"{\" is not closed")
		}
		part, err := parseCheckField(name)
		if err != nil {
			return nil, err
		}
		parts, value = append(parts, part), rest
	}
	return parts, nil
}

// leastBits is the shortest network of IPv6 that may be one client. clientBits is the
// longest that every client has at least.
const (
	leastBits  = 16
	clientBits = 64
)

func parseCheckField(name string) (CheckPart, error) {
	switch name {
	case "addr":
		return CheckPart{Field: CheckAddr, Bits: clientBits}, nil
	case "host":
		return CheckPart{Field: CheckHost}, nil
	case "method":
		return CheckPart{Field: CheckMethod}, nil
	case "path":
		return CheckPart{Field: CheckPath}, nil
	}
	if text, ok := strings.CutPrefix(name, "addr/"); ok {
		bits, err := strconv.Atoi(text)
		if err != nil || bits < leastBits || bits > 128 || text != strconv.Itoa(bits) {
			return CheckPart{}, fmt.Errorf("{%s} names no network of IPv6: write {addr/%d} to {addr/128}", short(name), leastBits)
		}
		return CheckPart{Field: CheckAddr, Bits: bits}, nil
	}
	if header, ok := strings.CutPrefix(name, "header."); ok {
		if !isToken(header) {
			return CheckPart{}, fmt.Errorf("{%s} names no header: write it as {header.X-Api-Key}", short(name))
		}
		return CheckPart{Field: CheckHeader, Header: textproto.CanonicalMIMEHeaderKey(header)}, nil
	}
	return CheckPart{}, fmt.Errorf("unknown field {%s}: write {addr}, {host}, {method}, {path} or {header.NAME}", short(name))
}

// isToken reports whether s can be the name of a header (RFC 9110, 5.6.2).
func isToken(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(others, c) >= 0) {
			return false
		}
	}
	return s != ""
}

// warnOfHTTPCheck warns of what is asked about in vain, since no rule of the domain has
// these keys. It comes after the last file.
func (c *Config) warnOfHTTPCheck() {
	if c.check == nil || c.domains[c.check.Domain] == nil {
		return
	}
	for i, entries := range c.check.Descriptors {
		nodes, keys := []*node{&c.domains[c.check.Domain].node}, make([]string, len(entries))
		for n, e := range entries {
			keys[n] = e.Key
			var below []*node
			for _, from := range nodes {
				below = append(below, from.below(e.Key)...)
			}
			nodes = below
		}
		if len(keys) > 0 && !slices.ContainsFunc(nodes, func(n *node) bool { return n.rule != nil }) {
			f := c.check.askedFor[i]
			f.Message = fmt.Sprintf("the domain has no rule for the keys %s: this limits nothing", short(strings.Join(keys, ", ")))
			c.Warnings = append(c.Warnings, f)
		}
	}
}

// below returns the levels to which an entry with the key may lead.
func (n *node) below(key string) (below []*node) {
	for e, to := range n.exact {
		if e.Key == key {
			below = append(below, to)
		}
	}
	for _, w := range n.wildcards {
		if w.key.match(key) {
			below = append(below, w.to)
		}
	}
	if to := n.bare[key]; to != nil {
		below = append(below, to)
	}
	return below
}
