// Package simbench compares adaptive concurrency limiters in virtual time: a model
// of a server, scenarios in which things go wrong, and every limiter under the same
// arrivals and service times, byte for byte the same on every run and machine.
//
// `go test ./simbench` runs a short form; `make simbench` writes the tables under
// results and the plots of docs/concurrency.md.
package simbench

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"
)

// Result is what one limiter made of one window of a scenario.
type Result struct {
	Goodput   float64       // answers in time, over the most that any limiter could have had
	FalseShed float64       // requests refused while a worker idled, over requests offered
	Late      float64       // admitted and not answered in time, over admitted
	P50, P99  time.Duration // of the answered, from when they asked
	Jain      float64       // fairness between limiters that share the server
	High      float64       // of the higher class, answers in time over requests offered
	Inverted  float64       // high-class requests refused in a tenth of a second that admitted low ones, over high ones offered
	LimitMean float64       // in the window, sampled each 100 ms
	LimitCV   float64       // standard deviation over mean
	PerSecond []float64     // goodput of each second
	Limits    []float64     // each 100 ms, from the start of the run
}

// run plays a scenario against limiters made by make, in the time of the bubble it
// is called in. Arrivals and service times depend on seed alone: every limiter
// meets the same ones.
func run(s *Scenario, seed uint64, make func() Limiter) []Result {
	m := &model{
		s: s, start: time.Now(),
		arrivals: rand.New(rand.NewPCG(seed, 1)),
		services: rand.New(rand.NewPCG(seed, 2)),
		clients:  rand.New(rand.NewPCG(seed, 3)),
	}
	for range max(s.Limiters, 1) {
		m.limiters = append(m.limiters, make())
	}
	for _, w := range s.Judged {
		m.tallies = append(m.tallies, newTally(w, len(m.limiters)))
	}
	m.play()
	results := []Result{}
	for _, t := range m.tallies {
		results = append(results, t.result(m))
	}
	return results
}

// model is the server: a number of workers, with an unlimited queue in front of them,
// first come, first served unless the scenario has another Order.
type model struct {
	s        *Scenario
	start    time.Time
	now      time.Duration
	arrivals *rand.Rand
	services *rand.Rand
	clients  *rand.Rand
	limiters []Limiter
	events   events
	queue    []*request
	busy     int
	shared   shared
	inFlight int
	tallies  []*tally
	limits   []float64
	serial   int // of the last event
	arrived  int

	waiting   int // for the limiter's decision
	mu        sync.Mutex
	decisions []decision
}

// decision is the end of a wait.
type decision struct {
	r      *request
	permit Permit
	ok     bool
}

type request struct {
	serial  int
	arrived time.Duration // the first attempt
	asked   time.Duration // this attempt
	service time.Duration
	limiter int
	low     bool
	attempt int
	failed  bool
	permit  Permit
}

type event struct {
	at     time.Duration
	serial int // equal times happen in the order they were planned
	do     func(*model, *request)
	r      *request
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.serial < f.serial }

// events is a binary heap, the next event first.
type events []event

func (h *events) push(e event) {
	*h = append(*h, e)
	for i := len(*h) - 1; i > 0; {
		up := (i - 1) / 2
		if !(*h)[i].before(&(*h)[up]) {
			return
		}
		(*h)[i], (*h)[up] = (*h)[up], (*h)[i]
		i = up
	}
}

func (h *events) pop() event {
	old := *h
	next, last := old[0], len(old)-1
	old[0] = old[last]
	*h = old[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if old[child].before(&old[least]) {
				least = child
			}
		}
		if least == i {
			return next
		}
		old[i], old[least] = old[least], old[i]
		i = least
	}
}

func (m *model) at(t time.Duration, do func(*model, *request), r *request) {
	m.serial++
	m.events.push(event{t, m.serial, do, r})
}

func (m *model) play() {
	for _, p := range m.s.Capacity {
		m.at(p.From, (*model).dispatch, nil)
	}
	m.at(0, (*model).sampleLimit, nil)
	arrival := m.nextArrival()
	for {
		next := min(arrival, m.events[0].at)
		if next >= m.s.end() {
			time.Sleep(time.Minute) // those who wait must have left before the bubble ends
			return
		}
		if next > m.now {
			time.Sleep(next - m.now)
			m.now = next
			m.settle()
		}
		if next == arrival {
			m.arrive()
			arrival = m.nextArrival()
			continue
		}
		e := m.events.pop()
		e.do(m, e.r)
		m.settle()
	}
}

// nextArrival draws from a Poisson process whose rate varies, by thinning one of
// the highest rate.
func (m *model) nextArrival() time.Duration {
	peak := highest(m.s.Load) * m.s.Nominal()
	t := m.now
	for t < m.s.end() {
		t += time.Duration(m.arrivals.ExpFloat64() / peak * float64(sec))
		if m.arrivals.Float64()*peak < value(m.s.Load, t, 0)*m.s.Nominal() {
			break
		}
	}
	return t
}

func (m *model) arrive() {
	m.arrived++
	r := &request{serial: m.arrived, arrived: m.now, service: m.s.Service.draw(m.services), limiter: m.clients.IntN(len(m.limiters))}
	r.low = m.clients.Float64() < m.s.Low
	for _, t := range m.tallies {
		t.offer(r)
	}
	m.attempt(r)
}

func (m *model) attempt(r *request) {
	r.asked, r.failed = m.now, false
	l := m.limiters[r.limiter]
	if _, ok := l.(Waiting); ok {
		m.wait(l, r)
		return
	}
	permit, ok := l.Acquire(r.low)
	m.decided(r, permit, ok)
}

// wait asks in a goroutine of its own, for the limiter may have it wait.
func (m *model) wait(l Limiter, r *request) {
	m.waiting++
	go func() {
		permit, ok := l.Acquire(r.low)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.decisions = append(m.decisions, decision{r, permit, ok})
	}()
	m.settle()
}

// settle deals with those whose wait has ended, in the order of their arrival.
func (m *model) settle() {
	if m.waiting == 0 {
		return
	}
	synctest.Wait()
	m.mu.Lock()
	decisions := m.decisions
	m.decisions = nil
	m.mu.Unlock()
	slices.SortFunc(decisions, func(a, b decision) int { return a.r.serial - b.r.serial })
	for _, d := range decisions {
		m.waiting--
		m.decided(d.r, d.permit, d.ok)
	}
}

func (m *model) decided(r *request, permit Permit, ok bool) {
	if !ok {
		idle := m.busy < m.workers() && !m.s.Pause.now(m.now) && !m.s.Hole.has(m.now)
		for _, t := range m.tallies {
			t.refuse(m.now, r, idle)
		}
		m.retry(r)
		return
	}
	r.permit = permit
	m.inFlight++
	for _, t := range m.tallies {
		t.admit(m.now, r)
	}
	if m.s.Hole.has(m.now) {
		r.failed = true
		m.at(m.now+m.s.Deadline, (*model).answer, r)
		return
	}
	m.queue = append(m.queue, r)
	m.dispatch(nil)
}

func (m *model) workers() int {
	return int(math.Round(value(m.s.Capacity, m.now, 1) * float64(m.s.Workers)))
}

// dispatch gives waiting requests to free workers.
func (m *model) dispatch(*request) {
	if m.s.Order == Sharing {
		m.share()
		return
	}
	for m.busy < m.workers() && len(m.queue) > 0 {
		r := m.next()
		m.busy++
		m.at(m.s.Pause.finish(m.now, time.Duration(m.work(r))), (*model).finish, r)
	}
}

// work is how long a request that begins now takes, in nanoseconds.
func (m *model) work(r *request) float64 {
	if m.s.Errors.has(m.now) {
		r.failed = true
		return float64(ms)
	}
	return float64(r.service) * (1 + m.s.Slowdown*float64(max(0, m.inFlight-m.s.Workers)))
}

// finish frees the worker.
func (m *model) finish(r *request) {
	m.busy--
	m.dispatch(nil)
	m.leave(r)
}

// leave answers a request that is done, after what it also waits for.
func (m *model) leave(r *request) {
	if extra := value(m.s.Extra, m.now, 0); extra > 0 {
		m.at(m.now+time.Duration(extra*float64(ms)), (*model).answer, r)
		return
	}
	m.answer(r)
}

func (m *model) answer(r *request) {
	m.inFlight--
	latency := m.now - r.asked
	late := latency >= m.s.Deadline
	r.permit.Release(late)
	for _, t := range m.tallies {
		t.answer(r, latency, late || r.failed)
	}
	if late || r.failed {
		m.retry(r)
	}
}

// retry has the client come back after full jitter over 100 ms, doubled each time.
func (m *model) retry(r *request) {
	if r.attempt >= m.s.Retries {
		return
	}
	r.attempt++
	wait := time.Duration(m.clients.Float64() * float64(100*ms<<r.attempt))
	m.at(m.now+wait, (*model).attempt, r)
}

func (m *model) sampleLimit(*request) {
	var sum float64
	for _, l := range m.limiters {
		sum += float64(l.Limit())
	}
	m.limits = append(m.limits, sum)
	m.at(m.now+100*ms, (*model).sampleLimit, nil)
}

// tally counts the requests that arrived in one window.
type tally struct {
	Window
	offered, admitted, good, idle, late int
	perSecond                           []int
	offeredEach                         []int
	byLimiter                           []float64
	latencies                           []time.Duration
	high, highGood                      int
	highRefused, lowAdmitted            map[int]int // by tenth of a second
}

func newTally(w Window, limiters int) *tally {
	seconds := int((w.To - w.From) / sec)
	return &tally{
		Window: w, perSecond: make([]int, seconds), offeredEach: make([]int, seconds),
		byLimiter: make([]float64, limiters), highRefused: map[int]int{}, lowAdmitted: map[int]int{},
	}
}

func (t *tally) judges(r *request) bool { return t.From <= r.arrived && r.arrived < t.To }

func (t *tally) offer(r *request) {
	if !t.judges(r) {
		return
	}
	t.offered++
	t.offeredEach[int((r.arrived-t.From)/sec)]++
	if !r.low {
		t.high++
	}
}

func (t *tally) refuse(now time.Duration, r *request, idle bool) {
	if !t.judges(r) {
		return
	}
	if idle {
		t.idle++
	}
	if !r.low {
		t.highRefused[int(now/(100*ms))]++
	}
}

func (t *tally) admit(now time.Duration, r *request) {
	if !t.judges(r) {
		return
	}
	t.admitted++
	if r.low {
		t.lowAdmitted[int(now/(100*ms))]++
	}
}

func (t *tally) answer(r *request, latency time.Duration, failed bool) {
	if !t.judges(r) {
		return
	}
	t.latencies = append(t.latencies, latency)
	if failed {
		t.late++
		return
	}
	t.good++
	if !r.low {
		t.highGood++
	}
	t.perSecond[int((r.arrived-t.From)/sec)]++
	t.byLimiter[r.limiter]++
}

func (t *tally) result(m *model) Result {
	perSecond := make([]float64, len(t.perSecond))
	for i, good := range t.perSecond {
		perSecond[i] = ratio(float64(good), min(float64(t.offeredEach[i]), m.s.capacity(t.second(i))))
	}
	best := t.best(m.s)
	limits := m.limits[min(int(t.From/(100*ms)), len(m.limits)):]
	limits = limits[:min(len(limits), int((t.To-t.From)/(100*ms)))]
	mean, cv := spread(limits)
	slices.Sort(t.latencies)
	return Result{
		Goodput: ratio(float64(t.good), best), FalseShed: ratio(float64(t.idle), float64(t.offered)),
		Late: ratio(float64(t.late), float64(t.admitted)),
		P50:  quantile(t.latencies, 0.5), P99: quantile(t.latencies, 0.99),
		Jain: jain(t.byLimiter), High: ratio(float64(t.highGood), float64(t.high)), Inverted: t.inverted(),
		LimitMean: mean, LimitCV: cv, PerSecond: perSecond, Limits: m.limits,
	}
}

// best is what a limiter that knew all could have had answered in time: the lesser
// of what was offered and what could be done, over each stretch of seconds in which
// neither rate changed.
func (t *tally) best(s *Scenario) (best float64) {
	var offered, possible float64
	for i, n := range t.offeredEach {
		offered += float64(n)
		possible += s.capacity(t.second(i))
		if i+1 == len(t.offeredEach) || !s.steady(t.second(i), t.second(i+1)) {
			best += min(offered, possible)
			left := 0.0
			if s.Recorded { // what a burst leaves may be done in the second after it
				left = min(max(offered-possible, 0), s.Deadline.Seconds()*s.Nominal())
			}
			offered, possible = left, 0
		}
	}
	return best
}

func (t *tally) second(i int) time.Duration { return t.From + time.Duration(i)*sec }

func (t *tally) inverted() float64 {
	n := 0
	for tenth, refused := range t.highRefused {
		n += min(refused, t.lowAdmitted[tenth])
	}
	return ratio(float64(n), float64(t.high))
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func jain(v []float64) float64 {
	var sum, squares float64
	for _, x := range v {
		sum += x
		squares += x * x
	}
	return ratio(sum*sum, float64(len(v))*squares)
}

func spread(v []float64) (mean, cv float64) {
	if len(v) == 0 {
		return 0, 0
	}
	for _, x := range v {
		mean += x / float64(len(v))
	}
	var squares float64
	for _, x := range v {
		squares += (x - mean) * (x - mean)
	}
	return mean, ratio(math.Sqrt(squares/float64(len(v))), mean)
}

// converged is the first second from which goodput stays at 0.9 of the optimum for
// five seconds; false if there is none.
func converged(perSecond []float64) (int, bool) {
	for i := 0; i+5 <= len(perSecond); i++ {
		steady := true
		for _, g := range perSecond[i : i+5] {
			steady = steady && g >= 0.9
		}
		if steady {
			return i, true
		}
	}
	return 0, false
}
