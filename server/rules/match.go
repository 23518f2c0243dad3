package rules

import (
	"fmt"
	"slices"
	"strings"

	"weir.dev/weir"
)

// domain is one domain's tree of descriptors.
type domain struct {
	node
	algorithm    weir.Algorithm // where a limit names none
	byDefault    bool           // the file names none either
	onStoreError Policy
	instances    int
}

// node is a level of the tree: what an entry may be, and what each of them leads to.
type node struct {
	name      string          // the last step of its path
	exact     map[Entry]*node // with a value, wildcards as they are written among them
	wildcards []wildcard      // in the order of the file
	bare      map[string]*node
	joined    map[string]*node // all of them, by the original's name for a level
	rule      *Rule            // nil if a request cannot end here
}

type wildcard struct {
	key    glob
	value  glob // nil: any
	joined glob
	to     *node
}

// joined is the original's name for a level: key_value, or the key alone where the value
// is empty.
func (e Entry) joined() string {
	if e.Value == "" {
		return e.Key
	}
	return e.Key + "_" + e.Value
}

// Match returns the rule that the entries of one descriptor match, or nil. At each
// level an exact value goes before wildcards in the order of the file, and these
// before a key without a value; what a level chose is never taken back. A rule
// matches only if it is on the level of the last entry.
//
// The original joins key and value by "_" before it looks them up, so there the key
// user_vip without a value meets the value vip of the key user. Here the two are apart,
// and MatchJoined is the original's way.
func (c *Config) Match(domain string, entries []Entry) *Rule {
	d := c.domains[domain]
	if d == nil {
		return nil
	}
	n := &d.node
	for _, e := range entries {
		if n, _ = n.child(e); n == nil {
			return nil
		}
	}
	return n.rule
}

// MatchJoined is Match, but that key and value are one text joined by "_", both in the
// configuration and in the request, as in the original.
func (c *Config) MatchJoined(domain string, entries []Entry) *Rule {
	d := c.domains[domain]
	if d == nil {
		return nil
	}
	n := &d.node
	for _, e := range entries {
		if n, _ = n.childJoined(e); n == nil {
			return nil
		}
	}
	return n.rule
}

// How is why a level of the configuration was chosen for an entry.
type How string

// The ways to match, the first before the others.
const (
	ByValue    How = "exact value"
	ByWildcard How = "wildcard"
	ByKey      How = "key alone"
	ByNothing  How = "no match"
)

// child returns the level that an entry leads to, or nil.
func (n *node) child(e Entry) (*node, How) {
	if to := n.exact[e]; to != nil {
		return to, ByValue
	}
	for i := range n.wildcards {
		w := &n.wildcards[i]
		if w.key.match(e.Key) && (w.value == nil || w.value.match(e.Value)) {
			return w.to, ByWildcard
		}
	}
	if to := n.bare[e.Key]; to != nil {
		return to, ByKey
	}
	return nil, ByNothing
}

// childJoined returns the level that an entry leads to in the original, or nil. There an
// empty value too is joined to its key.
func (n *node) childJoined(e Entry) (*node, How) {
	name := e.Key + "_" + e.Value
	if to := n.joined[name]; to != nil {
		return to, ByValue
	}
	for i := range n.wildcards {
		if w := &n.wildcards[i]; w.joined.match(name) {
			return w.to, ByWildcard
		}
	}
	if to := n.joined[e.Key]; to != nil {
		return to, ByKey
	}
	return nil, ByNothing
}

// Step is what one entry of a request led to.
type Step struct {
	Entry Entry
	How   How
	Level string   // the level chosen, as in a path, or "" without a match
	Else  []string // without a match: what the level has, sorted
}

// Explain returns the steps that Match takes, up to the first without a match, or nil
// for an unknown domain.
func (c *Config) Explain(domain string, entries []Entry) []Step {
	return c.explain(domain, entries, (*node).child)
}

// ExplainJoined returns the steps that MatchJoined takes.
func (c *Config) ExplainJoined(domain string, entries []Entry) []Step {
	return c.explain(domain, entries, (*node).childJoined)
}

func (c *Config) explain(domain string, entries []Entry, child func(*node, Entry) (*node, How)) []Step {
	d := c.domains[domain]
	if d == nil {
		return nil
	}
	var steps []Step
	n := &d.node
	for _, e := range entries {
		to, how := child(n, e)
		if to == nil {
			return append(steps, Step{Entry: e, How: how, Else: n.levels()})
		}
		steps = append(steps, Step{Entry: e, How: how, Level: to.name})
		n = to
	}
	return steps
}

// levels returns the names of the levels below n, sorted.
func (n *node) levels() []string {
	var names []string
	for _, to := range n.exact {
		names = append(names, to.name)
	}
	for _, to := range n.bare {
		names = append(names, to.name)
	}
	slices.Sort(names)
	return names
}

// Override returns the rule that stands for the limit which a request brings along
// for a descriptor. It has the path of the rule that the entries match, if they match
// one, but nothing else of it, and its state is apart from that of all rules, one for
// each unit. It is nil for an unknown domain, where the original ignores such limits.
// The error says what is wrong with o.
func (c *Config) Override(domain string, entries []Entry, o Override) (*Rule, error) {
	d := c.domains[domain]
	if d == nil {
		return nil, nil
	}
	if o.Unit.Period() == 0 {
		return nil, fmt.Errorf("the request's own limit has the unit %v: write %s", o.Unit, instead("", unitNames))
	}
	limit := weir.Per(int64(o.RequestsPerUnit), o.Unit.Period()).By(d.algorithm)
	if err := limit.Validate(); err != nil {
		return nil, fmt.Errorf("the request's own limit: %w", err)
	}
	path := overridePath
	if matched := c.Match(domain, entries); matched != nil {
		path = matched.Path
	}
	return &Rule{
		Domain: domain,
		Path:   path,
		Limits: []Limit{{
			Limit:           limit,
			StateName:       stateName(domain, overridePath+o.Unit.String(), 0),
			RequestsPerUnit: o.RequestsPerUnit,
			Unit:            o.Unit,
			Multiplier:      1,
			ByDefault:       d.byDefault,
			OnStoreError:    d.onStoreError,
			Instances:       d.instances,
		}},
	}, nil
}

// Key returns who a request's entries are, for the state of the rule they matched.
// Different entries give different keys, but that at a level with share_threshold all
// values are one.
func (r *Rule) Key(entries []Entry) weir.Key {
	var few [16]string
	parts := few[:0]
	for i, e := range entries {
		value := e.Value
		if i < len(r.Shared) && r.Shared[i] != "" {
			value = r.Shared[i]
		}
		parts = append(parts, e.Key, value)
	}
	return weir.Parts(parts...)
}

// glob is a pattern: the texts between its stars, each of which stands for any text.
// A glob of one text is that text.
type glob []string

func makeGlob(pattern string) glob { return strings.Split(pattern, "*") }

func (g glob) match(s string) bool {
	first, last := g[0], g[len(g)-1]
	if len(g) == 1 {
		return s == first
	}
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, text := range g[1 : len(g)-1] {
		i := strings.Index(s, text)
		if i < 0 {
			return false
		}
		s = s[i+len(text):]
	}
	return true
}
