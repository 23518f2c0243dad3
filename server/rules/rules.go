// Package rules turns configuration into rules, and a request's descriptors into the
// rule that they match. It is pure: text in, rules out; no files, no clock, no store.
//
// The configuration is envoyproxy/ratelimit's YAML, and a file written for that
// service means here what it means there: fixed windows, matched level by level. It
// accepts more: an algorithm, a burst and a window for each limit, several limits on
// one descriptor, and a default algorithm for the domain.
package rules

import (
	"fmt"
	"slices"
	"strings"

	"weir.dev/weir"
)

// Config is what some configuration files say together. It does not change once it
// is made, and is safe for concurrent use.
type Config struct {
	// Warnings are what the files say that has surely another effect than was meant,
	// but that envoyproxy/ratelimit accepts, sorted by file and line.
	Warnings []Fault

	domains map[string]*domain
	names   []string // the domains, in the order of the files
	rules   []*Rule
	placed  []placed
	check   *HTTPCheck
}

// Fault is one thing wrong in a configuration file: where, and what to write instead.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1
	Column  int    `json:"column"` // from 1
	Message string `json:"message"`
}

// String returns "file:line:column: message".
func (f Fault) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
}

// Faults is everything wrong in the files given to Parse, sorted by file and line. It
// is never empty.
type Faults []Fault

// Error returns the faults, one a line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Rule is a descriptor of the configuration: what a request that matches it gets.
type Rule struct {
	Domain string
	// Path names the rule for people and for metrics: the keys and values from the
	// domain down to it, such as "database=users|tier". It is text of the
	// configuration alone, never of a request, and no two rules of a domain share it.
	Path string
	// Levels are what the configuration says at each level down to the rule: the key,
	// and the value, or "" where it takes any. Stars are as they are written.
	Levels []Entry
	// Limits are charged all or none. A rule without limits that is not Unlimited is
	// a whitelist entry: it allows, counts nothing and tells no limit.
	Limits    []Limit
	Unlimited bool
	Shadow    bool // counts, and never denies

	// Quota says that being over this limit denies a request only together with
	// others: see envoyproxy/ratelimit's quota_mode.
	Quota bool
	// Replaces are the names of limits that do not count in a request that matches
	// this rule too.
	Replaces []string
	// DetailedMetric asks for a metric for each set of a request's values.
	DetailedMetric bool
	// Metadata is what a passed request's answer carries, or nil: null, bool, number,
	// string, []any and map[string]any.
	Metadata map[string]any
	// ValueToMetric says for each level whether the request's value goes into the metric.
	ValueToMetric []bool
	// Shared has for each level the pattern that stands for all values it takes
	// (share_threshold), or "".
	Shared []string
}

// Limit is one limit of a Rule.
type Limit struct {
	weir.Limit
	// StateName is the name under which a store keeps this limit's state. It passes
	// weir.ValidateName, depends on nothing but the domain, the path and the place
	// among the rule's limits, and differs where one of these does.
	StateName string
	Name      string // the configuration's name for it, or ""

	// RequestsPerUnit, Unit and Multiplier say the limit as the protocol does: 5 each
	// 30 s is 5, UnitSecond, 30. A window that is not in whole seconds is UnitUnknown, 0.
	RequestsPerUnit uint32
	Unit            Unit
	Multiplier      uint32

	// ByDefault says that neither the limit nor its file names an algorithm: then it is
	// the original's, a fixed window.
	ByDefault bool

	OnStoreError Policy // what it does when the store cannot decide; see Fallback
	Instances    int    // how many instances of the service share it, as its file says, or 0
	Lease        Lease  // the zero Lease is none

	// Candidate is a limit that decides the same requests beside this one, and whose
	// decisions are only counted; nil is none. It has neither a policy nor a lease.
	Candidate *Limit
}

// String says the limit for people: "100 per minute burst 20 by gcra".
func (l Limit) String() string {
	if l.Units() == 0 {
		return "denies everything"
	}
	burst := ""
	if a := l.Algorithm(); (a == weir.GCRA || a == weir.LeakyBucket) && l.Capacity() != l.Units() {
		burst = fmt.Sprintf(" burst %d", l.Capacity())
	}
	return fmt.Sprintf("%d per %s%s by %v", l.Units(), l.Window(), burst, l.Algorithm())
}

// WorstCase returns the most units that the limit lets pass in any interval as long as its
// period, the end excluded; of a leaky bucket, the most that leave its queue.
func (l Limit) WorstCase() int64 {
	n := l.Units()
	if n == 0 {
		return 0
	}
	switch l.Algorithm() {
	case weir.GCRA:
		return l.Capacity() + n - 1
	case weir.LeakyBucket:
		return n + 1
	case weir.FixedWindow:
		return 2 * n
	case weir.SlidingWindow:
		return 2*n - 1
	}
	return n
}

// Window says the limit's period for people: "minute", or "36h" where it is not one unit.
func (l Limit) Window() string {
	if l.Multiplier == 1 {
		return l.Unit.String()
	}
	s, whole := strings.CutSuffix(l.Period().String(), "m0s")
	if !whole {
		return s
	}
	if hours, whole := strings.CutSuffix(s, "h0"); whole {
		return hours + "h"
	}
	return s + "m"
}

// Entry is one key and value of a request's descriptor. Any bytes will do.
type Entry struct{ Key, Value string }

// Override is a limit that a request brings along for one of its descriptors.
type Override struct {
	RequestsPerUnit uint32
	Unit            Unit
}

// Rules returns every rule, in the order of the files. The caller must not change it.
func (c *Config) Rules() []*Rule { return c.rules }

// Domains returns the domains, in the order of the files.
func (c *Config) Domains() []string { return slices.Clone(c.names) }

// Has reports whether some file is for the domain.
func (c *Config) Has(domain string) bool { return c.domains[domain] != nil }
