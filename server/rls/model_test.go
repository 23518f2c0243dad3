package rls

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"weir.dev/weir/memstore"
	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/stats"
)

// The model is the protocol's rules written down once more, in the plainest way, for
// limits by fixed windows that do not end: requests that are random must get the same
// answers from it and from a service.

// modelRule is one descriptor of a configuration.
type modelRule struct {
	key, value, path string
	limits           []modelLimit
	unlimited        bool
	shadow, quota    bool
	share, detailed  bool   // share_threshold, detailed_metric
	replaces         string // the name of limits
	children         []*modelRule
}

type modelLimit struct {
	units int64
	name  string
}

// randomRules makes rules of up to two levels.
func randomRules(r *rand.Rand, levels int, path string) (all []*modelRule) {
	seen := map[string]bool{}
	for range 2 + r.IntN(5) {
		m := &modelRule{key: pick(r, "a", "b"), value: pick(r, "", "", "x", "y", "x*", "*z")}
		m.path = path + "/" + m.key + "=" + m.value
		if seen[m.path] {
			continue
		}
		seen[m.path] = true
		m.shadow, m.quota = r.IntN(5) == 0, r.IntN(3) == 0
		m.share, m.detailed = strings.Contains(m.value, "*") && r.IntN(2) == 0, r.IntN(4) == 0
		switch r.IntN(10) {
		case 0: // lets everything pass
		case 1:
			m.unlimited = true
		case 2:
			m.limits = []modelLimit{randomLimit(r), randomLimit(r)}
		default:
			m.limits = []modelLimit{randomLimit(r)}
		}
		if (m.unlimited || len(m.limits) == 1) && r.IntN(5) == 0 {
			m.replaces = pick(r, "n", "m")
			if len(m.limits) == 1 && m.limits[0].name == m.replaces {
				m.limits[0].name = ""
			}
		}
		if levels > 1 && r.IntN(2) == 0 {
			m.children = randomRules(r, levels-1, m.path)
		}
		all = append(all, m)
	}
	return all
}

func randomLimit(r *rand.Rand) modelLimit {
	return modelLimit{units: int64(r.IntN(6)), name: pick(r, "", "n", "m")}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// yaml is the rules as a configuration's descriptors.
func yaml(all []*modelRule) string {
	var items []string
	for _, m := range all {
		item := fmt.Sprintf("{key: %q, value: %q, shadow_mode: %t, quota_mode: %t, share_threshold: %t, detailed_metric: %t", m.key, m.value, m.shadow, m.quota, m.share, m.detailed)
		replaces := ""
		if m.replaces != "" {
			replaces = fmt.Sprintf(", replaces: [{name: %s}]", m.replaces)
		}
		var limits []string
		for _, l := range m.limits {
			limits = append(limits, fmt.Sprintf("{unit: year, requests_per_unit: %d, name: %q%s}", l.units, l.name, replaces))
		}
		switch {
		case m.unlimited:
			item += fmt.Sprintf(", rate_limit: {unlimited: true%s}", replaces)
		case len(limits) == 1:
			item += ", rate_limit: " + limits[0]
		case len(limits) > 1:
			item += ", limits: [" + strings.Join(limits, ", ") + "]"
		}
		if len(m.children) > 0 {
			item += ", descriptors: " + yaml(m.children)
		}
		items = append(items, item+"}")
	}
	return "[" + strings.Join(items, ",\n  ") + "]"
}

// model is a service by those rules.
type model struct {
	rules                 []*modelRule
	compat, shadow, quota bool
	counts                map[string]int64
}

// modelPart is what one descriptor adds: its rule, or one for a limit of its own.
type modelPart struct {
	rule     *modelRule
	charges  []*modelCharge
	isQuota  bool
	over     bool
	returned bool
}

type modelCharge struct {
	key       string
	units     int64
	cost      int64
	joint     bool // with the original
	refund    bool
	alone     bool
	denied    bool
	taken     int64
	remaining int64
}

// modelStatus is what the answer says about a descriptor. Of several limits that are over,
// it tells of one.
type modelStatus struct {
	over, limited bool
	remaining     []int64
}

func (m *model) match(entries []rules.Entry) *modelRule {
	level, found := m.rules, (*modelRule)(nil)
	for _, e := range entries {
		if found = matchLevel(level, e); found == nil {
			return nil
		}
		level = found.children
	}
	return found
}

func matchLevel(level []*modelRule, e rules.Entry) *modelRule {
	for _, m := range level {
		if m.key == e.Key && m.value == e.Value && e.Value != "" {
			return m
		}
	}
	for _, m := range level {
		before, after, star := strings.Cut(m.value, "*")
		if star && m.key == e.Key && len(e.Value) >= len(before)+len(after) && strings.HasPrefix(e.Value, before) && strings.HasSuffix(e.Value, after) {
			return m
		}
	}
	for _, m := range level {
		if m.key == e.Key && m.value == "" {
			return m
		}
	}
	return nil
}

// keyOf is who the entries are, where share_threshold makes all values of a level one.
func (m *model) keyOf(entries []rules.Entry, override bool) string {
	level, key := m.rules, ""
	for _, e := range entries {
		value := e.Value
		if found := matchLevel(level, e); found != nil {
			if found.share && !override {
				value = found.value
			}
			level = found.children
		}
		key += e.Key + "_" + value + "_"
	}
	return key
}

func (m *model) part(d *Descriptor, hits uint32) *modelPart {
	p := &modelPart{rule: m.match(d.Entries)}
	cost := int64(max(hits, 1))
	if d.Hits != nil {
		cost = int64(*d.Hits)
	}
	override := d.Override != nil
	if override {
		p.rule = &modelRule{path: "override", limits: []modelLimit{{units: int64(d.Override.RequestsPerUnit)}}}
	}
	if p.rule == nil {
		p.rule = &modelRule{}
	}
	joint := m.compat && len(p.rule.limits) == 1
	for n, l := range p.rule.limits {
		key := m.keyOf(d.Entries, override)
		if !joint {
			key = fmt.Sprintf("%s %d %s", p.rule.path, n, key)
		}
		p.charges = append(p.charges, &modelCharge{key: key, units: l.units, cost: cost, joint: joint, refund: d.Refund, alone: p.rule.shadow || m.shadow || m.compat})
	}
	if d.Refund && !joint {
		p.charges = nil
	}
	return p
}

// decide answers a request.
func (m *model) decide(r *Request) (over bool, statuses []modelStatus) {
	var parts []*modelPart
	replaced := map[string]bool{}
	for i := range r.Descriptors {
		p := m.part(&r.Descriptors[i], r.Hits)
		parts = append(parts, p)
		if p.rule.replaces != "" {
			replaced[p.rule.replaces] = true
		}
	}
	quotas := 0
	for _, p := range parts {
		limited := len(p.rule.limits) > 0
		left := false
		var charges []*modelCharge
		for n, c := range p.charges {
			if name := p.rule.limits[n].name; name == "" || !replaced[name] {
				charges, left = append(charges, c), true
			}
		}
		if len(p.charges) == 0 {
			left = true
		}
		p.charges = charges
		p.isQuota = !p.rule.unlimited && (m.quota || p.rule.quota && limited && left)
		if p.isQuota {
			quotas++
		}
	}
	for _, p := range parts {
		for _, c := range p.charges {
			c.alone = c.alone || p.isQuota && quotas > 1
		}
	}
	m.charge(parts)
	return m.settle(parts)
}

// charge asks for all charges: refunds first, then those that are all or none, then the
// others.
func (m *model) charge(parts []*modelPart) {
	var group []*modelCharge
	for _, p := range parts {
		for _, c := range p.charges {
			if c.refund {
				m.counts[c.key] = max(m.counts[c.key]-c.cost, 0)
				c.remaining = max(c.units-m.counts[c.key], 0)
			} else if !c.alone {
				group = append(group, c)
			}
		}
	}
	before := map[string]int64{}
	denied := false
	for _, c := range group {
		if _, seen := before[c.key]; !seen {
			before[c.key] = m.counts[c.key]
		}
		m.take(c)
		denied = denied || c.denied
	}
	if denied {
		for key, n := range before {
			m.counts[key] = n
		}
		for _, c := range group {
			if c.taken = 0; !c.denied {
				c.remaining = c.units - m.counts[c.key]
			}
		}
	}
	for _, p := range parts {
		for _, c := range p.charges {
			if c.alone && !c.refund {
				m.take(c)
			}
		}
	}
}

// take decides one charge. The original charges what it denies; a service does not.
func (m *model) take(c *modelCharge) {
	n := m.counts[c.key]
	if c.joint {
		m.counts[c.key] = n + c.cost
		c.denied, c.remaining = n+c.cost > c.units, max(c.units-n-c.cost, 0)
		return
	}
	c.denied = n+max(c.cost, 1) > c.units
	if !c.denied {
		m.counts[c.key] = n + c.cost
		c.taken = c.cost
	}
	c.remaining = max(c.units-m.counts[c.key], 0)
}

// settle finds the verdict, and gives back what quotas were charged for nothing.
func (m *model) settle(parts []*modelPart) (denied bool, statuses []modelStatus) {
	quotas, over := 0, 0
	for _, p := range parts {
		for _, c := range p.charges {
			p.over = p.over || c.denied && !c.refund && !p.rule.shadow
		}
		switch {
		case !p.isQuota:
			denied = denied || p.over
		case p.over:
			over++
			fallthrough
		default:
			quotas++
		}
	}
	denied = denied || quotas > 0 && over == quotas
	for _, p := range parts {
		if quotas > 1 && !m.compat && !m.shadow && !p.rule.shadow && (denied || p.over) {
			for _, c := range p.charges {
				m.counts[c.key] -= c.taken
				p.returned = p.returned || c.taken > 0
			}
		}
		statuses = append(statuses, p.status())
	}
	return denied && !m.shadow, statuses
}

func (p *modelPart) status() modelStatus {
	s := modelStatus{over: p.over, limited: len(p.charges) > 0}
	if p.rule.unlimited {
		s.remaining = []int64{math.MaxUint32}
	}
	least := int64(math.MaxInt64)
	denied := slices.ContainsFunc(p.charges, func(c *modelCharge) bool { return c.denied })
	for _, c := range p.charges {
		if c.denied {
			s.remaining = append(s.remaining, c.remaining)
		}
		least = min(least, c.remaining)
	}
	if len(p.charges) > 0 && !denied {
		s.remaining = []int64{least}
	}
	if len(s.remaining) == 0 {
		s.remaining = []int64{0}
	}
	if p.returned {
		s.remaining = nil // before or after it came back
	}
	return s
}

func randomRequest(r *rand.Rand) *Request {
	q := &Request{Domain: "shop", Hits: uint32(r.IntN(3))}
	for range 1 + r.IntN(4) {
		var d Descriptor
		for range 1 + r.IntN(2) {
			d.Entries = append(d.Entries, rules.Entry{Key: pick(r, "a", "b"), Value: pick(r, "", "x", "y", "xz", "xx", "q")})
		}
		if r.IntN(4) == 0 {
			d.Hits = pick(r, new(uint64), new(uint64(1)), new(uint64(3)))
		}
		d.Refund = r.IntN(8) == 0
		if r.IntN(10) == 0 {
			d.Override = &Override{RequestsPerUnit: uint32(r.IntN(4)), Unit: int32(rules.UnitYear)}
		}
		q.Descriptors = append(q.Descriptors, d)
	}
	return q
}

func TestRandomRequestsAreAnsweredAsByTheModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 0))
		m := &model{rules: randomRules(r, 2, ""), counts: map[string]int64{}}
		m.compat, m.shadow, m.quota = r.IntN(2) == 0, r.IntN(6) == 0, r.IntN(6) == 0
		opts := Options{Shadow: m.shadow, Quota: m.quota, Stats: stats.New(), Metadata: r.IntN(4) == 0}
		opts.Headers.Counts, opts.Headers.Draft11 = r.IntN(4) == 0, r.IntN(4) == 0
		if m.compat {
			opts.Compat = &Compat{Counters: counters(t)}
		}
		store, err := memstore.New(memstore.Options{MaxKeys: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		service, err := New(store, opts)
		if err != nil {
			t.Fatal(err)
		}
		text := "domain: shop\ndescriptors:\n  " + yaml(m.rules)
		if err := service.SetRules(parse(t, text)); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			q := randomRequest(r)
			answer, err := service.Decide(t.Context(), q)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			over, statuses := m.decide(q)
			if got, want := answered(answer, statuses), wanted(over, statuses); got != want {
				t.Fatalf("seed %d, compat %t, shadow %t, quota %t\n%s\nrequest %s\ngot  %s\nwant %s", seed, m.compat, m.shadow, m.quota, text, said(q), got, want)
			}
			if h := slices.ContainsFunc(answer.Headers, func(h Header) bool { return h.Name == "Retry-After" }); h && !over {
				t.Fatalf("seed %d: a request that may go on is told to come again: %v", seed, answer.Headers)
			}
			var read pb.RateLimitResponse
			if err := proto.Unmarshal(answer.Append(nil), &read); err != nil || !proto.Equal(&read, answer.Message()) {
				t.Fatalf("seed %d: written %v, read %v, %v", seed, answer.Message(), &read, err)
			}
		}
	}
}

// answered is an answer as wanted says it: with what is left where the model says one of
// several.
func answered(a *Answer, statuses []modelStatus) string {
	s := fmt.Sprintf("over %t:", a.OverLimit)
	for i, got := range a.Statuses {
		left := fmt.Sprint(got.Remaining)
		if want := statuses[i].remaining; slices.Contains(want, int64(got.Remaining)) || want == nil {
			left = fmt.Sprint(want)
		}
		s += fmt.Sprintf(" (over %t, limited %t, left %s)", got.OverLimit, got.Limit != nil, left)
	}
	return s
}

func wanted(over bool, statuses []modelStatus) string {
	s := fmt.Sprintf("over %t:", over)
	for _, want := range statuses {
		s += fmt.Sprintf(" (over %t, limited %t, left %v)", want.over, want.limited, want.remaining)
	}
	return s
}

func said(q *Request) string {
	s := fmt.Sprintf("hits %d:", q.Hits)
	for _, d := range q.Descriptors {
		s += fmt.Sprintf(" %v", d.Entries)
		if d.Hits != nil {
			s += fmt.Sprintf(" hits %d", *d.Hits)
		}
		if d.Refund {
			s += " refund"
		}
		if d.Override != nil {
			s += fmt.Sprintf(" limit %+v", *d.Override)
		}
	}
	return s
}
