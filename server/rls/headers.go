package rls

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
)

// Headers are what answers tell a proxy's client in headers. The zero Headers are none.
type Headers struct {
	// Counts are three headers of the limit that is over, or else the nearest to it: how
	// many requests it allows, how many are left, and in how many seconds there are more.
	// The names are LimitName or RateLimit-Limit, and so on.
	Counts                              bool
	LimitName, RemainingName, ResetName string
	// Draft11 are RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11
	// and, where the request is denied, Retry-After (RFC 9110, section 10.2.3).
	Draft11 bool
}

// Header is one header of an answer.
type Header struct{ Name, Value string }

const (
	// maxPolicies is how many limits the headers of draft 11 tell.
	maxPolicies = 16
	// maxPolicyName is the longest name of one, in bytes.
	maxPolicyName = 64
)

// fill gives the headers their default names. It returns what is wrong with the others.
func (h *Headers) fill() (faults []error) {
	for _, name := range []struct {
		text      *string
		otherwise string
	}{
		{&h.LimitName, "RateLimit-Limit"}, {&h.RemainingName, "RateLimit-Remaining"}, {&h.ResetName, "RateLimit-Reset"},
	} {
		if *name.text == "" {
			*name.text = name.otherwise
		} else if err := checkHeader(*name.text); err != nil {
			faults = append(faults, fmt.Errorf("the header for %s: %w", name.otherwise, err))
		}
	}
	return faults
}

// ofMessages are headers that say how a message is read. Added to another's, they break it.
var ofMessages = []string{
	"connection", "content-encoding", "content-length", "content-type", "host", "keep-alive", "proxy-connection", "set-cookie",
	"te", "trailer", "transfer-encoding", "upgrade",
}

// checkHeader returns what is wrong with a header's name. It must be a token of RFC 9110,
// section 5.6.2.
func checkHeader(name string) error {
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return fmt.Errorf("the name %.80q has %q at byte %d: write letters, digits and hyphens", name, c, i)
		}
	}
	if slices.Contains(ofMessages, strings.ToLower(name)) {
		return fmt.Errorf("the name %q is taken: proxies read messages by it", name)
	}
	if len(name) > 80 {
		return errors.New("the name is longer than 80 bytes")
	}
	return nil
}

// headers returns what the answer tells in headers: nothing where no limit applies.
func (q *question) headers(a *Answer, h *Headers) (all []Header) {
	told := q.told(a)
	if told < 0 {
		return nil
	}
	if h.Counts {
		s := &a.Statuses[told]
		all = append(all,
			Header{h.LimitName, strconv.FormatUint(uint64(s.Limit.message.GetRequestsPerUnit()), 10)},
			Header{h.RemainingName, strconv.FormatUint(uint64(s.Remaining), 10)},
			Header{h.ResetName, strconv.FormatInt(s.ResetSeconds, 10)})
	}
	if h.Draft11 {
		all = append(all, q.draft11(a, told)...)
	}
	return all
}

// told returns the descriptor that the headers tell of: the last that denies by itself, or
// else the first with the fewest units left. It is -1 where no limit applies.
func (q *question) told(a *Answer) int {
	least, told := uint32(math.MaxUint32), -1
	for i := range a.Statuses {
		s := &a.Statuses[i]
		switch {
		case s.Limit == nil:
		case s.OverLimit && !q.parts[i].isQuota(q.service.opts.Quota):
			least, told = 0, i
		case s.Remaining < least: // as there, one with 2^32-1 left is none
			least, told = s.Remaining, i
		}
	}
	return told
}

// policy is a limit as the headers of draft 11 name it.
type policy struct {
	name string // a quoted string
	text string // the item of RateLimit-Policy
}

// policyOf names a limit. Its own name is the only text that a header has from the
// configuration: what a quoted string cannot hold is left out of it.
func policyOf(l *rules.Limit) policy {
	name := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return -1
		}
		return c
	}, l.Name)
	if name = name[:min(len(name), maxPolicyName)]; name == "" {
		name = fmt.Sprintf("%d-per-%s", l.RequestsPerUnit, l.Window())
	}
	p := policy{name: `"` + name + `"`}
	// A window is in whole seconds there: of a shorter one there are several in a second.
	units, window := l.Units(), seconds(l.Period())
	if l.Period() < time.Second {
		units = units * int64(time.Second) / int64(l.Period())
	}
	p.text = fmt.Sprintf("%s;q=%d;w=%d", p.name, units, window)
	if a := l.Algorithm(); (a == weir.GCRA || a == weir.LeakyBucket) && l.Capacity() != l.Units() {
		p.text += fmt.Sprintf(";weir-burst=%d", l.Capacity())
	}
	return p
}

// draft11 returns the headers of draft 11, those of descriptor told first.
func (q *question) draft11(a *Answer, told int) []Header {
	var policies, items []string
	seen := make(map[string]bool)
	tell := func(i int) {
		p := &q.parts[i]
		if a.Statuses[i].Limit == nil || len(items) == maxPolicies {
			return
		}
		n := tightest(q.of(p))
		d, l := &q.of(p)[n], q.charges[p.first+n].limit
		if seen[l.policy.name] {
			return
		}
		seen[l.policy.name] = true
		if a.Statuses[i].OverLimit {
			a.Violated = append(a.Violated, strings.Trim(l.policy.name, `"`))
		}
		policies = append(policies, l.policy.text)
		item := fmt.Sprintf("%s;r=%d", l.policy.name, d.Remaining)
		if wait := waitFor(d); wait != weir.Never {
			item += fmt.Sprintf(";t=%d", seconds(wait))
		}
		items = append(items, item)
	}
	tell(told)
	for i := range q.parts {
		tell(i)
	}
	all := []Header{{"RateLimit-Policy", strings.Join(policies, ", ")}, {"RateLimit", strings.Join(items, ", ")}}
	if wait := q.retryAfter(); a.OverLimit && wait != weir.Never {
		all = append(all, Header{"Retry-After", strconv.FormatInt(max(seconds(wait), 1), 10)})
	}
	return all
}

// waitFor is how long a client waits for more: until the same would be allowed, or else
// until there is all of it.
func waitFor(d *weir.Decision) time.Duration {
	if !d.Allowed || d.Shadow {
		return d.RetryAfter
	}
	return d.ResetAfter
}

// retryAfter is when all that denies the request would let it pass.
func (q *question) retryAfter() (wait time.Duration) {
	for i := range q.decisions {
		if d := &q.decisions[i]; !d.Allowed {
			wait = max(wait, d.RetryAfter)
		}
	}
	return wait
}
