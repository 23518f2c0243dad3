package stats

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// ServeHTTP answers with all names and values as text, a line each, sorted by name. A timer
// has its count, and the mean of all its durations since the start in milliseconds.
func (r *Registry) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var lines []string
	if r != nil {
		all := r.read()
		for _, c := range all.counters {
			lines = append(lines, fmt.Sprintf("%s: %d\n", c.name, c.value.Value()))
		}
		for _, g := range all.gauges {
			lines = append(lines, fmt.Sprintf("%s: %d\n", g.name, g.value.Value()))
		}
		for _, t := range all.timers {
			lines = append(lines, timerText(t.name, t.value))
		}
	}
	slices.Sort(lines)
	out := bufio.NewWriter(w)
	for _, line := range lines {
		out.WriteString(line)
	}
	out.Flush() // an error says that the reader has left
}

func timerText(name string, t *Timer) string {
	count, sum := t.Total()
	if count == 0 {
		return fmt.Sprintf("%s: count 0\n", name)
	}
	mean := float64(sum) / float64(count) / float64(time.Millisecond)
	return fmt.Sprintf("%s: count %d, mean %.3f ms\n", name, count, mean)
}
