package simbench

import (
	"fmt"
	"strings"
)

// Line is one line of a plot; its points are a second apart.
type Line struct {
	Name   string
	Values []float64
}

// Plot draws lines over seconds as SVG.
func Plot(title, unit string, top float64, lines []Line) string {
	const width, height, left, right, above, below = 760, 320, 50, 150, 40, 40
	seconds := 0
	for _, l := range lines {
		seconds = max(seconds, len(l.Values))
	}
	x := func(i int) float64 { return left + float64(i)/float64(max(seconds-1, 1))*(width-left-right) }
	y := func(v float64) float64 { return height - below - min(v, top)/top*(height-above-below) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="22" font-size="14">%s</text>`+"\n", width, height, left, title)
	for i := range 5 {
		v := top * float64(i) / 4
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.3g</text>`+"\n", left, y(v), width-right, left-6, y(v)+4, v)
	}
	for i := 0; i < seconds; i += max(seconds/6, 1) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d s</text>`+"\n", x(i), height-below+18, i)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", left, above-4, unit)
	colors := []string{"#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#7f7f7f"}
	for n, l := range lines {
		var path strings.Builder
		for i, v := range l.Values {
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], x(i), y(v))
		}
		color := colors[n%len(colors)]
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.6"/>`+"\n", path.String(), color)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", width-right+10, above+12+18*n, color, l.Name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// Bars draws the mean of each contender's goodput as a bar and its worst as a mark.
func Bars(title string, contenders []Contender, rows []Row) string {
	const width, left, row = 760, 150, 26
	height := 50 + row*len(contenders)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="22" font-size="14">%s</text>`+"\n", width, height, left, title)
	for i, c := range contenders {
		var sum, n float64
		worst := 1.0
		for _, r := range of(c.Name, rows) {
			sum, n, worst = sum+r.Goodput, n+1, min(worst, r.Goodput)
		}
		y, scale := 40+row*i, float64(width-left-60)
		mean := ratio(sum, n)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="16" fill="%s"/>`+"\n",
			left-8, y+13, c.Name, left, y, mean*scale, map[bool]string{true: "#d62728", false: "#9bb8d3"}[i == 0])
		fmt.Fprintf(&b, `<path d="M%.1f %dv16" stroke="black" stroke-width="2"/><text x="%.1f" y="%d">%.3f</text>`+"\n",
			left+worst*scale, y, left+mean*scale+6, y+13, mean)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
