//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/devnet"
)

// row compares Parley with its limit.
type row struct {
	operation string
	clients   int
	limit     result
	ours      result
	trips     trips
}

// parts are the parts of the report, in the order in which they are measured.
func (p plan) parts() []part {
	return []part{
		{"operations", p.table}, {"floor", p.floor}, {"payments", p.payments}, {"ledger", p.ledger}, {"search", p.search}, {"processes", p.processes},
		{"disk", p.disk}, {"growth", p.growthFrom}, {"index", p.searchIndex}, // the last drops the index
	}
}

type part struct {
	name    string
	measure func(context.Context, *house, *report) error
}

// everything is `make bench`, or the parts of it that are wanted.
func (p plan) everything(ctx context.Context, m *machine, r *report) error {
	h, err := furnish(ctx, m, "parley", p.program, p.scale)
	if err != nil {
		return err
	}
	defer h.pool.Close()
	if r.machine, err = h.describe(ctx); err != nil {
		return err
	}
	for _, part := range p.parts() {
		if !p.part.MatchString(part.name) {
			continue
		}
		note("%s", part.name)
		if err := part.measure(ctx, h, r); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return checkBooks(ctx, m, r)
}

// table measures every operation and its limit by turns.
func (p plan) table(ctx context.Context, h *house, r *report) error {
	operations := slices.DeleteFunc(h.operations(), func(o operation) bool { return !p.only.MatchString(o.name) })
	// Counted while no server runs: to its recovery worker the recorder is a server that is gone, whose payments it takes up.
	for _, o := range operations {
		for _, clients := range p.clients {
			counted, err := h.trips(ctx, o, clients)
			if err != nil {
				return fmt.Errorf("count the statements of %s at %d clients: %w", o.name, clients, err)
			}
			r.rows = append(r.rows, row{operation: o.name, clients: clients, trips: counted})
		}
	}
	note("statements and round trips are counted")
	server, err := h.serve(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	for i, o := range operations {
		scripts, err := h.scripts(ctx, o, false)
		if err != nil {
			return err
		}
		for k, clients := range p.clients {
			all, err := byTurns(p.rounds,
				func() (result, error) { return h.limit(ctx, scripts, clients, p.seconds) },
				func() (result, error) { return h.drive(ctx, []*process{server}, o, p.load(clients)) })
			if err != nil {
				return fmt.Errorf("%s at %d clients: %w", o.name, clients, err)
			}
			row := &r.rows[i*len(p.clients)+k]
			row.limit, row.ours = all[0], all[1]
			note("%-30s %2d clients: pgbench %6.0f/s, Parley %6.0f/s, %.1f %%", o.name, clients, row.limit.perSecond, row.ours.perSecond, 100*row.ours.perSecond/row.limit.perSecond)
		}
	}
	r.memory, r.memoryMost, err = server.memory()
	return err
}

func (p plan) load(clients int) load {
	return load{clients: clients, time: time.Duration(p.seconds) * time.Second, status: http.StatusOK}
}

// byTurns measures things one after the other, several times, so that what changes meanwhile changes all of them. It
// returns the median of each.
func byTurns(rounds int, measure ...func() (result, error)) ([]result, error) {
	all := make([][]result, len(measure))
	for range rounds {
		for i, measure := range measure {
			seen, err := measure()
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], seen)
		}
	}
	medians := make([]result, len(measure))
	for i, seen := range all {
		medians[i] = median(seen)
	}
	return medians, nil
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
	}
}

func middle[T float64 | time.Duration](all []result, of func(result) T) T {
	values := make([]T, len(all))
	for i, r := range all {
		values[i] = of(r)
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// named returns some of the operations.
func (h *house) named(names ...string) (some []operation) {
	for _, o := range h.operations() {
		if slices.Contains(names, o.name) {
			some = append(some, o)
		}
	}
	return some
}

// floorRow is what an empty handler of the same framework does, and Parley's answer to a request without payment.
type floorRow struct {
	clients         int
	echo, challenge result
}

func (p plan) floor(ctx context.Context, h *house, r *report) error {
	echo, err := h.serveHere(ctx, standInEcho)
	if err != nil {
		return err
	}
	defer echo.stop()
	parley, err := h.serve(ctx)
	if err != nil {
		return err
	}
	defer parley.stop()
	anybody := []request{{caller: h.writers[0], target: "/"}}
	price := []request{{caller: h.writers[0], target: sendPath}}
	for _, clients := range p.clients {
		paid := p.load(clients)
		paid.status = http.StatusPaymentRequired
		all, err := byTurns(p.rounds,
			func() (result, error) {
				return h.drive(ctx, []*process{echo}, operation{method: http.MethodPost, path: "/", requests: anybody}, p.load(clients))
			},
			func() (result, error) {
				return h.drive(ctx, []*process{parley}, operation{method: http.MethodPost, path: sendPath, requests: price, unpaid: true}, paid)
			})
		if err != nil {
			return err
		}
		r.floor = append(r.floor, floorRow{clients, all[0], all[1]})
	}
	return nil
}

// paymentRow is one operation, paid and free.
type paymentRow struct {
	operation  string
	clients    int
	paid, free result
}

// payments compares the server with one whose operations are free.
func (p plan) payments(ctx context.Context, h *house, r *report) error {
	paid, err := h.serve(ctx)
	if err != nil {
		return err
	}
	defer paid.stop()
	free, err := h.serveHere(ctx, standInUnpaid, "-database", h.url())
	if err != nil {
		return err
	}
	defer free.stop()
	for _, o := range h.named(sendMany, newest, nothingNew) {
		for _, clients := range p.clients {
			if clients == 1 {
				continue
			}
			all, err := byTurns(p.rounds,
				func() (result, error) { return h.drive(ctx, []*process{paid}, o, p.load(clients)) },
				func() (result, error) { return h.drive(ctx, []*process{free}, o, p.load(clients)) })
			if err != nil {
				return fmt.Errorf("%s: %w", o.name, err)
			}
			r.payments = append(r.payments, paymentRow{o.name, clients, all[0], all[1]})
		}
	}
	return nil
}

// ledgerRow compares an operation's own statements with all that a paid call takes, both by pgbench.
type ledgerRow struct {
	operation string
	own, all  result
}

// ledger runs while no server does: a recovery worker would take up the payments that pgbench and the recorder write.
func (p plan) ledger(ctx context.Context, h *house, r *report) error {
	for _, o := range h.named(sendOne, sendMany, newest, nothingNew) {
		own, err := h.scripts(ctx, o, false)
		if err != nil {
			return err
		}
		all, err := h.scripts(ctx, o, true)
		if err != nil {
			return err
		}
		for i := range all { // Parley sends again what met somebody else; pgbench cannot, so it waits
			all[i] = strings.ReplaceAll(all[i], "SKIP LOCKED", "")
		}
		recorded, err := one[time.Time](ctx, h.pool, `SELECT now()`)
		if err != nil {
			return err
		}
		seen, err := byTurns(p.rounds,
			func() (result, error) { return h.limit(ctx, own, 16, p.seconds) },
			func() (result, error) { return h.limit(ctx, all, 16, p.seconds) })
		if err != nil {
			return err
		}
		r.ledger = append(r.ledger, ledgerRow{o.name, seen[0], seen[1]})
		// No money has moved for what pgbench wrote.
		states, err := column[string](ctx, h.pool, `WITH gone AS (DELETE FROM payments WHERE created_at > $1 RETURNING state) SELECT DISTINCT state FROM gone`, recorded)
		if err != nil {
			return err
		}
		if !slices.Equal(states, []string{"delivered"}) {
			return fmt.Errorf("%s: pgbench left payments in the states %q, want all delivered", o.name, states)
		}
	}
	return nil
}

// growthRow is one operation in one surrounding.
type growthRow struct {
	operation, surrounding string
	clients                int
	result                 result
}

// growthFrom compares the house with one of a tenth of its size.
func (p plan) growthFrom(ctx context.Context, h *house, r *report) error {
	small, err := furnish(ctx, h.machine, "small", p.program, p.scale/10)
	if err != nil {
		return err
	}
	defer small.pool.Close()
	return p.compareSizes(ctx, r, small, h)
}

// grow compares the house with one of ten times its size.
func (p plan) grow(ctx context.Context, m *machine, r *report) error {
	var houses []*house
	for _, name := range []string{"parley", "large"} {
		h, err := furnish(ctx, m, name, p.program, p.scale)
		if err != nil {
			return err
		}
		defer h.pool.Close()
		houses = append(houses, h)
		p.scale *= 10
	}
	var err error
	if r.machine, err = houses[1].describe(ctx); err != nil {
		return err
	}
	if err := p.compareSizes(ctx, r, houses...); err != nil {
		return err
	}
	return checkBooks(ctx, m, r)
}

func (p plan) compareSizes(ctx context.Context, r *report, houses ...*house) error {
	servers := make([]*process, len(houses))
	for i, h := range houses {
		var err error
		if servers[i], err = h.serve(ctx); err != nil {
			return err
		}
		defer servers[i].stop()
	}
	for _, name := range []string{sendMany, newest, nothingNew} {
		for _, clients := range []int{1, 16} {
			var measures []func() (result, error)
			for i, h := range houses {
				measures = append(measures, func() (result, error) {
					return h.drive(ctx, []*process{servers[i]}, h.named(name)[0], p.load(clients))
				})
			}
			all, err := byTurns(p.rounds+1, measures...)
			if err != nil {
				return err
			}
			for i, h := range houses {
				r.growth = append(r.growth, growthRow{name, thousands(float64(h.size.Messages)) + " messages", clients, all[i]})
			}
		}
	}
	return nil
}

// change compares two builds of Parley by turns. Each has a database of its own, with its own schema.
func (p plan) change(ctx context.Context, old, h *house, r *report) error {
	var servers []*process
	houses := []*house{old, h}
	for _, h := range houses {
		server, err := h.serve(ctx)
		if err != nil {
			return err
		}
		defer server.stop()
		servers = append(servers, server)
	}
	for _, o := range h.operations() {
		if !p.only.MatchString(o.name) {
			continue
		}
		for _, clients := range []int{16, 64} {
			var measures []func() (result, error)
			for i, h := range houses {
				measures = append(measures, func() (result, error) {
					seen, err := h.drive(ctx, servers[i:i+1], h.named(o.name)[0], p.load(clients))
					note("%-30s %2d clients: %-6s %6.0f/s", o.name, clients, h.name, seen.perSecond)
					return seen, err
				})
			}
			all, err := byTurns(p.rounds+1, measures...)
			if err != nil {
				return fmt.Errorf("%s at %d clients: %w", o.name, clients, err)
			}
			for i, h := range houses {
				r.change = append(r.change, growthRow{o.name, h.name, clients, all[i]})
			}
		}
	}
	return nil
}

// compareBuilds is `bench -before OLD`.
func (p plan) compareBuilds(ctx context.Context, m *machine, r *report) error {
	old, err := furnish(ctx, m, "before", p.before, p.scale)
	if err != nil {
		return err
	}
	defer old.pool.Close()
	h, err := furnish(ctx, m, "after", p.program, p.scale)
	if err != nil {
		return err
	}
	defer h.pool.Close()
	if r.machine, err = h.describe(ctx); err != nil {
		return err
	}
	if err := p.change(ctx, old, h, r); err != nil {
		return err
	}
	return checkBooks(ctx, m, r)
}

// processes spreads 16 clients over servers on one database.
func (p plan) processes(ctx context.Context, h *house, r *report) error {
	var servers []*process
	for range 4 {
		server, err := h.serve(ctx)
		if err != nil {
			return err
		}
		defer server.stop()
		servers = append(servers, server)
	}
	for _, o := range h.named(sendOne, sendMany, newest, nothingNew) {
		counts := []int{1, 2, 4}
		var measures []func() (result, error)
		for _, n := range counts {
			measures = append(measures, func() (result, error) { return h.drive(ctx, servers[:n], o, p.load(16)) })
		}
		all, err := byTurns(p.rounds, measures...)
		if err != nil {
			return err
		}
		for i, n := range counts {
			r.processes = append(r.processes, growthRow{o.name, fmt.Sprint(n), 16, all[i]})
		}
	}
	return nil
}

// checkBooks holds what all ledgers say against the payee's balance, to the unit.
func checkBooks(ctx context.Context, m *machine, r *report) error {
	var sum uint64
	for _, h := range m.houses {
		books, err := pgx.Connect(ctx, h.url())
		if err != nil {
			return err
		}
		var paid, other, earned int64
		err = errors.Join(books.QueryRow(ctx, `
			SELECT count(*), count(*) FILTER (WHERE state <> 'delivered'), CAST(coalesce(sum(amount), 0) AS bigint) FROM payments`).Scan(&paid, &other, &earned), books.Close(ctx))
		if err != nil {
			return err
		}
		if other > 0 {
			return fmt.Errorf("%d payments of %s were not delivered", other, h.name)
		}
		r.paidCalls += paid
		sum += uint64(earned) //nolint:gosec // positive
	}
	if balance := m.ledger.Balance(devnet.Payee); balance != sum {
		return fmt.Errorf("the payee has %d, the ledgers say %d", balance, sum)
	}
	return nil
}
