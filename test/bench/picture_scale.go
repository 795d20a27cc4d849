//go:build linux

package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// diagram has lines over two logarithmic axes.
type diagram struct {
	title, caption, x, y string
	left, right          float64 // values at the ends of the axes
	bottom, top          float64
	lines                []line
	marks                []mark // horizontal
}

type line struct {
	name   string
	points [][2]float64
}

type mark struct {
	y    float64
	name string
}

const diagramRight = 760

func (d diagram) draw(w io.Writer) {
	described, colors := &strings.Builder{}, &strings.Builder{}
	for i, l := range d.lines {
		fmt.Fprintf(described, "%s:", l.name)
		for _, p := range l.points {
			fmt.Fprintf(described, " %s at %s;", short(p[1]), short(p[0]))
		}
		fmt.Fprintf(described, "\n")
		fmt.Fprintf(colors, "  .s%d { stroke: var(--c%d) } .f%d { fill: var(--c%d) }\n", i+1, i+1, i+1, i+1)
	}
	fmt.Fprintf(w, pictureHead, pictureWidth, pictureHeight, html.EscapeString(d.title), html.EscapeString(described.String()), colors)
	x := func(value float64) float64 {
		return plotLeft + 20 + (diagramRight-plotLeft-20)*math.Log(value/d.left)/math.Log(d.right/d.left)
	}
	y := func(value float64) float64 {
		return plotBottom - (plotBottom-plotTop)*math.Log(value/d.bottom)/math.Log(d.top/d.bottom)
	}
	fmt.Fprintf(w, "<text class=\"head\" x=\"12\" y=\"26\">%s</text>\n", html.EscapeString(d.title))
	for value := d.bottom; value <= d.top*1.01; value *= 10 {
		fmt.Fprintf(w, `<path class="grid" d="M%d %.1fH%d"/><text class="faint end" x="%d" y="%.1f">%s</text>`+"\n",
			plotLeft+20, y(value), diagramRight, plotLeft+14, y(value)+4, short(value))
	}
	for value := d.left; value <= d.right*1.01; value *= 10 {
		fmt.Fprintf(w, `<path class="grid" d="M%.1f %dV%d"/><text class="faint middle" x="%.1f" y="%d">%s</text>`+"\n",
			x(value), plotTop, plotBottom, x(value), plotBottom+18, short(value))
	}
	for _, m := range d.marks {
		fmt.Fprintf(w, `<path d="M%d %.1fH%d" stroke="var(--faint)" stroke-dasharray="5 4"/><text class="faint" x="%d" y="%.1f">%s</text>`+"\n",
			plotLeft+20, y(m.y), diagramRight, plotLeft+26, y(m.y)-4, html.EscapeString(m.name))
	}
	places := make([]float64, 0, len(d.lines))
	for i, l := range d.lines {
		var points strings.Builder
		for _, p := range l.points {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(p[0]), y(math.Min(p[1], d.top)))
		}
		last := l.points[len(l.points)-1]
		at := y(math.Min(last[1], d.top))
		for _, other := range places { // names of lines that end at one place
			if last[0] == d.right && math.Abs(other-at) < 16 {
				at = other + 16
			}
		}
		places = append(places, at)
		fmt.Fprintf(w, "<polyline class=\"s%d\" points=\"%s\"/><text x=\"%.1f\" y=\"%.1f\">%s</text>\n", i+1, strings.TrimSpace(points.String()),
			x(last[0])+6, at+4, html.EscapeString(l.name))
	}
	fmt.Fprintf(w, "<text class=\"faint\" x=\"%d\" y=\"%d\">%s</text>\n", plotLeft+20, plotTop-12, html.EscapeString(d.y))
	fmt.Fprintf(w, "<text class=\"faint end\" x=\"%d\" y=\"%d\">%s</text>\n", diagramRight, plotBottom+34, html.EscapeString(d.x))
	fmt.Fprintf(w, "<text class=\"faint\" x=\"12\" y=\"%d\">%s</text>\n</svg>\n", pictureHeight-12, html.EscapeString(d.caption))
}

// drawLadder draws which primary so many agents need.
func (m machineFigures) drawLadder(w io.Writer) {
	d := diagram{title: "Processors of the primary", x: "agents", y: "processors in the busiest hour", left: 1e4, right: 1e8,
		bottom: 0.01, top: 1e4,
		marks:   []mark{{2, "2 processors"}, {8, "8"}, {largest, "64, the largest primary"}},
		caption: fmt.Sprintf("The model, with figures of %s. At %.0f %% of the processors.", m.Machine, 100*share)}
	for _, l := range lives {
		one := line{name: l.name}
		for agents := d.left; agents <= d.right*1.01; agents *= math.Sqrt(10) {
			one.points = append(one.points, [2]float64{agents, m.of(l, agents).cores})
		}
		d.lines = append(d.lines, one)
	}
	d.draw(w)
}

// drawQueues draws how the queues of servers fill, until their processors or those of the database are busy.
func (m machineFigures) drawQueues(w io.Writer) {
	const processors, slow = 16, 1000
	d := diagram{title: fmt.Sprintf("Latency of chatty agents, with %d processors for the database", processors), x: "calls per second",
		y: "99 of 100 calls take less, milliseconds", left: 1000, right: 1e5, bottom: 1, top: slow,
		caption: fmt.Sprintf("The simulation, with figures of %s. Each server has queues of its own, and enough processors.", m.Machine)}
	for _, servers := range []int{1, 2, 4, 8} {
		one := line{name: fmt.Sprintf("%d servers", servers)}
		if servers == 1 {
			one.name = "one server"
		}
		for rate := d.left; rate < d.right; rate *= 1.25 {
			seen := simulate(m.arriving(lives[1], rate, processors, servers, 1.5))
			one.points = append(one.points, [2]float64{rate, math.Max(seen.p99, d.bottom)})
			if seen.p99 > slow || seen.rate < 0.9*rate {
				break
			}
		}
		d.lines = append(d.lines, one)
	}
	d.draw(w)
}

// arriving is the load of agents at a rate, with servers on machines of their own.
func (m machineFigures) arriving(of life, rate float64, processors, servers int, seconds float64) load {
	_, charged := m.kind(ownAccount)
	l := load{kinds: m.Kinds, rates: make([]float64, len(m.Kinds)), charge: charged.Database, processors: processors, apart: true,
		servers: servers, flush: 2 * m.Flush, trip: 0.5, seconds: seconds}
	all := 0.0
	for _, name := range modelled {
		all += of.calls[name]
	}
	for i, f := range m.Kinds {
		l.rates[i] = rate * of.calls[f.Name] / all
	}
	return l
}
