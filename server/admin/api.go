package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"weir.dev/weir"
	"weir.dev/weir/server/rls"
	"weir.dev/weir/server/rules"
)

// Bounds of a question.
const (
	maxBody    = 1 << 20 // as of a request that is limited
	maxEntries = 1000
)

// API answers what operators ask the service about rules and keys, as JSON: GET
// /admin/rules, and POST /admin/explain, /admin/peek and /admin/reset with a Question. Each
// reset is logged. It belongs behind GuardHost.
func API(s *rls.Service, access Access, log *slog.Logger) http.Handler {
	a := &api{s, log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /admin/rules", a.rules)
	for path, answer := range map[string]func(http.ResponseWriter, *http.Request, Question){
		"explain": a.explain, "peek": a.peek, "reset": a.reset,
	} {
		mux.Handle("POST /admin/"+path, access.guard(a.ask(answer)))
	}
	return mux
}

// Question is about one descriptor of a request: the entries that rules match, in order.
type Question struct {
	Domain  string  `json:"domain"`
	Entries []Entry `json:"entries"`
}

// Entry is one entry of a descriptor.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Explanation says which rule a descriptor matches, and why.
type Explanation struct {
	Domain string `json:"domain"`
	Steps  []Step `json:"steps"`
	Rule   *Rule  `json:"rule"` // null: none is at the level of the last entry
}

// Step is what one entry led to.
type Step struct {
	Entry
	How   rules.How `json:"how"`
	Level string    `json:"level,omitempty"` // the level of the configuration
	Else  []string  `json:"else,omitempty"`  // without a match: what the level has
}

// Rule is a rule and what became of the requests that matched it.
type Rule struct {
	Domain    string            `json:"domain"`
	Rule      string            `json:"rule"` // its path
	Unlimited bool              `json:"unlimited,omitempty"`
	Shadow    bool              `json:"shadow,omitempty"`
	Quota     bool              `json:"quota,omitempty"`
	Replaces  []string          `json:"replaces,omitempty"`
	Limits    []Limit           `json:"limits"`
	Decisions map[string]uint64 `json:"decisions,omitempty"` // by outcome, since the service started
}

// Limit is a limit of a rule.
type Limit struct {
	Name         string  `json:"name,omitempty"`
	Limit        string  `json:"limit"` // for people: "100 per minute by gcra"
	Algorithm    string  `json:"algorithm"`
	Units        int64   `json:"units"`
	Seconds      float64 `json:"window_seconds"`
	Capacity     int64   `json:"capacity"` // most units at once
	StateName    string  `json:"counted_as"`
	OnStoreError string  `json:"on_store_error,omitempty"`
	Instances    int     `json:"instances,omitempty"`
	Lease        int64   `json:"lease,omitempty"` // most units taken ahead
	State        *State  `json:"state,omitempty"` // of the key that was asked about

	Candidate *Limit            `json:"candidate,omitempty"`
	Compared  map[string]uint64 `json:"compared,omitempty"` // with the candidate, since the service started
}

// State is what is there of a limit for one key.
type State struct {
	Allowed    bool    `json:"allowed"` // whether one unit would be let pass
	Remaining  int64   `json:"remaining"`
	RetryAfter float64 `json:"retry_after_seconds"`
	Never      bool    `json:"never,omitempty"` // no waiting helps
	ResetAfter float64 `json:"reset_after_seconds"`
	Source     string  `json:"source,omitempty"` // store, lease, cache, fallback or policy
	Error      string  `json:"error,omitempty"`  // why the store did not decide
}

// Reset says what was forgotten.
type Reset struct {
	Domain string   `json:"domain"`
	Rule   string   `json:"rule"`
	Reset  []string `json:"reset"` // the names of the states
}

type failure struct {
	Error string `json:"error"`
}

type api struct {
	service *rls.Service
	log     *slog.Logger
}

func (a *api) rules(w http.ResponseWriter, _ *http.Request) {
	list := []Rule{}
	if c := a.service.Rules(); c != nil {
		for _, r := range c.Rules() {
			list = append(list, *a.describe(r))
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"rules": list})
}

func (a *api) explain(w http.ResponseWriter, _ *http.Request, q Question) {
	steps, r := a.service.Explain(q.Domain, q.entries())
	writeJSON(w, http.StatusOK, a.explanation(q, steps, r))
}

func (a *api) peek(w http.ResponseWriter, r *http.Request, q Question) {
	entries := q.entries()
	steps, rule := a.service.Explain(q.Domain, entries)
	e := a.explanation(q, steps, rule)
	if rule != nil {
		for i := range rule.Limits {
			l := &rule.Limits[i]
			e.Rule.Limits[i].State = a.state(r.Context(), rule, l, entries)
			if l.Candidate != nil {
				e.Rule.Limits[i].Candidate.State = a.state(r.Context(), rule, l.Candidate, entries)
			}
		}
	}
	writeJSON(w, http.StatusOK, e)
}

func (a *api) reset(w http.ResponseWriter, r *http.Request, q Question) {
	entries := q.entries()
	_, rule := a.service.Explain(q.Domain, entries)
	switch {
	case rule == nil:
		refuse(w, http.StatusNotFound, "no rule is at the level of the last entry: there is nothing to reset")
		return
	case len(rule.Limits) == 0:
		refuse(w, http.StatusNotFound, "the rule %.200q has no limit: there is nothing to reset", rule.Path)
		return
	}
	err := a.service.Reset(r.Context(), rule, entries)
	log := a.log.With("remote", r.RemoteAddr, "domain", rule.Domain, "rule", rule.Path, "key", rule.Key(entries).String())
	if err != nil {
		log.Error("a reset failed", "error", err)
		refuse(w, http.StatusBadGateway, "not everything was reset: %v", err)
		return
	}
	log.Warn("reset")
	answer := Reset{Domain: rule.Domain, Rule: rule.Path}
	for i := range rule.Limits {
		answer.Reset = append(answer.Reset, rule.Limits[i].StateName)
		if c := rule.Limits[i].Candidate; c != nil {
			answer.Reset = append(answer.Reset, c.StateName)
		}
	}
	writeJSON(w, http.StatusOK, answer)
}

// ask reads the question, and refuses what is none.
func (a *api) ask(answer func(http.ResponseWriter, *http.Request, Question)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := readQuestion(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			code := http.StatusBadRequest
			if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
				code = http.StatusRequestEntityTooLarge
			}
			refuse(w, code, "the question cannot be read: %v", err)
			return
		}
		switch c := a.service.Rules(); {
		case c == nil:
			refuse(w, http.StatusServiceUnavailable, "no rules are loaded yet")
		case !c.Has(q.Domain):
			refuse(w, http.StatusNotFound, "no rules for the domain %.80q, so its requests are not limited: the configuration has %s", q.Domain, some(c.Domains()))
		default:
			answer(w, r, q)
		}
	})
}

func readQuestion(body io.Reader) (q Question, err error) {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		return q, err
	}
	if err := decoder.Decode(&struct{}{}); err != io.EOF {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return q, err
		}
		return q, errors.New("something follows it: send one object")
	}
	return q, q.check()
}

// check returns everything that is wrong with a question.
func (q *Question) check() error {
	var errs []error
	if q.Domain == "" {
		errs = append(errs, errors.New("domain is empty: write one of the configuration's"))
	}
	switch n := len(q.Entries); {
	case n == 0:
		errs = append(errs, errors.New("entries is empty: write at least one key and value"))
	case n > maxEntries:
		return fmt.Errorf("%d entries: at most %d", n, maxEntries)
	}
	for i, e := range q.Entries {
		if e.Key == "" {
			errs = append(errs, fmt.Errorf("entry %d has no key", i+1))
		}
		// A reader of JSON puts this in place of what is no text, and so in place of
		// another client.
		if strings.ContainsRune(e.Key+e.Value, '�') {
			errs = append(errs, fmt.Errorf("entry %d has the replacement character U+FFFD, or bytes that are not UTF-8: JSON cannot say these", i+1))
		}
	}
	return errors.Join(errs...)
}

func (q *Question) entries() []rules.Entry {
	list := make([]rules.Entry, len(q.Entries))
	for i, e := range q.Entries {
		list[i] = rules.Entry(e)
	}
	return list
}

func (a *api) explanation(q Question, steps []rules.Step, r *rules.Rule) Explanation {
	e := Explanation{Domain: q.Domain, Steps: []Step{}}
	for _, s := range steps {
		e.Steps = append(e.Steps, Step{Entry(s.Entry), s.How, s.Level, s.Else})
	}
	if r != nil {
		e.Rule = a.describe(r)
	}
	return e
}

func (a *api) describe(r *rules.Rule) *Rule {
	d := &Rule{
		Domain: r.Domain, Rule: r.Path, Unlimited: r.Unlimited, Shadow: r.Shadow, Quota: r.Quota,
		Replaces: r.Replaces, Limits: []Limit{}, Decisions: a.service.Decisions(r),
	}
	for i := range r.Limits {
		l := describeLimit(&r.Limits[i])
		if c := r.Limits[i].Candidate; c != nil {
			candidate := describeLimit(c)
			l.Candidate, l.Compared = &candidate, a.service.Compared(r, &r.Limits[i])
		}
		d.Limits = append(d.Limits, l)
	}
	return d
}

func describeLimit(l *rules.Limit) Limit {
	d := Limit{
		Name: l.Name, Limit: l.String(), Algorithm: l.Algorithm().String(), Units: l.Units(), Seconds: l.Period().Seconds(),
		Capacity: l.Capacity(), StateName: l.StateName, Instances: l.Instances, Lease: l.Lease.Max,
	}
	if l.OnStoreError != rules.Unsaid {
		d.OnStoreError = l.OnStoreError.String()
	}
	return d
}

func (a *api) state(ctx context.Context, r *rules.Rule, l *rules.Limit, entries []rules.Entry) *State {
	d, err := a.service.Peek(ctx, r, l, entries)
	if err != nil {
		return &State{Error: err.Error()}
	}
	s := &State{
		Allowed:    d.Allowed && !d.Shadow,
		Remaining:  d.Remaining,
		Never:      d.RetryAfter == weir.Never,
		ResetAfter: d.ResetAfter.Seconds(),
		Source:     d.Source.String(),
	}
	if !s.Never {
		s.RetryAfter = d.RetryAfter.Seconds()
	}
	if d.Cause != nil {
		s.Error = d.Cause.Error()
	}
	return s
}

// some names the domains, as far as a message can.
func some(domains []string) string {
	const most = 10
	if len(domains) > most {
		return fmt.Sprintf("%.80q and %d more", domains[:most], len(domains)-most)
	}
	return fmt.Sprintf("%.80q", domains)
}

func writeJSON(w http.ResponseWriter, code int, answer any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.Encode(answer) // an error says that the client has left
}
