package simbench

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var full = flag.Bool("full", false, "run every scenario and write the tables and plots (minutes)")

// seeds of the named scenarios; the random ones have theirs, 1 to 50, none of which
// was looked at while the constants were chosen.
var seeds = []uint64{1, 2, 3}

// each plays the scenarios for each contender under each seed, the contenders side
// by side, and returns the rows in order.
func each(t *testing.T, contenders []Contender, scenarios []Scenario, seeds []uint64) (rows []Row) {
	byContender := make([][]Row, len(contenders))
	var mu sync.Mutex
	t.Run("play", func(t *testing.T) {
		for i, c := range contenders {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				var own []Row
				for _, s := range scenarios {
					for _, seed := range seeds {
						synctest.Test(t, func(*testing.T) { own = append(own, Rows(s, c, seed)...) })
					}
				}
				mu.Lock()
				defer mu.Unlock()
				byContender[i] = own
			})
		}
	})
	for _, own := range byContender {
		rows = append(rows, own...)
	}
	return rows
}

func TestTables(t *testing.T) {
	if !*full {
		t.Skip("the long form: make simbench")
	}
	all := Contenders()
	named := each(t, all, Named(), seeds)
	about := map[string]string{}
	for _, s := range Named() {
		for _, w := range s.Judged {
			about[w.Name] = s.About
		}
	}
	var random []Row
	var drawn []Scenario
	for seed := uint64(1); seed <= 50; seed++ {
		s := Random(seed)
		drawn = append(drawn, s)
		about[s.Name] = s.About
	}
	random = each(t, all, drawn, seeds[:1])

	steps := map[string][]Row{}
	for _, s := range Stepped() {
		steps[s.Name] = each(t, all, []Scenario{s}, seeds)
	}
	shared := map[string][]Row{}
	for _, s := range Shared() {
		shared[s.Name] = each(t, all, []Scenario{s}, seeds[:1])
	}
	classes := each(t, append([]Contender{WithShare(0.8)}, all[0], all[5]), []Scenario{TwoClasses()}, seeds[:1])

	write(t, "results/named.csv", CSV(named))
	write(t, "results/random.csv", CSV(random))
	write(t, "results/tables.md", strings.Join([]string{
		"# Concurrency limiters compared\n\nWritten by `make simbench`; docs/concurrency.md says what it means. Goodput is answers in time over the most\nthat any limiter could have had.\n",
		fmt.Sprintf("## Named scenarios, seeds %v\n\n%s", seeds, Summary(all, named)),
		ByWindow(all, named, about),
		"## Random scenarios, seeds 1 to 50\n\n" + Summary(all, random),
		ByWindow(all, random, about),
		"## Latency of admitted work at twice the capacity (S2)\n\n" + Latencies(all, named, "S2", serviceP99(Named()[1].Service)),
		"## Seconds after a step until goodput stays at 0.9 of the optimum for 5 s, each seed\n\n" + Convergence(all, Stepped(), steps),
		"## Two classes\n\n" + TwoClasses().About + ".\n\n" + Classes(classes),
		"## A queue of 400 and 200 ms in front\n\n" + Queues(Queued(), each(t, Queued(), Bursty(), seeds[:1])),
		"## Three limiters before one server\n\n" + Fairness(all, Shared(), shared),
	}, "\n"))
	write(t, "../../docs/plots/concurrency-named.svg", Bars("Goodput over the optimum, named scenarios: mean (bar) and worst (mark)", all, named))
	write(t, "../../docs/plots/concurrency-random.svg", Bars("Goodput over the optimum, random scenarios: mean (bar) and worst (mark)", all, random))
	write(t, "../../docs/plots/concurrency-latency-shift.svg", Plot(
		"The limit when a dependency grows 20 ms slower at 40 s (S5); 82 places are needed then", "limit", 240, limitLines(all, named, "S5 first")))
	write(t, "../../docs/plots/concurrency-step.svg", Plot(
		"Goodput over the optimum after the workers double", "goodput", 1.2, goodputLines(all, steps[Stepped()[0].Name])))
}

// TestModels is apart from TestTables, so that a model more changes nothing there.
func TestModels(t *testing.T) {
	if !*full {
		t.Skip("the long form: make simbench")
	}
	all, about := Contenders(), map[string]string{}
	for _, s := range Models() {
		about[s.Name] = s.About
	}
	rows := each(t, all, Models(), seeds)
	write(t, "results/models.csv", CSV(rows))
	write(t, "results/models.md", strings.Join([]string{
		"# Other servers and recorded arrivals\n\nWritten by `make simbench`; docs/concurrency.md says what it means. Goodput is answers in time over the most\nthat any limiter could have had.\n",
		Summary(all, rows), ByWindow(all, rows, about),
	}, "\n"))
}

// plotted are the contenders whose lines are drawn; more would hide each other.
var plotted = map[string]bool{"weir auto": true, "weir vegas": true, "failsafe-go": true, "envoy gradient": true}

func limitLines(all []Contender, rows []Row, window string) (lines []Line) {
	for _, c := range all {
		if plotted[c.Name] {
			for _, r := range of(c.Name, rows) {
				if r.Window == window {
					line := Line{Name: c.Name}
					for i := 0; i < len(r.Limits); i += 10 {
						line.Values = append(line.Values, r.Limits[i])
					}
					lines = append(lines, line)
					break
				}
			}
		}
	}
	return lines
}

func goodputLines(all []Contender, rows []Row) (lines []Line) {
	for _, c := range all {
		if plotted[c.Name] {
			lines = append(lines, Line{c.Name, of(c.Name, rows)[0].PerSecond})
		}
	}
	return lines
}

func serviceP99(s Service) time.Duration {
	variance := math.Log(1 + s.CV*s.CV)
	return time.Duration(float64(s.Mean) * math.Exp(math.Sqrt(variance)*2.3263-variance/2))
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// short are scenarios that take a second together.
func short() []Scenario {
	scenarios := []Scenario{}
	for _, s := range Named() {
		switch s.Name {
		case "S8", "S9", "SB":
			scenarios = append(scenarios, s)
		}
	}
	return scenarios
}

func TestHealthyServerIsLeftAlone(t *testing.T) {
	s := Named()[0]
	s.Judged = []Window{{"S1", 10 * sec, 20 * sec}}
	for _, r := range each(t, Contenders()[:1], []Scenario{s}, seeds[:1]) {
		if r.FalseShed > 0.005 || r.Goodput < 0.99 {
			t.Errorf("got %.4f refused while a worker idled and goodput %.3f; want at most 0.005 and at least 0.99", r.FalseShed, r.Goodput)
		}
	}
}

func TestCommittedTableIsReproducedByteForByte(t *testing.T) {
	table, err := os.ReadFile("results/named.csv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(CSV(each(t, Contenders(), short(), seeds[:1]))) {
		if !strings.Contains(string(table), line) {
			t.Errorf("got %q, which results/named.csv does not have: if a limiter was changed on purpose, run make simbench", line)
		}
	}
}

func TestQueueGivesTheSameFiguresEachTime(t *testing.T) {
	s := Bursty()[:1]
	s[0].Judged = []Window{{"overload", 1 * sec, 2 * sec}}
	once := each(t, Queued(), s, seeds[:1])
	again := each(t, Queued(), s, seeds[:1])
	if !reflect.DeepEqual(once, again) {
		t.Errorf("got %s, then %s", CSV(once), CSV(again))
	}
}

func TestTextbookVegasSettlesAtSixOrSevenWhateverTheServer(t *testing.T) {
	s := Named()[1]
	s.Judged = []Window{{"S2", 10 * sec, 20 * sec}}
	for _, c := range Contenders() {
		if c.Name == "textbook vegas" {
			r := each(t, []Contender{c}, []Scenario{s}, seeds[:1])[0]
			if r.LimitMean < 5 || r.LimitMean > 9 {
				t.Errorf("got a mean limit of %.1f, want 5 to 9", r.LimitMean)
			}
		}
	}
}

func TestWorkStopsDuringAPause(t *testing.T) {
	p := Pause{Every: 2 * sec, Length: 150 * ms}
	for _, c := range []struct{ from, work, want time.Duration }{
		{0, 10 * ms, 10 * ms},                   // the first pause is at Every
		{1995 * ms, 10 * ms, 2155 * ms},         // begun before it, ended after it
		{2100 * ms, 10 * ms, 2160 * ms},         // begun in it
		{2150 * ms, 10 * ms, 2160 * ms},         // begun at its end
		{1990 * ms, 10 * ms, 2000 * ms},         // ended as it begins
		{2200 * ms, 2 * sec, 4200*ms + 150*ms},  // across one
		{100 * ms, 4 * sec, 4100*ms + 2*150*ms}, // across two
	} {
		if got := p.finish(c.from, c.work); got != c.want {
			t.Errorf("%v of work from %v: got %v, want %v", c.work, c.from, got, c.want)
		}
	}
}

// A server of one worker, under each order, with requests of 10 ms at 0, 1 and 2 ms.
func TestOrdersFinishRequestsWhenTheyShould(t *testing.T) {
	for order, want := range map[Order][]time.Duration{
		FirstCome: {10 * ms, 20 * ms, 30 * ms},
		LastCome:  {10 * ms, 30 * ms, 20 * ms},
		// Alone, by two and by three: at 2 ms they have got 1.5, 0.5 and 0 ms.
		Sharing: {27500 * time.Microsecond, 29500 * time.Microsecond, 30 * ms},
	} {
		s := Scenario{Workers: 1, Order: order, Service: Service{Shape: "constant", Mean: 10 * ms}, Deadline: sec}
		m := &model{s: &s}
		l := &stopwatch{m: m}
		m.limiters = []Limiter{l}
		for i := range want {
			m.at(time.Duration(i)*ms, (*model).attempt, &request{service: 10 * ms})
		}
		for len(m.events) > 0 {
			e := m.events.pop()
			m.now = e.at
			e.do(m, e.r)
		}
		for i, got := range l.released {
			if (got - want[i]).Abs() > time.Microsecond {
				t.Errorf("%s: request %d was done at %v, want %v", order, i, got, want[i])
			}
		}
	}
}

// stopwatch admits all and notes when each is released.
type stopwatch struct {
	m        *model
	released []time.Duration
}

func (s *stopwatch) Limit() int { return 0 }

func (s *stopwatch) Acquire(bool) (Permit, bool) {
	s.released = append(s.released, 0)
	return stopwatchPermit{s, len(s.released) - 1}, true
}

type stopwatchPermit struct {
	s *stopwatch
	n int
}

func (p stopwatchPermit) Release(bool) { p.s.released[p.n] = p.s.m.now }

func TestConvergenceIsTheFirstOfFiveGoodSeconds(t *testing.T) {
	for _, c := range []struct {
		perSecond []float64
		want      int
		ok        bool
	}{
		{[]float64{1, 1, 1, 1, 1}, 0, true},
		{[]float64{.5, 1, 1, .8, .9, .9, .9, .9, .9}, 4, true},
		{[]float64{1, 1, 1, 1}, 0, false},
	} {
		if got, ok := converged(c.perSecond); got != c.want || ok != c.ok {
			t.Errorf("%v: got %d, %v; want %d, %v", c.perSecond, got, ok, c.want, c.ok)
		}
	}
}

func TestServiceTimesHaveTheirMean(t *testing.T) {
	for _, s := range []Service{
		{Shape: "constant"}, {Shape: "lognormal", CV: 0.5}, {Shape: "lognormal", CV: 1}, {Shape: "bimodal"}, {Shape: "pareto"},
	} {
		s.Mean = 10 * ms
		r := testRand()
		var sum time.Duration
		const n = 200_000
		for range n {
			sum += s.draw(r)
		}
		if mean := sum / n; mean < 9700*time.Microsecond || mean > 10300*time.Microsecond {
			t.Errorf("%v: got a mean of %v, want 10ms within 3 %%", s, mean)
		}
	}
}

func testRand() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }
