package preview

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
)

// Store is a store that can be asked at another time than now.
type Store interface {
	// TakeAt is weir.Store's TakeAll at a time in microseconds since 1970.
	TakeAt(ctx context.Context, atMicros int64, asks []weir.Ask, decisions []weir.Decision) error
	// Forget removes what TakeAt wrote of a key.
	Forget(ctx context.Context, name string, key weir.Key) error
}

// Replay asks the rules of one domain what they would have decided.
type Replay struct {
	Config   *rules.Config
	Domain   string
	Store    Store              // remembers; at the end Run forgets what it wrote there
	Progress func(requests int) // told how many more requests are done, now and then; may be nil
}

// progressStep is after how many requests Progress is told.
const progressStep = 1000

// Run replays the log in the order of time, each request at a cost of 1. It writes to the
// store under names of its own, so that a store in use is not disturbed. The error says
// that the domain has no rules, the log no requests, or the store could not decide.
func (r Replay) Run(ctx context.Context, log *Log) (report *Report, err error) {
	if !r.Config.Has(r.Domain) {
		return nil, fmt.Errorf("no rules for domain %q: the configuration has %q", r.Domain, r.Config.Domains())
	}
	if log.Len() == 0 {
		return nil, errors.New("the logs are empty: there is no request to replay")
	}
	log.sort()
	targets, tallies := r.targets(log.descriptors)
	defer func() { err = errors.Join(err, r.forget(ctx, tallies)) }()

	unmatched := 0
	decisions := make([]weir.Decision, 0, 8)
	for i, request := range log.requests {
		if r.Progress != nil && i > 0 && i%progressStep == 0 {
			r.Progress(progressStep)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		client := targets[request.descriptor]
		if client == nil {
			unmatched++
			continue
		}
		t := client.tally
		decisions = slices.Grow(decisions[:0], len(t.asks))[:len(t.asks)]
		if err := r.ask(ctx, request.atMicros, client, decisions); err != nil {
			return nil, fmt.Errorf("rule %q, request of %v: %w", t.rule.Path, timeOf(request.atMicros).Format(time.RFC3339), err)
		}
		t.count(client, request.atMicros, decisions)
	}
	return r.report(log, tallies, unmatched), nil
}

// ask puts one request to the store.
func (r Replay) ask(ctx context.Context, atMicros int64, c *client, decisions []weir.Decision) error {
	asks := c.tally.asks
	if len(asks) == 0 { // an unlimited rule, or a whitelist entry
		return nil
	}
	for i := range asks {
		asks[i].Key = c.key
	}
	if err := r.Store.TakeAt(ctx, atMicros, asks, decisions); err != nil {
		return err
	}
	for _, d := range decisions {
		if d.Cause != nil {
			return d.Cause
		}
	}
	return nil
}

// tally is what happens under one rule.
type tally struct {
	rule    *rules.Rule
	asks    []weir.Ask // one a limit; the key is each request's
	clients map[weir.Key]*client

	allowed, denied int
	minute, worst   int64 // minutes since 1970: of the last denial, and of the most
	inMinute        int   // denials in minute
	inWorst         int   // denials in worst
}

// client is one key under one rule.
type client struct {
	tally      *tally
	key        weir.Key
	descriptor uint32 // the first that had this key
	denied     int
}

// count adds a decided request.
func (t *tally) count(c *client, atMicros int64, decisions []weir.Decision) {
	if !slices.ContainsFunc(decisions, func(d weir.Decision) bool { return !d.Allowed }) {
		t.allowed++
		return
	}
	t.denied++
	c.denied++
	minute := atMicros / time.Minute.Microseconds()
	if minute != t.minute {
		t.minute, t.inMinute = minute, 0
	}
	t.inMinute++
	if t.inMinute > t.inWorst {
		t.worst, t.inWorst = minute, t.inMinute
	}
}

// targets finds for each descriptor the client that it is under the rule that it
// matches, or nil.
func (r Replay) targets(descriptors [][]rules.Entry) ([]*client, []*tally) {
	var tallies []*tally
	byRule := map[*rules.Rule]*tally{}
	run := rand.Text()[:10]
	for _, rule := range r.Config.Rules() {
		if rule.Domain != r.Domain {
			continue
		}
		t := &tally{rule: rule, clients: map[weir.Key]*client{}}
		for i, limit := range rule.Limits {
			name := fmt.Sprintf("preview.%s.%d.%d", run, len(tallies), i)
			t.asks = append(t.asks, weir.Ask{Name: name, Limit: limit.Limit, Cost: 1})
		}
		byRule[rule] = t
		tallies = append(tallies, t)
	}
	targets := make([]*client, len(descriptors))
	for id, entries := range descriptors {
		t := byRule[r.Config.Match(r.Domain, entries)]
		if t == nil {
			continue
		}
		key := t.rule.Key(entries)
		if t.clients[key] == nil {
			t.clients[key] = &client{tally: t, key: key, descriptor: uint32(id)}
		}
		targets[id] = t.clients[key]
	}
	return targets, tallies
}

// forget removes what was written to the store, even when the caller has left.
func (r Replay) forget(ctx context.Context, tallies []*tally) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for _, t := range tallies {
		for _, ask := range t.asks {
			for key := range t.clients {
				if err := r.Store.Forget(ctx, ask.Name, key); err != nil {
					return fmt.Errorf("keys of limit %q may be left in the store until they expire: %w", ask.Name, err)
				}
			}
		}
	}
	return nil
}

// report sums up.
func (r Replay) report(log *Log, tallies []*tally, unmatched int) *Report {
	report := &Report{Requests: log.Len(), Skipped: log.Skipped, Unmatched: unmatched, Rules: []RuleReport{}}
	report.First, report.Last = log.span()
	for _, t := range tallies {
		rr := RuleReport{
			Domain: t.rule.Domain, Rule: t.rule.Path, Algorithm: algorithmOf(t.rule),
			Limit: limitOf(t.rule), Shadow: t.rule.Shadow,
			Allowed: t.allowed, Denied: t.denied, Keys: len(t.clients), Top: []Offender{},
		}
		if t.denied > 0 {
			rr.WorstMinute = timeOf(t.worst * time.Minute.Microseconds())
			rr.WorstDenied = t.inWorst
		}
		for _, c := range t.clients {
			if c.denied > 0 {
				rr.KeysDenied++
				rr.Top = append(rr.Top, Offender{keyText(log.descriptors[c.descriptor]), c.denied})
			}
		}
		slices.SortFunc(rr.Top, func(a, b Offender) int {
			return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Key, b.Key))
		})
		rr.Top = slices.Clip(rr.Top[:min(len(rr.Top), topOffenders)])
		report.Rules = append(report.Rules, rr)
	}
	return report
}

// algorithmOf names the algorithms of a rule's limits, each once: "unlimited" without any.
func algorithmOf(rule *rules.Rule) string {
	var names []string
	for _, l := range rule.Limits {
		if name := l.Algorithm().String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "unlimited"
	}
	return strings.Join(names, "+")
}

func limitOf(rule *rules.Rule) string {
	if len(rule.Limits) == 0 {
		return "unlimited"
	}
	limits := make([]string, len(rule.Limits))
	for i, l := range rule.Limits {
		limits[i] = l.String()
	}
	return strings.Join(limits, " and ")
}

// keyText shows a key to people: the value of its one entry, or key=value of several.
func keyText(entries []rules.Entry) string {
	if len(entries) == 1 {
		return entries[0].Value
	}
	pairs := make([]string, len(entries))
	for i, e := range entries {
		pairs[i] = e.Key + "=" + e.Value
	}
	return strings.Join(pairs, " ")
}
