package backoffsim

import (
	"encoding/csv"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir.dev/weir/httpretry"
)

var write = flag.Bool("write", false, "run everything and write the tables and plots again")

const plots = "../../docs/plots"

// simulate runs in a bubble of its own.
func simulate(t *testing.T, s Scenario, p Policy, seed uint64) Result {
	var r Result
	synctest.Test(t, func(*testing.T) { r = Run(s, p, seed) })
	return r
}

// inPairs calls f(0) to f(n-1), two at a time.
func inPairs(n int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			f(i)
			<-slots
		})
	}
	wg.Wait()
}

func TestWriteTablesAndPlots(t *testing.T) {
	if !*write {
		t.Skip("the whole takes minutes; run by make backoffsim")
	}
	rows := table(t, Scenarios(), Policies(), Seeds)
	save(t, "results.csv", Table(rows))
	saveLoadPlots(t, rows)
	var points []Point
	for _, g := range Sweep() {
		results := make([][]Result, len(g.Policies))
		for i := range results {
			results[i] = make([]Result, SweepSeeds)
		}
		inPairs(len(g.Policies)*SweepSeeds, func(i int) {
			policy, seed := i/SweepSeeds, i%SweepSeeds
			results[policy][seed] = simulate(t, g.Scenario, g.Policies[policy], uint64(seed+1))
		})
		points = append(points, Compare(g, results)...)
		t.Log(g.Axis, g.Value)
	}
	save(t, "sweep.csv", SweepTable(points))
	save(t, "results.md", Markdown(rows)+SweepMarkdown(points))
	save(t, filepath.Join(plots, "backoff-outage.svg"), SweepPlot("Recovery after an outage, clients spread", "outage", points).SVG())
	save(t, filepath.Join(plots, "backoff-synchronised.svg"), SweepPlot("Recovery of clients that call once, all at once", "once, at once", points).SVG())
}

func table(t *testing.T, scenarios []Scenario, policies []Policy, seeds int) []Row {
	rows := make([]Row, len(scenarios)*len(policies)*seeds)
	inPairs(len(rows), func(i int) {
		s, p, seed := scenarios[i/seeds/len(policies)], policies[i/seeds%len(policies)], uint64(i%seeds+1)
		begun := time.Now()
		rows[i] = Row{s.Name, p.Name, seed, simulate(t, s, p, seed)}
		t.Logf("%v %s", time.Since(begun).Round(time.Millisecond), rows[i].CSV())
	})
	return rows
}

func saveLoadPlots(t *testing.T, rows []Row) {
	plot := func(file, title string, s Scenario, names ...string) {
		var results []Result
		for _, name := range names {
			for _, r := range rows {
				if r.Scenario == s.Name && r.Policy == name && r.Seed == 1 {
					results = append(results, r.Result)
				}
			}
		}
		save(t, filepath.Join(plots, file), LoadPlot(title, s, names, results).SVG())
	}
	plot("backoff-load.svg", "Attempts through a 30 s outage, refusals cost a tenth of a request", Scenarios()[0],
		"fixed 1 s", "exponential, no jitter", "full jitter", "decorrelated", "full jitter + Retry-After", Default)
	plot("backoff-metastable.svg", "Half of the workers away for 30 s: waits of 200 ms never let it end", Scenarios()[9],
		"fixed 200 ms", "fixed 1 s", "full jitter", Default)
}

func save(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestPartOfTheTableComesOutTheSame(t *testing.T) {
	committed := map[string]bool{}
	for _, line := range strings.SplitAfter(read(t, "results.csv"), "\n") {
		committed[line] = true
	}
	all := Policies()
	var some []Policy
	for _, p := range all {
		if p.Name == Default || p.Name == "decorrelated" {
			some = append(some, p)
		}
	}
	scenarios := Scenarios()
	for _, r := range table(t, []Scenario{scenarios[1], scenarios[8], scenarios[13]}, some, 1) {
		if !committed[r.CSV()] {
			t.Errorf("got a run that results.csv does not have; if the change is meant, run make backoffsim:\n%s", r.CSV())
		}
	}
}

func TestDefaultKeepsAmplificationBelowSixFifthsAndIsNeverMetastable(t *testing.T) {
	t.Parallel()
	runs := 0
	for _, f := range fields(t) {
		if !strings.HasPrefix(f["policy"], Default) {
			continue
		}
		runs++
		for _, column := range []string{"amplification", "worst_10s"} {
			if got, err := strconv.ParseFloat(f[column], 64); err != nil || got > 1.2 {
				t.Errorf("%s, %s, seed %s: got %s %s, want at most 1.2", f["scenario"], f["policy"], f["seed"], column, f[column])
			}
		}
		if f["metastable"] != "false" {
			t.Errorf("%s, %s, seed %s: got metastable %s, want false", f["scenario"], f["policy"], f["seed"], f["metastable"])
		}
	}
	if want := 3 * Seeds * len(Scenarios()); runs != want {
		t.Errorf("got %d runs in results.csv, want %d", runs, want)
	}
}

func TestSimulationCanShowAMetastableState(t *testing.T) {
	t.Parallel()
	for _, f := range fields(t) {
		if f["policy"] == "fixed 200 ms" && f["metastable"] == "true" {
			return
		}
	}
	t.Error("got no metastable run with a fixed 200 ms, want some: the model has lost what it is to show")
}

func TestEveryPolicyCanBeMade(t *testing.T) {
	t.Parallel()
	for _, p := range Policies() {
		if _, err := httpretry.New(new(server), p.Options(func() float64 { return 0 })); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func TestServerServesItsCapacityAndNoMore(t *testing.T) {
	t.Parallel()
	v := &server{scenario: Scenario{Workers: 2, Service: time.Second, Queue: 3}, free: make(instants, 2), perSecond: make([]int, 10)}
	var got []string
	for range 6 {
		a := v.arrive(0)
		if a.refused {
			got = append(got, "refused")
		} else {
			got = append(got, a.done.String())
		}
	}
	if want := "1s 1s 2s 2s 3s refused"; strings.Join(got, " ") != want {
		t.Errorf("six at once to two workers and a queue of three: got %s, want %s", strings.Join(got, " "), want)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fields is results.csv by column.
func fields(t *testing.T) []map[string]string {
	t.Helper()
	r, err := csv.NewReader(strings.NewReader(read(t, "results.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, line := range r[1:] {
		f := map[string]string{}
		for i, name := range r[0] {
			f[name] = line[i]
		}
		out = append(out, f)
	}
	return out
}
