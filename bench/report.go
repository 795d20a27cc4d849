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
	measure func() (result, error)
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
	comparisons []comparison
	goals       []string // rows of a table
	paidCalls   int64
}

// compare measures the sides in turn, several times, so that whatever changes on the machine changes all of them. Every
// second round is in reverse order, so that no side is always the first. It returns the medians of each side.
func (r *report) compare(part, operation string, clients, rounds int, sides ...side) ([]result, error) {
	c := comparison{part: part, operation: operation, clients: clients, sides: sides, rounds: make([][]result, len(sides))}
	for round := range max(rounds, 1) {
		for i := range sides {
			if round%2 == 1 {
				i = len(sides) - 1 - i
			}
			side := sides[i]
			seen, err := side.measure()
			if err != nil {
				return nil, fmt.Errorf("%s at %d clients, %s: %w", operation, clients, side.name, err)
			}
			note("%-30s %2d clients  %-24s %7.0f/s  p50 %s ms", operation, clients, side.name, seen.perSecond, ms(seen.p50))
			c.rounds[i] = append(c.rounds[i], seen)
		}
	}
	r.comparisons = append(r.comparisons, c)
	return r.last(), nil
}

// last returns the medians of the last comparison.
func (r *report) last() (medians []result) {
	for _, seen := range r.comparisons[len(r.comparisons)-1].rounds {
		medians = append(medians, median(seen))
	}
	return medians
}

// median is the median of each number.
func median(all []result) result {
	return result{
		perSecond: middle(all, func(r result) float64 { return r.perSecond }),
		p50:       middle(all, func(r result) time.Duration { return r.p50 }),
		p99:       middle(all, func(r result) time.Duration { return r.p99 }),
		serverCPU: middle(all, func(r result) time.Duration { return r.serverCPU }),
		pgCPU:     middle(all, func(r result) time.Duration { return r.pgCPU }),
		wal:       middle(all, func(r result) float64 { return r.wal }),
		writes:    middle(all, func(r result) float64 { return r.writes }),
	}
}

func middle[R any, T float64 | time.Duration](all []R, of func(R) T) T {
	values := make([]T, len(all))
	for i, r := range all {
		values[i] = of(r)
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// bound says on which side of a goal a number should be.
type bound string

const (
	atLeast bound = "≥"
	atMost  bound = "≤"
)

// goal compares a number with what it should be.
func (r *report) goal(name string, seen float64, bound bound, wanted float64) {
	met := "yes"
	if seen != wanted && (seen > wanted) != (bound == atLeast) {
		met = "**no**"
	}
	r.goals = append(r.goals, fmt.Sprintf("%s | %s %s | %s | %s", name, bound, digits(wanted), digits(seen), met))
}

// describe notes what is measured, and where. It refuses a database that is not durable.
func (r *report) describe(ctx context.Context, d *dataset) error {
	var settings []string
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "checkpoint_timeout", "server_version"} {
		var value string
		if err := d.pool.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			return err
		}
		if len(settings) < 3 && value != "on" {
			return errors.New("PostgreSQL is not durable: " + name + " is " + value)
		}
		settings = append(settings, name+" "+value)
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return err
	}
	processors, err := proc.CPUInfo()
	if err != nil {
		return err
	}
	load, err := proc.LoadAvg()
	if err != nil {
		return err
	}
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		commit = []byte("unknown commit")
	}
	r.facts = []string{
		fmt.Sprintf("%s, %s, %s", time.Now().UTC().Format("2006-01-02 15:04 UTC"), strings.TrimSpace(string(commit)), runtime.Version()),
		fmt.Sprintf("%d × %s, load average %.2f at the start", len(processors), processors[0].ModelName, load.Load1),
		"PostgreSQL: " + strings.Join(settings, ", "),
		fmt.Sprintf("Data: %+v; a conversation of %d messages for search", d.size, d.archived),
	}
	return nil
}

// write writes the report as Markdown.
func (r *report) write(w io.Writer) {
	for _, fact := range r.facts {
		fmt.Fprintf(w, "- %s\n", fact)
	}
	fmt.Fprintf(w, "- Payments: %d settled; the payee's balance agrees with the ledgers to the unit. The run took %.0f minutes.\n", r.paidCalls, time.Since(began).Minutes())
	if r.goals != nil {
		fmt.Fprintf(w, "\n### Goals\n\n| Goal | Wanted | Seen | Met |\n|---|---:|---:|---:|\n| %s |\n", strings.Join(r.goals, " |\n| "))
	}
	part := ""
	for _, c := range r.comparisons {
		if c.part != part {
			part = c.part
			fmt.Fprintf(w, "\n### %s\n\n| Operation | Clients | | Per second | Ratio of rates | p50 | Ratio of p50 | p99 | CPU server | CPU PostgreSQL | WAL | Writes |\n|---|---:|---|%s\n", part, strings.Repeat("---:|", 9))
		}
		c.write(w)
	}
}

// write writes a row of the table for each side. The ratios are those of the same round, to the first side.
func (c comparison) write(w io.Writer) {
	for i, seen := range c.rounds {
		m, rates, p50s := median(seen), "", ""
		if i > 0 {
			var rate, p50 []float64
			for k := range seen {
				rate = append(rate, seen[k].perSecond/c.rounds[0][k].perSecond)
				p50 = append(p50, float64(seen[k].p50)/float64(c.rounds[0][k].p50))
			}
			rates, p50s = spread(rate), spread(p50)
		}
		fmt.Fprintf(w, "| %s | %d | %s | %.0f | %s | %s | %s | %s | %s | %s | %.0f | %.2f |\n", strings.ReplaceAll(c.operation, "|", `\|`), c.clients,
			strings.ReplaceAll(c.sides[i].name, "|", `\|`), m.perSecond, rates, ms(m.p50), p50s, ms(m.p99), ms(m.serverCPU), ms(m.pgCPU), m.wal, m.writes)
	}
}

// spread is the median of ratios, and their range.
func spread(ratios []float64) string {
	m := middle(ratios, func(ratio float64) float64 { return ratio })
	return fmt.Sprintf("%s (%s–%s)", digits(m), digits(slices.Min(ratios)), digits(slices.Max(ratios)))
}

// ms writes a time in milliseconds.
func ms(d time.Duration) string { return digits(float64(d) / float64(time.Millisecond)) }

// digits writes a number with about three digits.
func digits(n float64) string {
	if n >= 100 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}
