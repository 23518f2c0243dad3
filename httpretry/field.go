package httpretry

import (
	"encoding/base64"
	"strings"
)

// maxField bounds the bytes of a field that are read; a longer one is malformed.
const maxField = 4096

// member is one member of a structured field (RFC 9651): an item of a List, or of a Dictionary if it has a name.
type member struct {
	name   string
	value  value
	params []param
}

type param struct {
	name  string
	value value
}

// value is a bare item. Only integers and texts matter here; of the other types the kind is all that is kept.
type value struct {
	kind   kind
	number int64
	text   string // of a String, Token or Byte Sequence
}

type kind uint8

const (
	other kind = iota
	integer
	text
	binary
)

// parseField reads a List of Items, or a Dictionary of Items, whose field lines have been joined with commas. It is strict
// as RFC 9651, section 4.2 is: one fault and the whole field is to be ignored. Inner lists are faults too, since no RateLimit
// field has them.
func parseField(s string) ([]member, bool) {
	if len(s) > maxField {
		return nil, false
	}
	p := parser{strings.Trim(s, " ")}
	var list []member
	for p.s != "" {
		m, ok := p.member()
		if !ok {
			return nil, false
		}
		list = append(list, m)
		p.s = strings.TrimLeft(p.s, " \t")
		if p.s == "" {
			return list, true
		}
		if !p.skip(',') {
			return nil, false
		}
		p.s = strings.TrimLeft(p.s, " \t")
		if p.s == "" { // a comma at the end: cut short
			return nil, false
		}
	}
	return list, true
}

// parser holds what is still to be read.
type parser struct{ s string }

func (p *parser) member() (m member, ok bool) {
	if name, rest := scanKey(p.s); name != "" && strings.HasPrefix(rest, "=") {
		m.name, p.s = name, rest[1:]
	}
	if m.value, ok = p.value(); !ok {
		return m, false
	}
	for p.skip(';') {
		p.s = strings.TrimLeft(p.s, " ")
		name, rest := scanKey(p.s)
		if name == "" {
			return m, false
		}
		p.s = rest
		q := param{name: name} // without a value it is the Boolean true, one of the others
		if p.skip('=') {
			if q.value, ok = p.value(); !ok {
				return m, false
			}
		}
		m.params = append(m.params, q)
	}
	return m, true
}

func (p *parser) value() (value, bool) {
	if p.s == "" {
		return value{}, false
	}
	switch c := p.s[0]; {
	case c == '"':
		return p.quoted()
	case c == ':':
		encoded, rest, ok := strings.Cut(p.s[1:], ":")
		raw, err := base64.StdEncoding.DecodeString(encoded)
		p.s = rest
		return value{kind: binary, text: string(raw)}, ok && err == nil
	case c == '?':
		ok := len(p.s) > 1 && (p.s[1] == '0' || p.s[1] == '1')
		p.s = p.s[min(2, len(p.s)):]
		return value{}, ok
	case c == '-' || isDigit(c):
		return p.number()
	case c == '*' || isLetter(c):
		n := 1
		for n < len(p.s) && (isTokenByte(p.s[n]) || p.s[n] == ':' || p.s[n] == '/') {
			n++
		}
		v := value{kind: text, text: p.s[:n]}
		p.s = p.s[n:]
		return v, true
	}
	return value{}, false // an inner list, a Date, a Display String, or no item at all
}

func (p *parser) quoted() (value, bool) {
	var b strings.Builder
	for i := 1; i < len(p.s); i++ {
		c := p.s[i]
		switch {
		case c == '"':
			p.s = p.s[i+1:]
			return value{kind: text, text: b.String()}, true
		case c == '\\':
			i++
			if i == len(p.s) || p.s[i] != '"' && p.s[i] != '\\' {
				return value{}, false
			}
			c = p.s[i]
		case c < ' ' || c > '~':
			return value{}, false
		}
		b.WriteByte(c)
	}
	return value{}, false // no closing quote
}

// number reads an Integer of at most 15 digits, or a Decimal of at most 12 and 3.
func (p *parser) number() (value, bool) {
	negative := p.skip('-')
	digits := p.digits()
	if p.skip('.') {
		fraction := p.digits()
		return value{}, digits != "" && len(digits) <= 12 && fraction != "" && len(fraction) <= 3
	}
	if digits == "" || len(digits) > 15 {
		return value{}, false
	}
	var n int64
	for i := range len(digits) {
		n = n*10 + int64(digits[i]-'0')
	}
	if negative {
		n = -n
	}
	return value{kind: integer, number: n}, true
}

func (p *parser) digits() string {
	n := 0
	for n < len(p.s) && isDigit(p.s[n]) {
		n++
	}
	digits := p.s[:n]
	p.s = p.s[n:]
	return digits
}

func (p *parser) skip(c byte) bool {
	if p.s == "" || p.s[0] != c {
		return false
	}
	p.s = p.s[1:]
	return true
}

// scanKey splits a key (of a parameter or a Dictionary) off s.
func scanKey(s string) (key, rest string) {
	n := 0
	for n < len(s) {
		c := s[n]
		if c >= 'a' && c <= 'z' || c == '*' || n > 0 && (isDigit(c) || c == '_' || c == '-' || c == '.') {
			n++
			continue
		}
		break
	}
	return s[:n], s[n:]
}

// param returns the last parameter of that name, which is the one that counts.
func (m member) param(name string) (value, bool) {
	for i := len(m.params) - 1; i >= 0; i-- {
		if m.params[i].name == name {
			return m.params[i].value, true
		}
	}
	return value{}, false
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
