//go:build linux

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// report is what a run has seen.
type report struct {
	began                   time.Time
	machine                 []fact
	rows                    []row
	memory, memoryMost      int64
	floor                   []floorRow
	payments                []paymentRow
	ledger                  []ledgerRow
	growth, processes       []growthRow
	change                  []growthRow
	disk                    []diskRow
	search                  []searchRow
	withIndex, withoutIndex result
	paidCalls               int64
}

type fact struct{ name, text string }

// describe says what it was measured on and with.
func (h *house) describe(ctx context.Context) ([]fact, error) {
	var kernel syscall.Utsname
	if err := syscall.Uname(&kernel); err != nil {
		return nil, err
	}
	release := make([]byte, 0, len(kernel.Release))
	for _, c := range kernel.Release {
		if c != 0 {
			release = append(release, byte(c))
		}
	}
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	built, err := buildinfo.ReadFile(h.program)
	if err != nil {
		return nil, err
	}
	build := map[string]string{}
	for _, setting := range built.Settings {
		build[setting.Key] = setting.Value
	}
	var settings []string
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "checkpoint_timeout"} {
		value, err := one[string](ctx, h.pool, `SELECT current_setting($1)`, name)
		if err != nil {
			return nil, err
		}
		if value != "on" && len(settings) < 3 {
			return nil, errors.New("PostgreSQL is not durable: " + name + " is " + value)
		}
		settings = append(settings, name+" "+value)
	}
	version, err := one[string](ctx, h.pool, `SELECT current_setting('server_version')`)
	if err != nil {
		return nil, err
	}
	sync, err := h.fsync()
	if err != nil {
		return nil, err
	}
	return []fact{
		{"Date", time.Now().UTC().Format("2006-01-02 15:04 UTC")},
		{"Commit", strings.TrimSpace(string(commit))},
		{"Processor", fmt.Sprintf("%d × %s", runtime.NumCPU(), line("/proc/cpuinfo", "model name"))},
		{"Memory", strings.TrimSpace(line("/proc/meminfo", "MemTotal"))},
		{"Kernel", string(release) + ", " + runtime.GOARCH},
		{"Others on the machine", "load average at the start " + strings.Join(strings.Fields(line("/proc/loadavg", ""))[:3], " ")},
		{"fsync", fmt.Sprintf("%s ms each (median of 100, 8 KiB at the end of a file)", ms(sync))},
		{"PostgreSQL", version + "; " + strings.Join(settings, ", ")},
		{"Go", fmt.Sprintf("%s, CGO_ENABLED=%s", built.GoVersion, build["CGO_ENABLED"])},
		{"Data", fmt.Sprintf("%s agents, %s conversations, %s messages, a channel of %s subscribers; a conversation of %s messages for search",
			thousands(float64(h.size.Agents)), thousands(float64(h.size.Conversations)), thousands(float64(h.size.Messages)), thousands(float64(h.size.Subscribers)), thousands(float64(h.archived)))},
	}, nil
}

// line returns what stands behind the colon of a file's first line that begins with a name.
func line(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name) {
			return strings.TrimSpace(strings.TrimLeft(strings.TrimPrefix(line, name), " \t:"))
		}
	}
	return "unknown"
}

// fsync measures what one fsync takes where the data lies.
func (h *house) fsync() (time.Duration, error) {
	file, err := os.CreateTemp(h.postgres.Folder(), "fsync-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // the whole folder goes in the end
	defer file.Close()           //nolint:errcheck // nothing in it is needed
	took := make([]time.Duration, 100)
	for i := range took {
		began := time.Now()
		if _, err := file.Write(make([]byte, 8<<10)); err != nil {
			return 0, err
		}
		if err := file.Sync(); err != nil {
			return 0, err
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func thousands(n float64) string {
	text := fmt.Sprintf("%.0f", n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// ms writes a time in milliseconds with about three digits.
func ms(d time.Duration) string {
	value := float64(d) / float64(time.Millisecond)
	switch {
	case value >= 100:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	case value >= 1:
		return fmt.Sprintf("%.2f", value)
	}
	return fmt.Sprintf("%.3f", value)
}

func mib(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }

func percent(part, whole float64) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// table writes a Markdown table; all columns but the first are numbers.
func table(w io.Writer, heads []string, rows [][]string) {
	fmt.Fprintf(w, "\n| %s |\n|---|%s\n", strings.Join(heads, " | "), strings.Repeat("---:|", len(heads)-1))
	for _, row := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}

// markdown writes the report.
func (r *report) markdown(w io.Writer) {
	fmt.Fprintf(w, "\n### The machine\n\n")
	for _, fact := range r.machine {
		fmt.Fprintf(w, "- %s: %s\n", fact.name, fact.text)
	}
	fmt.Fprintf(w, "- Payments: %s settled, the payee's balance agrees with the ledgers to the unit; the run took %.0f minutes\n", thousands(float64(r.paidCalls)), time.Since(r.began).Minutes())
	if aims := r.aims(); len(aims) > 0 {
		fmt.Fprintf(w, "\n### The aims\n")
		table(w, []string{"Aim", "Wanted", "Seen", "Met"}, aims)
	}
	r.operations(w)
	r.paid(w)
	r.surroundings(w)
	r.costs(w)
}

func (r *report) operations(w io.Writer) {
	if len(r.rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n### The operations\n")
	var rows [][]string
	for _, row := range r.rows {
		rows = append(rows, []string{
			row.operation, fmt.Sprint(row.clients), thousands(row.limit.perSecond), thousands(row.ours.perSecond), percent(row.ours.perSecond, row.limit.perSecond),
			ms(row.limit.p50), ms(row.ours.p50), ms(row.limit.p99), ms(row.ours.p99), ms(row.ours.serverCPU), ms(row.ours.pgCPU), ms(row.limit.pgCPU),
			fmt.Sprintf("%.1f", row.trips.statements), fmt.Sprintf("%.1f", row.trips.roundTrips),
		})
	}
	table(w, []string{"Operation", "Clients", "pgbench/s", "Parley/s", "Of the limit", "p50 pgbench", "p50 Parley", "p99 pgbench", "p99 Parley",
		"CPU Parley", "CPU PostgreSQL", "of it by pgbench", "Statements", "Round trips"}, rows)
	fmt.Fprintf(w, "\nMemory of the server after all of this: %s resident, %s at most.\n", mib(r.memory), mib(r.memoryMost))
}

func (r *report) paid(w io.Writer) {
	if len(r.payments) > 0 {
		fmt.Fprintf(w, "\n### What being paid costs\n")
		var rows [][]string
		for _, row := range r.payments {
			rows = append(rows, []string{
				row.operation, fmt.Sprint(row.clients), thousands(row.paid.perSecond), thousands(row.free.perSecond), times(row.free.perSecond, row.paid.perSecond),
				ms(row.paid.p50), ms(row.free.p50), ms(row.paid.serverCPU), ms(row.free.serverCPU), ms(row.paid.pgCPU), ms(row.free.pgCPU),
			})
		}
		table(w, []string{"Operation", "Clients", "Paid/s", "Free/s", "Free : paid", "p50 paid", "p50 free", "CPU paid", "CPU free", "CPU PostgreSQL paid", "CPU PostgreSQL free"}, rows)
	}
	if len(r.ledger) > 0 {
		fmt.Fprintf(w, "\nThe same by pgbench at 16 clients: an operation's own statements, and all that a paid call takes.\n")
		var rows [][]string
		for _, row := range r.ledger {
			parley := "–"
			for _, other := range r.rows {
				if other.operation == row.operation && other.clients == 16 {
					parley = thousands(other.ours.perSecond) + " (" + percent(other.ours.perSecond, row.all.perSecond) + " of all)"
				}
			}
			rows = append(rows, []string{
				row.operation, thousands(row.own.perSecond), thousands(row.all.perSecond), percent(row.all.perSecond, row.own.perSecond), parley,
				ms(row.own.p50), ms(row.all.p50), thousands(row.own.wal), thousands(row.all.wal),
			})
		}
		table(w, []string{"Operation", "Own/s", "All/s", "Of own", "Parley/s, as above", "p50 own", "p50 all", "WAL own", "WAL all"}, rows)
	}
	if len(r.floor) > 0 {
		fmt.Fprintf(w, "\n### The floor\n")
		var rows [][]string
		for _, row := range r.floor {
			rows = append(rows, []string{
				fmt.Sprint(row.clients), thousands(row.echo.perSecond), thousands(row.challenge.perSecond), percent(row.challenge.perSecond, row.echo.perSecond),
				ms(row.echo.p50), ms(row.challenge.p50), ms(row.echo.serverCPU), ms(row.challenge.serverCPU),
			})
		}
		table(w, []string{"Clients", "Empty Echo handler/s", "Price challenge/s", "Of the empty one", "p50 empty", "p50 challenge", "CPU empty", "CPU challenge"}, rows)
	}
}

func times(a, b float64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func (r *report) surroundings(w io.Writer) {
	for _, part := range []struct {
		title, head string
		rows        []growthRow
	}{{"Growth", "Data", r.growth}, {"Several servers on one database", "Servers", r.processes}, {"The change", "Build", r.change}} {
		if len(part.rows) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n### %s\n", part.title)
		var rows [][]string
		base := map[string]result{} // the first surrounding of each
		for _, row := range part.rows {
			key := fmt.Sprint(row.operation, row.clients)
			if _, ok := base[key]; !ok {
				base[key] = row.result
			}
			rows = append(rows, []string{
				row.operation, row.surrounding, fmt.Sprint(row.clients), thousands(row.result.perSecond), times(row.result.perSecond, base[key].perSecond),
				ms(row.result.p50), times(float64(row.result.p50), float64(base[key].p50)), ms(row.result.p99), ms(row.result.serverCPU), ms(row.result.pgCPU),
			})
		}
		table(w, []string{"Operation", part.head, "Clients", "Parley/s", "Times the first", "p50", "Times the first", "p99", "CPU Parley", "CPU PostgreSQL"}, rows)
	}
}

func (r *report) costs(w io.Writer) {
	if len(r.search) > 0 {
		fmt.Fprintf(w, "\n### Message search against a scan\n")
		var rows [][]string
		for _, row := range r.search {
			folded := "–"
			if row.folded > 0 {
				folded = ms(row.folded)
			}
			rows = append(rows, []string{
				row.name + ", `" + strings.ReplaceAll(row.query, "|", `\|`) + "`", thousands(float64(row.found)), ms(row.ours), ms(row.statements), ms(row.scan), folded,
				times(float64(row.slowScan()), float64(row.ours)), times(float64(row.slowScan()), float64(row.statements)),
			})
		}
		table(w, []string{"Looked for", "In messages", "Parley, paid", "Its statements", "Scan `~*`", "Scan `fold LIKE`", "Scan : Parley", "Scan : statements"}, rows)
	}
	if len(r.disk) > 0 {
		fmt.Fprintf(w, "\n### What a message and a payment take\n")
		var rows [][]string
		for _, row := range r.disk {
			rows = append(rows, []string{row.What, thousands(float64(row.Rows)), thousands(row.Bytes / float64(max(row.Rows, 1)))})
		}
		table(w, []string{"Table or index", "Rows", "Bytes a row"}, rows)
	}
	if len(r.payments) > 0 {
		var rows [][]string
		for _, row := range r.payments {
			if row.operation == sendMany && row.clients == 16 {
				rows = append(rows, []string{"a send that is free", thousands(row.free.wal)}, []string{"a paid send", thousands(row.paid.wal)})
			}
		}
		table(w, []string{"WAL at 16 clients", "Bytes a call"}, rows)
	}
	if r.withIndex.perSecond > 0 {
		fmt.Fprintf(w, "\nThe index of message search, by pgbench with a send's own statement at 16 clients:\n")
		var rows [][]string
		for _, row := range []struct {
			name   string
			result result
		}{{"with the index", r.withIndex}, {"without", r.withoutIndex}} {
			rows = append(rows, []string{row.name, thousands(row.result.perSecond), ms(row.result.p50), ms(row.result.pgCPU), thousands(row.result.wal)})
		}
		table(w, []string{"A send", "A second", "p50", "CPU PostgreSQL", "WAL"}, rows)
	}
}

// slowScan is the scan that does what Parley does: for a literal with Parley's own folding of case.
func (row searchRow) slowScan() time.Duration { return max(row.folded, row.scan) }

// official is what the official x402 middleware on Echo serves, paid calls a second by clients: a handler that does
// nothing, behind a facilitator that answers at once. It was measured on two cores like these when the aims were set.
var official = map[int]float64{1: 1_700, 16: 3_400, 64: 2_600}

// ofLimit is how much of its limit an operation is to reach at 16 clients, in percent.
var ofLimit = map[string]float64{sendMany: 40, sendOne: 100, newest: 20, nothingNew: 8}

// aims holds the run against what was aimed at.
func (r *report) aims() (aims [][]string) {
	add := func(name, wanted, seen string, met bool) {
		aims = append(aims, []string{name, wanted, seen, map[bool]string{true: "yes", false: "**no**"}[met]})
	}
	costsAtMost := map[string]float64{sendMany: 2, newest: 3, nothingNew: 5}
	for _, row := range r.rows {
		ratio := 100 * row.ours.perSecond / row.limit.perSecond
		if wanted := ofLimit[row.operation]; row.clients == 16 && wanted > 0 {
			add(row.operation+", of the limit at 16 clients", fmt.Sprintf("≥ %.0f %%", wanted), fmt.Sprintf("%.1f %%", ratio), ratio >= wanted)
		}
		if row.operation == sendMany && row.clients > 1 {
			add(fmt.Sprintf("a paid send against the official middleware's paid no-op, %d clients", row.clients), "> "+thousands(official[row.clients])+"/s",
				thousands(row.ours.perSecond)+"/s", row.ours.perSecond > official[row.clients])
		}
		if (row.operation == sendMany || row.operation == sendOne) && row.clients == 64 {
			spread := float64(row.ours.p99) / float64(row.ours.p50)
			add(row.operation+", p99 : p50 at 64 clients", "< 15", fmt.Sprintf("%.1f", spread), spread < 15)
		}
	}
	for _, row := range r.payments {
		if row.clients == 16 {
			costs := row.free.perSecond / row.paid.perSecond
			wanted := costsAtMost[row.operation]
			add(row.operation+", free : paid at 16 clients", fmt.Sprintf("≤ %.0f", wanted), fmt.Sprintf("%.2f", costs), costs <= wanted)
		}
	}
	for _, row := range r.floor {
		if row.clients == 16 {
			costs := float64(row.challenge.serverCPU) / float64(row.echo.serverCPU)
			add("a price challenge, CPU against an empty handler", "about 1", fmt.Sprintf("%.2f", costs), costs <= 1.5)
		}
	}
	if r.memoryMost > 0 {
		add("memory of the server, 64 clients", "< 150 MiB", mib(r.memoryMost), r.memoryMost < 150<<20)
	}
	for i := 1; i < len(r.growth); i++ {
		small, large := r.growth[i-1], r.growth[i]
		if small.operation == large.operation && small.clients == large.clients && large.clients == 1 {
			ratio := float64(large.result.p50) / float64(small.result.p50)
			add(large.operation+", p50 with "+large.surrounding+" : "+small.surrounding, "≤ 1.2", fmt.Sprintf("%.2f", ratio), ratio <= 1.2)
		}
	}
	var slowest float64
	for i, row := range r.search {
		ratio := float64(row.slowScan()) / float64(row.ours)
		if row.query == rareWord {
			own := float64(row.slowScan()) / float64(row.statements)
			add("search for a rare word, times faster than a scan (its statements; the paid call)", "≥ 300", fmt.Sprintf("%.0f; %.0f", own, ratio), ratio >= 300)
		}
		if i == 0 || ratio < slowest {
			slowest = ratio
		}
	}
	if r.search != nil {
		add("the slowest pattern, times faster than a scan", "≥ 1", fmt.Sprintf("%.2f", slowest), slowest >= 1)
	}
	return aims
}

// The report stands between these lines of the README.
const (
	reportBegins = "<!-- the report begins: make bench writes it -->\n"
	reportEnds   = "<!-- the report ends -->\n"
)

// write prints the report, and puts it into a folder's README.md and result.svg if there is one.
func (r *report) write(out io.Writer, folder string) error {
	var text bytes.Buffer
	r.markdown(&text)
	if _, err := out.Write(text.Bytes()); err != nil || folder == "" {
		return err
	}
	path := filepath.Join(folder, "README.md")
	readme, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(readme), reportBegins)
	_, after, ends := strings.Cut(rest, reportEnds)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for the report: the lines %q and %q", path, reportBegins, reportEnds)
	}
	if err := os.WriteFile(path, []byte(before+reportBegins+text.String()+"\n"+reportEnds+after), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "result.svg"), r.picture(), 0o644)
}
