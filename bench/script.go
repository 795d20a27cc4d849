//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

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
				return "", fmt.Errorf("equal requests lead to different statements, such as %.200q and %.200q", statement.sql, other[min(k, len(other)-1)].sql)
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
