package rules

import (
	"errors"
	"fmt"
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

// String returns the policy as configuration writes it, "local", "allow" or "deny"; or
// "unsaid".
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// MaxInstances is the most instances of the service that may share a limit.
const MaxInstances = 1_000_000

// InstancesOf returns how many instances of the service share the limit: as many as the
// service was told, or else as its file says. 0 is not known.
func (l *Limit) InstancesOf(service int) int {
	if service > 0 {
		return service
	}
	return l.Instances
}

// Fallback returns what the limit does when the store cannot decide, in a service that
// was told how many instances there are, or 0.
func (l *Limit) Fallback(service int) Policy {
	if l.OnStoreError == Unsaid && l.InstancesOf(service) > 0 {
		return Local
	}
	return l.OnStoreError
}

const writeInstances = "write instances: and their number beside domain, or set WEIR_INSTANCES"

// CheckInstances returns Faults for limits that instances of the service share, but not
// so many: service of them, or as many as the file says where service is 0. It returns
// nil if there are none.
func (c *Config) CheckInstances(service int) error {
	var faults Faults
	fault := func(at Fault, message string) {
		at.Message = message
		faults = append(faults, at)
	}
	for _, p := range c.placed {
		l := &p.rule.Limits[p.index]
		instances := l.InstancesOf(service)
		local := l.Fallback(service) == Local
		if instances == 0 && local {
			fault(p.policy, "on_store_error: local needs to know how many instances of the service share the limit: "+writeInstances)
		}
		if instances == 0 && l.Lease != (Lease{}) {
			fault(p.limit, "a lease needs to know how many instances of the service share the limit: "+writeInstances)
		}
		if instances == 0 || !local {
			continue
		}
		// The arithmetic of shares is the limiter's.
		if _, err := weir.New(noStore{}, "share", l.Limit, weir.Options{Fallback: noStore{}, Instances: instances}); err != nil {
			fault(p.limit, "the limit cannot be shared by so many instances ("+innermost(err).Error()+"): write on_store_error: allow or deny")
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
