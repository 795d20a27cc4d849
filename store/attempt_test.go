package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// TestPauseBetweenAttempts: an attempt without a clear outcome is repeated after half the age of the payment, from one second to five
// minutes, and not any more after the last one. A payment that has settled is never given up.
func TestPauseBetweenAttempts(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	payment := beginning("0xpayer", g.agents[0])
	testkit.NoError(t, g.BeginSettlement(ctx, payment, time.Minute, nil))
	open := store.OpenPayments{Network: payment.Network, Asset: payment.Asset, Limit: 10, MaxAttempts: 50}
	// after lets the payment have an age and as many attempts, of which the last one has no clear outcome.
	after := func(age string, attempts int, what store.Unclear) (right bool, taken int) {
		t.Helper()
		g.query(func(c *pgx.Conn) error {
			_, err := c.Exec(ctx, `UPDATE payments SET state = 'settling', created_at = now() - CAST($1 AS interval), attempts = $2`, age,
				attempts)
			return err
		})
		payment.Attempts, what.Sent = attempts, true
		testkit.NoError(t, g.PaymentUnclear(ctx, payment, what))
		g.query(func(c *pgx.Conn) error {
			return c.QueryRow(ctx, `WITH it AS (SELECT lease_until - updated_at AS pause, updated_at - created_at AS age FROM payments),
				late AS (UPDATE payments SET lease_until = now() - interval '1 second')
				SELECT CASE WHEN age < '2s' THEN pause = '1s' WHEN age > '10min' THEN pause = '5min'
					ELSE abs(extract(epoch FROM pause - age / 2)) < 0.001 END FROM it`).Scan(&right)
		})
		rows, err := g.TakeOpenPayments(ctx, open, time.Minute)
		testkit.NoError(t, err)
		return right, len(rows)
	}
	for _, age := range []string{"0 seconds", "40 seconds", "9 minutes", "1 hour"} {
		if right, taken := after(age, 49, store.Unclear{}); !right || taken != 1 {
			t.Errorf("a payment of %s has the right pause %v, and is taken %d times, want once", age, right, taken)
		}
	}
	if _, taken := after("1 hour", 50, store.Unclear{}); taken != 0 {
		t.Error("a payment with fifty attempts is taken")
	}
	if _, taken := after("1 hour", 50, store.Unclear{Transaction: "0xf"}); taken != 1 {
		t.Error("a payment that has settled is given up after fifty attempts")
	}
}

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
