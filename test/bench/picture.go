//go:build linux

package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// The style of the picture. A picture in a page has no scripts, fonts or styles of the page; only the scheme of the reader's device.
const pictureHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13"
  role="img" aria-labelledby="title desc">
<title id="title">Rate of paid calls</title>
<desc id="desc">%s</desc>
<style>
  svg { --paper: #fff; --ink: #1f2328; --faint: #59636e; --line: #d1d9e0; --bar: #0969da }
  @media (prefers-color-scheme: dark) { svg { --paper: #0d1117; --ink: #f0f6fc; --faint: #9198a1; --line: #3d444d; --bar: #4493f8 } }
  text { fill: var(--ink) } .faint { fill: var(--faint); font-size: 12px } .head { font-weight: 600 } .end { text-anchor: end }
  .grid { stroke: var(--line) } rect.bar { fill: var(--bar) }
</style>
<rect width="100%%" height="100%%" fill="var(--paper)"/>
`

// The places in the picture, in units of the viewBox. The scale of the bars is logarithmic.
const (
	panelWidth, pictureTop, barHeight = 460, 60, 14
	barsLeft, barsWidth               = 110, 290
	leastRate, mostRate               = 0.25, 1000.0
)

// panel is a comparison for each number of clients.
type panel struct {
	title    string
	compared []comparison
}

// drawPeers draws the rate of each side against the first one, a bar for each number of clients, in a panel for each facilitator.
func drawPeers(w io.Writer, panels []panel, caption string) {
	described, bars := &strings.Builder{}, &strings.Builder{}
	lowest := 0
	for i, p := range panels {
		left, y := panelWidth*i, pictureTop
		x := func(rate float64) float64 {
			return float64(left+barsLeft) + barsWidth*math.Log(max(rate, leastRate)/leastRate)/math.Log(mostRate/leastRate)
		}
		fmt.Fprintf(bars, "<text class=\"head\" x=\"%d\" y=\"26\">%s</text>\n", left+12, html.EscapeString(p.title))
		fmt.Fprintf(bars, "<text class=\"faint\" x=\"%d\" y=\"44\">calls per second, 1 is the constant response</text>\n", left+12)
		fmt.Fprintf(described, "%s:\n", p.title)
		for side := range p.compared[0].sides {
			name := p.compared[0].sides[side].name
			fmt.Fprintf(bars, "<text class=\"end\" x=\"%d\" y=\"%d\">%s</text>\n", left+barsLeft-8, y+barHeight*len(p.compared)/2+4,
				html.EscapeString(name))
			for _, c := range p.compared {
				rate := middle(c.ratios(side, perSecond))
				fmt.Fprintf(described, "%s with %d clients %.2f times the rate;\n", name, c.clients, rate)
				fmt.Fprintf(bars, "<rect class=\"bar\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", x(leastRate), y, x(rate)-x(leastRate)+1,
					barHeight-2)
				fmt.Fprintf(bars, "<text class=\"faint\" x=\"%.1f\" y=\"%d\">%.3g at %d</text>\n", x(rate)+5, y+barHeight-3, rate, c.clients)
				y += barHeight
			}
			y += barHeight / 2
		}
		fmt.Fprintf(bars, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n", x(1), pictureTop-6, y)
		lowest = max(lowest, y)
	}
	fmt.Fprintf(w, pictureHead, panelWidth*len(panels), lowest+34, html.EscapeString(described.String()))
	fmt.Fprintf(w, "%s<text class=\"faint\" x=\"12\" y=\"%d\">%s</text>\n</svg>\n", bars, lowest+20, html.EscapeString(caption))
}
