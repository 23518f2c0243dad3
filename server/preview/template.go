package preview

import (
	"errors"
	"fmt"
	"strings"
)

// Template makes one entry of a descriptor from a request: a key, and a value of texts
// and fields.
type Template struct {
	Key   string
	parts []part
}

// part is a text, or a field where text is "".
type part struct {
	text  string
	field Field
}

// ParseTemplate reads "key={addr}" or, with texts and more fields, "who={user}@{addr}".
// The error says which fields there are.
func ParseTemplate(s string) (Template, error) {
	key, value, found := strings.Cut(s, "=")
	switch {
	case !found:
		return Template{}, fmt.Errorf("%.80q has no \"=\": write it as %s", s, example)
	case key == "":
		return Template{}, fmt.Errorf("%.80q has no key: write it as %s", s, example)
	case strings.ContainsAny(key, "{}"):
		return Template{}, fmt.Errorf("%.80q has a brace in the key: only the value has fields, as in %s", s, example)
	case value == "":
		return Template{}, fmt.Errorf("%.80q has no value: write it as %s", s, example)
	}
	parts, err := parseParts(value)
	if err != nil {
		return Template{}, fmt.Errorf("%.80q: %w", s, err)
	}
	return Template{Key: key, parts: parts}, nil
}

const example = "'key={addr}'"

func parseParts(value string) (parts []part, err error) {
	for value != "" {
		open := strings.IndexAny(value, "{}")
		if open < 0 {
			return append(parts, part{text: value}), nil
		}
		if value[open] == '}' {
			return nil, errors.New("a \"}\" closes nothing: " + fieldsThereAre)
		}
		if open > 0 {
			parts = append(parts, part{text: value[:open]})
		}
		name, rest, found := strings.Cut(value[open+1:], "}")
		if !found {
			return nil, errors.New("a \"{\" is not closed: " + fieldsThereAre)
		}
		field, err := parseField(name)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{field: field})
		value = rest
	}
	return parts, nil
}

var fieldsThereAre = "the fields are {" + strings.Join(fieldNames[:], "} {") + "}"

func parseField(name string) (Field, error) {
	for f, n := range fieldNames {
		if n == name {
			return Field(f), nil
		}
	}
	return 0, fmt.Errorf("unknown field {%.40s}: %s", name, fieldsThereAre)
}

// Value returns the entry's value for a request. The error names a field that the
// request's line does not have.
func (t Template) Value(r *Record) (string, error) {
	if len(t.parts) == 1 && t.parts[0].text == "" {
		return r.field(t.parts[0].field)
	}
	var b strings.Builder
	for _, p := range t.parts {
		if p.text != "" {
			b.WriteString(p.text)
			continue
		}
		value, err := r.field(p.field)
		if err != nil {
			return "", err
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

func (r *Record) field(f Field) (string, error) {
	if r.Fields[f] == "" {
		return "", fmt.Errorf("the line has no {%v}", f)
	}
	return r.Fields[f], nil
}
