package backoffsim

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Seeds of the table of scenarios, and how many from 1 the sweep has.
const (
	Seeds      = 2
	SweepSeeds = 20
)

// Row is one run of the table.
type Row struct {
	Scenario, Policy string
	Seed             uint64
	Result
}

const csvHead = "scenario,policy,seed,calls,attempts,failed,unfinished,amplification,worst_10s,peak," +
	"recovery_s,recovered,good_again_s,metastable,p99_s\n"

// CSV is the row as a line.
func (r Row) CSV() string {
	return fmt.Sprintf("%q,%q,%d,%d,%d,%d,%d,%.4f,%.4f,%.4f,%.3f,%t,%.0f,%t,%.3f\n",
		r.Scenario, r.Policy, r.Seed, r.Calls, r.Attempts, r.Failed, r.Unfinished, r.Amplification(), r.WorstTen, r.Peak,
		r.Recovery.Seconds(), r.Recovered, r.GoodAgain.Seconds(), r.Metastable, r.P99.Seconds())
}

// Table is the rows as CSV.
func Table(rows []Row) string {
	var b strings.Builder
	b.WriteString(csvHead)
	for _, r := range rows {
		b.WriteString(r.CSV())
	}
	return b.String()
}

// Markdown is the rows as one table a scenario, the seeds of a policy taken together: the mean of times and of the failed
// share, the worst of the rest.
func Markdown(rows []Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Backoff simulation\n\nWritten by `make backoffsim`, seeds 1 to %d; docs/backoff.md explains the columns.\n", Seeds)
	scenario := ""
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Scenario == rows[0].Scenario && rows[n].Policy == rows[0].Policy {
			n++
		}
		if rows[0].Scenario != scenario {
			scenario = rows[0].Scenario
			fmt.Fprintf(&b, "\n## %s\n\n", strings.ToUpper(scenario[:1])+scenario[1:])
			b.WriteString("| policy | recovery s | good again s | amplification | worst 10 s | peak | p99 s | failed | metastable |\n" +
				"|---|---|---|---|---|---|---|---|---|\n")
		}
		b.WriteString(summary(rows[:n]))
		rows = rows[n:]
	}
	return b.String()
}

func summary(rows []Row) string {
	var recovery, again, p99 time.Duration
	var amplification, worst, peak, failed float64
	recovered, metastable := true, "no"
	n := time.Duration(len(rows))
	for _, r := range rows {
		recovery += r.Recovery / n
		again += r.GoodAgain / n
		p99 += r.P99 / n
		failed += r.FailedShare() / float64(n)
		amplification = max(amplification, r.Amplification())
		worst, peak = max(worst, r.WorstTen), max(peak, r.Peak)
		recovered = recovered && r.Recovered
		if r.Metastable {
			metastable = "**yes**"
		}
	}
	took := fmt.Sprintf("%.1f", recovery.Seconds())
	if !recovered {
		took = "> " + took
	}
	return fmt.Sprintf("| %s | %s | %.1f | %.2f | %.2f | %.1f | %.2f | %.1f %% | %s |\n", rows[0].Policy, took, again.Seconds(),
		amplification, worst, peak, p99.Seconds(), 100*failed, metastable)
}

// Point is a policy at one value of a sweep's axis: its recovery time over that of the group's first policy with the same
// seed, as the geometric mean and its 95 % interval over the seeds.
type Point struct {
	Axis, Value, Policy string
	Ratio, Low, High    float64
	Recovery            time.Duration // mean
	Amplification       float64       // mean
	Never               int           // seeds with which it did not recover within the run
}

// Compare makes the points of a group from its results, by policy and seed.
func Compare(g Group, results [][]Result) []Point {
	var points []Point
	for i, p := range g.Policies {
		pt := Point{Axis: g.Axis, Value: g.Value, Policy: p.Name}
		var sum, squares float64
		n := float64(len(results[i]))
		for seed, r := range results[i] {
			log := math.Log(floor(r.Recovery) / floor(results[0][seed].Recovery))
			sum, squares = sum+log, squares+log*log
			pt.Recovery += r.Recovery / time.Duration(n)
			pt.Amplification += r.Amplification() / n
			if !r.Recovered {
				pt.Never++
			}
		}
		mean := sum / n
		half := 1.96 * math.Sqrt(max(0, squares/n-mean*mean)/(n-1))
		pt.Ratio, pt.Low, pt.High = math.Exp(mean), math.Exp(mean-half), math.Exp(mean+half)
		points = append(points, pt)
	}
	return points
}

// floor keeps the ratio of two times that are next to nothing from being a matter of chance.
func floor(d time.Duration) float64 { return max(d, 100*time.Millisecond).Seconds() }

// SweepTable is the points as CSV.
func SweepTable(points []Point) string {
	var b strings.Builder
	b.WriteString("axis,value,policy,ratio_to_fixed,low_95,high_95,recovery_s,amplification,never_of_" + strconv.Itoa(SweepSeeds) + "\n")
	for _, p := range points {
		fmt.Fprintf(&b, "%q,%q,%q,%.3f,%.3f,%.3f,%.2f,%.2f,%d\n", p.Axis, p.Value, p.Policy, p.Ratio, p.Low, p.High,
			p.Recovery.Seconds(), p.Amplification, p.Never)
	}
	return b.String()
}

// SweepMarkdown is the points as one table an axis.
func SweepMarkdown(points []Point) string {
	var b strings.Builder
	axis, value := "", ""
	for _, p := range points {
		if p.Axis != axis {
			axis, value = p.Axis, ""
			fmt.Fprintf(&b, "\n## Recovery by %s, over that of a fixed 1 s\n\n", axis)
			fmt.Fprintf(&b, "Geometric mean of %d seeds and its 95 %% interval, then the mean recovery and the attempts per call.\n\n", SweepSeeds)
			b.WriteString("| | policy | ratio | recovery s | amplification |\n|---|---|---|---|---|\n")
		}
		shown := ""
		if p.Value != value {
			value, shown = p.Value, p.Value
		}
		never := ""
		if p.Never > 0 {
			never = fmt.Sprintf(" (%d never)", p.Never)
		}
		fmt.Fprintf(&b, "| %s | %s | %.2f (%.2f–%.2f)%s | %.1f | %.1f |\n", shown, p.Policy, p.Ratio, p.Low, p.High, never,
			p.Recovery.Seconds(), p.Amplification)
	}
	return b.String()
}
