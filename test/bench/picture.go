//go:build linux

package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// The style of the picture. A picture in a page has no scripts, fonts or styles of the page; only the scheme of the reader's device.
const pictureHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13"
  role="img" aria-labelledby="title desc">
<title id="title">%s</title>
<desc id="desc">%s</desc>
<style>
  svg { --paper: #fff; --ink: #1f2328; --faint: #59636e; --line: #d1d9e0;
    --c0: #59636e; --c1: #0969da; --c2: #1a7f37; --c3: #9a6700; --c4: #8250df; --c5: #cf222e }
  @media (prefers-color-scheme: dark) { svg { --paper: #0d1117; --ink: #f0f6fc; --faint: #9198a1; --line: #3d444d;
    --c0: #9198a1; --c1: #4493f8; --c2: #3fb950; --c3: #d29922; --c4: #ab7df8; --c5: #f85149 } }
  text { fill: var(--ink) } .faint { fill: var(--faint); font-size: 12px } .head { font-weight: 600 }
  .end { text-anchor: end } .middle { text-anchor: middle } .grid { stroke: var(--line) }
  polyline { fill: none; stroke-width: 2.5 }
%s</style>
<rect width="100%%" height="100%%" fill="var(--paper)"/>
`

// The places of both diagrams, in units of the viewBox.
const (
	pictureWidth, pictureHeight   = 920, 370
	plotLeft, plotRight           = 40, 300 // the rates
	plotTop, plotBottom           = 56, 300
	barsLeft, barsRight, barsName = 620, 800, 610 // the processor time
)

// drawPeers draws the sides of comparisons, one for each number of clients: the rate against the first side over the clients, and the
// processor time per call with several clients as bars.
func drawPeers(w io.Writer, compared []comparison, caption string) {
	sides := compared[0].sides
	rate := make([][]float64, len(sides)) // by clients
	used := make([][]float64, len(sides)) // microseconds, by clients
	described, colors := &strings.Builder{}, &strings.Builder{}
	for i, side := range sides {
		fmt.Fprintf(described, "%s:", side.name)
		for _, c := range compared {
			rate[i] = append(rate[i], middle(c.ratios(i, perSecond)))
			used[i] = append(used[i], 1000*median(c.rounds[i])[cpu])
			fmt.Fprintf(described, " with %d clients %.2f times the rate, %.0f µs;", c.clients, rate[i][len(rate[i])-1], used[i][len(used[i])-1])
		}
		fmt.Fprintf(described, "\n")
		fmt.Fprintf(colors, "  .s%d { stroke: var(--c%d) } .f%d { fill: var(--c%d) }\n", i, i, i, i)
	}
	fmt.Fprintf(w, pictureHead, pictureWidth, pictureHeight, "Rate and processor time of paid calls", html.EscapeString(described.String()),
		colors)
	drawRates(w, compared, rate)
	drawBars(w, compared, used)
	fmt.Fprintf(w, "<text class=\"faint\" x=\"12\" y=\"%d\">%s</text>\n</svg>\n", pictureHeight-12, html.EscapeString(caption))
}

// drawRates draws a line for each side, with its name at the end.
func drawRates(w io.Writer, compared []comparison, rate [][]float64) {
	most := 1.0
	for _, of := range rate {
		most = max(most, slices.Max(of))
	}
	step := 0.5
	for most/step > 6 {
		step *= 2
	}
	top := math.Ceil(most/step) * step
	x := func(i int) float64 { return plotLeft + (plotRight-plotLeft)*(float64(i)+0.5)/float64(len(compared)) }
	y := func(value float64) float64 { return plotBottom - (plotBottom-plotTop)*value/top }
	fmt.Fprintf(w, "<text class=\"head\" x=\"12\" y=\"26\">Calls per second, relative to the constant response</text>\n")
	for value := 0.0; value <= top; value += step {
		fmt.Fprintf(w, `<path class="grid" d="M%d %.1fH%d"/><text class="faint end" x="%d" y="%.1f">%g</text>`+"\n",
			plotLeft, y(value), plotRight, plotLeft-6, y(value)+4, value)
	}
	for i, c := range compared {
		unit := ""
		if i == len(compared)-1 {
			unit = " clients"
		}
		fmt.Fprintf(w, "<text class=\"faint middle\" x=\"%.1f\" y=\"%d\">%d%s</text>\n", x(i), plotBottom+20, c.clients, unit)
	}
	last := len(compared) - 1
	order, places := make([]int, len(rate)), make([]float64, len(rate))
	for side, of := range rate {
		order[side] = side
		var points, dots strings.Builder
		for i, value := range of {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(i), y(value))
			fmt.Fprintf(&dots, `<circle class="f%d" cx="%.1f" cy="%.1f" r="3.5"/>`, side, x(i), y(value))
		}
		fmt.Fprintf(w, "<polyline class=\"s%d\" points=\"%s\"/>%s\n", side, strings.TrimSpace(points.String()), dots.String())
	}
	// The names are in the order of the lines' ends, at least a line of text apart.
	slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, rate[b][last]-rate[a][last])) })
	low := float64(plotTop - 20)
	for _, side := range order {
		low = max(low+17, y(rate[side][last]))
		places[side] = low
	}
	for side, place := range places {
		fmt.Fprintf(w, "<path class=\"s%d\" d=\"M%.1f %.1fL%d %.1f\" opacity=\"0.5\"/><text x=\"%d\" y=\"%.1f\">%s %.2f</text>\n",
			side, x(last)+5, y(rate[side][last]), plotRight+4, place, plotRight+8, place+4, html.EscapeString(compared[0].sides[side].name),
			rate[side][last])
	}
}

// drawBars draws the processor time of each side with several clients.
func drawBars(w io.Writer, compared []comparison, used [][]float64) {
	most, bars := 0.0, 0
	for i, c := range compared {
		if c.clients == 1 {
			continue
		}
		bars++
		for _, of := range used {
			most = max(most, of[i])
		}
	}
	fmt.Fprintf(w, "<text class=\"head\" x=\"%d\" y=\"26\">Processor time per call, microseconds</text>\n", barsName-110)
	row := float64(plotBottom+20-plotTop) / float64(len(used))
	height := (row - 8) / float64(max(bars, 1))
	for side, of := range used {
		y := plotTop - 8 + row*float64(side)
		fmt.Fprintf(w, "<text class=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n", barsName, y+(row-8)/2+4,
			html.EscapeString(compared[0].sides[side].name))
		for i, c := range compared {
			if c.clients == 1 {
				continue
			}
			unit := ""
			if side == 0 {
				unit = fmt.Sprintf(" at %d clients", c.clients)
			}
			length := (barsRight - barsLeft) * of[i] / most
			fmt.Fprintf(w, `<rect class="f%d" x="%d" y="%.1f" width="%.1f" height="%.1f" opacity="%g"/>`, side, barsLeft, y, length, height-1,
				map[bool]float64{true: 1, false: 0.55}[i == len(compared)-1])
			fmt.Fprintf(w, "<text class=\"faint\" x=\"%.1f\" y=\"%.1f\">%.0f%s</text>\n", barsLeft+length+4, y+height/2+4, of[i], unit)
			y += height
		}
	}
}
