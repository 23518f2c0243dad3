package rules

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"weir.dev/weir"
)

// File is a configuration file: its name, for messages, and its text.
type File struct {
	Name string
	Data []byte
}

// Parse reads the files together. Its error is Faults: every fault of every file, and
// then no Config at all.
func Parse(files ...File) (*Config, error) {
	c := &Config{domains: map[string]*domain{}}
	places := map[string]Fault{} // where each domain is named
	var faults Faults
	for _, f := range files {
		p := parser{reader: reader{file: f.Name}, config: c, places: places, names: map[string]int{}}
		if document := p.document(f.Data); document != nil {
			p.root(document)
		}
		faults = append(faults, p.faults...)
		c.Warnings = append(c.Warnings, p.warnings...)
	}
	c.Warnings = sorted(c.Warnings)
	if len(faults) > 0 {
		return nil, Faults(sorted(faults))
	}
	return c, nil
}

// sorted sorts faults by place, and drops what an alias made come twice.
func sorted(faults []Fault) []Fault {
	slices.SortFunc(faults, func(a, b Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column, strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(faults)
}

// parser makes one file's part of a Config.
type parser struct {
	reader
	config *Config
	places map[string]Fault
	domain string
	// algorithm is the file's default.
	algorithm weir.Algorithm
	instances int
	names     map[string]int // how many of the file's limits have each name
	replaced  []field        // the names that limits replace
}

// Where each key of the configuration belongs.
const (
	inRoot       = "the file, beside domain"
	inDescriptor = "the descriptor, beside key"
	inLimit      = "rate_limit"
	inReplaces   = "replaces"
	inLease      = "lease"
)

var placeOf = map[string][]string{
	"domain":            {inRoot},
	"descriptors":       {inRoot, inDescriptor},
	"key":               {inDescriptor},
	"value":             {inDescriptor},
	"rate_limit":        {inDescriptor},
	"limits":            {inDescriptor},
	"shadow_mode":       {inDescriptor},
	"quota_mode":        {inDescriptor},
	"detailed_metric":   {inDescriptor},
	"value_to_metric":   {inDescriptor},
	"share_threshold":   {inDescriptor},
	"metadata":          {inDescriptor},
	"unit":              {inLimit},
	"requests_per_unit": {inLimit},
	"unlimited":         {inLimit},
	"replaces":          {inLimit},
	"burst":             {inLimit},
	"window":            {inLimit},
	"algorithm":         {inLimit, inRoot},
	"name":              {inLimit, inReplaces, inRoot},
	"on_store_error":    {inLimit, inDescriptor, inRoot},
	"instances":         {inRoot},
	"lease":             {inLimit},
	"max":               {inLease},
	"refill":            {inLease},
	"expiry":            {inLease},
}

// ours are the keys that the original does not know. It refuses them anywhere, so in
// a wrong place they are a fault, where its own keys are without effect.
var ours = map[string]bool{
	"limits": true, "burst": true, "window": true, "algorithm": true, "on_store_error": true, "instances": true,
	"lease": true, "max": true, "refill": true, "expiry": true,
}

// known returns the keys of n, which is in the given place, and false if n is no
// mapping. Unknown keys are faults; of the original's keys in a wrong place it warns,
// and leaves them out.
func (p *parser) known(n *yaml.Node, place string) (map[string]field, bool) {
	all, ok := p.fields(n, article[place])
	for name, f := range all {
		places, ok := placeOf[name]
		switch {
		case !ok:
			p.faultf(f.key, "unknown key %q: write %s", short(name), instead(name, keysOf(place)))
		case slices.Contains(places, place):
			continue
		case ours[name]:
			p.faultf(f.key, "%s has no meaning here: write it in %s", name, strings.Join(places, " or in "))
		default:
			p.warnf(f.key, "%s has no effect here: write it in %s", name, strings.Join(places, " or in "))
			p.without(f.value)
		}
		delete(all, name)
	}
	return all, ok
}

var article = map[string]string{
	inRoot:       "the file",
	inDescriptor: "a descriptor",
	inLimit:      "a limit",
	inReplaces:   "an item of replaces",
	inLease:      "a lease",
}

// keysOf returns the keys that a place may have, sorted.
func keysOf(place string) []string {
	var keys []string
	for name, places := range placeOf {
		if slices.Contains(places, place) {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	return keys
}

// without checks what is below a key without effect as the original does: its keys
// must exist.
func (p *parser) without(n *yaml.Node) {
	n = follow(n)
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			p.without(item)
		}
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	all, _ := p.fields(n, "this")
	for name, f := range all {
		if _, ok := placeOf[name]; !ok {
			p.faultf(f.key, "unknown key %q: remove it", short(name))
		} else if name != "metadata" {
			p.without(f.value)
		}
	}
}

// root reads a file's document.
func (p *parser) root(n *yaml.Node) {
	all, ok := p.known(n, inRoot)
	if !ok {
		return
	}
	p.algorithm = p.algorithmOf(all, weir.FixedWindow) // as in the original
	p.instances = p.instancesOf(all)
	policy := p.policyOf(all, said{})
	d := &domain{algorithm: p.algorithm, onStoreError: policy.policy, instances: p.instances}
	p.named(n, all, d)
	if f, ok := all["descriptors"]; ok {
		p.children(&d.node, level{policy: policy}, f)
	}
	for _, f := range p.replaced {
		switch name := f.value.Value; p.names[name] {
		case 0:
			p.warnf(f.value, "no limit of this domain has the name %q: this replaces nothing", short(name))
		case 1:
		default:
			p.warnf(f.value, "%d limits of this domain have the name %q: this replaces each of them", p.names[name], short(name))
		}
	}
}

// named reads the domain's name, and puts d under it.
func (p *parser) named(n *yaml.Node, all map[string]field, d *domain) {
	f, ok := all["domain"]
	if !ok {
		p.faultf(n, "the file has no domain: write domain: and the name that the proxy sends")
		return
	}
	faults := len(p.faults)
	p.domain = p.text(f)
	before, twice := p.places[p.domain]
	switch {
	case len(p.faults) > faults:
	case p.domain == "":
		p.faultf(f.key, "domain is empty: write the name that the proxy sends")
	case twice:
		p.faultf(f.value, "domain %q is in %s already, line %d: write its descriptors in one file", short(p.domain), before.File, before.Line)
	default:
		p.places[p.domain] = Fault{File: p.file, Line: f.key.Line}
		p.config.domains[p.domain] = d
		p.config.names = append(p.config.names, p.domain)
	}
}

// algorithmOf returns the algorithm that a mapping names, or else the default.
func (p *parser) algorithmOf(all map[string]field, otherwise weir.Algorithm) weir.Algorithm {
	f, ok := all["algorithm"]
	if !ok || isNull(f.value) {
		return otherwise
	}
	name := p.text(f)
	a, err := weir.ParseAlgorithm(name)
	if err != nil {
		p.faultf(f.value, "unknown algorithm %q: write %s", short(name), instead(name, algorithmNames))
		return otherwise
	}
	return a
}

var algorithmNames = []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "gcra"}
