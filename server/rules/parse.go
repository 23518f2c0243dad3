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

// Options say how files are read, where it is not as Parse does.
type Options struct {
	// MergeDomains lets several files be for one domain, as the original's
	// MERGE_DOMAIN_CONFIG does: their descriptors are one list, in the order of the
	// files. What they say beside domain must be the same.
	MergeDomains bool
	// Compat loads all that the original loads: of a YAML key written twice the last
	// counts, and a second document is not read. Both are warnings then, not faults.
	Compat bool
	// Upstream refuses all that the original refuses, which does not know the keys that
	// are weir's own. It implies Compat.
	Upstream bool
}

// Parse reads the files together. Its error is Faults: every fault of every file, and
// then no Config at all.
func Parse(files ...File) (*Config, error) { return Options{}.Parse(files...) }

// Parse reads the files together, as the options say. Its error is Faults: every fault of
// every file, and then no Config at all.
func (o Options) Parse(files ...File) (*Config, error) {
	c := &Config{domains: map[string]*domain{}}
	drafts := map[string]*draft{}
	var parsers []*parser
	for _, f := range files {
		p := &parser{reader: reader{file: f.Name, lenient: o.Compat || o.Upstream}, options: o, config: c, drafts: drafts}
		if document := p.document(f.Data); document != nil {
			p.root(document)
		}
		parsers = append(parsers, p)
	}
	for _, d := range drafts {
		d.warnOfReplaces()
	}
	c.warnOfHTTPCheck()
	var faults Faults
	for _, p := range parsers {
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
	options   Options
	config    *Config
	drafts    map[string]*draft // by domain
	draft     *draft            // that of the file's domain
	domain    string
	algorithm weir.Algorithm // the file's default
	byDefault bool           // which is nobody's choice
	instances int
}

// draft is what must be known of a domain until its last file is read.
type draft struct {
	*domain
	at       Fault              // where the domain is named first
	levels   map[string]Fault   // the descriptors of its first level, and where they are
	named    map[string][]Fault // the limits of each name, and where they are
	replaces []replaces
}

// replaces is a name of limits that a limit replaces.
type replaces struct {
	in   *parser
	name *yaml.Node
}

// Where each key of the configuration belongs.
const (
	inRoot       = "the file, beside domain"
	inDescriptor = "the descriptor, beside key"
	inLimit      = "rate_limit"
	inReplaces   = "replaces"
	inLease      = "lease"
	inCandidate  = "candidate"
	inHTTPCheck  = "http_check"
)

var placeOf = map[string][]string{
	"domain":            {inRoot},
	"descriptors":       {inRoot, inDescriptor, inHTTPCheck},
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
	"unit":              {inLimit, inCandidate},
	"requests_per_unit": {inLimit, inCandidate},
	"unlimited":         {inLimit},
	"replaces":          {inLimit},
	"burst":             {inLimit, inCandidate},
	"window":            {inLimit, inCandidate},
	"algorithm":         {inLimit, inCandidate, inRoot},
	"name":              {inLimit, inCandidate, inReplaces, inRoot},
	"on_store_error":    {inLimit, inDescriptor, inRoot},
	"instances":         {inRoot},
	"lease":             {inLimit},
	"candidate":         {inDescriptor, inLimit},
	"max":               {inLease},
	"refill":            {inLease},
	"expiry":            {inLease},
	"http_check":        {inRoot},
	"trusted_proxies":   {inHTTPCheck},
	"denied_status":     {inHTTPCheck},
	"undecided_status":  {inHTTPCheck},
}

// ours are the keys that the original does not know. It refuses them anywhere, so in
// a wrong place they are a fault, where its own keys are without effect.
var ours = map[string]bool{
	"limits": true, "burst": true, "window": true, "algorithm": true, "on_store_error": true, "instances": true,
	"lease": true, "max": true, "refill": true, "expiry": true, "candidate": true,
	"http_check": true, "trusted_proxies": true, "denied_status": true, "undecided_status": true,
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
			p.faultf(f.key, "unknown key %q: write %s", short(name), instead(name, p.keysOf(place)))
		case ours[name] && p.options.Upstream:
			p.faultf(f.key, "%s is weir's own, and an unknown key to envoyproxy/ratelimit: leave it out", name)
		case slices.Contains(places, place):
			continue
		case place == inCandidate:
			p.faultf(f.key, "%s has no meaning in a candidate, which changes no answer: leave it out", name)
		case ours[name] || place == inHTTPCheck:
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
	inCandidate:  "a candidate",
	inHTTPCheck:  "http_check",
}

// keysOf returns the keys that a place may have, sorted.
func (p *parser) keysOf(place string) []string {
	var keys []string
	for name, places := range placeOf {
		if slices.Contains(places, place) && !(ours[name] && p.options.Upstream) {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	return keys
}

// without checks the value of a key without effect as the original does: it is a text, a
// whole number or a bool, or keys that exist, or a list of such.
func (p *parser) without(n *yaml.Node) {
	n = follow(n)
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if follow(item).Kind != yaml.MappingNode {
				p.faultf(item, "an item of this list is %s, which no list here has: remove it", describe(follow(item)))
			}
			p.without(item)
		}
	case yaml.MappingNode:
		all, _ := p.fields(n, "this")
		for name, f := range all {
			if _, ok := placeOf[name]; !ok || ours[name] {
				p.faultf(f.key, "unknown key %q: remove it", short(name))
			} else if name != "metadata" {
				p.without(f.value)
			}
		}
	case yaml.ScalarNode:
		if isFraction(n) {
			p.faultf(n, "%s is a number that is used nowhere: remove it", short(n.Value))
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
	f, named := all["algorithm"]
	p.byDefault = !named || isNull(f.value)
	p.instances = p.instancesOf(all)
	policy := p.policyOf(all, said{})
	p.draft = &draft{
		domain: &domain{algorithm: p.algorithm, byDefault: p.byDefault, onStoreError: policy.policy, instances: p.instances},
		levels: map[string]Fault{},
		named:  map[string][]Fault{},
	}
	p.named(n, all)
	if f, ok := all["descriptors"]; ok {
		p.children(&p.draft.node, level{policy: policy, seen: p.draft.levels}, f)
	}
	p.httpCheck(all)
}

// named reads the domain's name. The file's draft goes under it, or is the one that is
// there already.
func (p *parser) named(n *yaml.Node, all map[string]field) {
	f, ok := all["domain"]
	if !ok {
		p.faultf(n, "the file has no domain: write domain: and the name that the proxy sends")
		return
	}
	faults := len(p.faults)
	p.domain = p.text(f)
	before := p.drafts[p.domain]
	switch {
	case len(p.faults) > faults:
	case p.domain == "":
		p.faultf(f.key, "domain is empty: write the name that the proxy sends")
	case before == nil:
		p.draft.at = p.place(f.key)
		p.drafts[p.domain] = p.draft
		p.config.domains[p.domain] = p.draft.domain
		p.config.names = append(p.config.names, p.domain)
	case p.options.MergeDomains:
		p.merged(all, before)
	default:
		p.faultf(f.value, "domain %q is in %s already, line %d: write its descriptors in one file, or set %s", short(p.domain), before.at.File, before.at.Line, p.mergeSetting())
	}
}

// mergeSetting is what the reader of a fault can set so that domains are merged.
func (p *parser) mergeSetting() string {
	if p.options.Compat {
		return "MERGE_DOMAIN_CONFIG=true"
	}
	return "--merge-domains"
}

// merged makes the file add to the draft of its domain. For limits that requests bring
// along the domain has one algorithm, which its files must agree on; likewise the rest.
func (p *parser) merged(all map[string]field, d *draft) {
	own := p.draft.domain
	for _, differs := range []struct {
		name string
		is   bool
	}{
		{"algorithm", own.algorithm != d.algorithm || own.byDefault != d.byDefault},
		{"on_store_error", own.onStoreError != d.onStoreError},
		{"instances", own.instances != d.instances},
	} {
		if !differs.is {
			continue
		}
		at := all["domain"]
		if f, ok := all[differs.name]; ok {
			at = f
		}
		p.faultf(at.key, "%s is another than in %s, whose domain this is too: write the same in both", differs.name, d.at.File)
	}
	p.draft = d
}

// warnOfReplaces warns of names that limits replace, but that no limit of the domain has,
// or several.
func (d *draft) warnOfReplaces() {
	for _, r := range d.replaces {
		switch name := r.name.Value; len(d.named[name]) {
		case 0:
			r.in.warnf(r.name, "no limit of this domain has the name %q: this replaces nothing", short(name))
		case 1:
		default:
			r.in.warnf(r.name, "%d limits of this domain have the name %q: this replaces each of them", len(d.named[name]), short(name))
		}
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
