package rules

import (
	"errors"
	"slices"

	"go.yaml.in/yaml/v4"
	"weir.dev/weir"
)

// Policy is what a limit does when the store cannot decide: the configuration's
// on_store_error.
type Policy uint8

// The policies.
const (
	Unsaid Policy = iota // Local where the instances are known, else there is no answer but an error
	Local                // each instance of the service serves its share, from its memory
	Allow                // everything passes
	Deny                 // nothing passes
)

var policyNames = []string{"unsaid", "local", "allow", "deny"}

// String returns the policy as configuration writes it: "local", "allow" or "deny".
func (p Policy) String() string { return policyNames[p] }

// MaxInstances is the most instances of the service that may share a limit.
const MaxInstances = 1_000_000

// Fallback returns what the limit does when the store cannot decide, and for Local how
// many instances share it. service is how many the service was told there are, which
// goes before what the file says, or 0.
func (l *Limit) Fallback(service int) (p Policy, instances int) {
	p, instances = l.OnStoreError, l.Instances
	if service > 0 {
		instances = service
	}
	switch {
	case p == Unsaid && instances > 0:
		return Local, instances
	case p != Local:
		return p, 0
	}
	return p, instances
}

// CheckInstances returns Faults for limits that cannot be shared by the instances of the
// service: service of them, or as many as the file says where service is 0. It returns
// nil if there are none.
func (c *Config) CheckInstances(service int) error {
	var faults Faults
	for _, p := range c.placed {
		policy, instances := p.rule.Limits[p.index].Fallback(service)
		if policy != Local {
			continue
		}
		if instances == 0 {
			at := p.policy
			at.Message = "on_store_error: local needs to know how many instances of the service share a limit: write instances: and their number beside domain, or set WEIR_INSTANCES"
			faults = append(faults, at)
			continue
		}
		// The arithmetic of shares is the limiter's.
		_, err := weir.New(noStore{}, "share", p.rule.Limits[p.index].Limit, weir.Options{Fallback: noStore{}, Instances: instances})
		if err != nil {
			at := p.limit
			at.Message = "the limit cannot be shared by so many instances (" + innermost(err).Error() + "): write on_store_error: allow or deny"
			faults = append(faults, at)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return Faults(sorted(faults))
}

// noStore stands for a store where none is asked.
type noStore struct{ weir.Store }

// innermost returns the first cause of err that wraps no other.
func innermost(err error) error {
	for {
		if all := split(err); len(all) > 0 && all[0] != err {
			err = all[0]
			continue
		}
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// placed is where the configuration says a limit, and what it does without the store.
type placed struct {
	rule          *Rule
	index         int
	limit, policy Fault // without messages
}

// said is a policy and where it is written.
type said struct {
	policy Policy
	at     *yaml.Node
}

// policyOf returns the policy that a mapping names, or else the one given.
func (p *parser) policyOf(all map[string]field, otherwise said) said {
	f, ok := all["on_store_error"]
	if !ok || isNull(f.value) {
		return otherwise
	}
	faults := len(p.faults)
	name := p.text(f)
	i := slices.Index(policyNames, name)
	switch {
	case len(p.faults) > faults:
		return otherwise
	case i <= int(Unsaid):
		p.faultf(f.value, "unknown policy %q: write %s", short(name), instead(name, policyNames[1:]))
		return otherwise
	}
	return said{Policy(i), f.value}
}

// instancesOf returns how many instances of the service the file says there are, or 0.
func (p *parser) instancesOf(all map[string]field) int {
	f, ok := all["instances"]
	if !ok || isNull(f.value) {
		return 0
	}
	faults := len(p.faults)
	n := p.count(f, MaxInstances)
	if n == 0 && len(p.faults) == faults {
		p.faultf(f.value, "0 instances share no limit: write how many instances of the service run, 1 or more")
	}
	return int(n)
}
