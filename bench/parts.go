//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/devnet"
)

// measure measures the parts that are selected, or two builds.
func (p plan) measure(ctx context.Context, m *machine, r *report) error {
	all := []struct {
		name    string
		measure func(context.Context, *dataset, *report) error
	}{
		{"operations", p.table}, {"floor", p.floor}, {"payments", p.payments}, {"search", p.search}, {"growth", p.growth},
	}
	if p.before != "" {
		all = all[:1]
		all[0].name, all[0].measure = "builds", p.builds
		p.part = regexp.MustCompile("")
	}
	d, err := newDataset(ctx, m, "parley", p.program, p.scale)
	if err != nil {
		return err
	}
	if err := r.describe(ctx, d); err != nil {
		return err
	}
	for _, part := range all {
		if !p.part.MatchString(part.name) {
			continue
		}
		note("%s", part.name)
		if err := part.measure(ctx, d, r); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return r.checkLedger(ctx, m)
}

func (p plan) load(clients int) load {
	return load{clients: clients, time: time.Duration(p.seconds) * time.Second, status: http.StatusOK}
}

// table compares each operation with its limit.
func (p plan) table(ctx context.Context, d *dataset, r *report) error {
	server, err := d.serve(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	goals := map[string]float64{sendMany: 0.40, sendOne: 1, newest: 0.20, nothingNew: 0.08}
	for _, o := range d.matching(p.only) {
		scripts, err := d.scripts(ctx, o)
		if err != nil {
			return err
		}
		for _, clients := range p.clients {
			seen, err := r.compare("Operations", o.name, clients, p.rounds,
				side{"pgbench", func() (result, error) { return d.limit(ctx, scripts, clients, p.seconds) }},
				side{"Parley", func() (result, error) { return d.drive(ctx, server, o, p.load(clients)) }})
			if err != nil {
				return err
			}
			if goal, ok := goals[o.name]; ok && clients == 16 {
				r.goal(o.name+", part of the limit at 16 clients", seen[1].perSecond/seen[0].perSecond, atLeast, goal)
			}
			if (o.name == sendOne || o.name == sendMany) && clients == 64 {
				r.goal(o.name+", p99 : p50 at 64 clients", float64(seen[1].p99)/float64(seen[1].p50), atMost, 15)
			}
		}
	}
	memory, err := server.peakMemory()
	r.goal("peak memory of the server in this part, MiB", float64(memory)/(1<<20), atMost, 150)
	return err
}

// builds compares two builds of Parley. Each has a database of its own, with its own schema.
func (p plan) builds(ctx context.Context, after *dataset, r *report) error {
	before, err := newDataset(ctx, after.machine, "before", p.before, p.scale)
	if err != nil {
		return err
	}
	for _, o := range after.matching(p.only) {
		if err := p.compareDatasets(ctx, r, "Builds", o.name, []int{16, 64}, before, after); err != nil {
			return err
		}
	}
	return nil
}

// growth compares the dataset with one of a tenth of its size.
func (p plan) growth(ctx context.Context, large *dataset, r *report) error {
	small, err := newDataset(ctx, large.machine, "a tenth of the data", p.program, p.scale/10)
	if err != nil {
		return err
	}
	for _, name := range []string{sendMany, newest, nothingNew} {
		if err := p.compareDatasets(ctx, r, "Growth", name, []int{1, 16}, small, large); err != nil {
			return err
		}
		seen := r.last()
		r.goal(name+", p50 with ten times the data, 16 clients", float64(seen[1].p50)/float64(seen[0].p50), atMost, 1.2)
	}
	return nil
}

// compareDatasets compares an operation on two datasets, each served by the build that made it.
func (p plan) compareDatasets(ctx context.Context, r *report, part, operation string, clients []int, datasets ...*dataset) error {
	servers := make([]*process, len(datasets))
	for i, d := range datasets {
		var err error
		if servers[i], err = d.serve(ctx); err != nil {
			return err
		}
		defer servers[i].stop()
	}
	for _, clients := range clients {
		var sides []side
		for i, d := range datasets {
			sides = append(sides, side{d.name, func() (result, error) { return d.drive(ctx, servers[i], d.named(operation), p.load(clients)) }})
		}
		if _, err := r.compare(part, operation, clients, p.rounds+1, sides...); err != nil {
			return err
		}
	}
	return nil
}

// floor compares a price inquiry with an empty handler.
func (p plan) floor(ctx context.Context, d *dataset, r *report) error {
	empty, err := d.serveReference(ctx, emptyHandler)
	if err != nil {
		return err
	}
	defer empty.stop()
	parley, err := d.serve(ctx)
	if err != nil {
		return err
	}
	defer parley.stop()
	nothing := operation{method: http.MethodPost, path: "/", requests: []request{{target: "/"}}, unpaid: true}
	inquiry := operation{method: http.MethodPost, path: sendPath, requests: []request{{caller: d.writers[0], target: sendPath}}, unpaid: true}
	for _, clients := range p.clients {
		asked := p.load(clients)
		asked.status = http.StatusPaymentRequired
		seen, err := r.compare("The floor", "price inquiry", clients, p.rounds,
			side{"empty handler", func() (result, error) { return d.drive(ctx, empty, nothing, p.load(clients)) }},
			side{"402", func() (result, error) { return d.drive(ctx, parley, inquiry, asked) }})
		if err != nil {
			return err
		}
		if clients == 16 {
			r.goal("price inquiry, processor time against an empty handler", float64(seen[1].serverCPU)/float64(seen[0].serverCPU), atMost, 1.5)
		}
	}
	return nil
}

// payments compares the server with one whose operations are free.
func (p plan) payments(ctx context.Context, d *dataset, r *report) error {
	paid, err := d.serve(ctx)
	if err != nil {
		return err
	}
	defer paid.stop()
	free, err := d.serveReference(ctx, freeParley)
	if err != nil {
		return err
	}
	defer free.stop()
	goals := map[string]float64{sendMany: 2, newest: 3, nothingNew: 5}
	for _, name := range []string{sendMany, newest, nothingNew} {
		for _, clients := range []int{16, 64} {
			seen, err := r.compare("What a payment costs", name, clients, p.rounds,
				side{"paid", func() (result, error) { return d.drive(ctx, paid, d.named(name), p.load(clients)) }},
				side{"free", func() (result, error) { return d.drive(ctx, free, d.named(name), p.load(clients)) }})
			if err != nil {
				return err
			}
			if clients == 16 {
				r.goal(name+", rate free : paid at 16 clients", seen[1].perSecond/seen[0].perSecond, atMost, goals[name])
			}
		}
	}
	return nil
}

// patterns are searches of the archive: with literals, with few, with none, and some that are expensive to match.
var patterns = []string{
	rareWord, "harvest", "quetzalcoatl", `train to (Lisbon|Porto) leaves`, `OK`, `[0-9]{3} [a-z]+ [0-9]+`, `[0-9]{4} [0-9]{4}`, `([a-z]+ ){12}[0-9]{3}\.`,
}

// search compares message search with a scan by PostgreSQL of a table that holds only the messages of the conversation.
func (p plan) search(ctx context.Context, d *dataset, r *report) error {
	server, err := d.serve(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	connection, err := pgx.Connect(ctx, d.url())
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	if _, err := connection.Exec(ctx, `CREATE TEMP TABLE archive AS SELECT content FROM messages WHERE conversation_id = `+literal("uuid", new(d.archive.String()))+`;
		SET max_parallel_workers_per_gather = 0`); err != nil {
		return err
	}
	scan := func(query, condition string) side {
		return side{"scan " + condition, func() (result, error) {
			began := time.Now()
			_, err := connection.Exec(ctx, `SELECT count(*) FROM archive WHERE `+condition, query)
			took := time.Since(began)
			return result{perSecond: 1 / took.Seconds(), p50: took}, err
		}}
	}
	slowest := 0.0
	for _, query := range patterns {
		o := d.searching(query, query)
		scripts, err := d.scripts(ctx, o)
		if err != nil {
			return err
		}
		sides := []side{
			{"Parley", func() (result, error) { return d.drive(ctx, server, o, p.load(1)) }},
			{"its statements, by pgbench", func() (result, error) { return d.limit(ctx, scripts, 1, 1) }},
			scan(query, `content ~* $1`),
		}
		if regexp.QuoteMeta(query) == query { // the condition of Parley's index, for a literal
			sides = append(sides, scan(query, `fold(content) LIKE '%' || fold($1) || '%'`))
		}
		seen, err := r.compare("Message search", "`"+query+"`", 1, p.rounds+1, sides...)
		if err != nil {
			return err
		}
		parley, scanned := seen[0].p50, max(seen[2].p50, seen[len(seen)-1].p50)
		slowest = max(slowest, float64(parley)/float64(scanned))
		if query == rareWord {
			r.goal("search for a rare word, times faster than a scan", float64(scanned)/float64(parley), atLeast, 300)
		}
	}
	r.goal("the slowest search, its time against a scan", slowest, atMost, 1)
	return nil
}

// checkLedger compares what all ledgers say with the payee's balance, to the unit.
func (r *report) checkLedger(ctx context.Context, m *machine) error {
	var sum uint64
	for _, d := range m.datasets {
		var paid, other, earned int64
		if err := d.pool.QueryRow(ctx, `
			SELECT count(*), count(*) FILTER (WHERE state <> 'delivered'), CAST(coalesce(sum(amount), 0) AS bigint) FROM payments`).Scan(&paid, &other, &earned); err != nil {
			return err
		}
		if other > 0 {
			return fmt.Errorf("%d payments of %s were not delivered", other, d.name)
		}
		r.paidCalls += paid
		sum += uint64(earned) //nolint:gosec // positive
	}
	if balance := m.ledger.Balance(devnet.Payee); balance != sum {
		return fmt.Errorf("the payee has %d, the ledgers say %d", balance, sum)
	}
	return nil
}
