//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/store"
)

// The limit that Parley is measured against consists of Parley's own statements: each request is made once on a server
// without prices, PostgreSQL logs the statements, and they become a script for pgbench. So the limit follows the code.

// statement is one statement with its values as text; nil is NULL.
type statement struct {
	sql    string
	values []*string
}

// authentication matches the statement that finds the caller.
var authentication = regexp.MustCompile(`key_hash\s*=`)

// scripts records an operation and writes one pgbench script for each of its texts. The lookup of the caller is left out.
func (d *dataset) scripts(ctx context.Context, o operation) ([]string, error) {
	database, err := store.Open(ctx, d.url()+"&options="+escape("-c log_statement=all"))
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
	var scripts []string
	for variant := range o.variants {
		recorded, err := d.record(ctx, front.URL, o, o.ofVariant(variant))
		if err != nil {
			return nil, fmt.Errorf("record %s: %w", o.name, err)
		}
		written, err := writeScript(ctx, connection.Conn(), recorded)
		if err != nil {
			return nil, fmt.Errorf("write a script for %s: %w", o.name, err)
		}
		scripts = append(scripts, written)
	}
	return scripts, nil
}

// record returns the statements of each request. Every request is made once before, so that statements are prepared and
// caches are filled. The first request is repeated at the end: see writeScript.
func (d *dataset) record(ctx context.Context, url string, o operation, requests []request) ([][]statement, error) {
	log, err := os.Open(filepath.Join(d.postgres.Folder(), "postgres.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // only read
	s := &signer{host: strings.TrimPrefix(url, "http://"), operation: o}
	var recorded [][]statement
	for _, request := range slices.Concat(requests, requests, requests[:1]) {
		wire, err := s.write(request)
		if err != nil {
			return nil, err
		}
		from, err := log.Seek(0, io.SeekEnd)
		if err != nil {
			return nil, err
		}
		if _, _, err := send(ctx, s.host, [][]byte{wire}, load{clients: 1, time: time.Minute, status: http.StatusOK}); err != nil {
			return nil, err
		}
		// PostgreSQL logs a statement before it runs it, so the log is complete.
		text, err := io.ReadAll(io.NewSectionReader(log, from, 1<<30))
		if err != nil {
			return nil, err
		}
		statements, err := readLog(string(text))
		if err != nil {
			return nil, err
		}
		recorded = append(recorded, slices.DeleteFunc(statements, func(s statement) bool { return authentication.MatchString(s.sql) }))
	}
	return recorded[len(requests):], nil
}

var (
	logLine   = regexp.MustCompile(`^\d{4}-\d\d-\d\d \S+ \S+ \[\d+\] ([A-Z]+):  (.*)$`)
	logged    = regexp.MustCompile(`(?s)^(?:statement|execute [^:]*): (.*)$`)
	logValues = regexp.MustCompile(`(?s)\$\d+ = (NULL|'((?:[^']|'')*)')`)
)

// readLog reads statements and their values from PostgreSQL's log.
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
			if strings.Contains(strings.ToLower(entry.text), "synchronous_commit") {
				return nil, errors.New("Parley turned durability off: " + entry.text)
			}
		case "DETAIL":
			if !strings.HasPrefix(strings.ToLower(entry.text), "parameters: ") || len(statements) == 0 {
				continue
			}
			last := &statements[len(statements)-1]
			for _, match := range logValues.FindAllStringSubmatch(entry.text, -1) {
				value := strings.ReplaceAll(match[2], "''", "'")
				last.values = append(last.values, &value)
				if match[1] == "NULL" {
					last.values[len(last.values)-1] = nil
				}
			}
		case "ERROR":
			return nil, errors.New("a statement failed: " + entry.text)
		}
	}
	return statements, nil
}
