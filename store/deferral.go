package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// Caps bound what deferred settlement may lose, in atomic units.
type Caps struct {
	Call  uint64 // the dearest call that may be deferred
	Payer uint64 // what one payer may owe at a time
	Total uint64 // what all payers together may owe at a time
}

// deferredShards is how many rows of deferred_totals there are.
const deferredShards = 16

// shards is into how many parts the total cap is cut: each has room for a good many calls, or one part would be full
// while the others are empty. All calls must count with the same number, or the parts would not add up to the cap.
func (c Caps) shards() uint64 {
	return min(max(c.Total/(64*max(c.Call, 1)), 1), deferredShards)
}

// ErrOverCap means that a payment may not be deferred: a cap is reached, or the payer has defaulted. The transaction
// must be rolled back.
var ErrOverCap = errors.New("the payment may not be deferred")

// Owe writes a payment as owed with the answer that its repetition gets. Called last in the transaction that makes the
// effect, since the caps' rows stay locked until its end. It ends with ErrOverCap, or with ErrPaymentMoved if the
// authorization or its payment identifier is in the ledger already.
func (s *Store) Owe(ctx context.Context, payment *Payment, caps Caps) error {
	if uint64(payment.Amount) > min(caps.Call, caps.Payer) { //nolint:gosec // an amount is not negative
		return ErrOverCap
	}
	shard := int16(rand.Uint64N(caps.shards())) //nolint:gosec // spreads load; 0 to 15
	now := time.Now()
	payment.State, payment.Shard, payment.LeaseUntil, payment.CreatedAt, payment.UpdatedAt = PaymentOwed, &shard, now, now, now
	// The payment comes before the caps: its foreign key waits for whoever is replacing the caller's API key, who may
	// want the payer's row next.
	if err := s.last(ctx, insertPayment, payment.values(), inserted); err != nil {
		return err
	}
	// The second update waits for the first, so that all transactions lock in one order.
	return s.last(ctx, `
		WITH payer AS (
			INSERT INTO deferred_payers AS p (network, asset, payer, owed) VALUES (@network, @asset, @payer, @amount)
			ON CONFLICT (network, asset, payer) DO UPDATE SET owed = p.owed + excluded.owed
			WHERE p.defaulted = 0 AND p.owed + excluded.owed <= @cap RETURNING p.owed
		), counted AS (
			UPDATE deferred_totals t SET owed = t.owed + @amount FROM payer
			WHERE t.shard = @shard AND t.owed + @amount <= @total RETURNING t.shard
		)
		SELECT 1 / count(*) FROM counted`, pgx.NamedArgs{
		"network": payment.Network, "asset": payment.Asset, "payer": payment.Payer, "amount": payment.Amount, "cap": caps.Payer,
		"shard": shard, "total": caps.Total / caps.shards(),
	}, func(err error) error {
		if hasCode(err, divisionByZero) {
			return ErrOverCap
		}
		return fmt.Errorf("hold the caps: %w", err)
	})
}

// closeOwed takes an owed payment out of the caps, in the order in which Owe locks. The arguments are what it becomes,
// and by how much that changes what the payer has defaulted on.
func closeOwed(becomes, defaulted string) string {
	return `
		WITH was AS (
			SELECT * FROM payments WHERE id = @id AND state = 'owed' AND attempts = @attempts FOR UPDATE
		), moved AS (
			UPDATE payments p SET ` + becomes + `, shard = NULL, ` + forget + ` FROM was WHERE p.id = was.id RETURNING was.*
		), payer AS (
			UPDATE deferred_payers p SET owed = p.owed - moved.amount, defaulted = ` + defaulted + ` FROM moved
			WHERE p.network = moved.network AND p.asset = moved.asset AND p.payer = moved.payer RETURNING moved.id, moved.shard, moved.amount
		)
		UPDATE deferred_totals t SET owed = t.owed - payer.amount FROM payer WHERE t.shard = payer.shard RETURNING payer.id`
}

// PaymentCollected closes an owed payment that has settled. ErrPaymentMoved if somebody else has taken it up meanwhile.
func (s *Store) PaymentCollected(ctx context.Context, payment *Payment, transaction string) error {
	return s.movePayment(ctx, closeOwed("state = 'delivered', transaction = @transaction, failure_reason = ''", "greatest(p.defaulted - moved.amount, 0)"),
		map[string]any{"id": payment.ID, "attempts": payment.Attempts, "transaction": transaction})
}

// PaymentDefaulted closes an owed payment that was refused for good. From now on the payer is served only after
// settlement, until it has paid as much again. ErrPaymentMoved if somebody else has taken it up meanwhile.
func (s *Store) PaymentDefaulted(ctx context.Context, payment *Payment, reason string) error {
	return s.movePayment(ctx, closeOwed("state = 'defaulted', failure_reason = @reason", "p.defaulted + moved.amount"),
		map[string]any{"id": payment.ID, "attempts": payment.Attempts, "reason": reason})
}
