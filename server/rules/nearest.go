package rules

import "strings"

// instead says what to write in place of a word: the one of words that was surely
// meant, or else all of them.
func instead(word string, words []string) string {
	if w := nearest(strings.ToLower(word), words); w != "" {
		return w
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// nearest returns the word that is meant: the only one that begins like it, or the
// one fewest edits away, at most a third of its length. It returns "" if none is.
func nearest(word string, words []string) string {
	const longest = 40 // no word is longer than half of that
	if word == "" || len(word) > longest {
		return ""
	}
	begins, n := "", 0
	best, least := "", len(word)/3+1
	for _, w := range words {
		if strings.HasPrefix(w, word) || strings.HasPrefix(word, w) {
			begins = w
			n++
		}
		if d := edits(word, w); d < least {
			best, least = w, d
		}
	}
	if n == 1 {
		return begins
	}
	return best
}

// edits counts the insertions, deletions and replacements of bytes from a to b
// (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
