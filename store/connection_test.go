package store_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/embedded"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// TestSilentDatabase: no call waits longer than five seconds for a database that does not answer. After the first calls, calls are
// refused within a second. When the database is back, calls succeed again. The test allows for a busy machine.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	route, databaseURL := storetest.RouteTo(t, storetest.URL(t))
	s, err := store.Open(t.Context(), databaseURL, store.Serving)
	testkit.NoError(t, err)
	t.Cleanup(s.Close)
	calls := map[string]func() error{
		"a statement of pgx": func() error {
			_, err := s.Unread(t.Context(), uuid.New(), longPage(1, 10))
			return err
		},
		"a statement of GORM": func() error {
			_, err := s.AgentByID(t.Context(), uuid.New())
			return err
		},
		"a transaction": func() error {
			return s.Transaction(t.Context(), func(tx *store.Tx) error { return tx.CheckAgents(t.Context(), nil) })
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
	if !testkit.Eventually(20*time.Second, func() bool { return all(8*time.Second) == 0 }) { // on a busy machine a few come too late
		t.Fatal("calls fail before the fault")
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
		testkit.NoError(t, err)
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
	testkit.NoError(t, fails(connect(), fmt.Sprintf("SELECT pg_terminate_backend(%d)", ended.PgConn().PID())))
	const lock = "SELECT pg_advisory_lock(1)"
	testkit.NoError(t, fails(connect(), lock))
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a lock that is held for long": {fails(connect(), "SET lock_timeout = '10ms'", lock), true},
		"a standby":                    {fails(connect(), "SET default_transaction_read_only = on", "DELETE FROM blocks"), true},
		"a server that shuts down":     {fails(ended, "SELECT 1"), true},
		"a connection that was lost":   {fails(ended, "SELECT 1"), true},
		"a connection that breaks off": {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true},
		"a division by zero":           {fails(connect(), "SELECT 1/0"), false},
		"a constraint that is violated": {fails(connect(),
			"INSERT INTO blocks (blocker_id, blocked_id) VALUES (gen_random_uuid(), gen_random_uuid())"), false},
		"no error": {nil, false},
	} {
		if got := store.Unavailable(test.err); got != test.want || (test.err == nil) != (name == "no error") {
			t.Errorf("%s: Unavailable is %v, want %v: %v", name, got, test.want, test.err)
		}
	}
}

// withLimits opens a database with short limits.
func withLimits(t *testing.T, databaseURL string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), databaseURL, store.Limits{Acquire: 2 * time.Second, Statement: time.Second,
		Transaction: 2 * time.Second})
	testkit.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// TestSlowStatementClosesNoConnections: a statement that waits for a lock reaches its deadline. The database answers other calls, so
// their connections stay.
func TestSlowStatementClosesNoConnections(t *testing.T) {
	t.Parallel()
	databaseURL := storetest.URL(t)
	s := withLimits(t, databaseURL)
	other := connect(t, databaseURL)
	if _, err := other.Exec(t.Context(), "BEGIN; LOCK TABLE agents"); err != nil {
		t.Fatal(err)
	}
	slow := make(chan error)
	go func() {
		_, err := s.AgentByID(t.Context(), uuid.New())
		slow <- err
	}()
	for waiting := true; waiting; {
		select {
		case err := <-slow:
			waiting = false
			if !store.Unavailable(err) {
				t.Errorf("the call that waits for a lock gets %v", err)
			}
		case <-time.After(20 * time.Millisecond):
			if err := s.ReadClock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	if s.WasReset() {
		t.Error("one slow statement closed the connections of all calls")
	}
}

// TestPresenceIsTaken: the lock of a server may be held by a connection that it has lost and PostgreSQL has not. It tries again, and
// leaves the connections of calls alone.
func TestPresenceIsTaken(t *testing.T) {
	t.Parallel()
	s := withLimits(t, storetest.URL(t))
	for range 2 {
		ready := make(chan struct{})
		go s.BePresent(t.Context(), func() { close(ready) })
		<-ready
	}
	if s.WasReset() {
		t.Error("the wait for the lock closed the connections of all calls")
	}
}

// TestLocksOfALostServer: a server is cut off in a transaction. The TCP connection stays open for PostgreSQL, which nevertheless ends
// the transaction, so that other servers get its locks.
func TestLocksOfALostServer(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	route, lostURL := storetest.RouteTo(t, g.connection.Config().ConnString())
	lost := withLimits(t, lostURL)
	err := lost.Transaction(t.Context(), func(tx *store.Tx) error {
		if err := tx.LockConversation(t.Context(), g.group); err != nil {
			t.Error(err)
		}
		route.Cut(true)
		return nil
	})
	if !store.Unavailable(err) || store.NotCommitted(err) {
		t.Errorf("the COMMIT of a server that is cut off: %v, want an unknown outcome", err)
	}
	if _, err := g.connection.Exec(t.Context(), "SET lock_timeout = '8s'"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.connection.Exec(t.Context(), "SELECT 1 FROM conversations WHERE id = $1 FOR NO KEY UPDATE", g.group); err != nil {
		t.Errorf("another server waits for the lock of a server that was cut off: %v", err)
	}
	route.Cut(false) // the connections of the store close
}

// TestBusyStoreIsReady: a server whose connections are all in use is ready as long as the database answers its calls.
func TestBusyStoreIsReady(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), storetest.URL(t), storetest.Patient)
	testkit.NoError(t, err)
	t.Cleanup(s.Close)
	testkit.NoError(t, s.Ping(t.Context()))
	release := s.UseAllConnections(t)
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if !s.Ready(ctx) {
		t.Error("a store whose connections are in use is not ready")
	}
}

// TestCallTime: the waits of one call add up to no more than its time, whatever it waits for. The database answers each statement
// just within the limit of a statement. The test allows for a busy machine.
func TestCallTime(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	route, databaseURL := storetest.RouteTo(t, storetest.URL(t))
	s, err := store.Open(t.Context(), databaseURL, store.Serving)
	testkit.NoError(t, err)
	t.Cleanup(s.Close)
	if !testkit.Eventually(20*time.Second, func() bool {
		_, err := s.AgentByID(t.Context(), uuid.New())
		return !store.Unavailable(err)
	}) {
		t.Fatal("the database is unavailable")
	}
	ctx, cancel := context.WithTimeout(t.Context(), store.CallTime)
	defer cancel()
	begun := time.Now()
	route.Cut(true)
	results := []error{}
	for range 3 {
		_, lookUp := s.AgentByID(ctx, uuid.New())
		_, unread := s.Unread(ctx, uuid.New(), longPage(1, 10))
		message := store.OutgoingMessage{Kind: store.KindGroup, To: uuid.New(), Sender: uuid.New(), Content: "hello"}
		results = append(results, lookUp, unread, s.DryRun(ctx, sending(message)),
			commit(ctx, s, sending(), deliveryOf(&store.Payment{PaymentRecord: store.PaymentRecord{ID: uuid.New()}})))
	}
	if took := time.Since(begun); took > store.CallTime+5*time.Second {
		t.Errorf("twelve steps of one call took %v, want at most %v", took, store.CallTime)
	}
	for i, err := range results {
		if !store.Unavailable(err) {
			t.Errorf("step %d: %v, want an error of an unavailable database", i, err)
		}
	}
	if last := results[len(results)-1]; !store.NotCommitted(last) {
		t.Errorf("a step without time: %v, want one that was not sent", last)
	}
}

// TestDeadlineShowsNoUnreplicatedCommit: a COMMIT waits for a synchronous standby that is gone, and reaches its deadline. Nobody sees
// what was written before a standby has it: a repeated call must not be acknowledged with a row that is lost with the leader.
func TestDeadlineShowsNoUnreplicatedCommit(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(t.Context(), embedded.Options{Folder: t.TempDir(), Volatile: true})
	testkit.NoError(t, err)
	t.Cleanup(func() { _, _ = server.Stop(), os.RemoveAll(server.Folder()) }) // root's folder is not that of the test
	databaseURL := server.URL("postgres")
	s := withLimits(t, databaseURL)
	if _, err := s.Migrate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(t.Context(), databaseURL)
	testkit.NoError(t, err)
	defer func() { _ = other.Close(t.Context()) }()
	exec := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := other.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	written := func() (n int) {
		t.Helper()
		testkit.NoError(t, other.QueryRow(t.Context(), "SELECT count(*) FROM payments").Scan(&n))
		return n
	}
	exec("SET synchronous_commit = off", "ALTER DATABASE postgres SET synchronous_commit = on",
		"ALTER SYSTEM SET synchronous_standby_names = 'gone'", "SELECT pg_reload_conf()")
	time.Sleep(2 * time.Second) // the checkpointer learns of it
	reopened := withLimits(t, databaseURL)
	payment := beginning("0x1", uuid.Nil)
	payment.AgentID = nil
	err = reopened.BeginSettlement(t.Context(), payment, time.Minute, nil)
	if !store.Unavailable(err) || store.NotCommitted(err) {
		t.Errorf("a COMMIT without a standby: %v, want an unknown outcome", err)
	}
	time.Sleep(2 * time.Second)
	if n := written(); n != 0 {
		t.Errorf("%d payments are shown that no standby has", n)
	}
	exec("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
	if !testkit.Eventually(10*time.Second, func() bool { return written() == 1 }) {
		t.Error("the payment is not there although no standby is needed any more")
	}
}
