package store_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/store"
)

// TestClaimOfAnOpenPayment: a username is kept for its payment until that is closed: one that somebody else has taken up
// meanwhile loses nothing, and one that may be redeemed with another request keeps nothing.
func TestClaimOfAnOpenPayment(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	claimed := func() (payment *uuid.UUID) {
		g.query(func(c *pgx.Conn) error {
			return c.QueryRow(ctx, `SELECT claimed_by FROM registrations WHERE username = 'wanted'`).Scan(&payment)
		})
		return payment
	}
	begun := func() *store.Payment {
		payment := beginning("0xpayer", g.agents[0])
		if err := errors.Join(g.Transaction(ctx, func(tx *store.Tx) error {
			return tx.RequestAccount(ctx, "wanted", "0xpayer", store.HashKey("TAN"), uuid.New())
		}), g.BeginSettlement(ctx, payment, time.Minute, nil),
			g.Transaction(ctx, func(tx *store.Tx) error {
				return tx.ReserveRegistration(ctx, "wanted", [][]byte{store.HashKey("TAN")}, payment.ID)
			})); err != nil {
			t.Fatal(err)
		}
		return payment
	}
	payment := begun()
	stale := *payment
	stale.Attempts++
	g.query(func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, `UPDATE payments SET attempts = 3 WHERE id = $1`, payment.ID)
		return err
	})
	for name, err := range map[string]error{
		"failed": g.PaymentFailed(ctx, &stale, "late"), "abandoned": g.AbandonSettlement(ctx, payment),
		"resolved": g.ResolveFailed(ctx, store.Operator{Actor: "olga", Reason: "looked up"}, payment.ID, "late"),
	} {
		if !errors.Is(err, store.ErrStalePayment) {
			t.Errorf("a payment that somebody else has taken up is %s: %v", name, err)
		}
	}
	if by := claimed(); by == nil || *by != payment.ID {
		t.Error("a payment that is open has lost its username")
	}
	payment.Attempts = 3
	if err := g.PaymentFailed(ctx, payment, "no"); err != nil || claimed() != nil {
		t.Errorf("a payment that failed keeps the username (%v)", err)
	}
	payment = begun()
	if err := g.AbandonSettlement(ctx, payment); err != nil || claimed() != nil {
		t.Errorf("a payment that was not sent keeps the username (%v)", err)
	}
	payment = begun()
	if err := g.PaymentUndeliverable(ctx, payment.ID, "0xf", "username_taken"); err != nil || claimed() != nil {
		t.Errorf("a payment that could not be delivered keeps the username (%v)", err)
	}
}

// TestClaimNeedsTheTAN: a TAN that was replaced or has expired since the dry run keeps the username from nobody.
func TestClaimNeedsTheTAN(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	if err := g.Transaction(ctx, func(tx *store.Tx) error {
		return tx.RequestAccount(ctx, "wanted", "0xpayer", store.HashKey("NEW"), uuid.New())
	}); err != nil {
		t.Fatal(err)
	}
	if err := g.Transaction(ctx, func(tx *store.Tx) error {
		return tx.ReserveRegistration(ctx, "wanted", [][]byte{store.HashKey("OLD")}, uuid.New())
	}); !errors.Is(err, store.ErrUsernameReserved) {
		t.Errorf("a claim with a TAN that was replaced: %v, want that the username is reserved", err)
	}
	g.query(func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, `UPDATE registrations SET expires_at = now()`)
		return err
	})
	if err := g.Transaction(ctx, func(tx *store.Tx) error {
		return tx.ReserveRegistration(ctx, "wanted", [][]byte{store.HashKey("NEW")}, uuid.New())
	}); !errors.Is(err, store.ErrUsernameReserved) {
		t.Errorf("a claim with a TAN that has expired: %v, want that the username is reserved", err)
	}
	if err := g.Transaction(ctx, func(tx *store.Tx) error {
		return tx.RequestAccount(ctx, "wanted", "0xother", store.HashKey("TAN"), uuid.New())
	}); err != nil {
		t.Errorf("another wallet asks for the username: %v", err)
	}
}

// TestOneBadBeginning: a payment that cannot be written takes none of those down that share its statement.
func TestOneBadBeginning(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	var calls sync.WaitGroup
	for i := range 60 {
		calls.Go(func() {
			payment := beginning("0xpayer", g.agents[0])
			if i%2 == 0 {
				payment = beginning("0xpayer", uuid.New()) // of no agent
			}
			if err := g.BeginSettlement(t.Context(), payment, time.Minute, nil); (err != nil) != (i%2 == 0) {
				t.Errorf("payment %d: %v", i, err)
			}
		})
	}
	calls.Wait()
}
