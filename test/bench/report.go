//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// side is one of the things that are compared.
type side struct {
	name    string
	measure func(clients int) (result, error)
}

// comparison is what a comparison saw: for each side its results, one of each round.
type comparison struct {
	part, operation string
	clients         int
	sides           []side
	rounds          [][]result // by side
}

// report is what a run has seen.
type report struct {
	facts       []string
	machine     string
	comparisons []comparison
}

// compare measures the sides in turn, several times, so that whatever changes on the machine changes all of them. Every
// second round is in reverse order, so that no side is always the first.
func (r *report) compare(part, operation string, clients []int, rounds int, sides ...side) error {
	for _, clients := range clients {
		c := comparison{part: part, operation: operation, clients: clients, sides: sides, rounds: make([][]result, len(sides))}
		for round := range max(rounds, 1) {
			for i := range sides {
				if round%2 == 1 {
					i = len(sides) - 1 - i
				}
				seen, err := sides[i].measure(clients)
				if err != nil {
					return fmt.Errorf("%s at %d clients, %s: %w", operation, clients, sides[i].name, err)
				}
				note("%-30s %2d clients  %-24s %7.0f/s  p50 %s ms", operation, clients, sides[i].name, seen[perSecond], digits(seen[p50]))
				c.rounds[i] = append(c.rounds[i], seen)
			}
		}
		r.comparisons = append(r.comparisons, c)
	}
	return nil
}

// median is the median of each number.
func median(all []result) (m result) {
	for metric := range m {
		values := make([]float64, len(all))
		for i, r := range all {
			values[i] = r[metric]
		}
		m[metric] = middle(values)
	}
	return m
}

// middle sorts the values and returns their median.
func middle(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// fact notes something for the head of the report.
func (r *report) fact(format string, arguments ...any) {
	r.facts = append(r.facts, fmt.Sprintf(format, arguments...))
	note("%s", r.facts[len(r.facts)-1])
}

// describe notes what is measured, and where. It returns an error if the database is not durable.
func (r *report) describe(ctx context.Context, d *dataset) error {
	var settings string
	var durable bool
	err := d.pool.QueryRow(ctx, `
		SELECT string_agg(name || ' ' || current_setting(name), ', ' ORDER BY n), every(n > 3 OR current_setting(name) = 'on')
		FROM unnest(ARRAY['fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'checkpoint_timeout',
			'server_version']) WITH ORDINALITY s (name, n)`).Scan(&settings, &durable)
	if err != nil {
		return err
	}
	if !durable {
		return errors.New("PostgreSQL is not durable: " + settings)
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return err
	}
	processors, err := proc.CPUInfo()
	if err != nil {
		return err
	}
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		commit = []byte("unknown commit")
	}
	r.machine = fmt.Sprintf("%d × %s", len(processors), processors[0].ModelName)
	r.facts = []string{
		fmt.Sprintf("%s, %s, %s", time.Now().UTC().Format("2006-01-02 15:04 UTC"), strings.TrimSpace(string(commit)), runtime.Version()),
		r.machine,
		"PostgreSQL: " + settings,
		fmt.Sprintf("Data: %+v; a conversation of %d messages for search", d.size, d.archived),
	}
	return nil
}

// write writes the report as Markdown.
func (r *report) write(w io.Writer) {
	for _, fact := range r.facts {
		fmt.Fprintf(w, "- %s\n", fact)
	}
	fmt.Fprintf(w, "- The run took %.0f minutes.\n", time.Since(began).Minutes())
	part := ""
	for _, c := range r.comparisons {
		if c.part != part {
			part = c.part
			fmt.Fprintf(w, "\n### %s\n\n| Operation | Clients | | Per second | Ratio of rates | p50 | Ratio of p50 | p99 | CPU | Ratio of CPU "+
				"| server + PostgreSQL + facilitator | WAL | Writes |\n|---|---:|---|%s\n", part, strings.Repeat("---:|", 10))
		}
		c.write(w)
	}
}

// write writes a row of the table for each side.
func (c comparison) write(w io.Writer) {
	column := strings.NewReplacer("|", `\|`)
	for i, seen := range c.rounds {
		m := median(seen)
		fmt.Fprintf(w, "| %s | %d | %s | %.0f | %s | %s | %s | %s | %s | %s | %s + %s + %s | %.0f | %.2f |\n",
			column.Replace(c.operation), c.clients, column.Replace(c.sides[i].name),
			m[perSecond], c.ratio(i, perSecond), digits(m[p50]), c.ratio(i, p50), digits(m[p99]), digits(m[cpu]), c.ratio(i, cpu),
			digits(m[serverCPU]), digits(m[pgCPU]), digits(m[facilitatorCPU]), m[wal], m[writes])
	}
}

// ratio is the median of a side's ratios to the first side, each of the same round, and their range.
func (c comparison) ratio(side, metric int) string {
	if side == 0 {
		return ""
	}
	ratios := c.ratios(side, metric)
	return fmt.Sprintf("%s (%s–%s)", digits(middle(ratios)), digits(slices.Min(ratios)), digits(slices.Max(ratios)))
}

// ratios are a side's ratios to the first side, by round.
func (c comparison) ratios(side, metric int) (ratios []float64) {
	for round, seen := range c.rounds[side] {
		ratios = append(ratios, seen[metric]/c.rounds[0][round][metric])
	}
	return ratios
}

// digits writes a number with about three digits.
func digits(n float64) string {
	if n >= 100 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}
