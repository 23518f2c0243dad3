package rules

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxLevels is how deep descriptors may nest: more entries than any proxy sends.
const maxLevels = 100

// maxCovering is how many wildcards of a level each later one is compared with, to
// warn of those that nothing reaches.
const maxCovering = 200

// level is what a descriptor's parents have said.
type level struct {
	depth         int
	path          string
	entries       []Entry
	shared        []string
	valueToMetric []bool
	policy        said             // the nearest above
	seen          map[string]Fault // what is at the level, by the name that the original gives it, and where
}

// children reads the list of descriptors below n.
func (p *parser) children(n *node, at level, list field) {
	if at.depth == maxLevels {
		p.faultf(list.key, "descriptors nest deeper than %d levels: write fewer", maxLevels)
		return
	}
	for _, item := range p.list(list.value, "descriptors") {
		all, ok := p.known(item, inDescriptor)
		if !ok {
			continue
		}
		e := p.entry(item, all)
		name, once := e.joined(), "write it once, with all limits (limits:)"
		if p.options.Upstream {
			once = "write it once"
		}
		before, twice := at.seen[name]
		switch {
		case twice && e.Key != "" && before.File != p.file:
			p.faultf(item, "the descriptor %s is in %s already, line %d: %s", short(name), before.File, before.Line, once)
		case twice && e.Key != "":
			p.faultf(item, "the descriptor %s is here twice, first in line %d: %s", short(name), before.Line, once)
		default:
			at.seen[name] = p.place(follow(item))
		}
		p.descriptor(n, at, e, all)
	}
}

// entry returns the key and value that a descriptor is for.
func (p *parser) entry(item *yaml.Node, all map[string]field) (e Entry) {
	if f, ok := all["value"]; ok {
		e.Value = p.text(f)
	}
	f, ok := all["key"]
	if !ok {
		p.faultf(item, "the descriptor has no key: write key: and the key of the proxy's descriptor entry")
		return e
	}
	if e.Key = p.text(f); e.Key == "" {
		p.faultf(f.key, "key is empty: write the key of the proxy's descriptor entry")
	}
	if strings.Contains(e.Key, "*") {
		p.warnf(f.value, "the * in the key %q stands for any text: write it in the value, if that was meant", short(e.Key))
	}
	return e
}

// descriptor reads one descriptor and puts it into the tree below parent.
func (p *parser) descriptor(parent *node, at level, e Entry, all map[string]field) {
	n := &node{name: step(e.Key, e.Value)}
	p.put(parent, e, n, all)
	below := level{depth: at.depth + 1, path: join(at.path, n.name), policy: p.policyOf(all, at.policy), seen: map[string]Fault{}}
	below.entries = append(at.entries[:at.depth:at.depth], e)
	below.valueToMetric = append(at.valueToMetric[:at.depth:at.depth], p.flagOf(all, "value_to_metric"))
	below.shared = append(at.shared[:at.depth:at.depth], p.sharedPattern(e, all))

	children := all["descriptors"]
	leaf := children.value == nil || isNull(children.value) || children.value.Kind == yaml.SequenceNode && len(children.value.Content) == 0
	r := p.rule(all, below.policy)
	limited := len(r.Limits) > 0 || r.Unlimited
	if limited || leaf {
		r.Domain, r.Path, r.Levels = p.domain, below.path, below.entries
		r.Shared, r.ValueToMetric = below.shared, below.valueToMetric
		for i := range r.Limits {
			r.Limits[i].StateName = stateName(r.Domain, r.Path, i)
			if c := r.Limits[i].Candidate; c != nil {
				c.StateName = candidateName(r.Domain, r.Path, i)
			}
		}
		n.rule = r
		p.config.rules = append(p.config.rules, r)
	}
	if !limited {
		p.warnWithoutLimit(all, leaf)
	}
	if !leaf {
		p.children(n, below, children)
	}
}

// rule reads what a descriptor says of the requests that end at it. Its limits have the
// policy, where they name none.
func (p *parser) rule(all map[string]field, policy said) *Rule {
	r := &Rule{
		Shadow:         p.flagOf(all, "shadow_mode"),
		Quota:          p.flagOf(all, "quota_mode"),
		DetailedMetric: p.flagOf(all, "detailed_metric"),
	}
	if f, ok := all["metadata"]; ok && !isNull(f.value) {
		if f.value.Kind == yaml.MappingNode {
			r.Metadata, _ = p.value(f.value, 0).(map[string]any)
		} else {
			p.faultf(f.value, "metadata is %s: write keys and values below it", describe(f.value))
		}
	}
	one, hasOne := all["rate_limit"]
	many, hasMany := all["limits"]
	if hasOne && hasMany && !isNull(one.value) {
		p.faultf(many.key, "rate_limit and limits are both here: write all of the limits in limits")
	}
	if hasOne && !isNull(one.value) {
		p.limit(r, one.value, policy, false)
	}
	p.compare(r, all)
	if hasMany {
		items := p.list(many.value, "limits")
		if len(items) == 0 && (isNull(many.value) || many.value.Kind == yaml.SequenceNode) {
			p.faultf(many.key, "limits is empty: write a list of limits, or leave it out")
		}
		for _, item := range items {
			p.limit(r, item, policy, true)
		}
	}
	return r
}

func (p *parser) flagOf(all map[string]field, name string) bool {
	f, ok := all[name]
	return ok && p.flag(f)
}

// sharedPattern returns the text that stands for all values of a level with
// share_threshold, or "".
func (p *parser) sharedPattern(e Entry, all map[string]field) string {
	if !p.flagOf(all, "share_threshold") {
		return ""
	}
	switch {
	case strings.Contains(e.Value, "*"):
		return e.Value
	case strings.Contains(e.Key, "*"):
		return "*"
	}
	p.faultf(all["share_threshold"].key, "share_threshold needs a * in the value, for values that share one count: write one, or leave share_threshold out")
	return ""
}

// put makes the entry e lead from parent to n.
func (p *parser) put(parent *node, e Entry, n *node, all map[string]field) {
	if parent.joined == nil {
		parent.joined = map[string]*node{}
	}
	parent.joined[e.joined()] = n
	if e.Value != "" {
		if parent.exact == nil {
			parent.exact = map[Entry]*node{}
		}
		parent.exact[e] = n
	} else {
		if parent.bare == nil {
			parent.bare = map[string]*node{}
		}
		parent.bare[e.Key] = n
	}
	if !strings.Contains(e.Key, "*") && !strings.Contains(e.Value, "*") {
		return
	}
	w := wildcard{key: makeGlob(e.Key), joined: makeGlob(e.joined()), to: n}
	if e.Value != "" {
		w.value = makeGlob(e.Value)
	}
	for _, before := range parent.wildcards[:min(len(parent.wildcards), maxCovering)] {
		// A star of e is an ordinary character to the patterns before it: only
		// their own stars can stand for it, and so for all it stands for.
		if before.key.match(e.Key) && (before.value == nil || w.value != nil && before.value.match(e.Value)) {
			p.warnf(all["key"].key, "nothing reaches %s: %s before it takes all of its values; the first wildcard in the file goes", short(n.name), short(before.to.name))
			break
		}
	}
	parent.wildcards = append(parent.wildcards, w)
}

// warnWithoutLimit warns of what a descriptor says of a limit that it has not, nor, if it
// is a leaf, any below.
func (p *parser) warnWithoutLimit(all map[string]field, leaf bool) {
	if f, ok := all["rate_limit"]; ok && !isNull(f.value) {
		return // a faulty one, which is told already
	}
	for _, name := range []string{"shadow_mode", "quota_mode", "detailed_metric"} {
		if f, ok := all[name]; ok && plainBools[strings.ToLower(f.value.Value)] {
			p.warnf(f.key, "%s has no effect without a rate_limit beside it", name)
		}
	}
	if f, ok := all["on_store_error"]; ok && leaf && !isNull(f.value) {
		p.warnf(f.key, "on_store_error has no effect without a rate_limit beside or below it")
	}
}
