package rls

import (
	"fmt"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
)

// ruleset is a configuration made ready: what each rule needs for a request is made
// once, here. It does not change.
type ruleset struct {
	config    *rules.Config
	backing   *backing
	fronts    fronts
	rules     map[*rules.Rule]*rule
	unmatched map[string]*rule // by domain: stands for what matches no rule there
	unknown   *rule            // stands for all domains that the configuration does not have
}

// rule is a rule made ready. One that stands for no rule has no limits and no key.
type rule struct {
	*rules.Rule
	unlimited bool
	limits    []limit
	series    *series
}

// limit is one limit of a rule: who decides it, and how answers name it.
type limit struct {
	limiter *weir.Limiter
	named   *CurrentLimit
}

// compile makes a configuration ready. The error is rules.Faults: of limits that so many
// instances cannot share. Nothing else can fail by what a configuration says.
func compile(config *rules.Config, b *backing, m *metrics) (*ruleset, error) {
	if err := config.CheckInstances(b.instances); err != nil {
		return nil, fmt.Errorf("the rules have faults:\n%w", err)
	}
	rs := &ruleset{
		config:    config,
		backing:   b,
		rules:     make(map[*rules.Rule]*rule),
		unmatched: make(map[string]*rule),
		unknown:   &rule{series: m.series("", "")},
	}
	var err error
	if rs.fronts, err = b.frontsFor(config); err != nil {
		return nil, err
	}
	for _, domain := range config.Domains() {
		rs.unmatched[domain] = &rule{series: m.series(domain, "")}
	}
	for _, r := range config.Rules() {
		ready, err := rs.makeRule(r, m.series(r.Domain, r.Path))
		if err != nil {
			return nil, err
		}
		rs.rules[r] = ready
	}
	return rs, nil
}

func (rs *ruleset) makeRule(r *rules.Rule, s *series) (*rule, error) {
	ready := &rule{Rule: r, unlimited: r.Unlimited, series: s}
	for i := range r.Limits {
		l := &r.Limits[i]
		limiter, err := rs.backing.limiter(l, r.Shadow, rs.fronts)
		if err != nil {
			return nil, fmt.Errorf("domain %q, rule %q: %w", r.Domain, r.Path, err)
		}
		unit := pb.RateLimitResponse_RateLimit_Unit(l.Unit)
		named, err := newCurrentLimit(strings.ToValidUTF8(l.Name, "�"), l.RequestsPerUnit, unit, l.Multiplier)
		if err != nil {
			return nil, fmt.Errorf("domain %q, rule %q: %w", r.Domain, r.Path, err)
		}
		ready.limits = append(ready.limits, limit{limiter: limiter, named: named})
	}
	return ready, nil
}

// match returns the rule for one descriptor. It is never nil.
func (rs *ruleset) match(domain string, entries []rules.Entry) *rule {
	if r := rs.config.Match(domain, entries); r != nil {
		return rs.rules[r]
	}
	if none, ok := rs.unmatched[domain]; ok {
		return none
	}
	return rs.unknown
}

// override returns the rule that a descriptor's own limit makes, in place of the
// matched one, under whose name it is counted in metrics. In a domain that the
// configuration does not have, it is ignored.
func (rs *ruleset) override(domain string, d *Descriptor, matched *rule) (*rule, error) {
	if !rs.config.Has(domain) {
		return matched, nil
	}
	o, err := d.Override.limit()
	if err != nil {
		return nil, err
	}
	r, err := rs.config.Override(domain, d.Entries, o)
	if err != nil {
		return nil, err
	}
	return rs.makeRule(r, matched.series)
}

// limit checks what the sender wrote. An unknown unit is what a proxy sends for data
// that says "UNKNOWN".
func (o *Override) limit() (rules.Override, error) {
	unit := rules.Unit(o.Unit)
	if o.Unit < 0 || o.Unit > int32(rules.UnitWeek) || unit.Period() == 0 {
		return rules.Override{}, fmt.Errorf("its limit of %d requests has the unit %d: send SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6) or WEEK (7)", o.RequestsPerUnit, o.Unit)
	}
	if o.Multiplier > 1 {
		return rules.Override{}, fmt.Errorf("its limit of %d requests has a unit multiplier of %d: only 1 can be used", o.RequestsPerUnit, o.Multiplier)
	}
	return rules.Override{RequestsPerUnit: o.RequestsPerUnit, Unit: unit}, nil
}
