//go:build linux

package main

import (
	"bytes"
	"fmt"
	"html"
)

// picture draws how much of its limit each operation reaches at 16 clients, as SVG, with a mark where one was aimed at.
func (r *report) picture() []byte {
	const (
		left, right, top, height = 230, 90, 56, 26
		width                    = 560 // of the longest bar
	)
	var rows []row
	longest := 100.0
	for _, row := range r.rows {
		if row.clients == 16 {
			rows = append(rows, row)
			longest = max(longest, 100*row.ours.perSecond/row.limit.perSecond, ofLimit[row.operation])
		}
	}
	at := func(ratio float64) float64 { return left + width*ratio/longest }
	bottom := top + height*len(rows)
	var svg bytes.Buffer
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", left+width+right, bottom+34)
	fmt.Fprintf(&svg, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(&svg, `<text x="12" y="24" font-size="16">Parley, paid and over HTTP, against pgbench with the same statements (16 clients)</text>`+"\n")
	for ratio := 0.0; ratio <= longest; ratio += 50 {
		fmt.Fprintf(&svg, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle" fill="#555">%.0f %%</text>`+"\n",
			at(ratio), at(ratio), top-6, bottom+2, at(ratio), bottom+18, ratio)
	}
	for i, row := range rows {
		ratio, y := 100*row.ours.perSecond/row.limit.perSecond, top+i*height
		fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+15, html.EscapeString(row.operation))
		fmt.Fprintf(&svg, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="#3b6ea8"/>`, left, y+3, at(ratio)-left, height-8)
		end := at(ratio)
		if aim := ofLimit[row.operation]; aim > 0 {
			fmt.Fprintf(&svg, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#c0392b" stroke-width="3"/>`, at(aim), at(aim), y, y+height-2)
			if at(aim) > end-6 && at(aim) < end+50 { // the number would stand on the mark
				end = at(aim)
			}
		}
		fmt.Fprintf(&svg, `<text x="%.1f" y="%d">%.0f %%</text>`+"\n", end+6, y+15, ratio)
	}
	fmt.Fprintf(&svg, `<text x="%d" y="%d" fill="#c0392b">red: what was aimed at</text>`+"\n</svg>\n", left, top-14)
	return svg.Bytes()
}
