package simbench

import (
	"math"
	"sort"
	"time"
)

// envoy is the gradient controller of Envoy's adaptive_concurrency filter: every
// 100 ms the limit follows the ratio of the unloaded latency to the median one,
// and once a minute it is held at 3 until 50 answers have shown the unloaded
// latency.
type envoy struct {
	limit     float64
	before    float64 // limit to return to after a probe
	inFlight  int
	unloaded  time.Duration
	probing   bool
	nextProbe time.Time
	nextStep  time.Time
	atFloor   int
	latencies []time.Duration
}

const (
	envoyFloor   = 3
	envoySamples = 50
	envoyEvery   = 60 * time.Second
	envoyStep    = 100 * time.Millisecond
)

func newEnvoy() *envoy { return &envoy{limit: envoyFloor, before: 20, probing: true} }

type envoyPermit struct {
	e     *envoy
	began time.Time
	probe bool
}

func (e *envoy) Acquire(bool) (Permit, bool) {
	now := time.Now()
	if !e.probing && now.After(e.nextProbe) {
		e.probe()
	}
	if e.inFlight >= int(e.limit) {
		return nil, false
	}
	e.inFlight++
	return envoyPermit{e, now, e.probing}, true
}

func (e *envoy) Limit() int { return int(e.limit) }

func (e *envoy) probe() {
	e.before, e.limit = e.limit, envoyFloor
	e.probing, e.atFloor, e.latencies = true, 0, nil
}

// Release ignores answers to requests admitted before a probe began: Envoy drains
// them first.
func (p envoyPermit) Release(late bool) {
	e, now := p.e, time.Now()
	e.inFlight--
	if late || e.probing != p.probe {
		return
	}
	e.latencies = append(e.latencies, now.Sub(p.began))
	switch {
	case e.probing && len(e.latencies) >= envoySamples:
		e.unloaded = median(e.latencies)
		e.probing, e.limit, e.latencies = false, e.before, nil
		e.nextProbe, e.nextStep = now.Add(envoyEvery), now.Add(envoyStep)
	case !e.probing && now.After(e.nextStep):
		gradient := min(max(1.25*float64(e.unloaded)/float64(median(e.latencies)), 0.5), 2)
		e.limit = min(max(e.limit*gradient+math.Sqrt(e.limit*gradient), envoyFloor), 1000)
		e.latencies, e.nextStep = nil, now.Add(envoyStep)
		if e.atFloor++; e.limit > envoyFloor {
			e.atFloor = 0
		}
		if e.atFloor >= 5 {
			e.probe()
		}
	}
}

func median(v []time.Duration) time.Duration {
	sort.Slice(v, func(i, j int) bool { return v[i] < v[j] })
	return v[len(v)/2]
}
