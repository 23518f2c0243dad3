package rules

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"
	"weir.dev/weir"
)

// limit reads a rate_limit and adds what it says to the rule. policy is that of its
// descriptor; several says that it is one of a list.
func (p *parser) limit(r *Rule, n *yaml.Node, policy said, several bool) {
	n = follow(n)
	all, ok := p.known(n, inLimit)
	if !ok {
		return
	}
	name := ""
	if f, ok := all["name"]; ok {
		name = p.text(f)
	}
	r.Replaces = append(r.Replaces, p.replaces(all, name)...)
	if p.flagOf(all, "unlimited") {
		p.unlimited(all, several)
		r.Unlimited = true
		return
	}
	if name != "" {
		p.noteName(all["name"].value, name)
	}
	policy = p.policyOf(all, policy)
	l := p.amount(n, all)
	l.Name, l.OnStoreError, l.Instances = name, policy.policy, p.instances
	l.Lease = p.lease(all, l.Limit)
	if f, ok := all["candidate"]; ok && several {
		l.Candidate = p.candidate(f)
	} else if ok {
		p.faultf(f.key, "candidate has no meaning here: write it beside rate_limit")
	}
	at := placed{rule: r, index: len(r.Limits), limit: p.place(n)}
	if policy.at != nil {
		at.policy = p.place(policy.at)
	}
	p.config.placed = append(p.config.placed, at)
	r.Limits = append(r.Limits, l)
}

// amount reads how much a limit is, which a candidate has in common with others.
func (p *parser) amount(n *yaml.Node, all map[string]field) Limit {
	l := Limit{RequestsPerUnit: p.requests(n, all)}
	l.Unit, l.Multiplier, l.Limit = p.window(n, all, l.RequestsPerUnit)
	f, named := all["algorithm"]
	l.ByDefault = p.byDefault && (!named || isNull(f.value))
	return l
}

// noteName notes that a limit has a name, and warns where it is not the first.
func (p *parser) noteName(at *yaml.Node, name string) {
	all := p.draft.named[name]
	if len(all) > 0 {
		where := fmt.Sprintf("line %d", all[0].Line)
		if all[0].File != p.file {
			where = all[0].File + ", " + where
		}
		p.warnf(at, "another limit of this domain has the name %q, in %s: answers and replaces cannot tell them apart", short(name), where)
	}
	p.draft.named[name] = append(all, p.place(at))
}

// unlimited checks what else a limit says that is none.
func (p *parser) unlimited(all map[string]field, several bool) {
	f := all["unlimited"]
	if several {
		p.faultf(f.key, "unlimited is one of several limits: leave it out of the list")
	}
	if f, ok := all["unit"]; ok && !isNull(f.value) {
		name := p.text(f)
		if _, valid := parseUnit(name); valid {
			p.faultf(f.key, "unit has no meaning beside unlimited: leave one of them out")
		} else if name != "" {
			p.warnf(f.key, "unit has no effect beside unlimited: leave one of them out")
		}
	}
	if f, ok := all["requests_per_unit"]; ok {
		if p.count(f, math.MaxUint32) > 0 { // generated files write the 0
			p.warnf(f.key, "requests_per_unit has no effect beside unlimited: leave one of them out")
		}
	}
	for _, name := range []string{"algorithm", "burst", "window", "on_store_error", "lease", "candidate"} {
		if f, ok := all[name]; ok {
			p.faultf(f.key, "%s has no meaning beside unlimited: leave one of them out", name)
		}
	}
}

// replaces returns the names that a limit called name takes the place of.
func (p *parser) replaces(all map[string]field, name string) []string {
	f, ok := all["replaces"]
	if !ok {
		return nil
	}
	var names []string
	for _, item := range p.list(f.value, "replaces") {
		keys, ok := p.known(item, inReplaces)
		if !ok {
			continue
		}
		replaced, ok := keys["name"]
		if !ok {
			p.faultf(item, "an item of replaces has no name: write name: and the name of the limit to replace")
			continue
		}
		switch other := p.text(replaced); {
		case other == "":
			p.faultf(replaced.key, "an item of replaces has an empty name: write the name of the limit to replace")
		case other == name:
			p.faultf(replaced.value, "the limit %q replaces itself: write the name of another", short(name))
		default:
			names = append(names, other)
			p.draft.replaces = append(p.draft.replaces, replaces{p, replaced.value})
		}
	}
	return names
}

// requests returns how many requests the limit n allows.
func (p *parser) requests(n *yaml.Node, all map[string]field) uint32 {
	f, ok := all["requests_per_unit"]
	if !ok || isNull(f.value) {
		p.warnf(n, "without requests_per_unit the limit is 0 and denies everything: write requests_per_unit: 0 if that is meant")
		return 0
	}
	return uint32(p.count(f, math.MaxUint32))
}

// window returns the period of the limit n, as the protocol says it, and the limit.
func (p *parser) window(n *yaml.Node, all map[string]field, requests uint32) (Unit, uint32, weir.Limit) {
	faults := len(p.faults)
	algorithm := p.algorithmOf(all, p.algorithm)
	unit, multiplier, period := p.period(n, all)
	limit := weir.Per(int64(requests), period).By(algorithm)
	at := n
	if f, ok := all["requests_per_unit"]; ok {
		at = f.value
	}
	if f, ok := all["burst"]; ok && !isNull(f.value) {
		before := len(p.faults)
		burst := p.count(f, weir.MaxUnits)
		switch {
		case len(p.faults) > before:
		case algorithm != weir.GCRA && algorithm != weir.LeakyBucket:
			p.faultf(f.key, "burst has no meaning by %v: write algorithm: gcra, token_bucket or leaky_bucket, or leave burst out", algorithm)
		case burst == 0:
			p.faultf(f.value, "a burst of 0 lets nothing pass: write 1 or more, or requests_per_unit: 0 to deny everything")
		default:
			limit, at = limit.Burst(int64(burst)), f.value
		}
	}
	if len(p.faults) == faults {
		for _, err := range split(limit.Validate()) {
			p.faultf(at, "%v", err)
		}
	}
	return unit, multiplier, limit
}

// period returns what unit or window say. On a fault it is any period.
func (p *parser) period(n *yaml.Node, all map[string]field) (Unit, uint32, time.Duration) {
	window, hasWindow := all["window"]
	hasWindow = hasWindow && !isNull(window.value)
	unit, hasUnit := all["unit"]
	switch {
	case hasWindow && hasUnit && !isNull(unit.value):
		p.faultf(window.key, "unit and window are both here: leave one of them out")
	case hasWindow:
		period := p.duration(window, windows)
		u, multiplier := inUnits(period)
		return u, multiplier, period
	case !hasUnit:
		p.faultf(n, "the limit has no unit: write unit: and %s, or window: and a duration such as 30s", instead("", unitNames))
	default:
		name := p.text(unit)
		if u, ok := parseUnit(name); ok {
			return u, 1, u.Period()
		}
		p.faultf(at(unit), "unknown unit %q: write %s", short(name), instead(name, unitNames))
	}
	return UnitSecond, 1, time.Second
}

// durations are those that a key may have.
type durations struct {
	name        string // "a window"
	least, most time.Duration
	example     string
}

var windows = durations{"a window", time.Microsecond, weir.MaxPeriod, "write a duration from 1us to 8784h, such as 90s, 15m or 36h"}

// duration returns a duration in the bounds, in whole microseconds. On a fault it is a
// second.
func (p *parser) duration(f field, in durations) time.Duration {
	what, text := f.key.Value, f.value.Value
	d, err := time.ParseDuration(text)
	switch {
	case f.value.Kind != yaml.ScalarNode:
		p.faultf(f.value, "%s is %s: %s", what, describe(f.value), in.example)
	case err != nil && slices.Contains([]string{"!!int", "!!float"}, f.value.ShortTag()):
		p.faultf(f.value, "%s is %s without a unit: %s", what, short(text), in.example)
	case err != nil:
		p.faultf(f.value, "%s is %q, which is no duration: %s", what, short(text), in.example)
	case d < in.least:
		p.faultf(f.value, "%s of %s is too short: %s", in.name, short(text), in.example)
	case d > in.most:
		p.faultf(f.value, "%s of %s is too long: %s", in.name, short(text), in.example)
	case d%time.Microsecond != 0:
		p.faultf(f.value, "%s of %s is not in whole microseconds: write %v", in.name, short(text), d.Round(time.Microsecond))
	default:
		return d
	}
	return time.Second
}

// at is the place of a value, or of its key where the value is left empty.
func at(f field) *yaml.Node {
	if isNull(f.value) {
		return f.key
	}
	return f.value
}

// split returns the errors that err joins.
func split(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}
