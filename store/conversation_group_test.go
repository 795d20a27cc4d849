package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// openBeside opens a store, and a connection of the test's own to the same database.
func openBeside(t *testing.T) (*store.Store, *pgx.Conn) {
	t.Helper()
	url := storetest.URL(t)
	s := openStore(t, url)
	connection := connect(t, url)
	return s, connection
}

// waitForLocks waits until so many sessions wait for a lock.
func waitForLocks(t *testing.T, watcher *pgx.Conn, sessions int) {
	t.Helper()
	for range 500 {
		var count int
		err := watcher.QueryRow(t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&count)
		testkit.NoError(t, err)
		if count >= sessions {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the messages do not wait for the lock")
}

// TestSendWaitsForTheGroupLock: the rules apply to a message that waits for a change of the group as they are after the
// change.
func TestSendWaitsForTheGroupLock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, watcher := openBeside(t)
	alice, bob, carol := agent(t, s, "alice"), agent(t, s, "bob"), agent(t, s, "carol")
	giveUp := errors.New("give up")
	for _, test := range []struct {
		name   string
		change func(tx *store.Tx, group uuid.UUID) error
		sent   bool
	}{
		{"the sender is banned", func(tx *store.Tx, group uuid.UUID) error { return tx.Ban(ctx, group, alice, []uuid.UUID{bob}) }, false},
		{"the sender is removed", func(tx *store.Tx, group uuid.UUID) error { return tx.Remove(ctx, group, alice, []uuid.UUID{bob}) }, false},
		{"the group is deleted", func(tx *store.Tx, group uuid.UUID) error {
			return tx.DeleteConversation(ctx, store.KindGroup, group, alice)
		}, false},
		{"the ban is given up", func(tx *store.Tx, group uuid.UUID) error {
			return errors.Join(tx.Ban(ctx, group, alice, []uuid.UUID{bob}), giveUp)
		}, true},
		{"somebody else is banned", func(tx *store.Tx, group uuid.UUID) error { return tx.Ban(ctx, group, alice, []uuid.UUID{carol}) }, true},
		{"the sender becomes the admin", func(tx *store.Tx, group uuid.UUID) error {
			return tx.Transfer(ctx, store.KindGroup, group, alice,
				bob)
		}, true},
		{"somebody else writes", func(tx *store.Tx, group uuid.UUID) error {
			_, err := tx.SendMessage(ctx, toGroup(alice, group, "first"))
			return err
		}, true},
	} {
		group := uuid.Must(uuid.NewV7())
		if err := s.Transaction(ctx, func(tx *store.Tx) error {
			return tx.CreateConversation(ctx, store.KindGroup, group, alice, "group", nil, false)
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.Transaction(ctx, func(tx *store.Tx) error {
			return tx.AddGroupMembers(ctx, group, alice, []uuid.UUID{alice, bob,
				carol})
		}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 2)
		payment := beginning("0xpayer", bob)
		testkit.NoError(t, s.BeginSettlement(ctx, payment, time.Minute, nil))
		err := s.Transaction(ctx, func(tx *store.Tx) error {
			if err := tx.LockConversation(ctx, group); err != nil {
				return err
			}
			changed := test.change(tx, group)
			if changed != nil && !errors.Is(changed, giveUp) {
				return changed
			}
			go func() {
				_, err := alone(ctx, s, func(tx *store.Tx) (*store.Sent, error) { return tx.SendMessage(ctx, toGroup(bob, group, "hello")) })
				done <- err
			}()
			go func() { done <- commit(t.Context(), s, sending(toGroup(bob, group, "hello")), deliveryOf(payment)) }()
			waitForLocks(t, watcher, 2)
			return changed
		})
		if err != nil && !errors.Is(err, giveUp) {
			t.Fatalf("%s: %v", test.name, err)
		}
		for range 2 { // the one in a transaction of its own, and the one in a batch
			err := <-done
			if _, rejected := errors.AsType[*store.Refusal](err); err != nil && !rejected || (err == nil) != test.sent {
				t.Errorf("%s: the message that waited: %v, want it sent: %v", test.name, err, test.sent)
			}
		}
		var sound bool
		if err := watcher.QueryRow(ctx, `
			SELECT c.last_number = (SELECT count(*) FROM messages o WHERE o.conversation_id = c.id)
				AND c.last_number = (SELECT coalesce(max(o.number), 0) FROM messages o WHERE o.conversation_id = c.id)
			FROM conversations c WHERE c.id = $1`, group).Scan(&sound); err != nil || !sound {
			t.Errorf("%s: the messages' numbers have a gap (%v)", test.name, err)
		}
	}
}
