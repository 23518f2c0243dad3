package simbench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Scenario is one experiment: a server, the work offered to it, what goes wrong,
// and the windows in which the outcome is judged.
type Scenario struct {
	Name     string
	About    string
	Workers  int
	Service  Service
	Order    Order         // of what waits; not Sharing with a Pause
	Deadline time.Duration // an answer later than this, from its arrival, is worth nothing
	Load     []Phase       // offered load, as a multiple of the nominal capacity
	Recorded bool          // the load is another in every second
	Capacity []Phase       // workers, as a multiple of Workers; empty is always 1
	Extra    []Phase       // milliseconds that each request also spends where there is no queue
	Pause    Pause         // the server stops, all of it
	Hole     Span          // requests admitted here are never answered
	Errors   Span          // requests served here fail within a millisecond
	Slowdown float64       // of the service time, for each request in flight beyond the workers
	Limiters int           // that share the server, each with an equal part of the load; 0 is one
	Retries  int           // attempts a client adds when refused or late
	Low      float64       // share of the offered work that is of the lower class
	Judged   []Window
}

// Phase is a value from a time on.
type Phase struct {
	From  time.Duration
	Value float64
	Ramp  bool // the value is reached linearly from the one before, at the next phase's From
}

// Span is an interval of time, empty by default.
type Span struct{ From, To time.Duration }

// Pause stops the server for Length at every multiple of Every.
type Pause struct{ Every, Length time.Duration }

// Window is an interval whose outcome is reported under Name.
type Window struct {
	Name     string
	From, To time.Duration
}

// Nominal is the capacity in requests a second.
func (s *Scenario) Nominal() float64 { return float64(s.Workers) / s.Service.Mean.Seconds() }

// capacity is what can be answered in the second that begins at t.
func (s *Scenario) capacity(t time.Duration) float64 {
	return value(s.Capacity, t, 1) * s.Nominal() * s.Pause.available()
}

// steady reports whether neither load nor capacity differs between two times.
func (s *Scenario) steady(a, b time.Duration) bool {
	return value(s.Load, a, 0) == value(s.Load, b, 0) && value(s.Capacity, a, 1) == value(s.Capacity, b, 1)
}

func (s *Scenario) end() time.Duration { return s.Judged[len(s.Judged)-1].To }

func (p Span) has(t time.Duration) bool { return p.From <= t && t < p.To }

func value(phases []Phase, t time.Duration, otherwise float64) float64 {
	v := otherwise
	for i, p := range phases {
		if t < p.From {
			break
		}
		v = p.Value
		if p.Ramp && i+1 < len(phases) {
			next := phases[i+1]
			part := float64(t-p.From) / float64(next.From-p.From)
			v += (next.Value - p.Value) * min(part, 1)
		}
	}
	return v
}

func highest(phases []Phase) (v float64) {
	for _, p := range phases {
		v = max(v, p.Value)
	}
	return v
}

// available is the part of the time in which the server does not pause.
func (p Pause) available() float64 {
	if p.Every == 0 {
		return 1
	}
	return 1 - float64(p.Length)/float64(p.Every)
}

// finish is when work of this length ends if it begins at t.
func (p Pause) finish(t, work time.Duration) time.Duration {
	if p.Every == 0 {
		return t + work
	}
	for {
		if into := t % p.Every; t >= p.Every && into < p.Length {
			t += p.Length - into
		}
		next := (t/p.Every + 1) * p.Every
		if t+work <= next {
			return t + work
		}
		work -= next - t
		t = next
	}
}

func (p Pause) now(t time.Duration) bool { return p.Every > 0 && t >= p.Every && t%p.Every < p.Length }

// Service is the distribution of service times.
type Service struct {
	Shape string // constant, lognormal, bimodal or pareto
	Mean  time.Duration
	CV    float64 // coefficient of variation, lognormal only
}

func (s Service) draw(r *rand.Rand) time.Duration {
	mean := float64(s.Mean)
	switch s.Shape {
	case "constant":
		return s.Mean
	case "bimodal": // nine in ten take 2/21.8 of the mean, one takes 200/21.8
		if r.Float64() < 0.1 {
			return time.Duration(mean * 200 / 21.8)
		}
		return time.Duration(mean * 2 / 21.8)
	case "pareto": // tail exponent 2.2, cut at 100 times the mean
		x := mean * 1.2 / 2.2 * math.Pow(1-r.Float64(), -1/2.2)
		return time.Duration(min(x, 100*mean))
	}
	variance := math.Log(1 + s.CV*s.CV)
	return time.Duration(mean * math.Exp(math.Sqrt(variance)*r.NormFloat64()-variance/2))
}

func (s Service) String() string {
	if s.Shape == "lognormal" {
		return fmt.Sprintf("lognormal %v CV %.1f", s.Mean, s.CV)
	}
	return fmt.Sprintf("%s %v", s.Shape, s.Mean)
}

const (
	sec = time.Second
	ms  = time.Millisecond
)

// Named returns the fifteen named windows, in thirteen scenarios. The constants of
// weir's controller were chosen with these in sight.
func Named() []Scenario {
	base := Scenario{
		Workers: 32, Service: Service{"lognormal", 10 * ms, 0.5}, Deadline: 500 * ms,
		Load: []Phase{{Value: 0.7}},
	}
	with := func(name, about string, change func(*Scenario)) Scenario {
		s := base
		s.Name, s.About = name, about
		s.Judged = []Window{{name, 30 * sec, 60 * sec}}
		change(&s)
		return s
	}
	at := func(load float64) []Phase { return []Phase{{Value: load}} }
	return []Scenario{
		with("S1", "0.7 of capacity, steady", func(s *Scenario) {}),
		with("S2", "twice the capacity: S2 from 60 to 90 s, S3 from 370 to 400 s", func(s *Scenario) {
			s.Load = at(2)
			s.Judged = []Window{{"S2", 60 * sec, 90 * sec}, {"S3", 370 * sec, 400 * sec}}
		}),
		with("S4", "0.8 of capacity; half the workers are away from 60 to 90 s", func(s *Scenario) {
			s.Load = at(0.8)
			s.Capacity = []Phase{{Value: 1}, {From: 60 * sec, Value: 0.5}, {From: 90 * sec, Value: 1}}
			s.Judged = []Window{{"S4 during", 60 * sec, 90 * sec}, {"S4 after", 90 * sec, 120 * sec}}
		}),
		with("S5", "0.85 of capacity; from 40 s each request also waits 20 ms for something without a queue", func(s *Scenario) {
			s.Load = at(0.85)
			s.Extra = []Phase{{From: 40 * sec, Value: 20}}
			s.Judged = []Window{{"S5 first", 40 * sec, 80 * sec}, {"S5 next", 80 * sec, 120 * sec}}
		}),
		with("S6", "nine requests in ten take 2 ms, one takes 200 ms; 0.7 of capacity", func(s *Scenario) {
			s.Service = Service{Shape: "bimodal", Mean: 21800 * time.Microsecond}
			s.Deadline = sec
		}),
		with("S7", "0.7 of capacity; the server stops for 150 ms every 2 s", func(s *Scenario) {
			s.Pause = Pause{2 * sec, 150 * ms}
		}),
		with("S8", "0.1 of capacity, nothing from 30 to 90 s, then 0.8: the first 5 s", func(s *Scenario) {
			s.Load = []Phase{{Value: 0.1}, {From: 30 * sec}, {From: 90 * sec, Value: 0.8}}
			s.Judged = []Window{{"S8", 90 * sec, 95 * sec}}
		}),
		with("S9", "0.3 of capacity; nothing is answered from 30 to 50 s; the 30 s after", func(s *Scenario) {
			s.Load = at(0.3)
			s.Hole = Span{30 * sec, 50 * sec}
			s.Judged = []Window{{"S9", 50 * sec, 80 * sec}}
		}),
		with("SA", "twice the capacity; each request beyond the workers slows all by 0.4 %", func(s *Scenario) {
			s.Load, s.Slowdown = at(2), 0.004
		}),
		with("SB", "four workers, twice the capacity", func(s *Scenario) { s.Workers, s.Load = 4, at(2) }),
		with("SD", "four workers of 500 ms, twice the capacity", func(s *Scenario) {
			s.Workers, s.Load, s.Service.Mean, s.Deadline = 4, at(2), 500*ms, 5*sec
			s.Judged[0] = Window{"SD", 60 * sec, 180 * sec}
		}),
		with("SE", "nine requests in ten take 2 ms, one takes 200 ms; twice the capacity", func(s *Scenario) {
			s.Load, s.Deadline = at(2), sec
			s.Service = Service{Shape: "bimodal", Mean: 21800 * time.Microsecond}
		}),
	}
}

// Random draws a scenario from the axes: workers, service time and its shape, load,
// and one thing that happens half-way.
func Random(seed uint64) Scenario {
	r := rand.New(rand.NewPCG(seed, 50))
	pick := func(v ...float64) float64 { return v[r.IntN(len(v))] }
	shapes := []Service{
		{Shape: "constant"}, {Shape: "lognormal", CV: 0.5}, {Shape: "lognormal", CV: 1}, {Shape: "bimodal"}, {Shape: "pareto"},
	}
	s := Scenario{
		Name:    fmt.Sprintf("R%02d", seed%1000),
		Workers: int(pick(4, 32, 256)),
		Service: shapes[r.IntN(len(shapes))],
	}
	s.Service.Mean = time.Duration(pick(5, 10, 25, 50)) * ms
	if s.Workers == 256 {
		s.Service.Mean = time.Duration(pick(80, 150)) * ms
	}
	s.Deadline = max(500*ms, 20*s.Service.Mean)
	load := pick(0.3, 0.7, 0.9, 1.2, 2, 5)
	s.Load = []Phase{{Value: load}}
	s.Judged = []Window{{s.Name, 20 * sec, 60 * sec}}
	s.About = fmt.Sprintf("c %d, %v, load %.1f, ", s.Workers, s.Service, load) + happening(&s, load, r)
	return s
}

func happening(s *Scenario, load float64, r *rand.Rand) string {
	const half = 40 * sec
	mean := float64(s.Service.Mean) / float64(ms)
	switch r.IntN(12) {
	case 0:
		s.Capacity = []Phase{{Value: 1}, {From: half, Value: 0.5}}
		return "half the workers leave"
	case 1:
		s.Capacity = []Phase{{Value: 0.5}, {From: half, Value: 1}}
		return "the workers double"
	case 2:
		s.Load = []Phase{{Value: load / 4, Ramp: true}, {From: 50 * sec, Value: load}}
		return "load ramps up from a quarter"
	case 3:
		s.Extra = []Phase{{From: half, Value: 2 * mean}}
		return "latency outside the server grows by twice the service time"
	case 4:
		s.Pause = Pause{3 * sec, 100 * ms}
		return "pauses of 100 ms every 3 s"
	case 5:
		s.Hole = Span{25 * sec, 35 * sec}
		s.Judged[0].From = 35 * sec
		return "a black hole for 10 s, judged after it"
	case 6:
		s.Errors = Span{25 * sec, 35 * sec}
		s.Judged[0].From = 35 * sec
		return "errors for 10 s, judged after them"
	case 7:
		s.Load = []Phase{{Value: load}, {From: 20 * sec}, {From: half, Value: load}}
		s.Judged[0].From = half
		return "idle for 20 s, judged after it"
	case 8:
		s.Slowdown = 0.1 / float64(s.Workers)
		return "contention: 10 % slower for each load of workers in flight beyond them"
	case 9:
		s.Limiters = 3
		return "three limiters share the server"
	case 10:
		s.Retries = 2
		return "clients retry twice"
	}
	return "steady"
}

// TwoClasses is twice the capacity, a quarter of it of the higher class.
func TwoClasses() Scenario {
	return Scenario{
		Name: "two classes", About: "twice the capacity, a quarter of it (half the capacity) of the higher class",
		Workers: 32, Service: Service{"lognormal", 10 * ms, 0.5}, Deadline: 500 * ms,
		Load: []Phase{{Value: 2}}, Low: 0.75, Judged: []Window{{"two classes", 20 * sec, 40 * sec}},
	}
}

// Bursty are scenarios in which a queue may help: pauses, a burst after idleness,
// and an overload.
func Bursty() []Scenario {
	overload := TwoClasses()
	overload.Name, overload.Low = "twice the capacity", 0
	overload.Judged[0].Name = overload.Name
	scenarios := []Scenario{overload}
	for _, s := range Named() {
		if s.Name == "S7" || s.Name == "S8" {
			scenarios = append(scenarios, s)
		}
	}
	return scenarios
}

// Shared is three limiters before one server, at 1.2 times its capacity and at
// twice.
func Shared() []Scenario {
	s := TwoClasses()
	s.Low, s.Limiters = 0, 3
	s.Judged = []Window{{"shared", 30 * sec, 60 * sec}}
	twice := s
	s.Name, s.Load = "three limiters, 1.2x", []Phase{{Value: 1.2}}
	twice.Name = "three limiters, 2x"
	return []Scenario{s, twice}
}

// Stepped is the scenario of the convergence figure: 1,000 requests a second of
// capacity, offered twice the later capacity throughout, workers doubled or load
// doubled at 60 s.
func Stepped() []Scenario {
	base := Scenario{
		Workers: 20, Service: Service{"lognormal", 20 * ms, 0.5}, Deadline: 500 * ms,
		Judged: []Window{{"", 60 * sec, 90 * sec}},
	}
	capacity, load, less := base, base, base
	capacity.Name, capacity.About = "workers 10 to 20", "500/s to 1,000/s of capacity, 2,000/s offered"
	capacity.Capacity = []Phase{{Value: 0.5}, {From: 60 * sec, Value: 1}}
	capacity.Load = []Phase{{Value: 2}}
	less.Name, less.About = "workers 20 to 10", "1,000/s to 500/s of capacity, 2,000/s offered"
	less.Capacity = []Phase{{Value: 1}, {From: 60 * sec, Value: 0.5}}
	less.Load = []Phase{{Value: 2}}
	load.Name, load.About = "load 0.9 to 1.8", "900/s to 1,800/s offered, 1,000/s of capacity"
	load.Load = []Phase{{Value: 0.9}, {From: 60 * sec, Value: 1.8}}
	return []Scenario{capacity, less, load}
}
