package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Bounds of one file. Within them reading takes time in proportion to its size.
const (
	// MaxFileBytes is the largest configuration file: 4 MiB.
	MaxFileBytes = 4 << 20
	// maxRepeated is how many values aliases and merges may repeat altogether.
	maxRepeated = 100_000
	// maxFaults is how many faults, and how many warnings, of one file are kept.
	maxFaults = 1000
	// maxMessage is how much of a message is kept, in bytes: it may quote the file.
	maxMessage = 600
)

// reader reads the YAML of one file and keeps what it finds wrong. A method that
// cannot make sense of a value notes the fault and returns what lets reading go on.
type reader struct {
	file     string
	lenient  bool // what is lost in silence is a warning, not a fault
	faults   []Fault
	warnings []Fault
}

func (r *reader) faultf(at *yaml.Node, format string, args ...any) {
	r.faults = r.note(r.faults, at, fmt.Sprintf(format, args...))
}

func (r *reader) warnf(at *yaml.Node, format string, args ...any) {
	r.warnings = r.note(r.warnings, at, fmt.Sprintf(format, args...))
}

func (r *reader) note(list []Fault, at *yaml.Node, message string) []Fault {
	switch {
	case len(list) > maxFaults:
		return list
	case len(list) == maxFaults:
		message = fmt.Sprintf("there is more than this: only %d are told", maxFaults)
	}
	f := r.place(at)
	f.Message = cut(message, maxMessage)
	return append(list, f)
}

// place returns where n is, as a Fault without a message. A node made by the decoder
// itself, such as an empty document, has no place.
func (r *reader) place(n *yaml.Node) Fault {
	return Fault{File: r.file, Line: max(n.Line, 1), Column: max(n.Column, 1)}
}

// document returns the file's one document, or nil if it cannot be read as YAML.
func (r *reader) document(data []byte) *yaml.Node {
	start := &yaml.Node{Line: 1, Column: 1}
	if len(data) > MaxFileBytes {
		r.faultf(start, "the file has %d bytes, more than %d: split it, a domain a file", len(data), MaxFileBytes)
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		r.faultf(start, "%v", err)
		return nil
	}
	var first, second yaml.Node
	switch err := loader.Load(&first); {
	case err == io.EOF:
		r.faultf(start, "the file is empty: write domain: and descriptors:")
		return nil
	case err != nil:
		r.syntax(err)
		return nil
	}
	switch err := loader.Load(&second); {
	case err == io.EOF:
	case r.lenient: // whatever it is
		if err != nil {
			second.Line = first.Line
		}
		r.warnf(&second, "a second document is not read: a file has one; put it in a file of its own")
	case err == nil:
		r.faultf(&second, "a second document begins here: a file has one; put it in a file of its own")
	default:
		r.syntax(err)
	}
	if !r.bounded(&first) {
		return nil
	}
	if len(first.Content) == 1 {
		return first.Content[0]
	}
	return &first
}

// syntax notes what the YAML decoder refused.
func (r *reader) syntax(err error) {
	at, message := &yaml.Node{Line: 1, Column: 1}, err.Error()
	var load *yaml.LoadError
	if errors.As(err, &load) {
		at.Line, at.Column, message = load.Mark.Line, load.Mark.Column, load.Message
		if load.ContextMsg != "" {
			message = load.ContextMsg + ": " + message
		}
	}
	r.faultf(at, "not YAML: %s", message)
}

// bounded reports whether the document with its aliases written out is of reasonable
// size. It looks at each value once, so a small file of aliases to aliases costs
// nothing, and what comes after may follow aliases freely.
func (r *reader) bounded(document *yaml.Node) bool {
	const open = -1 // on the way down: an alias to it contains itself
	sizes := map[*yaml.Node]int{}
	repeated := 0
	var size func(n *yaml.Node) (int, bool)
	size = func(n *yaml.Node) (int, bool) {
		if n.Kind == yaml.AliasNode {
			s, known := sizes[n.Alias]
			switch {
			case known && s == open:
				r.faultf(n, "*%s is inside of what it repeats: write it out", n.Value)
				return 0, false
			case !known: // an anchor is read before its aliases
				s = 1
			}
			if repeated = min(repeated+s, maxRepeated+1); repeated > maxRepeated {
				r.faultf(n, "with *%s the aliases repeat more than %d values: write fewer", n.Value, maxRepeated)
				return 0, false
			}
			return s, true
		}
		if n.Anchor != "" {
			sizes[n] = open
		}
		total := 1
		for _, child := range n.Content {
			s, ok := size(child)
			if !ok {
				return 0, false
			}
			total = min(total+s, maxRepeated+1)
		}
		if n.Anchor != "" {
			sizes[n] = total
		}
		return total, true
	}
	_, ok := size(document)
	return ok
}

// field is a key of a mapping and its value.
type field struct{ key, value *yaml.Node }

// fields returns the keys of the mapping n, by name, and reports false if n is no
// mapping; null is an empty one. what says what n is, for people.
func (r *reader) fields(n *yaml.Node, what string) (map[string]field, bool) {
	n = follow(n)
	switch {
	case isNull(n):
		return nil, true
	case n.Kind != yaml.MappingNode:
		r.faultf(n, "%s is %s: write keys and values below it", what, describe(n))
		return nil, false
	}
	all, written := make(map[string]field, len(n.Content)/2), make(map[string]field, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], follow(n.Content[i+1])
		name := follow(key)
		switch {
		case name.Kind != yaml.ScalarNode:
			r.faultf(key, "a key of %s is %s: write a word", what, describe(name))
		case name.Value == "<<" && name.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0:
			r.merge(all, written, field{key, value})
		default:
			if before, twice := written[name.Value]; twice {
				if !r.lenient {
					r.faultf(key, "%s is here twice, first in line %d: remove one", name.Value, before.key.Line)
					continue
				}
				r.warnf(key, "%s is here twice, and not what line %d says but this counts: remove one", name.Value, before.key.Line)
				value = over(before.value, value)
			}
			written[name.Value] = field{key, value}
			all[name.Value] = field{key, value}
		}
	}
	return all, true
}

// over returns what the original reads where a key has first one value and then another:
// of keys and values below each the sum, else the other.
func over(one, other *yaml.Node) *yaml.Node {
	if one.Kind != yaml.MappingNode || other.Kind != yaml.MappingNode {
		return other
	}
	sum := *other
	sum.Content = slices.Concat(one.Content, other.Content)
	return &sum
}

// merge puts the keys of what << merges into all. As in the original the last one
// written wins, so a merge goes over the keys written before it.
func (r *reader) merge(all, written map[string]field, f field) {
	from := []*yaml.Node{f.value}
	if f.value.Kind == yaml.SequenceNode {
		from = slices.Clone(f.value.Content)
		slices.Reverse(from) // of several mappings the first one wins
	}
	for _, n := range from {
		if n = follow(n); n.Kind != yaml.MappingNode {
			r.faultf(f.key, "<< merges %s: write an alias of keys and values", describe(n))
			return
		}
		merged, _ := r.fields(n, "what << merges")
		for name, m := range merged {
			if before, ok := written[name]; ok {
				r.warnf(f.key, "<< takes the place of %s in line %d: write << first", name, before.key.Line)
			}
			all[name] = m
		}
	}
}

// list returns the values of the sequence n; null is an empty one.
func (r *reader) list(n *yaml.Node, what string) []*yaml.Node {
	switch {
	case isNull(n):
		return nil
	case n.Kind != yaml.SequenceNode:
		r.faultf(n, "%s is %s: write a list, each item after a dash", what, describe(n))
		return nil
	}
	return n.Content
}

// text returns a text. It takes a number or a bool as it is written, with a warning;
// the original stops at a fraction, and so does this.
func (r *reader) text(f field) string {
	n, what := f.value, follow(f.key).Value
	switch {
	case isNull(n):
		return ""
	case n.Kind != yaml.ScalarNode:
		r.faultf(n, "%s is %s: write a text", what, describe(n))
		return ""
	}
	switch tag := n.ShortTag(); {
	case isFraction(n):
		r.faultf(n, "%s is the number %s: write it in quotes, %q", what, short(n.Value), short(n.Value))
	case tag == "!!binary":
		r.faultf(n, "%s is in base64: write the text itself", what)
	case tag == "!!int", tag == "!!bool":
		r.warnf(n, "%s is taken as the text %q: write it in quotes", what, short(n.Value))
	}
	return n.Value
}

// isFraction reports whether n is a number at which the original stops wherever it is: a
// fraction, or one past 64 bits.
func isFraction(n *yaml.Node) bool {
	if n.ShortTag() == "!!int" {
		var small int64
		return n.Decode(&small) != nil
	}
	return n.ShortTag() == "!!float"
}

// plainBools are what YAML 1.1, and so the original, takes as a bool beside true and
// false.
var plainBools = map[string]bool{
	"true": true, "yes": true, "on": true, "y": true,
	"false": false, "no": false, "off": false, "n": false,
}

// flag returns a bool; an absent one is false.
func (r *reader) flag(f field) bool {
	n := f.value
	if n == nil || isNull(n) {
		return false
	}
	if n.Kind == yaml.ScalarNode && n.Style&quoted == 0 {
		lower := strings.ToLower(n.Value)
		b, ok := plainBools[lower]
		if first := min(len(lower), 1); ok && (n.Value[first:] == lower[first:] || n.Value == strings.ToUpper(lower)) {
			return b
		}
	}
	r.faultf(n, "%s is %s: write true or false, without quotes", follow(f.key).Value, describe(n))
	return false
}

// count returns a whole number from 0 to most. null is 0, as in the original.
func (r *reader) count(f field, most uint64) uint64 {
	n, what := f.value, follow(f.key).Value
	if isNull(n) {
		return 0
	}
	digits := strings.ReplaceAll(n.Value, "_", "")
	whole := strings.TrimLeft(digits, "+-")
	isDigits := whole != "" && strings.Trim(whole, "0123456789") == ""
	switch {
	case n.Kind != yaml.ScalarNode:
		r.faultf(n, "%s is %s: write a whole number from 0 to %d", what, describe(n), most)
	case n.ShortTag() == "!!str" && isDigits:
		r.faultf(n, "%s is the text %q: write the number %s without quotes", what, n.Value, whole)
	case strings.HasPrefix(digits, "-"):
		r.faultf(n, "%s is %s, less than nothing: write 0 to %d", what, short(n.Value), most)
	case n.ShortTag() == "!!float" && !isDigits:
		r.faultf(n, "%s is %s: write a whole number, without a point or an exponent", what, short(n.Value))
	case n.ShortTag() != "!!int" && !isDigits:
		r.faultf(n, "%s is %s: write a whole number from 0 to %d", what, describe(n), most)
	default:
		v, err := strconv.ParseUint(strings.TrimPrefix(digits, "+"), 0, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			r.faultf(n, "%s is %q, which is no whole number: write 0 to %d", what, short(n.Value), most)
			return 0
		}
		if err != nil || v > most {
			r.faultf(n, "%s is %s, more than %d: write at most that", what, short(n.Value), most)
			return 0
		}
		if len(whole) > 1 && isDigits && whole[0] == '0' {
			r.warnf(n, "%s: %s begins with 0 and so is octal: it means %d", what, short(n.Value), v)
		}
		return v
	}
	return 0
}

// maxNesting is how deep a free value may nest. Protobuf's readers stop at 100
// messages inside of each other, and each level of a Struct is three.
const maxNesting = 20

// value returns any value, which is depth levels deep, as Go has it: nil, bool, int,
// float64, string, []any or map[string]any. Numbers are finite and strings are UTF-8.
func (r *reader) value(n *yaml.Node, depth int) any {
	n = follow(n)
	if depth > maxNesting {
		r.faultf(n, "metadata nests deeper than %d levels: write fewer", maxNesting)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		fields, _ := r.fields(n, "metadata")
		m := make(map[string]any, len(fields))
		for name, f := range fields {
			m[name] = r.value(f.value, depth+1)
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = r.value(item, depth+1)
		}
		return list
	}
	if n.ShortTag() == "!!timestamp" {
		return n.Value
	}
	var v any
	if err := n.Decode(&v); err != nil {
		r.faultf(n, "%q is no %s", short(n.Value), strings.TrimPrefix(n.ShortTag(), "!!"))
		return nil
	}
	f, isFloat := v.(float64)
	s, isText := v.(string)
	if isFloat && (math.IsInf(f, 0) || math.IsNaN(f)) || isText && !utf8.ValidString(s) {
		r.warnf(n, "an answer cannot carry this: it is taken as the text %q", short(n.Value))
		return n.Value
	}
	return v
}

const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

// follow returns what an alias stands for; reader.bounded has seen that it ends.
func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n.Kind == 0 || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// describe says what a value is, for people.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "empty"
	case n.ShortTag() == "!!int", n.ShortTag() == "!!float":
		return "the number " + short(n.Value)
	case n.ShortTag() == "!!bool":
		return short(n.Value)
	}
	return fmt.Sprintf("the text %q", short(n.Value))
}

// short is a text as far as a message can hold it.
func short(s string) string { return cut(s, 60) }

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
