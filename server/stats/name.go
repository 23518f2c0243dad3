package stats

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// sanitize returns the name as the Registry keeps it: with an underscore for a colon, a bar,
// whatever cannot be printed, and each byte that is no part of a UTF-8 character; and for
// nothing at all. Most names are returned as they are.
func sanitize(name string) string {
	switch {
	case name == "":
		return "_"
	case plain(name):
		return name
	}
	return underscore(name, func(c rune) bool { return c == ':' || c == '|' || unprintable(c) })
}

// lineName returns the name as a line to a sink may hold it. It has no spaces, and none of
// the characters that begin a tag in some dialect: a client's value would else set tags.
func lineName(name string) string {
	if plain(name) {
		return name
	}
	return underscore(name, func(c rune) bool { return strings.ContainsRune(":|#,;[]", c) || c == ' ' || unprintable(c) })
}

// lineTag returns the key or the value of a tag as a line may hold it.
func lineTag(s string) string {
	return underscore(s, func(c rune) bool { return strings.ContainsRune("|#,", c) || c == ' ' || unprintable(c) })
}

func unprintable(c rune) bool { return c == utf8.RuneError || !unicode.IsPrint(c) }

// underscore returns s with an underscore for each character that is bad, and for each byte
// that is no part of one if utf8.RuneError is.
func underscore(s string, bad func(rune) bool) string {
	if strings.IndexFunc(s, bad) < 0 {
		return s
	}
	return strings.Map(func(c rune) rune {
		if bad(c) {
			return '_'
		}
		return c
	}, s)
}

// plain reports whether s is made of letters, digits, dots and underscores, as most names
// are. It is much faster than to look at each character.
func plain(s string) bool {
	for i := range len(s) {
		if !isPlain[s[i]] {
			return false
		}
	}
	return true
}

var isPlain = func() (is [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/") {
		is[c] = true
	}
	return is
}()
