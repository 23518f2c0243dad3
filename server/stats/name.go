package stats

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// sanitize returns the name with an underscore for each byte that is no part of a UTF-8
// character, and each character that separates the parts of a line to a sink or cannot be
// printed. Most names are returned as they are.
func sanitize(name string) string {
	clean := func(c rune) bool {
		return c != ':' && c != '|' && c != '@' && c != '#' && c != ',' && c != utf8.RuneError && unicode.IsGraphic(c) && !unicode.IsSpace(c)
	}
	dirty := func(c rune) bool { return !clean(c) }
	if strings.IndexFunc(name, dirty) < 0 {
		return name
	}
	return strings.Map(func(c rune) rune {
		if clean(c) {
			return c
		}
		return '_'
	}, name)
}
