//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/parley-chat/parley/store"
)

// The limit that Parley is measured against consists of Parley's own statements: each request is made once on a server
// without prices, PostgreSQL logs the statements, and they become a script for pgbench. So the limit follows the code.

// statement is one statement with its values as text; nil is NULL.
type statement struct {
	sql    string
	values []*string
}

// left matches what a script leaves out: the statement that finds the caller, and the driver's check of an idle connection.
var left = regexp.MustCompile(`key_hash\s*=|^-- ping`)

// scripts records an operation and writes one pgbench script for each of its texts.
func (d *dataset) scripts(ctx context.Context, o operation) (scripts []string, err error) {
	database, err := store.Open(ctx, d.url()+"&options=-c%20log_statement%3Dall", store.Limits{})
	if err != nil {
		return nil, err
	}
	defer database.Close()
	free, err := newFreeParley("http://recorder.test", database, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	front := httptest.NewServer(free.Handler()) // only the handler: the recovery worker would add its statements
	defer front.Close()
	connection, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer connection.Release()
	s := &signer{hosts: []string{front.Listener.Addr().String()}, operation: o}
	for variant := range o.variants {
		var requests []request
		for i := variant; i < len(o.requests); i += o.variants {
			requests = append(requests, o.requests[i])
		}
		recorded, err := d.record(ctx, s, requests)
		if err != nil {
			return nil, fmt.Errorf("record %s: %w", o.name, err)
		}
		script, err := writeScript(ctx, connection.Conn(), recorded)
		if err != nil {
			return nil, fmt.Errorf("write a script for %s: %w", o.name, err)
		}
		scripts = append(scripts, script)
	}
	return scripts, nil
}

// record returns the statements of each request. Every request is made once before, so that statements are prepared and
// caches are filled. The first request is repeated at the end: see writeScript.
func (d *dataset) record(ctx context.Context, s *signer, requests []request) (recorded [][]statement, err error) {
	log, err := os.Open(filepath.Join(d.postgres.Folder(), "postgres.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // only read
	for _, request := range slices.Concat(requests, requests, requests[:1]) {
		wire, err := s.write(ctx, request, nil)
		if err != nil {
			return nil, err
		}
		if _, err := log.Seek(0, io.SeekEnd); err != nil {
			return nil, err
		}
		if _, err := s.send(ctx, [][]byte{wire}, 1, time.Minute); err != nil {
			return nil, err
		}
		text, err := io.ReadAll(log) // PostgreSQL logs a statement before it runs it, so the log is complete
		if err != nil {
			return nil, err
		}
		statements, err := readLog(string(text))
		if err != nil {
			return nil, err
		}
		recorded = append(recorded, slices.DeleteFunc(statements, func(s statement) bool { return left.MatchString(s.sql) }))
	}
	return recorded[len(requests):], nil
}

var (
	logEntry  = regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d \S+ \S+ \[\d+\] ([A-Z]+):  (.*(?:\n\t.*)*)$`)
	logged    = regexp.MustCompile(`(?s)^(?:statement|execute [^:]*): (.*)$`)
	logValues = regexp.MustCompile(`(?s)\$\d+ = (NULL|'((?:[^']|'')*)')`)
)

// readLog reads statements and their values from PostgreSQL's log, in which further lines of an entry begin with a tab.
func readLog(text string) (statements []statement, err error) {
	for _, entry := range logEntry.FindAllStringSubmatch(text, -1) {
		kind, text := entry[1], strings.ReplaceAll(entry[2], "\n\t", "\n")
		switch kind {
		case "LOG":
			if match := logged.FindStringSubmatch(text); match != nil {
				statements = append(statements, statement{sql: strings.TrimSuffix(strings.TrimSpace(match[1]), ";")})
			}
			if strings.Contains(strings.ToLower(text), "synchronous_commit") {
				return nil, errors.New("Parley turned durability off: " + text)
			}
		case "DETAIL":
			if !strings.HasPrefix(strings.ToLower(text), "parameters: ") || len(statements) == 0 {
				continue
			}
			last := &statements[len(statements)-1]
			for _, match := range logValues.FindAllStringSubmatch(text, -1) {
				value := new(strings.ReplaceAll(match[2], "''", "'"))
				if match[1] == "NULL" {
					value = nil
				}
				last.values = append(last.values, value)
			}
		case "ERROR":
			return nil, errors.New("a statement failed: " + text)
		}
	}
	return statements, nil
}

var (
	parameter = regexp.MustCompile(`\$\d+`)
	quoted    = regexp.MustCompile(`'(?:[^']|'')*'`)
	blank     = regexp.MustCompile(`\s+`)

	// A call without payment sends a message in one transaction: it locks the conversation, reads its last number in Go, and
	// writes the next one. The script does the same with pgbench's \gset, which keeps the columns of a row as variables.
	locking   = regexp.MustCompile(`FROM "conversations" .*FOR NO KEY UPDATE$`)
	numbering = regexp.MustCompile(`^INSERT INTO "messages"|^UPDATE "conversations" SET "last_number"`)
)

const nextNumber = "CAST(:last_number AS int8) + 1"

// writeScript makes one pgbench script from the recordings of equal requests by different callers to different
// conversations; each run of the script does what one of them did. The last recording repeats the first: what differs
// between the two is new in each request.
func writeScript(ctx context.Context, connection *pgx.Conn, recorded [][]statement) (string, error) {
	repeated, requests := recorded[len(recorded)-1], recorded[:len(recorded)-1]
	first := requests[0]
	var script strings.Builder
	made := map[string]string{}
	for k, statement := range first {
		for _, other := range recorded {
			if len(other) != len(first) || other[k].sql != statement.sql {
				return "", fmt.Errorf("equal requests lead to different statements, such as %.200q and %.200q", statement.sql,
					other[min(k, len(other)-1)].sql)
			}
		}
		described, err := connection.Prepare(ctx, "", statement.sql)
		if err != nil {
			return "", err
		}
		values := make([]string, len(statement.values))
		for p := range values {
			kind := typeName(described.ParamOIDs[p])
			column := make([]*string, len(requests))
			for i, request := range requests {
				column[i] = request[k].values[p]
			}
			if kind == "int8" && numbering.MatchString(statement.sql) && !equal(column[0], repeated[k].values[p]) {
				values[p] = nextNumber
			} else {
				values[p] = value(kind, column, repeated[k].values[p], made)
			}
		}
		sql := quoted.ReplaceAllStringFunc(statement.sql, func(text string) string {
			if !strings.Contains(text, ":") {
				return text
			}
			text = strings.ReplaceAll(text[1:len(text)-1], "''", "'")
			return literal("text", &text)
		})
		sql = parameter.ReplaceAllStringFunc(sql, func(name string) string {
			number, _ := strconv.Atoi(name[1:])
			return values[number-1]
		})
		end := ";\n"
		if locking.MatchString(statement.sql) {
			end = " \\gset\n"
		}
		script.WriteString(blank.ReplaceAllString(sql, " ") + end)
	}
	head := fmt.Sprintf("\\set i random(1, %d)\n", len(requests))
	for _, name := range slices.Sorted(maps.Values(made)) {
		head += fmt.Sprintf("\\set %s random(0, %d)\n", name, math.MaxInt64/2)
	}
	return head + script.String(), nil
}

// value is the expression for a parameter: the value itself if all requests have the same, an element of the array of all
// values if they differ, and a new value if each request has its own. New are ids, which must be unique, and times; other
// values are opaque to the database. Equal new ids of one request come from one random variable of the script, whose name
// is in made.
func value(kind string, column []*string, repeated *string, made map[string]string) string {
	same := !slices.ContainsFunc(column, func(v *string) bool { return !equal(v, column[0]) })
	if element, isArray := strings.CutPrefix(kind, "_"); isArray && (!same || !equal(column[0], repeated)) {
		if inner, ok := onlyElements(append(slices.Clone(column), repeated)); ok {
			last := len(inner) - 1
			return fmt.Sprintf("CAST(ARRAY[%s] AS %s)", value(element, inner[:last], inner[last], made), kind)
		}
	}
	isNew := !equal(column[0], repeated)
	switch {
	case isNew && kind == "uuid":
		name, ok := made[*repeated]
		if !ok {
			name = fmt.Sprintf("new%d", len(made))
			made[*repeated] = name
		}
		// Version 7 begins with the time in milliseconds, as Parley's own ids do: their order in the index is a part of the cost.
		const now = `CAST(extract(epoch FROM now()) * 1000 AS bigint)`
		return `CAST(lpad(to_hex(` + now + `), 12, '0') || '7' || substr(md5(CAST(:` + name + ` AS text)), 1, 19) AS uuid)`
	case isNew && strings.HasPrefix(kind, "timestamp"):
		return "clock_timestamp()"
	case isNew || same:
		return literal(kind, column[0])
	case strings.HasPrefix(kind, "_"): // there are no arrays of arrays of different lengths
		return fmt.Sprintf("CAST((%s)[:i] AS %s)", literal("_text", arrayOf(column)), kind)
	}
	return fmt.Sprintf("(%s)[:i]", literal("_"+kind, arrayOf(column)))
}

var postgresTypes = pgtype.NewMap()

// typeName returns PostgreSQL's name of a type: "_int8" for an array of "int8".
func typeName(oid uint32) string {
	if known, ok := postgresTypes.TypeForOID(oid); ok {
		return known.Name
	}
	return "text"
}

// onlyElements returns the elements of PostgreSQL's array texts if each array has exactly one: a call that can share a
// statement with others has arrays of one when it comes alone.
func onlyElements(arrays []*string) (elements []*string, ok bool) {
	for _, array := range arrays {
		var inner []*string
		if array == nil || postgresTypes.Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(*array), &inner) != nil || len(inner) != 1 {
			return nil, false
		}
		elements = append(elements, inner[0])
	}
	return elements, true
}

// arrayOf writes PostgreSQL's array text.
func arrayOf(column []*string) *string {
	encoded, err := postgresTypes.Encode(pgtype.TextArrayOID, pgtype.TextFormatCode, column, nil)
	if err != nil {
		panic(err) // every text has an array text
	}
	text := string(encoded)
	return &text
}

func equal(a, b *string) bool { return a == b || (a != nil && b != nil && *a == *b) }

// literal writes a value without characters that psql or pgbench (:name) interpret.
func literal(kind string, v *string) string {
	if v == nil {
		return "CAST(NULL AS " + kind + ")"
	}
	return "CAST(E'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, ":", `\x3a`, "\n", `\n`, "$", `\x24`).Replace(*v) + "' AS " + kind + ")"
}
