package simbench

import (
	"math"
	"time"
)

// Order is in which order a server does what waits for it.
type Order string

// The orders. Under processor sharing nothing waits: each request in progress has a worker
// of its own or, where there are more requests than workers, its equal part of them.
const (
	FirstCome Order = ""
	LastCome  Order = "last come, first served"
	Sharing   Order = "processor sharing"
)

// next takes the request whose turn it is out of the queue.
func (m *model) next() *request {
	last := len(m.queue) - 1
	if m.s.Order == LastCome {
		r := m.queue[last]
		m.queue = m.queue[:last]
		return r
	}
	r := m.queue[0]
	m.queue = m.queue[1:]
	return r
}

// shared is the state of processor sharing. Every request in progress gets the same, so
// one clock tells all: how much each of them would have got since the start.
type shared struct {
	got    float64 // nanoseconds of work
	at     time.Duration
	speed  float64 // of got, from at on
	ends   events  // in the time of got
	serial int     // of the plan that counts
}

// share takes what has arrived into progress, and plans when the next request is done.
func (m *model) share() {
	s := &m.shared
	s.got += s.speed * float64(m.now-s.at)
	s.at = m.now
	for _, r := range m.queue {
		m.serial++
		s.ends.push(event{at: time.Duration(s.got + m.work(r)), serial: m.serial, r: r})
	}
	m.queue = m.queue[:0]
	m.busy = len(s.ends)
	s.speed = min(1, float64(m.workers())/float64(max(m.busy, 1)))
	s.serial++
	if m.busy == 0 || s.speed == 0 {
		return
	}
	plan, left := s.serial, max(float64(s.ends[0].at)-s.got, 0)
	m.at(m.now+time.Duration(math.Ceil(left/s.speed)), func(m *model, _ *request) {
		if plan != m.shared.serial {
			return // something has changed since
		}
		m.shared.got = max(m.shared.got+m.shared.speed*float64(m.now-m.shared.at), float64(m.shared.ends[0].at))
		m.shared.at = m.now
		r := m.shared.ends.pop().r
		m.share()
		m.leave(r)
	}, nil)
}

// arrivals of two minutes of a service for language models, requests in each second:
// 120 s from 18:26:19 on 16 November 2023 of Azure's public trace "LLM inference, code"
// (CC-BY 4.0). Its bursts are five times the mean, and a third of its seconds are empty.
var arrivals = [...]float64{
	0, 5, 17, 6, 7, 0, 6, 11, 11, 7, 0, 4, 5, 28, 30, 18, 41, 37, 37, 34, 18, 2, 11, 6, 14, 30, 17, 17, 26, 31,
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 11, 11, 13, 11, 11, 16, 12, 9, 13, 15, 15, 17, 13,
	11, 13, 12, 14, 13, 9, 12, 16, 17, 19, 6, 6, 8, 1, 0, 0, 0, 0, 0, 0, 5, 6, 9, 4, 12, 9, 10, 7, 6, 8,
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 5, 4, 3, 0, 0, 0, 0, 0, 0, 7, 2, 8, 5, 5, 4, 5, 12, 9, 6,
}

// recorded is a load of that shape whose mean is given.
func recorded(mean float64) (phases []Phase) {
	var sum float64
	for _, n := range arrivals {
		sum += n
	}
	for i, n := range arrivals {
		phases = append(phases, Phase{From: time.Duration(i) * sec, Value: mean * n * float64(len(arrivals)) / sum})
	}
	return phases
}

// Models are scenarios of servers that work otherwise than in the named ones, and of
// arrivals that were recorded. No constant was tuned on them.
func Models() (all []Scenario) {
	base := Scenario{
		Workers: 32, Service: Service{"lognormal", 10 * ms, 0.5}, Deadline: 500 * ms,
		Judged: []Window{{"", 20 * sec, 60 * sec}},
	}
	add := func(name, about string, change func(*Scenario)) {
		s := base
		change(&s)
		s.Name, s.About = name, about
		s.Judged = []Window{{name, s.Judged[0].From, s.Judged[0].To}}
		all = append(all, s)
	}
	for _, o := range []struct {
		name  string
		order Order
	}{{"LIFO", LastCome}, {"PS", Sharing}} {
		for _, load := range []struct {
			name  string
			value float64
		}{{"0.7x", 0.7}, {"1.2x", 1.2}, {"2x", 2}} {
			add(o.name+" "+load.name, string(o.order), func(s *Scenario) {
				s.Order, s.Load = o.order, []Phase{{Value: load.value}}
			})
		}
		add(o.name+" step", string(o.order)+", 0.8 of capacity; from 40 s half the workers are away", func(s *Scenario) {
			s.Order, s.Load = o.order, []Phase{{Value: 0.8}}
			s.Capacity = []Phase{{Value: 1}, {From: 40 * sec, Value: 0.5}}
		})
	}
	for _, mean := range []float64{0.3, 0.7} {
		s := base
		s.Load, s.Recorded, s.Judged = recorded(mean), true, []Window{{"", 10 * sec, 120 * sec}}
		name := map[float64]string{0.3: "recorded 0.3x", 0.7: "recorded 0.7x"}[mean]
		add(name, "arrivals of a language model's service, in bursts of five times their mean", func(to *Scenario) { *to = s })
	}
	return all
}
