package rls

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Were all series looked at for each rule that has gone, this would take minutes.
func TestSeriesOfVeryManyRulesAreForgotten(t *testing.T) {
	t.Parallel()
	const many = 20_000
	named := func(name string) string {
		var b strings.Builder
		b.WriteString("domain: shop\ndescriptors:\n")
		for i := range many {
			fmt.Fprintf(&b, "- {key: %s%d, rate_limit: {unit: hour, requests_per_unit: 3}, candidate: {unit: hour, requests_per_unit: 2}}\n", name, i)
		}
		return b.String()
	}
	service, err := New(inMemory(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var before [3]int
	for _, name := range []string{"old", "new"} {
		if err := service.SetRules(parse(t, named(name))); err != nil {
			t.Fatal(err)
		}
		m := service.metrics
		for i, vec := range []*prometheus.CounterVec{m.decisions, m.rejections, m.candidates} {
			n := seriesOf(vec)
			if name == "new" && n != before[i] || n < many {
				t.Errorf("%s rules: vector %d has %d series, before %d", name, i, n, before[i])
			}
			before[i] = n
		}
	}
}

func seriesOf(vec *prometheus.CounterVec) (n int) {
	all := make(chan prometheus.Metric)
	go func() {
		vec.Collect(all)
		close(all)
	}()
	for range all {
		n++
	}
	return n
}
