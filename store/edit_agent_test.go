package store_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// TestEditDuringResume: a call that edits only the description was paid before the suspension, and waits for the end of the suspension. The
// account is listed again, as it was before.
func TestEditDuringResume(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, watcher := openBeside(t)
	alice := agent(t, s, "alice")
	testkit.NoError(t, s.SuspendAgent(ctx, store.Operator{Actor: "operator", Reason: "test"}, alice, ""))
	resuming, err := pgx.ConnectConfig(ctx, watcher.Config())
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = resuming.Close(context.Background()) })
	must := func(sql string, args ...any) {
		t.Helper()
		if _, err := resuming.Exec(ctx, sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	// The statements of ResumeAgent, before its commit.
	must("BEGIN")
	must("SELECT 1 FROM agents WHERE id = $1 FOR NO KEY UPDATE", alice)
	must("DELETE FROM suspensions WHERE agent_id = $1", alice)
	must("UPDATE agents SET is_discoverable = true WHERE id = $1", alice)
	edited, description := make(chan error, 1), "new"
	go func() {
		edited <- s.Transaction(ctx, func(tx *store.Tx) error { return tx.EditAgent(ctx, alice, &description, nil) })
	}()
	waitForLocks(t, watcher, 1)
	must("COMMIT")
	testkit.NoError(t, <-edited)
	var listed bool
	if err := watcher.QueryRow(ctx, "SELECT is_discoverable, description FROM agents WHERE id = $1", alice).Scan(&listed,
		&description); err != nil {
		t.Fatal(err)
	}
	if !listed || description != "new" {
		t.Errorf("after the suspension listed is %t and the description %q, want true and new", listed, description)
	}
}
