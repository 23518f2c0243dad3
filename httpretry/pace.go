package httpretry

import "time"

const (
	lowWater = 0.2 // requests are spaced when less than this part of a quota is left
	maxPaces = 16  // policies remembered for one origin
)

// paces holds back requests to an origin whose RateLimit fields say that little is left. There is one pace for each part
// (Options.Part), policy and partition key; a request keeps all those of its part, because which policy it falls under is
// only known from its response.
type paces []pace

type pace struct {
	part, policy string
	next         time.Time     // when the next request may go
	step         time.Duration // between requests
	until        time.Time     // when the quota is new
	spread       time.Duration // requests held past until leave within this much after it
}

// learn takes in what a response says is left. Less than a fifth of the quota: the rest is spread over the window. Nothing:
// requests wait for its end. Enough, or no word of the quota with something left: no pace.
func (p *paces) learn(part string, q quota, now time.Time, opts *Options) {
	t := min(q.window, opts.MaxWait)
	low := q.remaining == 0 || q.limit > 0 && float64(q.remaining) < lowWater*float64(q.limit)
	i := p.find(part, q.policy)
	if !low || t == 0 {
		if i >= 0 {
			(*p)[i] = (*p)[len(*p)-1]
			*p = (*p)[:len(*p)-1]
		}
		return
	}
	fresh := pace{part: part, policy: q.policy, until: now.Add(t), spread: opts.Backoff.spread(1, t, 1)}
	if q.remaining == 0 {
		fresh.next = fresh.until
	} else {
		fresh.step = t / time.Duration(q.remaining)
		fresh.next = now.Add(fresh.step)
	}
	if i < 0 {
		i = p.add(now)
	} else if old := (*p)[i]; old.next.After(fresh.next) && now.Before(old.until) {
		fresh.next = old.next // others have already been promised the turns before it
	}
	(*p)[i] = fresh
}

// turn is how long a request of the part must wait.
func (p *paces) turn(a attempt, opts *Options) time.Duration {
	var wait time.Duration
	for i := range *p {
		e := &(*p)[i]
		if e.part != a.part || !a.now.Before(e.until) {
			continue
		}
		if e.next.Before(e.until) {
			wait = max(wait, e.next.Sub(a.now))
		} else {
			wait = max(wait, e.until.Sub(a.now)+portion(e.spread, opts.Random()))
		}
	}
	return wait
}

// take uses up the turn that the request was told of.
func (p *paces) take(a attempt) {
	for i := range *p {
		if e := &(*p)[i]; e.part == a.part && a.now.Before(e.until) {
			e.next = later(e.next, a.now).Add(e.step)
		}
	}
}

func (p *paces) find(part, policy string) int {
	for i, e := range *p {
		if e.part == part && e.policy == policy {
			return i
		}
	}
	return -1
}

// add returns the index for a new pace: a fresh one, or where there are many, that of the one which ends first.
func (p *paces) add(now time.Time) int {
	first := 0
	for i, e := range *p {
		if !now.Before(e.until) {
			return i
		}
		if e.until.Before((*p)[first].until) {
			first = i
		}
	}
	if len(*p) < maxPaces {
		*p = append(*p, pace{})
		return len(*p) - 1
	}
	return first
}

func (p *paces) idle(now time.Time) bool {
	for _, e := range *p {
		if now.Before(e.until) {
			return false
		}
	}
	return true
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
