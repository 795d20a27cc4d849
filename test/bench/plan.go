//go:build linux

package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// measuredFigures are those of docs/scale.md: bin/bench -part scale -figures test/bench/testdata/figures.json writes them.
//
//go:embed testdata/figures.json
var measuredFigures []byte

// life is what an agent does in a day.
type life struct {
	name    string
	calls   map[string]float64
	waiting float64 // share of the day in which a call of the agent waits
}

var lives = []life{
	{"quiet", map[string]float64{nothingNew: 30, sendMany: 4, wokenPoll: 4, ownAccount: 1, newest: 1}, 0},
	{"chatty", map[string]float64{nothingNew: 1200, sendMany: 120, sendOne: 30, wokenPoll: 150, newest: 10, agentSearch: 4, wordSearch: 1}, 1},
	{"polling", map[string]float64{nothingNew: 1440, sendMany: 10, wokenPoll: 10}, 0},
}

// What the plan assumes beside the figures.
const (
	day          = 86_400
	busiest      = 2.0    // times the mean: the calls of the busiest hour
	share        = 0.6    // of a processor, of a disk and of a network that is used then
	serverCores  = 8.0    // of each server
	waitsAt      = 12_000 // calls that wait at a server
	waitBytes    = 40_000 // for each
	claimSum     = 1.0    // USD: channel-claim-sum
	claimsAt     = 12.5   // payment channels per second that a server claims: 25, in two seconds
	claimCost    = 0.0123 / 25
	depositCost  = 0.0033 // for each USD
	refreshed    = 100.0  // payment channels per second whose state servers read, each once in an hour: 500 in five seconds, the same ones
	scanning     = 0.9e-6 // seconds for a payment channel to add up what is not claimed, and as much to find outdated states
	scanLimit    = 2.5    // seconds of a statement; every server runs both every five seconds
	claimGas     = 25_200 // of a payment channel
	depositGas   = 118_000
	chainGas     = 15e6  // per second: a tenth of what Base takes
	coreCost     = 1.2   // USD per day
	terabyteCost = 3.3   // USD per day
	largest      = 64.0  // processors of a primary
	replay       = 4.1   // milliseconds of a processor that a standby needs for a megabyte of write-ahead log, one after another
	volume       = 64.0  // terabytes of a primary's disk, which a year may fill
	sessions     = 500.0 // connections of a primary
	perServer    = 8.0   // connections of each server
)

// demand is what agents need in the busiest hour, and what they cost and earn in a day.
type demand struct {
	calls, cores, servers, wal, terabytes, claims, waits, earned, spent float64

	scans  float64            // of the cores: to look through all payment channels, which every server does
	looks  float64            // of the cores: to look for calls that wait
	shared map[string]float64 // calls in a batch, by queue
	parts  []part             // of one primary with its standby
}

// part is something of which there is only so much, and how much of it is used.
type part struct {
	name, limit string
	used        float64
}

// of returns the demand of so many agents.
func (m machineFigures) of(l life, agents float64) (d demand) {
	d.servers = 1
	for range 20 { // the more servers, the fewer calls share a batch of one
		d = m.with(m.sharing(l, agents/d.servers), l, agents)
	}
	return d
}

// sharing returns how many calls share a batch, by queue, at a server with so many agents in the busiest hour: as many as come while the
// batch before it runs.
func (m machineFigures) sharing(l life, agents float64) map[string]float64 {
	shared, busy, fixed := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, f := range m.Kinds {
		_, queue := f.queues()
		rate := l.calls[f.Name] * agents * busiest / day / 1000
		busy[queue] += rate * m.written(f)
		fixed[queue] += rate * (f.PerCommit + f.PerBatch + m.Flush)
	}
	for queue := range busy {
		if shared[queue] = maxPerBatch; busy[queue] < 1 {
			shared[queue] = min(max(fixed[queue]/(1-busy[queue]), 1), maxPerBatch)
		}
	}
	return shared
}

// with is of for a known sharing of batches.
func (m machineFigures) with(shared map[string]float64, l life, agents float64) demand {
	d := demand{shared: shared}
	var database, server, sends, polls float64 // per second, of one agent at the mean rate, in seconds of a processor
	for _, f := range m.Kinds {
		n := l.calls[f.Name] * agents / day
		d.calls += n
		d.earned += n * f.Price * day
		d.terabytes += n * m.Payment * day * 365 / 1e12
		_, writes := f.queues()
		database += n * (f.Database + f.PerCommit/shared[writes]) / 1000
		server += n * (f.Server + f.PerBatch/shared[writes]) / 1000
		d.wal += n * f.WAL / 1e6
		if writes == "sends" {
			sends += n * m.each(f)
			d.terabytes += n * m.Message * day * 365 / 1e12
		} else {
			polls += n * m.each(f)
		}
	}
	waiting := agents * l.waiting
	d.calls, d.wal = d.calls*busiest, d.wal*busiest
	d.servers = max(1, server*busiest/share/serverCores, max(sends, polls)*busiest/share, waiting/waitsAt)
	d.scans = d.servers * 2 * min(agents*scanning, scanLimit) / 5 / share
	d.looks = waiting * m.looks() / 1000 / share
	d.cores = database*busiest/share + d.looks + d.scans
	d.waits = waiting * waitBytes / 1e9
	daily := max(1, d.earned/agents/claimSum) * agents
	d.claims = daily / day
	d.spent = daily*claimCost + d.earned*depositCost + (2*d.cores+d.servers*serverCores)*coreCost + 2*d.terabytes*terabyteCost
	d.parts = []part{
		{"processors", fmt.Sprintf("%.0f at %.0f %%", largest, 100*share), d.cores / largest},
		{"disk", fmt.Sprintf("%.0f TB in a year", volume), d.terabytes / volume},
		{"replay", fmt.Sprintf("one processor at %.0f %%, %.1f ms per MB", 100*share, replay), d.wal * replay / 1000 / share},
		{"connections", fmt.Sprintf("%.0f, %.0f for a server", sessions, perServer), d.servers * perServer / sessions},
		{"claims", fmt.Sprintf("%.1f channels/s and server", claimsAt), d.claims / claimsAt / d.servers},
		{"withdrawals", fmt.Sprintf("%.0f channels/s, each once in an hour", refreshed), agents / 3600 / refreshed},
		{"scans of channels", fmt.Sprintf("%.1f s for a statement", scanLimit), agents * scanning / scanLimit},
		{"blockchain", fmt.Sprintf("%.0f M gas/s", chainGas/1e6), (d.claims*claimGas + d.earned/day*depositGas) / chainGas},
	}
	return d
}

// looks is what looking for a call that waits costs the database, in milliseconds per second: see checkEvery of server.
func (m machineFigures) looks() float64 { return m.Look / 1.8 }

// written is what a call adds to a batch that writes, in milliseconds of the database.
func (m machineFigures) written(f figures) float64 {
	_, charged := m.kind(ownAccount)
	if _, writes := f.queues(); writes == "charges" {
		return min(f.Database, charged.Database)
	}
	return f.Database
}

// each is how many seconds a server's queue is busy with a call of a kind, in full batches.
func (m machineFigures) each(f figures) float64 {
	return (m.written(f) + (f.PerCommit+f.PerBatch+m.Flush)/maxPerBatch) / 1000
}

// agentsWith returns how many agents a primary with so many processors carries.
func (m machineFigures) agentsWith(l life, cores float64) float64 {
	low, high := 1.0, 1e12
	for high/low > 1.001 {
		if middle := math.Sqrt(low * high); m.of(l, middle).cores < cores {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// table writes a table, of which every column but the first is a number.
func table(w io.Writer, head string, rows []string) {
	numbers := strings.Repeat("---:|", strings.Count(head, "|"))
	fmt.Fprintf(w, "| %s |\n|---|%s\n| %s |\n\n", head, numbers, strings.Join(rows, " |\n| "))
}

// tables writes the tables of docs/scale.md.
func (m machineFigures) tables(w io.Writer) {
	var rows []string
	for _, f := range m.Kinds {
		rows = append(rows, fmt.Sprintf("%s | %.3f | %.2f | %.1f | %.2f | %.1f | %.1f", f.Name, f.Price, f.Server, f.PerBatch, f.Database,
			f.PerCommit, f.WAL/1000))
	}
	table(w, "call | USD | server | per batch | database | per batch | log, kB", rows)
	rows = nil
	for i, mix := range mixes {
		seen, measured := simulate(m.mix(mix)), m.Mixes[i]
		worst, worstName := 0.0, ""
		for k, name := range modelled {
			if off := seen.rates[k]/measured[name] - 1; measured[name] > 0 && math.Abs(off) > math.Abs(worst) {
				worst, worstName = off, name
			}
		}
		rows = append(rows, fmt.Sprintf("%s | %d | %.0f | %.0f | %+.0f %% | %+.0f %%, %s", mix.name, mix.total(), seen.rate, total(measured),
			100*(seen.rate/total(measured)-1), 100*worst, worstName))
	}
	table(w, "mix | clients | predicted calls/s | measured | difference | largest difference of a kind", rows)
	rows = nil
	for agents := 1e4; agents <= 1e8; agents *= 10 {
		for _, l := range lives {
			d := m.of(l, agents)
			slices.SortFunc(d.parts, func(a, b part) int { return cmp.Compare(b.used, a.used) })
			row := fmt.Sprintf("10^%.0f %s | %s | %s | %.0f | %s", math.Log10(agents), l.name, short(d.calls), short(d.cores), math.Ceil(d.servers),
				short(d.shared["charges"]))
			for _, n := range [...]float64{d.wal, d.terabytes, d.claims, d.waits, d.earned, d.spent} {
				row += " | " + short(n)
			}
			rows = append(rows, fmt.Sprintf("%s | %s %s, %s %s", row, d.parts[0].name, short(d.parts[0].used), d.parts[1].name,
				short(d.parts[1].used)))
		}
	}
	table(w, "agents | calls/s | cores | servers | a batch | log, MB/s | TB a year | claims/s | waits, GB | earned | spent | fullest parts",
		rows)
	rows = nil
	head, parts := "cores", "part | limit"
	for _, l := range lives {
		head += fmt.Sprintf(" | %s: agents | calls/s | USD", l.name)
		parts += " | " + l.name
	}
	for _, cores := range []float64{2, 8, 32, largest} {
		row := short(cores)
		for _, l := range lives {
			agents := m.agentsWith(l, cores)
			d := m.of(l, agents)
			row += fmt.Sprintf(" | %s | %s | %s", short(agents), short(d.calls), short(d.earned))
		}
		rows = append(rows, row)
	}
	table(w, head, rows)
	rows = nil
	for i, part := range m.of(lives[0], 1).parts {
		row := part.name + " | " + part.limit
		for _, l := range lives {
			row += " | " + short(m.of(l, m.agentsWith(l, largest)).parts[i].used)
		}
		rows = append(rows, row)
	}
	table(w, parts, rows)
}

// sentences writes the tables of what docs/scale.md says in sentences: what could leave the primary, what a failover costs, and that
// servers and standby are in other zones than the primary.
func (m machineFigures) sentences(w io.Writer) {
	var rows []string
	for _, l := range lives {
		all, reads, old := m.movable(l)
		rows = append(rows, fmt.Sprintf("%s | %.0f %% | %.0f %%", l.name, 100*reads/all, 100*old/all))
	}
	table(w, "share of the database's processor time | reads | reads that may be stale", rows)
	many := m.of(lives[1], 1e6)
	table(w, "10^6 chatty: cores | scans of channels | looks for calls that wait",
		[]string{fmt.Sprintf("%s | %s | %s", short(many.cores), short(many.scans), short(many.looks))})
	rows = nil
	polling := lives[2]
	for _, full := range []float64{0.5, 0.6, 0.7, 0.8} {
		l := m.arriving(polling, full*m.of(polling, m.agentsWith(polling, 2)).calls/share, 2, 2, 35)
		l.outage = [2]float64{10, 15}
		rows = append(rows, fmt.Sprintf("%.0f %% | %s", 100*full, digits(simulate(l).restored/5)))
	}
	table(w, "processors used | backlog is gone, in times of the outage", rows)
	rows = nil
	poll, _ := m.kind(nothingNew)
	for _, trip := range []float64{0.2, 1, 3} {
		l := m.arriving(polling, 0, 16, 1, 2)
		l.trip, l.flush, l.clients = trip, m.Flush+trip, make([]int, len(m.Kinds))
		l.clients[poll] = 1000
		rows = append(rows, fmt.Sprintf("%g | %s", trip, digits(simulate(l).rate)))
	}
	table(w, "round trip, ms | calls/s of one server", rows)
}

// movable returns the database's processor time of an agent in a day, the part of it that reads, and the part whose reads may be stale:
// history and searches of conversations are for members only, so a ban must count, but directory searches and own history may be late.
func (m machineFigures) movable(l life) (all, reads, stale float64) {
	shared := m.of(l, m.agentsWith(l, largest)).shared
	for _, f := range m.Kinds {
		n := l.calls[f.Name]
		_, writes := f.queues()
		all += n * (f.Database + f.PerCommit/shared[writes])
		if writes == "charges" {
			read := n * (f.Database - m.written(f))
			reads += read
			if f.Name == newest || f.Name == agentSearch {
				stale += read
			}
		}
	}
	looks := l.waiting * day * m.looks()
	return all + looks, reads + looks, stale
}

// short writes a number with two digits and k, M or G.
func short(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2gG", n/1e9)
	case n >= 1e6:
		return shorter(n/1e6) + "M"
	case n >= 1e3:
		return shorter(n/1e3) + "k"
	}
	return shorter(n)
}

func shorter(n float64) string {
	if n >= 10 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.2g", n)
}

// drawPlan writes the tables of docs/scale.md, and its pictures into a folder.
func drawPlan(w io.Writer, folder string) error {
	var m machineFigures
	if err := json.Unmarshal(measuredFigures, &m); err != nil {
		return err
	}
	m.tables(w)
	m.sentences(w)
	for name, draw := range map[string]func(io.Writer){"ladder.svg": m.drawLadder, "queues.svg": m.drawQueues} {
		var picture bytes.Buffer
		draw(&picture)
		if err := os.WriteFile(filepath.Join(folder, name), picture.Bytes(), 0o644); err != nil { //nolint:gosec // everybody may read it
			return err
		}
	}
	return nil
}
