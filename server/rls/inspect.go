package rls

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
)

var errChanged = errors.New("the rules have changed meanwhile: ask again")

// Explain returns the steps by which the service matches entries, and the rule at the end;
// nil where there is none, or are no rules yet.
func (s *Service) Explain(domain string, entries []rules.Entry) ([]rules.Step, *rules.Rule) {
	config := s.Rules()
	switch {
	case config == nil:
		return nil, nil
	case s.opts.Compat != nil:
		return config.ExplainJoined(domain, entries), config.MatchJoined(domain, entries)
	}
	return config.Explain(domain, entries), config.Match(domain, entries)
}

// Peek says what is there, for entries, of a limit of the rule or of the limit's
// candidate. It charges nothing. The error says that nothing could decide, or that the
// rule is not in force any more.
func (s *Service) Peek(ctx context.Context, r *rules.Rule, l *rules.Limit, entries []rules.Entry) (weir.Decision, error) {
	ready := s.ready(r)
	if ready == nil {
		return weir.Decision{}, errChanged
	}
	for i := range ready.limits {
		switch l {
		case &r.Limits[i]:
			return ready.limits[i].limiter.Peek(ctx, ready.key(entries))
		case r.Limits[i].Candidate:
			return ready.limits[i].candidate.limiter.Peek(ctx, ready.key(entries))
		}
	}
	return weir.Decision{}, fmt.Errorf("the rule %q has no such limit", r.Path)
}

// Reset forgets what entries have used of all limits of the rule and of their candidates:
// in the store and, in this process, what was taken ahead, denials that are remembered,
// and what the fallback has counted. Other processes forget theirs as these end, within a
// second. The error says what was not reset, or that the rule is not in force any more.
func (s *Service) Reset(ctx context.Context, r *rules.Rule, entries []rules.Entry) error {
	ready := s.ready(r)
	if ready == nil {
		return errChanged
	}
	key := ready.key(entries)
	var errs []error
	for i := range ready.limits {
		l := &ready.limits[i]
		errs = append(errs, l.limiter.Reset(ctx, key))
		if l.candidate != nil {
			errs = append(errs, l.candidate.limiter.Reset(ctx, key))
		}
	}
	return errors.Join(errs...)
}

// Decisions returns how many descriptors that matched the rule met each outcome, since the
// service started; nil for a rule that is not in force.
func (s *Service) Decisions(r *rules.Rule) map[string]uint64 {
	ready := s.ready(r)
	if ready == nil {
		return nil
	}
	return values(outcomes[:], ready.series.decisions[:])
}

// Compared returns how often a limit of the rule and its candidate came to the same
// verdict, and how they differed; nil where there is none.
func (s *Service) Compared(r *rules.Rule, l *rules.Limit) map[string]uint64 {
	ready := s.ready(r)
	if ready == nil {
		return nil
	}
	for i := range ready.limits {
		if l == &r.Limits[i] && l.Candidate != nil {
			return values(verdicts[:], ready.limits[i].candidate.counts[:])
		}
	}
	return nil
}

// CountedWithOriginal reports whether a service in compat counts a rule's limit on the keys
// of envoyproxy/ratelimit, where it counts together with that service.
func CountedWithOriginal(r *rules.Rule) bool { return joint(r) }

// ready returns what the service made of a rule, or nil if it is not in force.
func (s *Service) ready(r *rules.Rule) *rule {
	rs := s.current.Load()
	if rs == nil {
		return nil
	}
	return rs.rules[r]
}

func values(names []string, counters []prometheus.Counter) map[string]uint64 {
	all := make(map[string]uint64, len(names))
	for i, c := range counters {
		var m dto.Metric
		c.Write(&m) // which never fails for a counter
		all[names[i]] = uint64(m.GetCounter().GetValue())
	}
	return all
}
