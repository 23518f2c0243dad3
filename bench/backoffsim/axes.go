package backoffsim

import (
	"math"
	"strconv"
	"time"

	"weir.dev/weir/httpretry"
)

// Scenarios are the outages. All have 16 workers of 50 ms, which is 320 requests a second, and all but the last two an
// offered load of 200. Most let a refusal under overload cost a worker 5 ms, because a server that refuses for nothing
// cannot be overwhelmed.
func Scenarios() []Scenario {
	base := Scenario{
		Clients: 1000, Think: 5 * time.Second, Fault: Refuse, For: 30 * time.Second,
		Workers: 16, Service: 50 * time.Millisecond, Queue: 32, After: 75 * time.Second,
	}
	costly := base
	costly.RejectCost = 5 * time.Millisecond
	made := func(name string, s Scenario, change func(*Scenario)) Scenario {
		s.Name = name
		change(&s)
		return s
	}
	return []Scenario{
		made("30 s outage, refusals cost 5 ms", costly, func(s *Scenario) {}),
		made("3 s outage, refusals cost 5 ms", costly, func(s *Scenario) { s.For = 3 * time.Second }),
		made("60 s outage, refusals cost 5 ms", costly, func(s *Scenario) { s.For = 60 * time.Second }),
		made("30 s outage, 100 busier clients", costly, func(s *Scenario) { s.Clients, s.Think = 100, 500*time.Millisecond }),
		made("30 s outage, 10 busy clients", costly, func(s *Scenario) { s.Clients, s.Think = 10, 50*time.Millisecond }),
		made("30 s outage, 100 clients a process", costly, func(s *Scenario) { s.PerProcess = 100 }),
		made("30 s unreachable", costly, func(s *Scenario) { s.Fault = Unreachable }),
		made("20 s black hole, timeout 1 s", costly, func(s *Scenario) { s.Fault, s.For, s.Timeout = BlackHole, 20*time.Second, time.Second }),
		made("3 s outage, queue of 4 s, timeout 1 s", costly, func(s *Scenario) {
			s.For, s.Queue, s.Timeout = 3*time.Second, 1280, time.Second
		}),
		made("half the workers for 30 s", costly, func(s *Scenario) { s.Fault = HalfWorkers }),
		made("5 % errors for 30 s", costly, func(s *Scenario) { s.Fault = TwentiethOf }),
		made("5 % errors for 30 s, 100 clients a process", costly, func(s *Scenario) { s.Fault, s.PerProcess = TwentiethOf, 100 }),
		made("1,000 call every 10 s at once, 30 s outage", costly, func(s *Scenario) {
			s.Think, s.Every, s.Queue = 0, 10*time.Second, 1280
		}),
		made("1,000 call once, at once", base, func(s *Scenario) { s.Fault, s.Think, s.After = NoFault, 0, 60*time.Second }),
		made("1,000 call once, at once, refusals cost 5 ms", costly, func(s *Scenario) { s.Fault, s.Think, s.After = NoFault, 0, 60*time.Second }),
	}
}

// Sweep crosses the length of an outage, the number of synchronised callers and the cap with the policies that are not
// bounded by a budget. It is a fifth of the size of Scenarios, so that twenty seeds of each can be run.
func Sweep() []Group {
	base := Scenario{
		Clients: 200, Think: 5 * time.Second, Fault: Refuse, For: 30 * time.Second,
		Workers: 16, Service: 250 * time.Millisecond, Queue: 32, RejectCost: 25 * time.Millisecond, After: 60 * time.Second,
	}
	var groups []Group
	for _, outage := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second, 120 * time.Second} {
		s := base
		s.For = outage
		groups = append(groups, Group{"outage", outage.String(), s, unbudgeted(50*time.Millisecond, 10*time.Second)})
	}
	for _, clients := range []int{100, 300, 1000} {
		s := base
		s.Clients, s.Fault, s.Think, s.After = clients, NoFault, 0, 200*time.Second
		groups = append(groups, Group{"once, at once", strconv.Itoa(clients), s, unbudgeted(50*time.Millisecond, 10*time.Second)})
	}
	for _, cap := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second, 50 * time.Second} {
		groups = append(groups, Group{"cap after a 30 s outage", cap.String(), base, unbudgeted(50*time.Millisecond, cap)})
	}
	return groups
}

// Group is one point of the sweep: a scenario at one value of an axis, and the policies to compare there. The first of
// them is what the others are divided by.
type Group struct {
	Axis, Value string
	Scenario    Scenario
	Policies    []Policy
}

func unbudgeted(base, cap time.Duration) []Policy {
	return []Policy{
		{Name: "fixed 1 s", Options: endless(httpretry.FullJitter, time.Second, time.Second, always)},
		{Name: "fixed 1 s ± 50 %", Options: endless(httpretry.FullJitter, 1500*time.Millisecond, 1500*time.Millisecond, upperTwoThirds)},
		{Name: "exponential, no jitter", Options: endless(httpretry.FullJitter, base, cap, always)},
		{Name: "full jitter", Options: endless(httpretry.FullJitter, base, cap, nil)},
		{Name: "equal jitter", Options: endless(httpretry.EqualJitter, base, cap, nil)},
		{Name: "decorrelated", Options: endless(httpretry.DecorrelatedJitter, base, cap, nil)},
		{Name: "decorrelated, cap inside", Options: endless(httpretry.DecorrelatedInside, base, cap, nil)},
	}
}

// Policies are the ways to retry. Those without a budget retry without end, base 50 ms and cap 10 s where they grow, and
// exist to compare; the classics without jitter come from the real Transport too, whose draws are then not random.
func Policies() []Policy {
	policies := []Policy{
		{Name: "no retry", Options: func(u func() float64) httpretry.Options { return httpretry.Options{Attempts: 1, Random: u} }},
		{Name: "fixed 200 ms", Options: endless(httpretry.FullJitter, 200*time.Millisecond, 200*time.Millisecond, always)},
	}
	policies = append(policies, unbudgeted(50*time.Millisecond, 10*time.Second)...)
	return append(policies, []Policy{
		{Name: "full jitter + Retry-After", Hint: true, Options: endless(httpretry.FullJitter, 50*time.Millisecond, 10*time.Second, nil)},
		{Name: "full jitter, 4 attempts", Options: func(u func() float64) httpretry.Options {
			return httpretry.Options{Budget: unbounded, Random: u}
		}},
		{Name: Default, Options: func(u func() float64) httpretry.Options { return httpretry.Options{Random: u} }},
		{Name: Default + " + Retry-After", Hint: true, Options: func(u func() float64) httpretry.Options { return httpretry.Options{Random: u} }},
		{Name: Default + " + throttle 2", Options: func(u func() float64) httpretry.Options { return httpretry.Options{Throttle: 2, Random: u} }},
	}...)
}

// Default is the name of the policy of httpretry.Options{}, and begins those of its variants.
const Default = "httpretry default"

// unbounded is more retries than any run makes.
var unbounded = httpretry.Budget{PerSecond: 1e9}

// endless is a policy without a bound on attempts, whose draws are changed by shape if it is not nil.
func endless(j httpretry.Jitter, base, cap time.Duration, shape func(u float64) float64) func(func() float64) httpretry.Options {
	return func(u func() float64) httpretry.Options {
		random := u
		if shape != nil {
			random = func() float64 { return shape(u()) }
		}
		return httpretry.Options{
			Attempts: math.MaxInt, Backoff: httpretry.Backoff{Jitter: j, Base: base, Cap: cap}, Budget: unbounded, Random: random,
		}
	}
}

// always draws the upper end of every interval: no jitter.
func always(float64) float64 { return math.Nextafter(1, 0) }

// upperTwoThirds makes U(0, 1.5 s) into U(0.5 s, 1.5 s).
func upperTwoThirds(u float64) float64 { return (1 + 2*u) / 3 }
