//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/store"
)

// The limit that Parley is measured against is made of Parley's own statements: each request is made once, PostgreSQL
// logs what it is asked, and that becomes a script for pgbench. Nothing is copied by hand, so whatever the code comes to
// say to the database tomorrow is what it is held against then.

// statement is one statement with the values that it came with, as text; nil is NULL.
type statement struct {
	sql    string
	values []*string
}

// recorder runs requests through the server's own handler and reads in PostgreSQL's log what they asked.
type recorder struct {
	front    *httptest.Server
	database *store.Store
	counter  *counter
	log      string
}

// record prepares a recorder for Parley with payments, or without, that lets PostgreSQL log what it is asked, or not.
func (h *house) record(ctx context.Context, paid, logging bool) (*recorder, error) {
	counter, err := h.count(ctx)
	if err != nil {
		return nil, err
	}
	address := counter.through(h.machine, h.name)
	if logging {
		address += "&options=" + escape("-c log_statement=all")
	}
	database, err := store.Open(ctx, address)
	if err != nil {
		return nil, err
	}
	parley, err := newParley(configFor("http://recorder.test", h.facilitator.URL), database, slog.New(slog.DiscardHandler), paid)
	if err != nil {
		database.Close()
		return nil, err
	}
	// Only its handler: the recovery worker would speak in between.
	return &recorder{
		front: httptest.NewServer(parley.Handler()), database: database, counter: counter,
		log: filepath.Join(h.postgres.Folder(), "postgres.log"),
	}, nil
}

func (r *recorder) close() {
	r.front.Close()
	r.database.Close()
	_ = r.counter.listener.Close()
}

// recordings returns the statements of each request. All were made once before, so that nothing has to be prepared or looked
// up for the first time. The first one comes once more at the end: see writeScript.
func (r *recorder) recordings(ctx context.Context, o operation, requests []request) ([][]statement, error) {
	t, err := ask(ctx, r.front.URL, o)
	if err != nil {
		return nil, err
	}
	host := strings.TrimPrefix(r.front.URL, "http://")
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	defer connection.Close() //nolint:errcheck // nothing is lost
	log, err := os.Open(r.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // only read
	answers := bufio.NewReader(connection)
	var recorded [][]statement
	for _, request := range slices.Concat(requests, requests, requests[:1]) {
		wire, err := t.write(host, o, request)
		if err != nil {
			return nil, err
		}
		from, err := log.Seek(0, io.SeekEnd)
		if err != nil {
			return nil, err
		}
		if _, err := connection.Write(wire); err != nil {
			return nil, err
		}
		status, body, err := readAnswer(answers)
		if err != nil {
			return nil, err
		}
		if status != http.StatusOK {
			return nil, fmt.Errorf("answered %d: %.300s", status, body)
		}
		// PostgreSQL logs a statement before it runs it, so all of it is there.
		text, err := io.ReadAll(io.NewSectionReader(log, from, 1<<30))
		if err != nil {
			return nil, err
		}
		statements, err := readLog(string(text))
		if err != nil {
			return nil, err
		}
		recorded = append(recorded, statements)
	}
	return recorded[len(requests):], nil
}

var (
	logLine   = regexp.MustCompile(`^\d{4}-\d\d-\d\d \S+ \S+ \[\d+\] ([A-Z]+):  (.*)$`)
	logged    = regexp.MustCompile(`(?s)^(?:statement|execute [^:]*): (.*)$`)
	logValues = regexp.MustCompile(`(?s)\$\d+ = (NULL|'((?:[^']|'')*)')`)
)

// readLog reads statements and their values out of PostgreSQL's log.
func readLog(text string) ([]statement, error) {
	type entry struct{ kind, text string }
	var entries []entry
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if more, ok := strings.CutPrefix(line, "\t"); ok && len(entries) > 0 {
			entries[len(entries)-1].text += "\n" + more
		} else if match := logLine.FindStringSubmatch(line); match != nil {
			entries = append(entries, entry{match[1], match[2]})
		}
	}
	var statements []statement
	for _, entry := range entries {
		switch entry.kind {
		case "LOG":
			if match := logged.FindStringSubmatch(entry.text); match != nil {
				statements = append(statements, statement{sql: strings.TrimSuffix(strings.TrimSpace(match[1]), ";")})
			}
		case "DETAIL":
			if parameters, ok := strings.CutPrefix(entry.text, "parameters: "); ok && len(statements) > 0 {
				last := &statements[len(statements)-1]
				for _, match := range logValues.FindAllStringSubmatch(parameters, -1) {
					if match[1] == "NULL" {
						last.values = append(last.values, nil)
						continue
					}
					value := strings.ReplaceAll(match[2], "''", "'")
					last.values = append(last.values, &value)
				}
			}
		case "ERROR":
			return nil, errors.New("a statement failed: " + entry.text)
		}
	}
	for _, statement := range statements {
		if strings.Contains(strings.ToLower(statement.sql), "synchronous_commit") {
			return nil, errors.New("Parley turned durability off: " + statement.sql)
		}
	}
	return statements, nil
}

// ofAuthentication finds the statement that looks the caller up.
var ofAuthentication = regexp.MustCompile(`key_hash\s*=`)

// scripts records an operation and writes its scripts. Without payments, what is recorded is the operation's own
// statements and the look-up of the caller, which is left out; with payments, everything is kept.
func (h *house) scripts(ctx context.Context, o operation, paid bool) ([]string, error) {
	recorder, err := h.record(ctx, paid, true)
	if err != nil {
		return nil, err
	}
	defer recorder.close()
	server, err := pgx.Connect(ctx, h.url())
	if err != nil {
		return nil, err
	}
	defer server.Close(ctx)
	var all []string
	for said := range o.said {
		recorded, err := recorder.recordings(ctx, o, o.alike(said))
		if err != nil {
			return nil, fmt.Errorf("record %s: %w", o.name, err)
		}
		if !paid {
			for i := range recorded {
				recorded[i] = slices.DeleteFunc(recorded[i], func(s statement) bool { return ofAuthentication.MatchString(s.sql) })
			}
		}
		written, err := writeScript(ctx, server, recorded)
		if err != nil {
			return nil, fmt.Errorf("write a script for %s: %w", o.name, err)
		}
		all = append(all, written)
	}
	return all, nil
}

// writeScript makes one pgbench script of the recordings of equal requests by different callers in different places; each
// run of it does what one of them did. The last recording repeats the first: what differs between the two is made anew for each request.
func writeScript(ctx context.Context, server *pgx.Conn, recorded [][]statement) (string, error) {
	repeated, requests := recorded[len(recorded)-1], recorded[:len(recorded)-1]
	first := requests[0]
	var statements []string
	made := map[string]string{}
	for k, statement := range first {
		for _, other := range recorded {
			if len(other) != len(first) || other[k].sql != statement.sql {
				return "", fmt.Errorf("equal requests lead to different statements, such as %.200q and %.200q", statement.sql, other[min(k, len(other)-1)].sql)
			}
		}
		types, err := parameterTypes(ctx, server, statement)
		if err != nil {
			return "", err
		}
		values := make([]string, len(types))
		for p, kind := range types {
			column := make([]*string, len(requests))
			for i, request := range requests {
				column[i] = request[k].values[p]
			}
			values[p] = value(kind, column, repeated[k].values[p], made)
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
		statements = append(statements, blank.ReplaceAllString(sql, " ")+";\n")
	}
	text := strings.Join(statements, "")
	head := fmt.Sprintf("\\set i random(1, %d)\n", len(requests))
	for _, name := range slices.Sorted(maps.Values(made)) {
		head += fmt.Sprintf("\\set %s random(0, %d)\n", name, math.MaxInt64/2)
	}
	for name := range maps.Values(made) {
		uses := 0
		for _, statement := range statements {
			if strings.Contains(statement, ":"+name+" ") {
				uses++
			}
		}
		if uses > 1 { // statements of different transactions: now() would differ
			return head + "SELECT " + now + " AS made_at \\gset\n" + text, nil
		}
	}
	return head + strings.ReplaceAll(text, madeAt, now), nil
}

// A new id begins with the time, in milliseconds. Where several statements name the same new id, an extra one asks for the time.
const (
	now    = `CAST(extract(epoch FROM now()) * 1000 AS bigint)`
	madeAt = `CAST(:made_at AS bigint)`
)

var (
	parameter = regexp.MustCompile(`\$\d+`)
	quoted    = regexp.MustCompile(`'(?:[^']|'')*'`)
	blank     = regexp.MustCompile(`\s+`)
)

// parameterTypes asks PostgreSQL what the statement's parameters are.
func parameterTypes(ctx context.Context, server *pgx.Conn, s statement) ([]string, error) {
	if len(s.values) == 0 {
		return nil, nil
	}
	described, err := server.Prepare(ctx, "", s.sql)
	if err != nil {
		return nil, err
	}
	var types []string
	err = server.QueryRow(ctx, `SELECT array_agg(format_type(oid, NULL) ORDER BY n) FROM unnest($1::oid[]) WITH ORDINALITY o (oid, n)`, described.ParamOIDs).Scan(&types)
	return types, err
}

// value is the expression that stands for a parameter: the value itself where all requests have the same, one of the
// array of all values where they differ, and a new one where each request has one of its own. Of those only what must be
// unique is made anew (ids, nonces), and times; the rest is opaque to the database. Where several statements of a request
// have the same new id they get the same one, out of one random variable of the script, which made names.
func value(kind string, column []*string, repeated *string, made map[string]string) string {
	same := !slices.ContainsFunc(column, func(v *string) bool { return !equal(v, column[0]) })
	if element, isArray := strings.CutSuffix(kind, "[]"); isArray && (!same || !equal(column[0], repeated)) {
		if inner, ok := onlyElements(append(slices.Clone(column), repeated)); ok {
			last := len(inner) - 1
			return fmt.Sprintf("CAST(ARRAY[%s] AS %s)", value(element, inner[:last], inner[last], made), kind)
		}
	}
	switch {
	case !equal(column[0], repeated):
		switch {
		case kind == "uuid":
			name, ok := made[*repeated]
			if !ok {
				name = fmt.Sprintf("new%d", len(made))
				made[*repeated] = name
			}
			// Of version 7, as Parley's own: their order in the index is a part of what a message costs.
			return `CAST(lpad(to_hex(` + madeAt + `), 12, '0') || '7' || substr(md5(CAST(:` + name + ` AS text)), 1, 19) AS uuid)`
		case strings.HasPrefix(kind, "timestamp"):
			return "clock_timestamp()"
		case isNonce(*repeated):
			return `('0x' || replace(CAST(gen_random_uuid() AS text) || CAST(gen_random_uuid() AS text), '-', ''))`
		}
		return literal(kind, column[0])
	case same:
		return literal(kind, column[0])
	case strings.HasSuffix(kind, "[]"): // there are no arrays of arrays of different lengths
		return fmt.Sprintf("CAST((%s)[:i] AS %s)", literal("text[]", arrayOf(column)), kind)
	}
	return fmt.Sprintf("(%s)[:i]", literal(kind+"[]", arrayOf(column)))
}

// onlyElements returns the elements of PostgreSQL's array texts, if each has exactly one: calls that can be made together
// with others have arrays of one when they come alone.
func onlyElements(arrays []*string) (elements []*string, ok bool) {
	for _, array := range arrays {
		if array == nil {
			return nil, false
		}
		match := oneElement.FindStringSubmatch(*array)
		switch {
		case match == nil:
			return nil, false
		case match[1] != "":
			text := escaped.ReplaceAllString(match[1][1:len(match[1])-1], "$1")
			elements = append(elements, &text)
		case match[2] == "NULL":
			elements = append(elements, nil)
		default:
			elements = append(elements, &match[2])
		}
	}
	return elements, true
}

var (
	oneElement = regexp.MustCompile(`(?s)^\{(?:("(?:[^"\\]|\\.)*")|([^{},"\\]+))\}$`)
	escaped    = regexp.MustCompile(`(?s)\\(.)`)
)

func equal(a, b *string) bool { return a == b || (a != nil && b != nil && *a == *b) }

var nonceForm = regexp.MustCompile(`^0x[0-9a-f]{64}$`)

func isNonce(text string) bool { return nonceForm.MatchString(text) }

// arrayOf writes PostgreSQL's array text.
func arrayOf(column []*string) *string {
	parts := make([]string, len(column))
	for i, v := range column {
		parts[i] = "NULL"
		if v != nil {
			parts[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(*v) + `"`
		}
	}
	text := "{" + strings.Join(parts, ",") + "}"
	return &text
}

// literal writes a value so that neither psql's syntax nor pgbench's (:name) sees anything in it.
func literal(kind string, v *string) string {
	if v == nil {
		return "CAST(NULL AS " + kind + ")"
	}
	return "CAST(E'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, ":", `\x3a`, "\n", `\n`, "$", `\x24`).Replace(*v) + "' AS " + kind + ")"
}

// trips is what a request asks of the database.
type trips struct{ statements, roundTrips float64 }

// trips counts over some hundred requests, at one client or more: those that come together may be made with one statement.
func (h *house) trips(ctx context.Context, o operation, clients int) (trips, error) {
	r, err := h.record(ctx, true, false)
	if err != nil {
		return trips{}, err
	}
	defer r.close()
	t, err := ask(ctx, r.front.URL, o)
	if err != nil {
		return trips{}, err
	}
	front := []*process{{url: r.front.URL}}
	var s0, t0, n float64
	for range 2 { // first so that all connections are there and all statements prepared
		signed, err := t.sign(strings.TrimPrefix(r.front.URL, "http://"), o, 40+4*clients)
		if err != nil {
			return trips{}, err
		}
		s0, t0 = r.counter.soFar()
		if _, _, err := hammer(ctx, front, signed, load{clients: clients, time: time.Minute, status: http.StatusOK}); err != nil {
			return trips{}, err
		}
		n = float64(len(signed))
	}
	s1, t1 := r.counter.soFar()
	return trips{(s1 - s0) / n, (t1 - t0) / n}, nil
}
