//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/x402"
)

// measure measures the parts that are selected, or two builds.
func (b *bench) measure(ctx context.Context) error {
	if err := b.open(ctx); err != nil {
		return err
	}
	parts := []struct {
		name    string
		measure func(*dataset, context.Context) error
	}{
		{"operations", (*dataset).limits}, {"floor", (*dataset).floor}, {"payments", (*dataset).payments}, {"search", (*dataset).search},
		{"growth", (*dataset).growth}, {"servers", (*dataset).servers}, {"tracing", (*dataset).tracing}, {"retention", (*dataset).retention},
	}
	if b.before != "" {
		parts = parts[:1]
		parts[0].name, parts[0].measure = "builds", (*dataset).builds
	}
	d, err := b.newDataset(ctx, "parley", b.program, b.scale)
	if err != nil {
		return err
	}
	if err := b.describe(ctx, d); err != nil {
		return err
	}
	for _, part := range parts {
		if !b.part.MatchString(part.name) {
			continue
		}
		note("%s", part.name)
		if err := part.measure(d, ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		b.stopServers()
	}
	return b.checkLedger(ctx)
}

// limits compares each operation with its limit.
func (d *dataset) limits(ctx context.Context) error {
	server, err := d.serve(ctx)
	if err != nil {
		return err
	}
	goals := map[string]float64{sendMany: 0.40, sendOne: 1, newest: 0.20, nothingNew: 0.08}
	for _, o := range d.matching(&d.only) {
		scripts, err := d.scripts(ctx, o)
		if err != nil {
			return err
		}
		seen, err := d.compare("Operations", o.name, d.clients, d.rounds,
			side{"pgbench", func(clients int) (result, error) { return d.limit(ctx, scripts, clients, d.seconds) }},
			d.calls(ctx, "Parley", o, server))
		if err != nil {
			return err
		}
		if goal, ok := goals[o.name]; ok {
			d.goal(o.name+", part of the limit at 16 clients", seen[16][1][perSecond]/seen[16][0][perSecond], atLeast, goal)
		}
		if o.name == sendOne || o.name == sendMany {
			d.goal(o.name+", p99 : p50 at 64 clients", seen[64][1][p99]/seen[64][1][p50], atMost, 15)
		}
	}
	status, err := server.stats.NewStatus()
	d.goal("peak memory of the server in this part, MiB", float64(status.VmHWM)/(1<<20), atMost, 150)
	return err
}

// calls is the side that sends an operation's requests to the servers, which share the clients.
func (d *dataset) calls(ctx context.Context, name string, o operation, servers ...*process) side {
	return side{name, func(clients int) (result, error) { return d.drive(ctx, o, clients, servers...) }}
}

// builds compares two builds of Parley. Each has a database of its own, with its own schema.
func (d *dataset) builds(ctx context.Context) error {
	before, err := d.newDataset(ctx, "before", d.before, d.scale)
	if err != nil {
		return err
	}
	for _, o := range d.matching(&d.only) {
		if _, err := d.compareWith(ctx, before, "Builds", o.name, 16, 64); err != nil {
			return err
		}
	}
	return nil
}

// growth compares the dataset with one of a tenth of its size.
func (d *dataset) growth(ctx context.Context) error {
	small, err := d.newDataset(ctx, "a tenth of the data", d.program, d.scale/10)
	if err != nil {
		return err
	}
	for _, name := range []string{sendMany, newest, nothingNew} {
		seen, err := d.compareWith(ctx, small, "Growth", name, 1, 16)
		if err != nil {
			return err
		}
		d.goal(name+", p50 with ten times the data, 16 clients", seen[16][1][p50]/seen[16][0][p50], atMost, 1.2)
	}
	return nil
}

// compareWith compares an operation on two datasets, each served by the build that made it.
func (d *dataset) compareWith(ctx context.Context, before *dataset, part, operation string, clients ...int) (map[int][maxSides]result,
	error) {
	var sides []side
	for _, d := range []*dataset{before, d} {
		server, err := d.serve(ctx, d.withChannels())
		if err != nil {
			return nil, err
		}
		sides = append(sides, d.calls(ctx, d.name, d.named(operation), server))
	}
	return d.compare(part, operation, clients, d.rounds+1, sides...)
}

// floor compares price inquiries with an empty handler: with one offer, and with that of payment channels too.
func (d *dataset) floor(ctx context.Context) error {
	empty, err := d.serveReference(ctx, emptyHandler)
	if err != nil {
		return err
	}
	one, err := d.serve(ctx)
	if err != nil {
		return err
	}
	two, err := d.serve(ctx, d.withChannels())
	if err != nil {
		return err
	}
	nothing := operation{method: http.MethodPost, status: http.StatusOK, requests: []request{{target: "/"}}}
	inquiry := operation{method: http.MethodPost, status: http.StatusPaymentRequired,
		requests: []request{{caller: d.writers[0], target: sendPath}}}
	seen, err := d.compare("The floor", "price inquiry", d.clients, d.rounds, d.calls(ctx, "empty handler", nothing, empty),
		d.calls(ctx, "402, one offer", inquiry, one), d.calls(ctx, "402, two offers", inquiry, two))
	d.goal("price inquiry, processor time against an empty handler", seen[16][1][serverCPU]/seen[16][0][serverCPU], atMost, 1.5)
	d.goal("price inquiry with two offers, processor time against one offer", seen[16][2][serverCPU]/seen[16][1][serverCPU], atMost, 1.05)
	return err
}

// payments compares the server with one whose operations are free: each payment settled, and from a payment channel.
func (d *dataset) payments(ctx context.Context) error {
	free, err := d.serveReference(ctx, freeParley)
	if err != nil {
		return err
	}
	channels, err := d.serve(ctx, d.withChannels())
	if err != nil {
		return err
	}
	exact, err := d.serve(ctx)
	if err != nil {
		return err
	}
	goals := map[string]struct{ exact, voucher float64 }{sendMany: {2, 1.3}, newest: {3, 1.7}, nothingNew: {5, 2}}
	for _, name := range []string{sendMany, newest, nothingNew} {
		if !d.only.MatchString(name) {
			continue
		}
		o := d.named(name)
		compared, err := d.compare("What a payment costs", name, []int{16, 64}, d.rounds,
			d.calls(ctx, "free", o, free), d.calls(ctx, "voucher", o, channels), d.calls(ctx, "exact", o, exact))
		if err != nil {
			return err
		}
		seen := compared[16]
		cpu := func(side int) float64 { return seen[side][serverCPU] + seen[side][pgCPU] }
		d.goal(name+", rate free : exact at 16 clients", seen[0][perSecond]/seen[2][perSecond], atMost, goals[name].exact)
		d.goal(name+", rate free : voucher at 16 clients", seen[0][perSecond]/seen[1][perSecond], atMost, goals[name].voucher)
		d.goal(name+", processor time voucher : free at 16 clients", cpu(1)/cpu(0), atMost, goals[name].voucher)
	}
	return nil
}

// tracing compares a server that traces no requests with servers that trace one of ten, and all. The collector forgets the spans.
func (d *dataset) tracing(ctx context.Context) error {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collector.Close()
	// All offer the same resource, so a payment is good for each.
	var servers []*process
	for _, ratio := range []string{"", "0.1", "1"} {
		settings := []string{"PARLEY_BASE_URL=http://parley.test", d.withChannels()}
		if ratio != "" {
			settings = append(settings, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_TRACES_SAMPLER_ARG="+ratio)
		}
		server, err := d.serve(ctx, settings...)
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
	first := len(d.comparisons)
	for _, o := range []operation{d.named(sendMany), d.named(newest)} {
		if !d.only.MatchString(o.name) {
			continue
		}
		if _, err := d.compare("Tracing", o.name, []int{16, 64}, 2*d.rounds, d.calls(ctx, "off", o, servers[0]),
			d.calls(ctx, "10 %", o, servers[1]), d.calls(ctx, "100 %", o, servers[2])); err != nil {
			return err
		}
	}
	var ratios []float64 // of all rounds: the effect is smaller than the noise of one
	for _, c := range d.comparisons[first:] {
		ratios = append(ratios, c.ratios(1, perSecond)...)
	}
	if ratios != nil {
		d.goal("rate with 10 % of the requests traced against none, median of all rounds", middle(ratios), atLeast, 0.95)
	}
	return nil
}

// patterns are searches of the archive: with literals, with few, with none, and some that are expensive to match.
var patterns = []string{
	rareWord, "harvest", "quetzalcoatl", `train to (Lisbon|Porto) leaves`, `OK`, `[0-9]{3} [a-z]+ [0-9]+`, `[0-9]{4} [0-9]{4}`,
	`([a-z]+ ){12}[0-9]{3}\.`,
}

// search compares message search with a scan by PostgreSQL of a table that holds only the messages of the conversation.
func (d *dataset) search(ctx context.Context) error {
	server, err := d.serve(ctx)
	if err != nil {
		return err
	}
	connection, err := pgx.Connect(ctx, d.url())
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	archive := literal("uuid", new(d.archive.String()))
	if _, err := connection.Exec(ctx, `
		CREATE TEMP TABLE archive AS SELECT content FROM messages WHERE conversation_id = `+archive+`;
		SET max_parallel_workers_per_gather = 0`); err != nil {
		return err
	}
	scan := func(query, condition string) side {
		return side{"scan " + condition, func(int) (result, error) {
			began := time.Now()
			_, err := connection.Exec(ctx, `SELECT count(*) FROM archive WHERE `+condition, query)
			took := time.Since(began)
			return result{perSecond: 1 / took.Seconds(), p50: ms(took)}, err
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
			d.calls(ctx, "Parley", o, server),
			{"its statements, by pgbench", func(int) (result, error) { return d.limit(ctx, scripts, 1, 1) }},
			scan(query, `content ~* $1`),
		}
		if regexp.QuoteMeta(query) == query { // the condition of Parley's index, for a literal
			sides = append(sides, scan(query, `fold(content) LIKE '%' || fold($1) || '%'`))
		}
		compared, err := d.compare("Message search", "`"+query+"`", []int{1}, d.rounds+1, sides...)
		if err != nil {
			return err
		}
		seen := compared[1]
		scanned := max(seen[2][p50], seen[len(sides)-1][p50])
		slowest = max(slowest, seen[0][p50]/scanned)
		if query == rareWord {
			d.goal("search for a rare word, times faster than a scan", scanned/seen[0][p50], atLeast, 300)
		}
	}
	d.goal("the slowest search, its time against a scan", slowest, atMost, 1)
	return nil
}

// checkLedger compares what all ledgers say with the payee's balance, to the unit. Servers first claim what payment
// channels were charged, and settle what is open.
func (b *bench) checkLedger(ctx context.Context) error {
	for _, d := range b.datasets {
		if _, err := d.serve(ctx, d.withChannels(), "PARLEY_CHANNEL_CLAIM_AGE=1s"); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		err := b.compareLedgers(ctx)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (b *bench) compareLedgers(ctx context.Context) error {
	var sum, charged uint64
	b.paidCalls, b.vouchers = 0, 0
	for _, d := range b.datasets {
		var paid, vouchers, other, earned, byVoucher int64
		if err := d.pool.QueryRow(ctx, `
			SELECT count(*), count(*) FILTER (WHERE scheme = $1), count(*) FILTER (WHERE state <> 'delivered'),
				CAST(coalesce(sum(amount), 0) AS bigint), CAST(coalesce(sum(amount) FILTER (WHERE scheme = $1), 0) AS bigint)
			FROM payments`, x402.SchemeBatch).Scan(&paid, &vouchers, &other, &earned, &byVoucher); err != nil {
			return err
		}
		if other > 0 {
			return fmt.Errorf("%d payments of %s were not delivered", other, d.name)
		}
		for _, channel := range d.channels {
			charged += channel.charged
		}
		b.paidCalls, b.vouchers = b.paidCalls+paid, b.vouchers+vouchers
		sum += uint64(earned)        //nolint:gosec // positive
		charged -= uint64(byVoucher) //nolint:gosec // positive
	}
	if charged != 0 {
		return fmt.Errorf("the vouchers that were used are worth %d more than the calls that they paid",
			int64(charged)) //nolint:gosec // may be negative
	}
	if balance := b.ledger.Balance(devnet.Payee); balance != sum {
		return fmt.Errorf("the payee has %d, the ledgers say %d", balance, sum)
	}
	return nil
}
