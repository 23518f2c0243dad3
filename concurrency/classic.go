package concurrency

import (
	"math"
	"time"
)

// Algorithm says how the limit is found.
type Algorithm uint8

const (
	// Auto raises the limit while throughput follows it and lowers it while
	// throughput does not mind. It is the only one without a latency baseline.
	Auto Algorithm = iota

	// Vegas holds the estimated queue L(1 - B/R) between 3 and 6 times log10 L, after
	// Brakmo and Peterson's TCP Vegas and Netflix concurrency-limits. It differs from
	// the textbook in that R is the mean of a window, not one request (the least of
	// many requests lies so far below the usual one that the limit settles at 6 or 7
	// whatever the server could carry); the bounds grow with the limit; one window is
	// one step; and the baseline B is learned anew every 30 s, but only from a window
	// that used less than half the limit.
	Vegas

	// Gradient2 compares the mean latency of a window with a slow average of itself,
	// after Netflix concurrency-limits. The slow average follows an overload upwards
	// and a slower dependency looks like one: use it for comparison.
	Gradient2

	// AIMD adds one a window, and takes a tenth away after drops or when the mean
	// latency passes [Options.Timeout]; after Chiu and Jain.
	AIMD

	// Fixed keeps [Options.Initial].
	Fixed
)

// algorithm answers a window with the next limit and the reason for it.
type algorithm interface {
	next(window) (limit float64, why string)
}

func newAlgorithm(o Options) algorithm {
	b := bounds{float64(o.Min), float64(o.Max)}
	initial := float64(o.Initial)
	switch o.Algorithm {
	case Vegas:
		return &vegas{bounds: b, limit: initial}
	case Gradient2:
		return &gradient2{bounds: b, limit: initial}
	case AIMD:
		return &aimd{bounds: b, limit: initial, timeout: o.Timeout}
	case Fixed:
		return fixed(initial)
	}
	return &auto{min: b.min, max: b.max, base: initial}
}

type bounds struct{ min, max float64 }

func (b bounds) clamp(limit float64) float64 { return min(max(limit, b.min), b.max) }

type fixed float64

func (f fixed) next(window) (float64, string) { return float64(f), "" }

// baselineAge is how long Vegas keeps a baseline before a quiet window may raise it.
const baselineAge = 30 * time.Second

type vegas struct {
	bounds
	limit    float64
	baseline time.Duration
	age      time.Duration
}

func (v *vegas) next(w window) (float64, string) {
	latency := w.meanLatency()
	quiet := 2*float64(w.peak) < v.limit
	v.age += w.elapsed
	if v.baseline == 0 || latency < v.baseline || quiet && v.age >= baselineAge {
		v.baseline, v.age = latency, 0
	}
	unit := max(1, math.Floor(math.Log10(v.limit)))
	waiting := v.limit * (1 - float64(v.baseline)/float64(latency))
	switch {
	case float64(w.drops) > dropsTolerated*float64(w.answers()):
		v.limit -= unit
	case quiet: // the limit did not matter, so nothing was learned about it
	case waiting <= unit:
		v.limit += 6 * unit
	case waiting < 3*unit:
		v.limit += unit
	case waiting > 6*unit:
		v.limit -= unit
	}
	v.limit = v.clamp(v.limit)
	return v.limit, "latency"
}

type gradient2 struct {
	bounds
	limit float64
	long  float64 // slow average of the windows' mean latency, nanoseconds
	count int     // windows in it, up to 10
}

func (g *gradient2) next(w window) (float64, string) {
	const tolerance, smoothing, growth, span = 1.5, 0.2, 4, 600
	latency := float64(w.meanLatency())
	if g.count < 10 {
		g.count++
		g.long += (latency - g.long) / float64(g.count)
	} else {
		g.long += (latency - g.long) * 2 / (span + 1)
	}
	if g.long > 2*latency {
		g.long *= 0.95
	}
	if 2*float64(w.peak) < g.limit {
		return g.limit, ""
	}
	gradient := min(max(tolerance*g.long/latency, 0.5), 1)
	g.limit = g.clamp((1-smoothing)*g.limit + smoothing*(g.limit*gradient+growth))
	return g.limit, "latency"
}

type aimd struct {
	bounds
	limit   float64
	timeout time.Duration
}

func (a *aimd) next(w window) (float64, string) {
	switch {
	case w.drops > 0 || w.meanLatency() > a.timeout:
		a.limit = a.clamp(math.Floor(a.limit * 0.9))
		return a.limit, whyDrops
	case 2*float64(w.peak) >= a.limit:
		a.limit = a.clamp(a.limit + 1)
	}
	return a.limit, whyRoom
}
