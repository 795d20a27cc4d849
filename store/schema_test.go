package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// TestSchemaFits: a program refuses a schema that is older than it needs, or that a later program changed so that it cannot work
// with it, and accepts a later one that only added something.
func TestSchemaFits(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]error{
		"SELECT 1": nil,
		"INSERT INTO goose_db_version (version_id, is_applied) VALUES (9000, true)": nil,
		"UPDATE schema_compat SET oldest = 9000":                                    store.ErrSchemaTooNew,
		"DELETE FROM goose_db_version WHERE version_id > 0":                         store.ErrSchemaTooOld,
		"DROP TABLE goose_db_version, schema_compat":                                store.ErrSchemaTooOld,
	} {
		url := storetest.URL(t)
		s, err := store.Open(t.Context(), url, storetest.Patient)
		testkit.NoError(t, err)
		execute(t, url, change)
		if err := s.CheckSchema(t.Context()); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("after %q: %v, want %v", change, err, want)
		}
		s.Close()
	}
}

func execute(t *testing.T, url, statement string) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	if err == nil {
		_, err = connection.Exec(t.Context(), statement)
		err = errors.Join(err, connection.Close(context.WithoutCancel(t.Context())))
	}
	testkit.NoError(t, err)
}

// TestMigrationDoesNotBlock: a migration that waits for the lock of a table gives up soon, lets calls through, and tries again.
func TestMigrationDoesNotBlock(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s := openStore(t, url)
	execute(t, url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public; "+
		"CREATE TABLE goose_db_version (id serial PRIMARY KEY, version_id bigint NOT NULL, "+
		"is_applied boolean NOT NULL, tstamp timestamp NOT NULL DEFAULT now())")
	execute(t, url, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, true)")
	connection, err := pgx.Connect(t.Context(), url)
	testkit.NoError(t, err)
	defer func() { _ = connection.Close(context.WithoutCancel(t.Context())) }()
	locking, err := connection.Begin(t.Context())
	if err == nil {
		_, err = locking.Exec(t.Context(), "LOCK TABLE goose_db_version IN SHARE MODE") // the migration writes to it
	}
	testkit.NoError(t, err)
	waits := make(chan string, 100)
	done := make(chan error, 1)
	go func() {
		_, err := s.Migrate(t.Context(), func(text string) { waits <- text })
		done <- err
	}()
	select {
	case text := <-waits:
		t.Log(text)
	case err := <-done:
		t.Fatalf("it ended with %v while the table was locked", err)
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for the lock without an end")
	}
	testkit.NoError(t, locking.Rollback(t.Context()))
	if err := <-done; err != nil {
		t.Errorf("after the lock is gone: %v", err)
	}
	if err := s.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
}
