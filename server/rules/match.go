package rules

import "weir.dev/weir"

type domain struct{}

// Match returns the rule that the entries of one descriptor match, or nil. At each
// level an exact value goes before wildcards in the order of the file, and these
// before a key without a value; what a level chose is never taken back. A rule
// matches only if it is on the level of the last entry.
func (c *Config) Match(domain string, entries []Entry) *Rule { return nil }

// Override returns the rule that stands for the limit which a request brings along
// for a descriptor, whatever the descriptor matches. It is nil for an unknown domain,
// where the original ignores such limits. The error says what is wrong with o.
func (c *Config) Override(domain string, entries []Entry, o Override) (*Rule, error) {
	return nil, nil
}

// Key returns who a request's entries are, for the state of the rule they matched.
// Different entries give different keys, but that at a level with share_threshold all
// values are one.
func (r *Rule) Key(entries []Entry) weir.Key { return weir.Key{} }
