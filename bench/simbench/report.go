package simbench

import (
	"fmt"
	"strings"
	"time"
)

// Row is the outcome of one contender in one judged window under one seed.
type Row struct {
	Contender, Window string
	Seed              uint64
	Load              float64 // the highest offered, as a multiple of the capacity
	Healthy           bool    // load of at most 0.7 and nothing that takes capacity away
	Result
}

// Rows plays a scenario for a contender under each seed. It must run in a bubble of
// testing/synctest.
func Rows(s Scenario, c Contender, seed uint64) (rows []Row) {
	for i, r := range run(&s, seed, c.New) {
		rows = append(rows, Row{c.Name, s.Judged[i].Name, seed, highest(s.Load), s.healthy(), r})
	}
	return rows
}

func (s *Scenario) healthy() bool {
	return highest(s.Load) <= 0.7 && s.Capacity == nil && s.Hole == Span{} && s.Errors == Span{}
}

// CSV lists all rows.
func CSV(rows []Row) string {
	var b strings.Builder
	b.WriteString("contender,window,seed,goodput,false_shed,late,p50_ms,p99_ms,jain,high,inverted,limit_mean,limit_cv\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "%s,%s,%d,%.4f,%.4f,%.4f,%.2f,%.2f,%.4f,%.4f,%.4f,%.1f,%.3f\n", r.Contender, r.Window, r.Seed,
			r.Goodput, r.FalseShed, r.Late, millis(r.P50), millis(r.P99), r.Jain, r.High, r.Inverted, r.LimitMean, r.LimitCV)
	}
	return b.String()
}

// Summary has a line for each contender over all its rows.
func Summary(contenders []Contender, rows []Row) string {
	var b strings.Builder
	b.WriteString("| limiter | goodput over the optimum: mean | worst | below .90 | refused while a worker idled, load <= 0.7: worst | late, worst |\n")
	b.WriteString("|---|---|---|---|---|---|\n")
	for _, c := range contenders {
		var sum, n, idle, late float64
		worst, below := 9.0, 0
		for _, r := range of(c.Name, rows) {
			sum, n, worst, late = sum+r.Goodput, n+1, min(worst, r.Goodput), max(late, r.Late)
			if r.Goodput < 0.9 {
				below++
			}
			if r.Healthy {
				idle = max(idle, r.FalseShed)
			}
		}
		fmt.Fprintf(&b, "| %s | %.3f | %.3f | %d of %.0f | %.2f %% | %.1f %% |\n", c.Name, ratio(sum, n), worst, below, n, 100*idle, 100*late)
	}
	return b.String()
}

// ByWindow has a line for each window and a column for each contender, the mean of
// goodput over the seeds.
func ByWindow(contenders []Contender, rows []Row, about map[string]string) string {
	var b strings.Builder
	b.WriteString("| window |")
	for _, c := range contenders {
		b.WriteString(" " + c.Name + " |")
	}
	b.WriteString(" |\n|---|" + strings.Repeat("---|", len(contenders)+1) + "\n")
	for _, window := range windows(rows) {
		fmt.Fprintf(&b, "| %s |", window)
		for _, c := range contenders {
			var sum, n float64
			for _, r := range of(c.Name, rows) {
				if r.Window == window {
					sum, n = sum+r.Goodput, n+1
				}
			}
			fmt.Fprintf(&b, " %.2f |", ratio(sum, n))
		}
		fmt.Fprintf(&b, " %s |\n", about[window])
	}
	return b.String()
}

// Latencies compares the latency of admitted work in a window with that of the same
// server unloaded.
func Latencies(contenders []Contender, rows []Row, window string, unloaded time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Service p99 without a queue: %.1f ms.\n\n| limiter | p50 | p99 | p99 over the unloaded one | limit, mean | limit, deviation/mean |\n|---|---|---|---|---|---|\n", millis(unloaded))
	for _, c := range contenders {
		for _, r := range of(c.Name, rows) {
			if r.Window == window {
				fmt.Fprintf(&b, "| %s | %.1f ms | %.1f ms | %.1f | %.0f | %.2f |\n", c.Name, millis(r.P50), millis(r.P99), float64(r.P99)/float64(unloaded), r.LimitMean, r.LimitCV)
				break // the first seed speaks for the others
			}
		}
	}
	return b.String()
}

// Convergence has a line for each contender and a column for each step.
func Convergence(contenders []Contender, steps []Scenario, rows map[string][]Row) string {
	var b strings.Builder
	b.WriteString("| limiter |")
	for _, s := range steps {
		b.WriteString(" " + s.Name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(steps)) + "\n")
	for _, c := range contenders {
		fmt.Fprintf(&b, "| %s |", c.Name)
		for _, s := range steps {
			var each []string
			for _, r := range of(c.Name, rows[s.Name]) {
				second, ok := converged(r.PerSecond)
				if !ok {
					each = append(each, "never")
					continue
				}
				each = append(each, fmt.Sprint(second))
			}
			b.WriteString(" " + strings.Join(each, ", ") + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Classes shows what became of the higher of two classes.
func Classes(rows []Row) string {
	var b strings.Builder
	b.WriteString("| limiter | higher class answered in time | all, over the optimum | higher refused while lower were admitted |\n|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %.3f | %.3f | %.3f |\n", r.Contender, r.High, r.Goodput, r.Inverted)
	}
	return b.String()
}

// Queues shows what a queue in front changes.
func Queues(contenders []Contender, rows []Row) string {
	var b strings.Builder
	b.WriteString("| limiter |")
	for _, w := range windows(rows) {
		fmt.Fprintf(&b, " %s: goodput | p50 | p99 |", w)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", 3*len(windows(rows))) + "\n")
	for _, c := range contenders {
		fmt.Fprintf(&b, "| %s |", c.Name)
		for _, r := range of(c.Name, rows) {
			fmt.Fprintf(&b, " %.3f | %.1f ms | %.1f ms |", r.Goodput, millis(r.P50), millis(r.P99))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Fairness shows how limiters that share a server divide it.
func Fairness(contenders []Contender, shared []Scenario, rows map[string][]Row) string {
	var b strings.Builder
	b.WriteString("| limiter |")
	for _, s := range shared {
		fmt.Fprintf(&b, " %s: goodput | Jain's index | p99 |", s.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", 3*len(shared)) + "\n")
	for _, c := range contenders {
		fmt.Fprintf(&b, "| %s |", c.Name)
		for _, s := range shared {
			for _, r := range of(c.Name, rows[s.Name]) {
				fmt.Fprintf(&b, " %.3f | %.3f | %.0f ms |", r.Goodput, r.Jain, millis(r.P99))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func millis(d time.Duration) float64 { return float64(d) / float64(ms) }

func of(contender string, rows []Row) (own []Row) {
	for _, r := range rows {
		if r.Contender == contender {
			own = append(own, r)
		}
	}
	return own
}

func windows(rows []Row) (names []string) {
	seen := map[string]bool{}
	for _, r := range rows {
		if !seen[r.Window] {
			seen[r.Window] = true
			names = append(names, r.Window)
		}
	}
	return names
}
