package rules

// candidate reads the limit that stands beside another one to be compared with it. It
// returns nil where there is none that can be.
func (p *parser) candidate(f field) *Limit {
	n := f.value
	if isNull(n) {
		p.faultf(f.key, "candidate is empty: write unit: and requests_per_unit: below it, or leave it out")
		return nil
	}
	all, ok := p.known(n, inCandidate)
	if !ok {
		return nil
	}
	if requests, ok := all["requests_per_unit"]; !ok || isNull(requests.value) {
		p.faultf(f.key, "the candidate has no requests_per_unit: write how many requests it would let pass")
		return nil
	}
	l := p.amount(n, all)
	if f, ok := all["name"]; ok {
		l.Name = p.text(f)
	}
	return &l
}

// compare puts the candidate that stands in a descriptor beside the limit of its rule.
func (p *parser) compare(r *Rule, all map[string]field) {
	f, ok := all["candidate"]
	if !ok {
		return
	}
	c := p.candidate(f)
	one, hasOne := all["rate_limit"]
	_, hasMany := all["limits"]
	switch {
	case hasMany:
		p.faultf(f.key, "candidate stands beside several limits: write it in the item of limits that it is compared with")
	case !hasOne || isNull(one.value):
		p.faultf(f.key, "candidate has no limit to be compared with: write a rate_limit beside it")
	case r.Unlimited:
		p.faultf(f.key, "candidate has no limit to be compared with: write it as the rate_limit in place of unlimited, with shadow_mode: true")
	case len(r.Limits) > 0:
		r.Limits[0].Candidate = c
	}
}
