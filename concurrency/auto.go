package concurrency

import (
	"math"
	"time"
)

// auto follows throughput. Between trials the limit is base; now and then it is
// base/trialRatio for a window, and the answer is the elasticity of throughput,
// e = d ln(throughput) / d ln(limit): 1 where every place in flight yields its share
// of answers, 0 where the server is saturated whatever its limit. The base is moved
// so that e stays near elasticityGoal: then a third less would cost next to nothing,
// so the base keeps the server busy with room to spare, and no more work waits
// inside the server than that.
//
// No latency is remembered from one minute to the next, so none can be remembered
// wrongly: neither one lucky request nor a slower dependency nor a baseline taken
// under load has any effect here.
type auto struct {
	min, max   float64
	base       float64
	phase      phase
	known      bool          // base was found by trials; else it only leaves room
	reference  window        // measured at base since the last trial
	trial      window        // measured in this trial
	windows    int           // in the reference, or in the trial
	peak       float64       // most in flight since the limit last left room
	dispersion float64       // variance of a throughput's logarithm, times the answers it was taken from
	shrinking  int           // trials in a row that found the base too high
	floor      float64       // base is at least this when the trial above it ends
	restore    float64       // base before drops cut it, to be returned to if the cut was not what ended them
	dropped    time.Duration // mean latency when there were too many drops
}

type phase uint8

const (
	holding phase = iota // measuring at base
	lower                // a trial below base
	higher               // a trial above base
)

const (
	trialRatio     = 1.5 // deep enough for the difference to stand out from the noise of a window
	holdWindows    = 4   // at base for each trial: trials below cost throughput, so they are the exception
	trialWindows   = 6   // at most, where one leaves the answer in doubt
	elasticityGoal = 0.12
	elastic        = 0.5 // nearer to 1 than to 0: throughput follows the limit, and a higher one is tried
	certain        = 0.1 // a standard error of the elasticity below this needs no further window

	change           = 1.0 / 6 // of throughput under one limit, from which on it is not called noise
	dispersionWeight = 0.1     // of a window in the running estimate

	dropsTolerated    = 0.1  // of the answers: more is an overload, whatever throughput says
	dropsFactor       = 0.8  // of the base, after them
	refusalsTolerated = 0.01 // of what was asked for: fewer are not worth a trial
	room              = 1.5  // times the peak in flight, for work the limit does not hold back
	smallestStep      = 0.1  // down, of the base's logarithm
	largestStep       = 0.4
)

// Why the limit moved, for [Change].
const (
	whyTrial    = "trial"    // to learn, for one window
	whyFollows  = "follows"  // throughput follows the limit: a higher one is tried
	whySettled  = "settled"  // a trial ended, base moved a little
	whyDrops    = "drops"    // too many drops: lowered
	whyRestored = "restored" // the drops ended: raised again
	whyRoom     = "room"     // bursts touched the limit without filling it: raised
)

func (a *auto) next(w window) (float64, string) {
	if a.phase == higher && !w.bound() {
		// Either all that is asked for fits, or it has not filled up yet.
		if a.windows++; a.windows < trialWindows {
			return w.limit, ""
		}
		a.base = w.limit
	}
	if limit, why, ok := a.withoutTrial(w); ok {
		return limit, why
	}
	a.restore = 0
	a.windows++
	if a.phase == holding {
		return a.measure(w)
	}
	return a.judge(w)
}

// withoutTrial deals with windows in which the limit did not hold work back, or
// that went wrong.
func (a *auto) withoutTrial(w window) (limit float64, why string, ok bool) {
	a.peak = max(a.peak, min(float64(w.peak), a.base))
	if w.bound() {
		a.peak = 0
	}
	switch {
	case float64(w.drops) > dropsTolerated*float64(w.answers()) || w.successes == 0:
		a.restore, a.dropped, a.known = max(a.restore, a.base), w.meanLatency(), true
		limit, why = a.hold(a.base*dropsFactor, whyDrops)
	case !w.bound() && 2*w.inUse() < a.base:
		// A burst is over, or there was none: only now is it known that what touched the
		// limit was no queue filling up.
		base := max(a.base, room*a.peak)
		a.restore, a.known, a.peak = 0, false, 0
		limit, why = a.hold(base, whyRoom)
	case !w.bound() && float64(w.refused) < refusalsTolerated*float64(w.refused+w.samples()):
		a.restore, a.known = 0, false
		limit, why = a.hold(a.base, "")
	case a.restore > a.base && 2*w.meanLatency() < a.dropped:
		// Latency fell by more than the cuts explain, so it was not they that ended the drops.
		limit, why = a.hold(min(a.restore, a.base*trialRatio), whyRestored)
	default:
		return 0, "", false
	}
	return limit, why, true
}

// judge ends a trial, or has it go on where noise leaves the answer in doubt.
func (a *auto) judge(w window) (float64, string) {
	if a.trial.bound() {
		w.add(a.trial)
	}
	a.trial = w
	difference, doubt := a.compare(&a.reference, &a.trial)
	ratio := math.Log(a.trial.limit / a.base)
	e, doubt := difference/ratio, doubt/math.Abs(ratio)
	threshold := elasticityGoal
	if a.phase == higher {
		threshold = elastic
	}
	if math.Abs(e-threshold) < doubt && doubt > certain && a.windows < trialWindows {
		return w.limit, ""
	}
	if a.phase == lower {
		return a.judgeLower(e)
	}
	return a.judgeHigher(e, doubt)
}

// measure collects the reference, then starts a trial. A window that differs from
// those before means that the server or the load has changed: what was measured is
// void, and what was learned too.
func (a *auto) measure(w window) (float64, string) {
	if a.windows > 1 {
		difference, doubt := a.compare(&a.reference, &w)
		if math.Abs(difference) > max(change, 3*doubt) {
			a.hold(a.base, "")
			a.windows, a.known = 1, false
		} else {
			a.dispersion += dispersionWeight * (a.dispersion*difference*difference/(doubt*doubt) - a.dispersion)
		}
	}
	w.add(a.reference)
	a.reference = w
	if !a.known { // nothing was ever learned about base, except that it fills up: look upwards first
		return a.try()
	}
	if a.windows < holdWindows {
		return a.base, ""
	}
	below := max(math.Floor(a.base/trialRatio), a.min)
	if below == a.base {
		return a.try()
	}
	return a.begin(lower, below, whyTrial)
}

// judgeLower moves base by what the trial below it showed.
func (a *auto) judgeLower(e float64) (float64, string) {
	if e >= elastic {
		a.floor = a.base * math.Sqrt(trialRatio)
		return a.try()
	}
	if e >= elasticityGoal {
		a.shrinking = 0
		return a.hold(a.base*math.Pow(trialRatio, e-elasticityGoal), whySettled)
	}
	// The first step down is small, for the trial may have been lucky; each further one
	// in a row is twice the last.
	step := min(smallestStep*math.Exp2(float64(a.shrinking)), largestStep)
	a.shrinking++
	return a.hold(a.base*math.Exp(-step), whySettled)
}

// judgeHigher keeps the higher limit, and tries a still higher one, if throughput
// followed it.
func (a *auto) judgeHigher(e, doubt float64) (float64, string) {
	a.known = true
	if e < elastic {
		return a.hold(max(a.floor, a.base*math.Pow(trialRatio, max(0, e-elasticityGoal-doubt))), whySettled)
	}
	a.base, a.reference = a.trial.limit, a.trial
	return a.try()
}

// try starts a trial above base, unless that is the highest limit.
func (a *auto) try() (float64, string) {
	a.shrinking = 0
	above := min(math.Ceil(a.base*trialRatio), a.max)
	if above <= a.base {
		return a.hold(a.base, whySettled)
	}
	return a.begin(higher, above, whyFollows)
}

func (a *auto) begin(p phase, limit float64, why string) (float64, string) {
	a.phase, a.windows, a.trial = p, 0, window{}
	return limit, why
}

// hold makes base the limit, and starts measuring there.
func (a *auto) hold(base float64, why string) (float64, string) {
	a.base = min(max(base, a.min), a.max)
	a.phase, a.windows, a.reference, a.floor = holding, 0, window{}, 0
	return a.base, why
}

// compare returns the logarithm of y's throughput over x's, and its standard error:
// by how much windows under one limit were seen to differ, and at least by what the
// spread of their latencies explains.
func (a *auto) compare(x, y *window) (difference, doubt float64) {
	difference = math.Log(y.steadyThroughput() / x.steadyThroughput())
	a.dispersion = max(a.dispersion, x.variation(), y.variation(), 0.01)
	return difference, math.Sqrt(a.dispersion * (1/float64(x.samples()) + 1/float64(y.samples())))
}
