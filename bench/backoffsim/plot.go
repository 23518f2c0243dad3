package backoffsim

import (
	"fmt"
	"math"
	"strings"
)

// Line is one line of a plot, with a band around it if Low and High are given.
type Line struct {
	Name      string
	X, Y      []float64
	Low, High []float64
}

// Plot is a line chart.
type Plot struct {
	Title, XLabel, YLabel string
	Ticks                 []string // names for x = 0, 1, 2, …; none: x is a number
	LogY                  bool
	Lines                 []Line
}

const (
	plotWidth, plotHeight = 860, 420
	left, right           = 70, 230
	top, bottom           = 40, 50
)

// colours are distinct for the colour blind (Okabe and Ito).
var colours = []string{"#000000", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7", "#999933"}

// SVG draws the plot.
func (p Plot) SVG() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="22" font-size="15">%s</text>`+"\n",
		left, escape(p.Title))
	s := p.scale()
	s.axes(&b, p)
	for i, l := range p.Lines {
		colour := colours[i%len(colours)]
		if l.Low != nil {
			var band []string
			for j, x := range l.X {
				band = append(band, s.point(x, l.Low[j]))
			}
			for j := len(l.X) - 1; j >= 0; j-- {
				band = append(band, s.point(l.X[j], l.High[j]))
			}
			fmt.Fprintf(&b, `<polygon points="%s" fill="%s" fill-opacity="0.15"/>`+"\n", strings.Join(band, " "), colour)
		}
		var points []string
		for j, x := range l.X {
			points = append(points, s.point(x, l.Y[j]))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.8"/>`+"\n", strings.Join(points, " "), colour)
		y := top + 14 + 20*i
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s</text>`+"\n",
			plotWidth-right+12, plotWidth-right+34, y-4, y-4, colour, plotWidth-right+40, y, escape(l.Name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// scale maps values to places.
type scale struct {
	minX, maxX, minY, maxY float64
	log                    bool
}

func (p Plot) scale() scale {
	s := scale{minX: math.Inf(1), maxX: math.Inf(-1), minY: math.Inf(1), maxY: math.Inf(-1), log: p.LogY}
	for _, l := range p.Lines {
		for _, x := range l.X {
			s.minX, s.maxX = min(s.minX, x), max(s.maxX, x)
		}
		for _, ys := range [][]float64{l.Y, l.Low, l.High} {
			for _, y := range ys {
				s.minY, s.maxY = min(s.minY, y), max(s.maxY, y)
			}
		}
	}
	if s.log {
		s.minY = math.Pow(10, math.Floor(math.Log10(s.minY)))
		s.maxY = math.Pow(10, math.Ceil(math.Log10(s.maxY)))
	} else {
		s.minY = min(0, s.minY)
	}
	return s
}

func (s scale) x(v float64) float64 {
	return left + (v-s.minX)/(s.maxX-s.minX)*(plotWidth-left-right)
}

func (s scale) y(v float64) float64 {
	part := (v - s.minY) / (s.maxY - s.minY)
	if s.log {
		part = math.Log(v/s.minY) / math.Log(s.maxY/s.minY)
	}
	return plotHeight - bottom - part*(plotHeight-top-bottom)
}

func (s scale) point(x, y float64) string { return fmt.Sprintf("%.1f,%.1f", s.x(x), s.y(y)) }

func (s scale) axes(b *strings.Builder, p Plot) {
	tickY := func(v float64) {
		y := s.y(v)
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
			left, plotWidth-right, y, y, left-6, y+4, v)
	}
	if s.log {
		for v := s.minY; v <= s.maxY*1.001; v *= 10 {
			tickY(v)
		}
	} else {
		for v, step := 0.0, tick(s.maxY); v <= s.maxY; v += step {
			tickY(v)
		}
	}
	tickX := func(v float64, name string) {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", s.x(v), plotHeight-bottom+18, escape(name))
	}
	for i, name := range p.Ticks {
		tickX(float64(i), name)
	}
	if p.Ticks == nil {
		step := tick(s.maxX - s.minX)
		for v := math.Ceil(s.minX/step) * step; v <= s.maxX; v += step {
			tickX(v, fmt.Sprint(v))
		}
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+plotWidth-right)/2, plotHeight-12, escape(p.XLabel))
	fmt.Fprintf(b, `<text transform="translate(16,%d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+plotHeight-bottom)/2, escape(p.YLabel))
}

// tick is a round step that makes about six of a span.
func tick(span float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(span/6)))
	for _, m := range []float64{1, 2, 5} {
		if span/(m*unit) <= 7 {
			return m * unit
		}
	}
	return 10 * unit
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// LoadPlot shows attempts a second around a fault of one scenario, as a multiple of the server's capacity.
func LoadPlot(title string, s Scenario, names []string, results []Result) Plot {
	capacity := float64(s.Workers) / s.Service.Seconds()
	p := Plot{Title: title, XLabel: "seconds; the fault is from 10 to " + fmt.Sprint(int((warmUp + s.For).Seconds())), YLabel: "attempts / capacity"}
	for i, r := range results {
		l := Line{Name: names[i]}
		for second := range len(r.PerSecond) - 2 {
			l.X = append(l.X, float64(second))
			l.Y = append(l.Y, float64(r.PerSecond[second])/capacity)
		}
		p.Lines = append(p.Lines, l)
	}
	return p
}

// SweepPlot shows recovery over that of a fixed 1 s along one axis.
func SweepPlot(title, axis string, points []Point) Plot {
	p := Plot{Title: title, XLabel: axis, YLabel: "recovery / recovery with a fixed 1 s", LogY: true}
	lines := map[string]int{}
	ticks := map[string]int{}
	for _, pt := range points {
		if pt.Axis != axis {
			continue
		}
		x, ok := ticks[pt.Value]
		if !ok {
			x = len(p.Ticks)
			ticks[pt.Value] = x
			p.Ticks = append(p.Ticks, pt.Value)
		}
		i, ok := lines[pt.Policy]
		if !ok {
			i = len(p.Lines)
			lines[pt.Policy] = i
			p.Lines = append(p.Lines, Line{Name: pt.Policy})
		}
		l := &p.Lines[i]
		l.X, l.Y = append(l.X, float64(x)), append(l.Y, pt.Ratio)
		l.Low, l.High = append(l.Low, pt.Low), append(l.High, pt.High)
	}
	return p
}
