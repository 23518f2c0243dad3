package rls

import (
	"fmt"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/stats"
)

// ruleset is a configuration made ready: what each rule needs for a request is made
// once, here. It does not change.
type ruleset struct {
	service   *Service
	config    *rules.Config
	fronts    fronts
	rules     map[*rules.Rule]*rule
	unmatched map[string]*rule // by domain: stands for what matches no rule there
	unknown   *rule            // stands for all domains that the configuration does not have
	replaces  bool             // some rule does
	quotas    bool             // some rule is one of quota_mode
}

// rule is a rule made ready. One that stands for no rule has no limits and no key.
type rule struct {
	*rules.Rule
	unlimited bool
	quota     bool // it has limits, and denies only together with others of the kind
	joint     bool // its limit is counted together with the original
	override  bool // a request brought it along
	limits    []limit
	metadata  *structpb.Struct // nil: none
	series    *series
	found     *[len(countNames)]*stats.Counter // nil: their name depends on the request
}

// limit is one limit of a rule: who decides it, and how answers name it.
type limit struct {
	name    string
	shadow  bool
	joint   bool // counted together with the original
	limiter *weir.Limiter
	apart   *weir.Limiter // by itself, where limiter is not and quota_mode may need it
	named   *CurrentLimit
	policy  policy
	near    int64 // hits above it are near the limit

	onStoreError rules.Policy

	candidate *candidate // nil: none
}

// compile makes a configuration ready. The error is rules.Faults: of limits that so many
// instances cannot share. Nothing else can fail by what a configuration says.
func (s *Service) compile(config *rules.Config) (*ruleset, error) {
	if err := config.CheckInstances(s.backing.instances); err != nil {
		return nil, fmt.Errorf("the rules have faults:\n%w", err)
	}
	rs := &ruleset{
		service:   s,
		config:    config,
		rules:     make(map[*rules.Rule]*rule),
		unmatched: make(map[string]*rule),
		unknown:   &rule{series: s.metrics.series("", "")},
		quotas:    s.opts.Quota,
	}
	var err error
	if rs.fronts, err = s.backing.frontsFor(config); err != nil {
		return nil, err
	}
	for _, domain := range config.Domains() {
		rs.unmatched[domain] = &rule{series: s.metrics.series(domain, "")}
	}
	for _, r := range config.Rules() {
		ready, err := rs.makeRule(r, s.metrics.series(r.Domain, r.Path))
		if err != nil {
			return nil, err
		}
		if !r.Unlimited && len(r.Limits) > 0 && !namedByRequest(r) {
			ready.found = findCounts(s.opts.Stats, configName(r))
		}
		rs.rules[r] = ready
		rs.replaces = rs.replaces || len(r.Replaces) > 0
		rs.quotas = rs.quotas || ready.quota
	}
	return rs, nil
}

func (rs *ruleset) makeRule(r *rules.Rule, s *series) (*rule, error) {
	opts := &rs.service.opts
	ready := &rule{
		Rule:      r,
		unlimited: r.Unlimited,
		quota:     (r.Quota || opts.Quota) && len(r.Limits) > 0,
		joint:     opts.Compat != nil && joint(r),
		series:    s,
	}
	fault := func(err error) (*rule, error) {
		return nil, fmt.Errorf("domain %q, rule %q: %w", r.Domain, r.Path, err)
	}
	var err error
	if len(r.Metadata) > 0 {
		if ready.metadata, err = structpb.NewStruct(r.Metadata); err != nil {
			return fault(err)
		}
	}
	for i := range r.Limits {
		l, err := rs.makeLimit(ready, &r.Limits[i])
		if err != nil {
			return fault(err)
		}
		ready.limits = append(ready.limits, l)
	}
	return ready, nil
}

func (rs *ruleset) makeLimit(r *rule, l *rules.Limit) (limit, error) {
	b := rs.service.backing
	ready := limit{
		name:   l.Name,
		shadow: r.Shadow,
		joint:  r.joint,
		policy: policyOf(l),
		near:   nearThreshold(l.Capacity(), rs.service.opts.NearLimitRatio),

		onStoreError: l.OnStoreError,
	}
	var err error
	opts := weir.Options{Shadow: r.Shadow, Alone: b.alone}
	if ready.limiter, err = b.limiter(l, r.joint, opts, rs.fronts); err != nil {
		return ready, err
	}
	if ready.apart = ready.limiter; r.quota && !b.alone {
		opts.Alone = true
		if ready.apart, err = b.limiter(l, r.joint, opts, rs.fronts); err != nil {
			return ready, err
		}
	}
	if l.Candidate != nil {
		if ready.candidate, err = rs.makeCandidate(r, l); err != nil {
			return ready, err
		}
	}
	unit := pb.RateLimitResponse_RateLimit_Unit(l.Unit)
	ready.named, err = newCurrentLimit(l.Name, l.RequestsPerUnit, unit, l.Multiplier)
	return ready, err
}

// key returns who a request's entries are.
func (r *rule) key(entries []rules.Entry) weir.Key {
	if r.joint {
		return jointKey(r.Rule, entries)
	}
	return r.Key(entries)
}

// match returns the rule for one descriptor. It is never nil.
func (rs *ruleset) match(domain string, entries []rules.Entry) *rule {
	find := rs.config.Match
	if rs.service.opts.Compat != nil {
		find = rs.config.MatchJoined
	}
	if r := find(domain, entries); r != nil {
		return rs.rules[r]
	}
	if none, ok := rs.unmatched[domain]; ok {
		return none
	}
	rs.service.opts.Stats.Counter(statName(domain) + ".domain_not_found").Add(1)
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
	ready, err := rs.makeRule(r, matched.series)
	if err == nil {
		ready.override = true
	}
	return ready, err
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
