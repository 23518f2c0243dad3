package main

import (
	"fmt"
	"io"
	"strings"
)

// goal is what a figure should reach.
type goal struct {
	atLeast bool
	bound   float64
	of      string // "x redis_rate", "B"
}

func atMost(bound float64, of string) goal  { return goal{false, bound, of} }
func atLeast(bound float64, of string) goal { return goal{true, bound, of} }

func (g goal) String() string {
	sign := "≤"
	if g.atLeast {
		sign = "≥"
	}
	return fmt.Sprintf("%s %g%s", sign, g.bound, g.of)
}

func (g goal) met(value float64) bool {
	if g.atLeast {
		return value >= g.bound
	}
	return value <= g.bound
}

// row is one line of the table: a figure, its goal, and what was measured.
type row struct {
	Figure   string     `json:"figure"`
	What     string     `json:"what"`
	Goal     string     `json:"goal"`
	Value    float64    `json:"value"`
	Met      bool       `json:"met"`
	Measured []measured `json:"measured"`
	Note     string     `json:"note,omitempty"`
}

func (w row) judge(g goal, value float64) row {
	w.Goal, w.Value, w.Met = g.String(), value, g.met(value)
	return w
}

func (w row) noting(format string, args ...any) row {
	w.Note = fmt.Sprintf(format, args...)
	return w
}

func (w row) verdict() string {
	if w.Met {
		return "met"
	}
	return "**falls short**"
}

// printTable writes the rows as Markdown.
func printTable(to io.Writer, rows []row) {
	fmt.Fprintln(to, "| # | figure | goal | value | verdict | measured: best of the rounds (spread) |")
	fmt.Fprintln(to, "|---|---|---|---|---|---|")
	for _, w := range rows {
		var cells []string
		for _, m := range w.Measured {
			cell := fmt.Sprintf("%s %s", m.Contender, quantity(m.Best, m.Unit))
			if m.Spread > 0 {
				cell += fmt.Sprintf(" (+%.0f %%)", 100*m.Spread)
			}
			cells = append(cells, cell)
		}
		if w.Note != "" {
			cells = append(cells, w.Note)
		}
		fmt.Fprintf(to, "| %s | %s | %s | %.4g | %s | %s |\n", w.Figure, w.What, w.Goal, w.Value, w.verdict(), strings.Join(cells, "; "))
	}
}

func quantity(v float64, unit string) string {
	text := fmt.Sprintf("%.3g", v)
	if v >= 1000 {
		text = fmt.Sprintf("%.0f", v)
	}
	if unit == "" || unit == "/s" {
		return text + unit
	}
	return text + " " + unit
}
