package simbench

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"weir.dev/weir/concurrency"
)

// Limiter is what the simulation asks of each contender.
type Limiter interface {
	Acquire(low bool) (Permit, bool)
	Limit() int
}

// Waiting is a Limiter whose Acquire may wait.
type Waiting interface{ MayWait() }

// Permit is released once; late says that the answer missed its deadline.
type Permit interface{ Release(late bool) }

// Contender is a limiter under comparison.
type Contender struct {
	Name string
	New  func() Limiter
}

// Contenders returns all, weir's default first. Each may go from 1 to 1,000 and
// starts at 20, but for the fixed one.
func Contenders() []Contender {
	return []Contender{
		{"weir auto", weir(concurrency.Options{})},
		{"weir vegas", weir(concurrency.Options{Algorithm: concurrency.Vegas})},
		{"weir gradient2", weir(concurrency.Options{Algorithm: concurrency.Gradient2})},
		{"weir aimd 50 ms", weir(concurrency.Options{Algorithm: concurrency.AIMD, Timeout: 50 * time.Millisecond})},
		{"fixed 64", weir(concurrency.Options{Algorithm: concurrency.Fixed, Initial: 64})},
		{"failsafe-go", newFailsafe},
		{"textbook vegas", func() Limiter { return &perRequest{limit: 20, step: textbook} }},
		{"netflix vegas", func() Limiter { return &perRequest{limit: 20, step: netflix} }},
		{"envoy gradient", func() Limiter { return newEnvoy() }},
	}
}

// Queued compares limits with and without a queue in front.
func Queued() []Contender {
	behind := func(o concurrency.Options) func() Limiter {
		o.QueueLength, o.QueueTimeout = 400, 200*time.Millisecond
		return func() Limiter { return waitingLimiter{weir(o)().(weirLimiter)} }
	}
	fixed := concurrency.Options{Algorithm: concurrency.Fixed, Initial: 48}
	return []Contender{
		{"weir auto", weir(concurrency.Options{})},
		{"weir auto, queue", behind(concurrency.Options{})},
		{"fixed 48", weir(fixed)},
		{"fixed 48, queue", behind(fixed)},
	}
}

type waitingLimiter struct{ weirLimiter }

func (waitingLimiter) MayWait() {}

// WithShare is weir's default with a guaranteed share of the limit for the higher
// class.
func WithShare(share float64) Contender {
	return Contender{fmt.Sprintf("weir auto, share %.1f", share), func() Limiter {
		l := weir(concurrency.Options{Classes: []concurrency.ClassOptions{{Name: "high", Share: share}}})().(weirLimiter)
		high, _ := l.l.Class("high")
		return classLimiter{l, high}
	}}
}

// classLimiter asks for the higher class's requests in its name.
type classLimiter struct {
	weirLimiter
	high *concurrency.Class
}

func (c classLimiter) Acquire(low bool) (Permit, bool) {
	if low {
		return c.weirLimiter.Acquire(low)
	}
	p, ok := c.high.Acquire(context.Background())
	return weirPermit{p}, ok
}

type weirLimiter struct{ l *concurrency.Limiter }

func weir(o concurrency.Options) func() Limiter {
	return func() Limiter {
		l, err := concurrency.New(o)
		if err != nil {
			panic(err) // the options are literals of this file
		}
		return weirLimiter{l}
	}
}

func (w weirLimiter) Acquire(bool) (Permit, bool) {
	p, ok := w.l.Acquire(context.Background())
	return weirPermit{p}, ok
}

func (w weirLimiter) Limit() int { return w.l.Stats().Limit }

type weirPermit struct{ p concurrency.Permit }

func (p weirPermit) Release(late bool) {
	if late {
		p.p.Release(concurrency.Drop)
		return
	}
	p.p.Release(concurrency.Success)
}

type failsafeLimiter struct {
	l adaptivelimiter.AdaptiveLimiter[any]
}

func newFailsafe() Limiter {
	return failsafeLimiter{adaptivelimiter.NewBuilder[any]().WithLimits(1, 1000, 20).Build()}
}

func (f failsafeLimiter) Acquire(bool) (Permit, bool) {
	p, ok := f.l.TryAcquirePermit()
	return failsafePermit{p}, ok
}

func (f failsafeLimiter) Limit() int { return f.l.Limit() }

type failsafePermit struct{ p adaptivelimiter.Permit }

func (p failsafePermit) Release(late bool) {
	if late {
		p.p.Drop()
		return
	}
	p.p.Record()
}

// perRequest is a Vegas limiter that takes a step at every answer, as the textbook
// and Netflix's default do.
type perRequest struct {
	limit    float64
	inFlight int
	baseline time.Duration
	seen     int
	step     func(v *perRequest, latency time.Duration, inFlight int, late bool)
}

type perRequestPermit struct {
	v        *perRequest
	began    time.Time
	inFlight int
}

func (v *perRequest) Acquire(bool) (Permit, bool) {
	if v.inFlight >= int(v.limit) {
		return nil, false
	}
	v.inFlight++
	return perRequestPermit{v, time.Now(), v.inFlight}, true
}

func (v *perRequest) Limit() int { return int(v.limit) }

func (p perRequestPermit) Release(late bool) {
	p.v.inFlight--
	p.v.step(p.v, time.Since(p.began), p.inFlight, late)
	p.v.limit = min(max(p.v.limit, 1), 1000)
}

// textbook holds the queue L(1 - B/R) between 3 and 6, B being the least latency
// ever seen.
func textbook(v *perRequest, latency time.Duration, _ int, _ bool) {
	if v.baseline == 0 || latency < v.baseline {
		v.baseline = latency
	}
	switch q := v.limit * (1 - float64(v.baseline)/float64(latency)); {
	case q < 3:
		v.limit++
	case q > 6:
		v.limit--
	}
}

// netflix is VegasLimit of concurrency-limits as its defaults build it: without a
// window, bounds scaled by log10 of the limit, and every 30 L answers the latency
// of one request as the new baseline.
func netflix(v *perRequest, latency time.Duration, inFlight int, late bool) {
	v.seen++
	if v.baseline == 0 || latency < v.baseline || v.seen > int(30*v.limit) {
		v.baseline, v.seen = latency, 0
		return
	}
	unit := max(1, math.Floor(math.Log10(v.limit)))
	q := math.Ceil(v.limit * (1 - float64(v.baseline)/float64(latency)))
	switch {
	case late:
		v.limit -= unit
	case 2*float64(inFlight) < v.limit:
	case q <= unit:
		v.limit += 6 * unit
	case q < 3*unit:
		v.limit += unit
	case q > 6*unit:
		v.limit -= unit
	}
}
