package rls

import (
	"context"
	"sync"
)

// settle finds who is over and whether the request is denied: it is if any descriptor is
// over, but of those in quota_mode all must be. Where that is another verdict than the
// store gave, units are given back.
func (q *question) settle(ctx context.Context) {
	quotas, over := 0, 0
	for i := range q.parts {
		p := &q.parts[i]
		for _, d := range q.of(p) {
			p.over = p.over || !d.Allowed
		}
		if !p.isQuota(q.service.opts.Quota) {
			q.denied = q.denied || p.over
			continue
		}
		quotas++
		if p.over {
			over++
		}
	}
	q.denied = q.denied || quotas > 0 && over == quotas
	if q.apart && !q.service.backing.alone && (q.denied || over > 0) {
		q.giveBack(ctx)
	}
}

// giveBack gives back what was charged for a denied request, and for a descriptor that is
// over one of its limits. What gets lost was charged too much, never too little.
func (q *question) giveBack(ctx context.Context) {
	var pending sync.WaitGroup
	defer pending.Wait()
	slots := make(chan struct{}, 16) // questions at once
	for i := range q.parts {
		p := &q.parts[i]
		if !q.denied && !p.over {
			continue
		}
		for n := range q.of(p) {
			c, d := &q.charges[p.first+n], &q.of(p)[n]
			if d.Taken == 0 || c.limit.shadow {
				continue
			}
			receipt := *d
			d.Remaining = min(d.Remaining+d.Taken, c.limiter.Limit().Capacity())
			d.Taken, d.Delay = 0, 0
			slots <- struct{}{}
			pending.Go(func() {
				c.limiter.Refund(ctx, c.key, receipt, receipt.Taken)
				<-slots
			})
		}
	}
}

// quotas returns how many descriptors deny only together with the others that do so.
func (q *question) quotas() (n int) {
	if !q.rules.quotas {
		return 0
	}
	for i := range q.parts {
		if q.parts[i].isQuota(q.service.opts.Quota) {
			n++
		}
	}
	return n
}

// isQuota reports whether a descriptor denies only together with others. Where all do,
// those without a limit do too, and never are over it.
func (p *part) isQuota(all bool) bool {
	return !p.rule.unlimited && (all || p.rule.quota && !p.replaced)
}
