package httpretry

import (
	"net/http"
	"strings"
	"time"
)

// quota is what a response says of one policy.
type quota struct {
	policy    string        // name and partition key; empty in the drafts that have no names
	remaining int64         // what is left
	limit     int64         // what there is in all; 0: not said
	window    time.Duration // the time in which no more than remaining may be used; 0: not said
}

// Field names in the form that http.Header has them.
const (
	rateLimit       = "Ratelimit"
	rateLimitPolicy = "Ratelimit-Policy"
)

// separate are the prefixes of the three separate fields Limit, Remaining and Reset: drafts 00 to 06, and the older custom.
var separate = [...]struct{ limit, remaining, reset string }{
	{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"},
	{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"},
}

// statesQuota tells cheaply whether quotas may find something.
func statesQuota(h http.Header) bool {
	if h[rateLimit] != nil {
		return true
	}
	for _, f := range separate {
		if h[f.remaining] != nil {
			return true
		}
	}
	return false
}

// quotas reads the RateLimit fields of draft-ietf-httpapi-ratelimit-headers, whichever draft the server follows:
//
//	-08 on      RateLimit: "api";r=12;t=5          RateLimit-Policy: "api";q=100;w=60
//	proposed    RateLimit: api;a=12;w=5            (pull request 166: other letters, tokens for strings)
//	-07         RateLimit: limit=100, remaining=12, reset=5
//	-00 to -06  RateLimit-Limit: 100, 100;w=60     RateLimit-Remaining: 12     RateLimit-Reset: 5
//	before      the same three as X-RateLimit-* or X-Rate-Limit-*, where Reset may be a Unix time in s or ms
//
// Where a response has several forms the first that can be read counts. Malformed fields are ignored, as the drafts ask.
func quotas(h http.Header, now time.Time) []quota {
	if list, ok := parseField(strings.Join(h[rateLimit], ", ")); ok && len(list) > 0 {
		if q, ok := dictionaryQuota(list); ok {
			return []quota{q}
		}
		if found := listQuotas(list, h); len(found) > 0 {
			return found
		}
	}
	for _, f := range separate {
		remaining, ok := single(h[f.remaining])
		reset, okReset := single(h[f.reset])
		if ok && okReset {
			return []quota{{remaining: remaining, limit: firstInteger(h[f.limit]), window: untilReset(reset, now)}}
		}
	}
	return nil
}

// listQuotas reads a List of named items; the whole quota is in the item of that name in RateLimit-Policy.
func listQuotas(list []member, h http.Header) []quota {
	limits := map[string]int64{}
	policies, _ := parseField(strings.Join(h[rateLimitPolicy], ", "))
	for _, m := range policies {
		if q, ok := m.param("q"); ok && q.kind == integer && q.number >= 0 {
			limits[m.identity()] = q.number
			limits[m.value.text] = q.number // RateLimit may have a partition key that the policy leaves out
		}
	}
	var found []quota
	for _, m := range list {
		r, ok := m.either("r", "a")
		if !ok || m.name != "" || m.value.kind != text {
			continue
		}
		q := quota{policy: m.identity(), remaining: r}
		if q.limit, ok = limits[q.policy]; !ok {
			q.limit = limits[m.value.text]
		}
		if t, ok := m.either("t", "w"); ok {
			q.window = min(time.Duration(t), forever/time.Second) * time.Second
		}
		found = append(found, q)
	}
	return found
}

// dictionaryQuota reads draft -07.
func dictionaryQuota(list []member) (quota, bool) {
	var q quota
	var hasRemaining, hasReset bool
	for _, m := range list {
		if m.value.kind != integer || m.value.number < 0 {
			continue
		}
		switch m.name {
		case "limit":
			q.limit = m.value.number
		case "remaining":
			q.remaining, hasRemaining = m.value.number, true
		case "reset":
			q.window, hasReset = min(time.Duration(m.value.number), forever/time.Second)*time.Second, true
		}
	}
	return q, hasRemaining && hasReset
}

// either returns the Integer parameter, not negative, of the first name that is there.
func (m member) either(name, proposed string) (int64, bool) {
	v, ok := m.param(name)
	if !ok {
		v, ok = m.param(proposed)
	}
	return v.number, ok && v.kind == integer && v.number >= 0
}

// identity is the policy's name and partition key, which together say whose quota it is.
func (m member) identity() string {
	if pk, ok := m.param("pk"); ok && pk.kind == binary {
		return m.value.text + "\x00" + pk.text
	}
	return m.value.text
}

// untilReset turns the Reset of an X-RateLimit field into a wait: beyond 10^9 it is a Unix time, beyond 10^12 one in ms.
func untilReset(reset int64, now time.Time) time.Duration {
	switch {
	case reset > 1e12:
		return min(max(0, time.UnixMilli(reset).Sub(now)), forever)
	case reset > 1e9:
		return min(max(0, time.Unix(reset, 0).Sub(now)), forever)
	}
	return min(time.Duration(reset), forever/time.Second) * time.Second
}

// single reads a field that is one Integer and not negative.
func single(lines []string) (int64, bool) {
	if len(lines) != 1 {
		return 0, false
	}
	list, ok := parseField(lines[0])
	if !ok || len(list) != 1 || list[0].name != "" || list[0].value.kind != integer {
		return 0, false
	}
	n := list[0].value.number
	return n, n >= 0
}

// firstInteger reads RateLimit-Limit, whose first item is the quota and whose others are policies; 0 if there is none.
func firstInteger(lines []string) int64 {
	list, ok := parseField(strings.Join(lines, ", "))
	if !ok || len(list) == 0 || list[0].value.kind != integer {
		return 0
	}
	return max(0, list[0].value.number)
}
