package store_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// indexMigration builds an index as CONTRIBUTING.md says.
const indexMigration = `-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS agents_trial;
CREATE INDEX CONCURRENTLY agents_trial ON agents (created_at);
RESET lock_timeout;
`

// withMigration returns the migrations of this program and another one.
func withMigration(t *testing.T, text string) fs.FS {
	t.Helper()
	files := fstest.MapFS{"migrations/90001_trial.sql": {Data: []byte(text)}}
	paths, err := fs.Glob(os.DirFS("."), "migrations/*.sql")
	testkit.NoError(t, err)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		testkit.NoError(t, err)
		files[path] = &fstest.MapFile{Data: data}
	}
	return files
}

func nothing(string) {}

// busy begins a transaction that changes agents, and returns a function that ends it.
func busy(t *testing.T, url string) (end func()) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	if err == nil {
		_, err = connection.Exec(t.Context(), "BEGIN; UPDATE agents SET is_discoverable = true")
	}
	testkit.NoError(t, err)
	return func() { _ = connection.Close(context.WithoutCancel(t.Context())) }
}

// lookUp returns the text that a query returns.
func lookUp(t *testing.T, url, query string) (text string) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	if err == nil {
		err = connection.QueryRow(t.Context(), query).Scan(&text)
		err = errors.Join(err, connection.Close(t.Context()))
	}
	testkit.NoError(t, err)
	return text
}

const (
	// indexState is whether the index of indexMigration is valid.
	indexState = `SELECT coalesce((SELECT CASE WHEN indisvalid THEN 'valid' ELSE 'invalid' END FROM pg_index
		WHERE indexrelid = to_regclass('agents_trial')), 'missing')`
	// builds counts the builds of that index.
	builds = `SELECT count(*)::text FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE 'CREATE INDEX CONCURRENTLY%' AND state = 'active'`
	// waiting counts those that wait for another transaction.
	waiting = builds + ` AND wait_event_type = 'Lock'`
)

// await waits until a query returns a text.
func await(t *testing.T, url, query, want string) {
	t.Helper()
	if !testkit.Eventually(30*time.Second, func() bool { return lookUp(t, url, query) == want }) {
		t.Fatalf("%s is %s, want %s", query, lookUp(t, url, query), want)
	}
}

// TestInterruptedIndexBuild: an index build that was interrupted leaves an invalid index. Migrating again replaces it.
func TestInterruptedIndexBuild(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s := openStore(t, url)
	end := busy(t, url)
	interrupted, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error, 1)
	go func() {
		_, err := s.MigrateWith(interrupted, withMigration(t, indexMigration), nothing)
		ended <- err
	}()
	await(t, url, waiting, "1") // the index exists
	interrupt()
	if err := <-ended; err == nil {
		t.Fatal("the build did not wait for the transaction")
	}
	await(t, url, builds, "0") // PostgreSQL has noticed
	end()
	if state := lookUp(t, url, indexState); state != "invalid" {
		t.Fatalf("the index is %q after the interruption, want an invalid one", state)
	}
	careless := strings.Replace(indexMigration, "DROP INDEX CONCURRENTLY IF EXISTS agents_trial;", "", 1)
	if _, err := s.MigrateWith(t.Context(), withMigration(t, careless), nothing); err == nil ||
		!strings.Contains(err.Error(), "already exists") {
		t.Errorf("without DROP INDEX: %v, want that the index exists", err)
	}
	if count, err := s.MigrateWith(t.Context(), withMigration(t, indexMigration), nothing); err != nil || count != 1 {
		t.Errorf("migrate again: %d migrations, %v", count, err)
	}
	if state := lookUp(t, url, indexState); state != "valid" {
		t.Errorf("the index is %q", state)
	}
}

// TestIndexBuildWaitsForCallsOnly: two programs migrate at once while a transaction runs for longer than a migration waits for a
// lock. The build waits for the transaction, not for the other program; meanwhile calls change the table.
func TestIndexBuildWaitsForCallsOnly(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	end := busy(t, url)
	files := withMigration(t, indexMigration)
	ended := make(chan error, 2)
	for range 2 {
		s := openStore(t, url)
		go func() {
			_, err := s.MigrateWith(t.Context(), files, func(text string) {
				if strings.Contains(text, "is locked") {
					t.Errorf("the build began anew: %s", text)
				}
			})
			ended <- err
		}()
	}
	for range 40 {
		execute(t, url, "SET statement_timeout = '2s'; INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at) "+
			"SELECT id, 'a_' || left(replace(id::text, '-', ''), 30), '', true, sha256(id::text::bytea), now() "+
			"FROM (SELECT gen_random_uuid() AS id) AS new")
		time.Sleep(100 * time.Millisecond)
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended with %v before the transaction", err)
	default:
	}
	end()
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it waits for ever")
		}
	}
	if state := lookUp(t, url, indexState); state != "valid" {
		t.Errorf("the index is %q", state)
	}
}
