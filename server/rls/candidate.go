package rls

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
)

// verdict is what became of a request by a limit and by its candidate.
type verdict int

const (
	bothAllow   verdict = iota
	bothDeny            //
	wouldDeny           // the candidate alone denies
	wouldAllow          // the limit alone denies
	notCompared         // one of them could not decide by the store
)

var verdicts = [...]string{"both_allow", "both_deny", "would_deny", "would_allow", "not_compared"}

// candidate is a limit that decides the same requests as another one, in the same question
// to the store, and whose decisions are only counted. In shadow it holds nothing back, and
// has neither a fallback nor a failure mode: where it cannot decide there is no verdict.
type candidate struct {
	limiter *weir.Limiter
	counts  [len(verdicts)]prometheus.Counter
}

// makeCandidate makes the candidate of a limit, the next of the rule's.
func (rs *ruleset) makeCandidate(r *rule, l *rules.Limit) (*candidate, error) {
	b := rs.service.backing
	store := b.store
	if f := rs.fronts[l.InstancesOf(b.instances)]; f != nil { // as the limit's own, so that both are one question
		store = f
	}
	limiter, err := weir.New(store, l.Candidate.StateName, l.Candidate.Limit, weir.Options{Shadow: true})
	if err != nil {
		return nil, err
	}
	c := &candidate{limiter: limiter}
	for i, name := range verdicts {
		c.counts[i] = rs.service.metrics.candidates.WithLabelValues(r.series.domain, r.series.rule, numberOf(len(r.limits)), name)
	}
	return c, nil
}

// numberOf is which of a rule's limits a metric is about, from 1.
func numberOf(index int) string { return strconv.Itoa(index + 1) }

// withCandidates appends the charges of the candidates. They are in the order of the
// charges, which is what compare relies on.
func (q *question) withCandidates(all []weir.Charge) []weir.Charge {
	for i := range q.charges {
		if c := &q.charges[i]; c.compared() {
			all = append(all, c.limit.candidate.limiter.For(c.key, c.cost))
		}
	}
	return all
}

// compared reports whether the charge has a candidate to be compared with. A peek has not:
// it is no request.
func (c *charge) compared() bool { return c.limit.candidate != nil && c.cost > 0 }

// compare counts the verdicts of the candidates, which answered others.
func (q *question) compare(others []weir.Decision) {
	for i := range q.charges {
		if c := &q.charges[i]; c.compared() {
			c.limit.candidate.counts[verdictOf(&q.decisions[i], &others[0])].Inc()
			others = others[1:]
		}
	}
}

// verdictOf compares what a limit and its candidate decided. A limit in shadow counts as if
// it enforced; one that was held back by another would have allowed.
func verdictOf(d, candidate *weir.Decision) verdict {
	denied, other := !d.Allowed || d.Shadow, !candidate.Allowed || candidate.Shadow
	switch {
	case d.Source >= weir.FromFallback || undecided(d) || undecided(candidate):
		return notCompared
	case denied && other:
		return bothDeny
	case other:
		return wouldDeny
	case denied:
		return wouldAllow
	}
	return bothAllow
}

// forgetCandidates drops the series of candidates that next no longer has.
func (m *metrics) forgetCandidates(old, next *ruleset) {
	type name struct{ domain, rule, limit string }
	keep := make(map[name]bool)
	each := func(rs *ruleset, visit func(name)) {
		for _, r := range rs.rules {
			for i := range r.limits {
				if r.limits[i].candidate != nil {
					visit(name{r.series.domain, r.series.rule, numberOf(i)})
				}
			}
		}
	}
	each(next, func(n name) { keep[n] = true })
	each(old, func(n name) {
		if keep[n] {
			return
		}
		for _, verdict := range verdicts {
			m.candidates.DeleteLabelValues(n.domain, n.rule, n.limit, verdict)
		}
	})
}
