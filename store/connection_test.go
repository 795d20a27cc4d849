package store_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// TestSilentDatabase: no call waits longer than five seconds for a database that does not answer. After the first calls, calls are
// refused within a second. When the database is back, calls succeed again. The test allows for a busy machine.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	route, databaseURL := storetest.RouteTo(t, storetest.URL(t))
	s, err := store.Open(t.Context(), databaseURL, store.Serving)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	calls := map[string]func() error{
		"a statement of pgx": func() error {
			_, err := s.Unread(t.Context(), uuid.New(), 1, 10)
			return err
		},
		"a statement of GORM": func() error {
			_, err := s.AgentByID(t.Context(), uuid.New())
			return err
		},
		"a transaction": func() error {
			return s.Transaction(t.Context(), func(tx *store.Store) error { return tx.CheckAgents(t.Context(), nil) })
		},
	}
	all := func(most time.Duration) (failed int) {
		var group sync.WaitGroup
		var mu sync.Mutex
		for name, call := range calls {
			for range 20 {
				group.Go(func() {
					begun := time.Now()
					err := call()
					mu.Lock()
					defer mu.Unlock()
					if took := time.Since(begun); took > most {
						t.Errorf("%s took %v, want at most %v (%v)", name, took, most, err)
					}
					if store.Unavailable(err) {
						failed++
					}
				})
			}
		}
		group.Wait()
		return failed
	}
	if failed := all(8 * time.Second); failed > 0 {
		t.Fatalf("%d calls fail before the fault", failed)
	}
	route.Cut(true)
	if failed := all(8 * time.Second); failed != 60 {
		t.Errorf("%d of 60 calls are refused while the database is cut off", failed)
	}
	if failed := all(3 * time.Second); failed != 60 {
		t.Errorf("%d of 60 later calls are refused while the database is cut off", failed)
	}
	route.Cut(false)
	for deadline := time.Now().Add(10 * time.Second); all(8*time.Second) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("calls fail although the database is back")
		}
	}
}

// TestUnavailableErrors: a standby, and a server that ends or breaks a connection, are an unavailable database. A caller's mistake is not.
func TestUnavailableErrors(t *testing.T) {
	t.Parallel()
	databaseURL := storetest.URL(t)
	connect := func() *pgx.Conn {
		connection, err := pgx.Connect(t.Context(), databaseURL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close(context.WithoutCancel(t.Context())) })
		return connection
	}
	fails := func(connection *pgx.Conn, statements ...string) (err error) {
		for _, statement := range statements {
			_, err = connection.Exec(t.Context(), statement)
		}
		return err
	}
	ended := connect()
	if err := fails(connect(), fmt.Sprintf("SELECT pg_terminate_backend(%d)", ended.PgConn().PID())); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a standby":                     {fails(connect(), "SET default_transaction_read_only = on", "DELETE FROM blocks"), true},
		"a server that shuts down":      {fails(ended, "SELECT 1"), true},
		"a connection that was lost":    {fails(ended, "SELECT 1"), true},
		"a connection that breaks off":  {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true},
		"a division by zero":            {fails(connect(), "SELECT 1/0"), false},
		"a constraint that is violated": {fails(connect(), "INSERT INTO blocks (blocker_id, blocked_id) VALUES (gen_random_uuid(), gen_random_uuid())"), false},
		"no error":                      {nil, false},
	} {
		if got := store.Unavailable(test.err); got != test.want || (test.err == nil) != (name == "no error") {
			t.Errorf("%s: Unavailable is %v, want %v: %v", name, got, test.want, test.err)
		}
	}
}
