package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"weir.dev/weir"
)

// maxPath is the longest path of a rule, in bytes.
const maxPath = 512

// overridePath is the path of a limit that a request brings along. No descriptor has
// it: step quotes the brackets.
const overridePath = "<override>"

// step returns a level of a path: the key, or key=value. Text that would read as
// something else is quoted, so that different levels give different steps.
func step(key, value string) string {
	s := quoteIf(key, "=|\"<>")
	if value != "" {
		s += "=" + quoteIf(value, "|\"")
	}
	return s
}

func quoteIf(s, special string) string {
	if strings.ContainsAny(s, special) || strings.ContainsFunc(s, func(c rune) bool { return !strconv.IsPrint(c) }) {
		return strconv.Quote(s)
	}
	return s
}

// join returns the path of a level below parent. Of a long one the beginning is left,
// and a hash of the whole.
func join(parent, step string) string {
	path := step
	if parent != "" {
		path = parent + "|" + step
	}
	if len(path) <= maxPath {
		return path
	}
	sum := hash(path)
	return strings.ToValidUTF8(path[:maxPath-len(sum)], "") + sum
}

// stateName returns the name of the state of a rule's limit, the index-th of the
// rule's: "domain|path", and "#2|" for the second.
func stateName(domain, path string, index int) string {
	number := ""
	if index > 0 {
		number = fmt.Sprintf("#%d", index+1)
	}
	return stateNamed(domain, number, path)
}

// candidateName is stateName of the limit's candidate: "domain#candidate|path".
func candidateName(domain, path string, index int) string {
	number := "#candidate"
	if index > 0 {
		number = fmt.Sprintf("#%d", index+1) + number
	}
	return stateNamed(domain, number, path)
}

// stateNamed returns the name of a state, of which number says which of a rule's it is. What
// a name cannot hold, or what would read as something else, is replaced by a hash of all
// three.
func stateNamed(domain, number, path string) string {
	name := domain + number + "|" + path
	if !strings.ContainsAny(domain, "#|") && !strings.Contains(name, "~") && weir.ValidateName(name) == nil {
		return name
	}
	sum := hash(domain, path, number)
	readable := []byte(name)
	for i, c := range readable {
		if c <= ' ' || c > '~' || strings.IndexByte(`{}"\~`, c) >= 0 {
			readable[i] = '.'
		}
	}
	return string(readable[:min(len(readable), weir.MaxNameLen-len(sum))]) + sum
}

// hash returns "~" and 128 bits of the SHA-256 of the length-prefixed parts.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return "~" + hex.EncodeToString(h.Sum(nil)[:16])
}
