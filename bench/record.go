//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// left matches what a script leaves out: the statement that finds the caller, and the driver's check of an idle connection.
var left = regexp.MustCompile(`key_hash\s*=|^-- ping`)

// scripts records an operation and writes one pgbench script for each of its texts.
func (d *dataset) scripts(ctx context.Context, o operation) (scripts []string, err error) {
	database, err := store.Open(ctx, d.url()+"&options=-c%20log_statement%3Dall")
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
	s := &signer{host: front.Listener.Addr().String(), operation: o}
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
		wire, err := s.write(request)
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
