package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/embedded"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// TestDeadlineShowsNoUnreplicatedCommit: a COMMIT waits for a synchronous standby that is gone, and reaches its deadline. Nobody sees
// what was written before a standby has it: a repeated call must not be acknowledged with a row that is lost with the leader.
func TestDeadlineShowsNoUnreplicatedCommit(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(t.Context(), embedded.Options{Folder: t.TempDir(), Volatile: true})
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
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
