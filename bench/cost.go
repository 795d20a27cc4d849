//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
)

// diskRow is how much of a table or an index there is for each of its rows.
type diskRow struct {
	What  string
	Rows  int64
	Bytes float64 // of all
}

// disk looks at what messages take, the table and each of its indexes, and what the payments of each operation take.
func (p plan) disk(ctx context.Context, h *house, r *report) error {
	connection, err := h.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer connection.Release()
	add := func(label, table string) error {
		rows, err := connection.Query(ctx, `
			SELECT $1 || CASE relkind WHEN 'r' THEN '' ELSE ', ' || relname END, (SELECT count(*) FROM `+table+`),
				CAST(CASE relkind WHEN 'r' THEN pg_table_size(c.oid) ELSE pg_relation_size(c.oid) END AS float)
			FROM pg_class c WHERE c.oid = $2::regclass OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = $2::regclass)
			ORDER BY relkind DESC, relname`, label, table)
		if err != nil {
			return err
		}
		parts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[diskRow])
		r.disk = append(r.disk, parts...)
		return err
	}
	if err := add("messages", "messages"); err != nil {
		return err
	}
	// Copied, so that there is nothing in it but these rows: in the ledger itself they share pages with those of all
	// others and with what is to be vacuumed.
	operations, err := column[string](ctx, h.pool, `SELECT operation FROM payments WHERE state = 'delivered' GROUP BY operation HAVING count(*) >= 1000 ORDER BY operation`)
	if err != nil {
		return err
	}
	for _, operation := range operations {
		if _, err := connection.Exec(ctx, `CREATE TEMP TABLE paid (LIKE payments INCLUDING ALL)`); err != nil {
			return err
		}
		if _, err := connection.Exec(ctx, `INSERT INTO paid SELECT * FROM payments WHERE state = 'delivered' AND operation = $1 LIMIT 20000`, operation); err != nil {
			return err
		}
		before := len(r.disk)
		if err := add("payments for "+operation, "paid"); err != nil {
			return err
		}
		sum := r.disk[before] // all of its indexes in one line
		for _, index := range r.disk[before+1:] {
			sum.Bytes += index.Bytes
		}
		sum.What += ", with indexes"
		r.disk = append(r.disk[:before+1], sum)
		if _, err := connection.Exec(ctx, `DROP TABLE paid`); err != nil {
			return err
		}
	}
	return nil
}

// searchRow compares one search of the archive with reading all of it.
type searchRow struct {
	name, query string
	found       int64
	ours        time.Duration // paid, over HTTP; all are medians, at one client
	statements  time.Duration // by pgbench
	scan        time.Duration // by PostgreSQL's regular expressions
	folded      time.Duration // by Parley's own condition for a literal; 0 for what is none
}

// patterns are what is looked for in the archive: with literals, with few, with none, and what makes a matcher work.
var patterns = []struct{ name, query string }{
	{"a rare word", rareWord},
	{"a word in every tenth message", "harvest"},
	{"a word that nobody wrote", "quetzalcoatl"},
	{"literals around a choice", `train to (Lisbon|Porto) leaves`},
	{"a short literal", `OK`},
	{"no literal", `[0-9]{3} [a-z]+ [0-9]+`},
	{"no literal, no match", `[0-9]{4} [0-9]{4}`},
	{"many repetitions", `([a-z]+ ){12}[0-9]{3}\.`},
}

// search holds message search against what SQL does without an index: the conversation's messages, one by one.
func (p plan) search(ctx context.Context, h *house, r *report) error {
	server, err := h.serve(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	connection, err := h.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer connection.Release()
	if _, err := connection.Exec(ctx, `SET enable_indexscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0`); err != nil {
		return err
	}
	defer func() { _, _ = connection.Exec(ctx, `RESET ALL`) }() // the connection goes back
	// The archive alone, in a table of its own: a scan of all conversations would be a weak rival.
	if _, err := connection.Exec(ctx, `CREATE TEMP TABLE archive AS SELECT number, content FROM messages WHERE conversation_id = $1`, h.archive); err != nil {
		return err
	}
	for _, pattern := range patterns {
		row := searchRow{name: pattern.name, query: pattern.query}
		o := h.searching(pattern.name, pattern.query)
		scripts, err := h.scripts(ctx, o, false)
		if err != nil {
			return err
		}
		scan := func(condition string) func() (result, error) {
			return func() (result, error) {
				began := time.Now()
				err := connection.QueryRow(ctx, `SELECT count(*) FROM archive WHERE `+condition, pattern.query).Scan(&row.found)
				return result{p50: time.Since(began)}, err
			}
		}
		measures := []func() (result, error){
			func() (result, error) {
				return h.drive(ctx, []*process{server}, o, load{clients: 1, time: time.Second / 2, status: http.StatusOK})
			},
			func() (result, error) { return h.limit(ctx, scripts, 1, 1) },
			scan(`content ~* $1`),
		}
		if regexp.QuoteMeta(pattern.query) == pattern.query {
			measures = append(measures, scan(`fold(content) LIKE '%' || fold($1) || '%'`))
		}
		all, err := byTurns(3, measures...)
		if err != nil {
			return fmt.Errorf("%s: %w", pattern.name, err)
		}
		row.ours, row.statements, row.scan = all[0].p50, all[1].p50, all[2].p50
		if len(all) > 3 {
			row.folded = all[3].p50
		}
		r.search = append(r.search, row)
	}
	_, err = connection.Exec(ctx, `DROP TABLE archive`)
	return err
}

// searchIndex measures a send's own statement with the index for message search, and without.
func (p plan) searchIndex(ctx context.Context, h *house, r *report) error {
	scripts, err := h.scripts(ctx, h.named(sendMany)[0], false)
	if err != nil {
		return err
	}
	measure := func() (result, error) { return h.limit(ctx, scripts, 16, p.seconds) }
	with, err := byTurns(p.rounds, measure)
	if err != nil {
		return err
	}
	if _, err := h.pool.Exec(ctx, `DROP INDEX messages_search`); err != nil {
		return err
	}
	without, err := byTurns(p.rounds, measure)
	if err != nil {
		return err
	}
	r.withIndex, r.withoutIndex = with[0], without[0]
	return nil
}
