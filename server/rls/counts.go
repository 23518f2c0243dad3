package rls

import (
	"math"
	"regexp"
	"strings"

	"weir.dev/weir"
	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/stats"
)

// count is one of the counters that each rule has, by the original's names.
type count int

const (
	totalHits count = iota
	overLimit
	nearLimit
	overLimitWithLocalCache
	withinLimit
	shadowMode
	totalNegativeHits
)

var countNames = [...]string{
	"total_hits", "over_limit", "near_limit", "over_limit_with_local_cache", "within_limit", "shadow_mode", "total_negative_hits",
}

const perRule = "ratelimit.service.rate_limit."

// serviceCounts are the original's counters of calls. Those of loads are counted where
// rules are loaded.
type serviceCounts struct {
	redisError, serviceError, shadowMode *stats.Counter
	requests                             *stats.Counter
	response                             *stats.Timer
}

func newServiceCounts(r *stats.Registry) serviceCounts {
	return serviceCounts{
		redisError:   r.Configured("ratelimit.service.call.should_rate_limit.redis_error"),
		serviceError: r.Configured("ratelimit.service.call.should_rate_limit.service_error"),
		shadowMode:   r.Configured("ratelimit.service.global_shadow_mode"),
		requests:     r.Configured("ratelimit_server.ShouldRateLimit.total_requests"),
		response:     r.Timer("ratelimit_server.ShouldRateLimit.response_time"),
	}
}

// counts are the counters of one name. They are found once if the configuration alone
// makes the name, else each time that one of them counts.
type counts struct {
	found    *[len(countNames)]*stats.Counter
	registry *stats.Registry // with name, where found is nil
	name     string
}

// findCounts returns the counters of a name of the configuration, or nil where nothing
// is counted.
func findCounts(r *stats.Registry, name string) *[len(countNames)]*stats.Counter {
	if r == nil {
		return nil
	}
	found := new([len(countNames)]*stats.Counter)
	for i, suffix := range countNames {
		found[i] = r.Configured(statName(name) + "." + suffix)
	}
	return found
}

func (c counts) add(which count, n int64) {
	switch {
	case n <= 0 || c.found == nil && c.registry == nil:
	case c.found != nil:
		c.found[which].Add(uint64(n))
	default:
		c.registry.Counter(c.name + "." + countNames[which]).Add(uint64(n))
	}
}

// decided counts hits against a limit as the original does: those above it are over, and
// those of the others above the threshold are near it.
func (c counts) decided(hits int64, d *weir.Decision, l *limit) {
	c.add(totalHits, hits)
	if undecided(d) {
		return
	}
	most := l.limiter.Limit().Capacity()
	before, after := span(hits, d, most)
	if d.Allowed && !d.Shadow {
		c.add(withinLimit, hits)
		c.add(nearLimit, after-max(before, l.near))
		return
	}
	over := after - max(before, most)
	c.add(overLimit, over)
	c.add(nearLimit, most-max(before, l.near))
	if d.Source == weir.FromCache {
		c.add(overLimitWithLocalCache, hits)
	}
	if d.Shadow {
		c.add(shadowMode, over)
	}
}

// span returns what was counted against a limit of most before and after hits that were
// decided so. Of denied hits, the original counts as taken what was within the limit; where
// denials are not charged that is nothing.
func span(hits int64, d *weir.Decision, most int64) (before, after int64) {
	switch {
	case !d.Allowed || d.Shadow:
		before = most - d.Taken
	case d.Source <= weir.FromCache:
		before = max(most-d.Remaining-d.Taken, 0)
	}
	return before, before + hits
}

// nearThreshold is the count from which hits are near a limit, computed in the original's
// single precision.
func nearThreshold(units int64, ratio float32) int64 {
	return int64(math.Floor(float64(float32(units) * ratio)))
}

var (
	ipv4       = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)
	separators = strings.NewReplacer(":", "_", "|", "_")
)

// statName returns the full name for what the original calls a key: colons, bars and the
// dots of IPv4 addresses would read as something else.
func statName(key string) string {
	key = ipv4.ReplaceAllStringFunc(key, func(a string) string { return strings.ReplaceAll(a, ".", "_") })
	return perRule + separators.Replace(key)
}

// configName returns the key under which the original counts a rule, if it is not one
// that depends on the request.
func configName(r *rules.Rule) string {
	var b strings.Builder
	b.WriteString(r.Domain)
	for _, e := range r.Levels {
		b.WriteByte('.')
		writeEntry(&b, e)
	}
	return b.String()
}

// namedByRequest reports whether the values of requests are in the name of a rule.
func namedByRequest(r *rules.Rule) bool {
	if r.DetailedMetric {
		return true
	}
	for i, e := range r.Levels {
		if i < len(r.ValueToMetric) && r.ValueToMetric[i] && (e.Value == "" || strings.Contains(e.Value, "*")) {
			return true
		}
	}
	return false
}

// requestName returns the key under which the original counts a descriptor of a rule whose
// name depends on it. A pattern of share_threshold goes before the value that it stands for.
func requestName(r *rules.Rule, entries []rules.Entry) string {
	var b strings.Builder
	b.WriteString(r.Domain)
	shares := false
	for _, pattern := range r.Shared {
		shares = shares || pattern != ""
	}
	for i, e := range entries {
		b.WriteByte('.')
		switch configured := r.Levels[i].Value; {
		case i < len(r.Shared) && r.Shared[i] != "":
			e.Value = r.Shared[i]
		case r.DetailedMetric && !shares && e.Value == "":
			b.WriteString(e.Key + "_")
			continue
		case r.DetailedMetric || r.ValueToMetric[i]:
		default:
			e.Value = configured
		}
		writeEntry(&b, e)
	}
	return b.String()
}

// overrideName returns the key under which the original counts a descriptor that brings
// its own limit.
func overrideName(domain string, entries []rules.Entry) string {
	var b strings.Builder
	b.WriteString(domain)
	for _, e := range entries {
		b.WriteByte('.')
		writeEntry(&b, e)
	}
	return b.String()
}

func writeEntry(b *strings.Builder, e rules.Entry) {
	b.WriteString(e.Key)
	if e.Value != "" {
		b.WriteByte('_')
		b.WriteString(e.Value)
	}
}

// named returns the counters of descriptor i.
func (q *question) named(i int) counts {
	r := q.parts[i].rule
	if r.found != nil || q.service.opts.Stats == nil {
		return counts{found: r.found}
	}
	entries := q.request.Descriptors[i].Entries
	name := ""
	if r.override {
		name = overrideName(r.Domain, entries)
	} else {
		name = requestName(r.Rule, entries)
	}
	return counts{registry: q.service.opts.Stats, name: statName(name)}
}

// count counts what was decided about descriptor i.
func (q *question) count(i int, d *weir.Decision, l *limit) {
	if p := &q.parts[i]; p.refund {
		q.named(i).add(totalNegativeHits, p.hits)
	} else {
		q.named(i).decided(p.hits, d, l)
	}
}
