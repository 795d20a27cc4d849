package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// beginValues are the values of beginPayments.
func beginValues(batch []batchItem[*Payment], owner int32) pairs {
	return pairs{
		{"id", column(batch, func(p *Payment) [16]byte { return p.ID })},
		{"x402_version", column(batch, func(p *Payment) int16 { return p.X402Version })},
		{"scheme", column(batch, func(p *Payment) string { return p.Scheme })},
		{"network", column(batch, func(p *Payment) string { return p.Network })},
		{"asset", column(batch, func(p *Payment) string { return p.Asset })},
		{"payer", column(batch, func(p *Payment) string { return p.Payer })},
		{"nonce", column(batch, func(p *Payment) string { return p.Nonce })},
		{"pay_to", column(batch, func(p *Payment) string { return p.PayTo })},
		{"amount", column(batch, func(p *Payment) int64 { return p.Amount })},
		{"valid_before", column(batch, func(p *Payment) time.Time { return p.ValidBefore })},
		{"operation", column(batch, func(p *Payment) string { return p.Operation })},
		{"agent_id", column(batch, func(p *Payment) *[16]byte { return (*[16]byte)(p.AgentID) })},
		{"key_hash", column(batch, func(p *Payment) []byte { return p.KeyHash })},
		{"fingerprint", column(batch, func(p *Payment) []byte { return p.Fingerprint })},
		{"signature_hash", column(batch, func(p *Payment) []byte { return p.SignatureHash })},
		{"payment_identifier", optionalColumn(batch, func(p *Payment) *string { return p.PaymentIdentifier })},
		{"idempotency_key", optionalColumn(batch, func(p *Payment) *string { return p.IdempotencyKey })},
		{"request", column(batch, func(p *Payment) []byte { return p.Request })},
		{"payload", column(batch, func(p *Payment) []byte { return p.Payload })},
		{"payment_channel_id", optionalColumn(batch, func(p *Payment) *string { return p.PaymentChannelID })},
		{"cumulative_amount", optionalColumn(batch, func(p *Payment) *int64 { return p.CumulativeAmount })},
		{"secret", column(batch, func(p *Payment) bool { return p.Secret })},
		{"deposit_amount", column(batch, func(p *Payment) int64 { return p.DepositAmount })},
		{"lease", column(batch, func(p *Payment) time.Duration { return p.Lease })},
		{"owner", owner},
	}
}

// begunPayment is a row that beginPayments returns.
type begunPayment struct {
	ID        uuid.UUID
	CreatedAt time.Time
}

// insertBegun runs beginPayments.
func insertBegun(ctx context.Context, on session, batch []batchItem[*Payment]) ([]begunPayment, error) {
	return query[begunPayment](ctx, on, beginPayments, beginValues(batch, on.reader().owner))
}

// beginBatch inserts payments that begin.
func (r *Reader) beginBatch(ctx context.Context, batch []batchItem[*Payment]) {
	written, err := insertBegun(ctx, r, batch)
	finish(batch, func(_ int, payment *Payment) error {
		if rolledBack(err) && len(batch) > 1 { // one failed, or deadlock with another server: retry each alone
			return errNotBatched
		}
		return payment.begun(written, err, r.owner)
	})
}

// begun makes the payment as the row that was inserted. It returns ErrStalePayment if its authorization, identifier or key was in the
// ledger.
func (p *Payment) begun(written []begunPayment, err error, owner int32) error {
	i := slices.IndexFunc(written, func(one begunPayment) bool { return one.ID == p.ID })
	switch {
	case err != nil:
		return fmt.Errorf("write payment: %w", err)
	case i < 0:
		return ErrStalePayment
	}
	p.State, p.Attempts, p.Owner = PaymentSettling, 1, &owner
	p.CreatedAt, p.UpdatedAt, p.LeaseUntil = written[i].CreatedAt, written[i].CreatedAt, written[i].CreatedAt.Add(p.Lease)
	return nil
}

// BeginSettlement inserts the payment as settling, leased to the caller for the duration lease. Reserve, if not nil, runs in the same
// transaction; otherwise the payment is an item of the group commit. It returns ErrStalePayment if the same
// authorization, or another payment with the same identifier or key, is already in the ledger.
func (s *Store) BeginSettlement(ctx context.Context, payment *Payment, lease time.Duration, reserve func(tx *Tx) error) error {
	payment.Lease = lease
	if reserve == nil {
		item := *payment // the batch may use it after the call gave up
		err := s.group.begins.do(ctx, &item)
		if err == nil {
			*payment = item
		}
		if !errors.Is(err, errNotBatched) {
			return err
		}
	}
	return s.Transaction(ctx, func(tx *Tx) error {
		written, err := insertBegun(ctx, tx, batchOf(payment))
		if err := payment.begun(written, err, tx.owner); err != nil || reserve == nil {
			return err
		}
		return reserve(tx)
	})
}

// deliveryValues are the values of deliverPayments and sendMessages that come from deliveries.
func deliveryValues[T any](batch []batchItem[T], of func(T) *Delivery) pairs {
	return pairs{
		{"payment", column(batch, func(t T) *[16]byte { return (*[16]byte)(of(t).payment()) })},
		{"state", column(batch, func(t T) string { return of(t).State })},
		{"fingerprint", column(batch, func(t T) []byte { return of(t).Fingerprint })},
		{"transaction", column(batch, func(t T) string { return of(t).Transaction })},
		{"response", column(batch, func(t T) []byte { return of(t).Response })},
	}
}

// asRetried are the changes of an open payment that this server takes for another attempt.
const asRetried = `state = 'settling', attempts = attempts + 1, owner = @owner, lease_until = now() + @lease::interval, updated_at = now()`

// ResumeSettlement takes an open payment that no server works on, and leases it to the caller. Its outcome is unknown,
// or the lease of the server that settled it is over. It returns ErrStalePayment if there is no such payment.
func (s *Store) ResumeSettlement(ctx context.Context, id uuid.UUID, lease time.Duration) (*Payment, error) {
	taken, err := query[Payment](ctx, s, `
		UPDATE payments SET `+asRetried+`
		WHERE id = @id AND (state = 'unknown' OR (state = 'settling' AND lease_until < now())) RETURNING `+paymentColumns,
		named{"id": id, "owner": s.owner, "lease": lease})
	return firstOr(taken, err, "resume settlement", ErrStalePayment)
}

// OpenPayments selects the open payments to take up.
type OpenPayments struct {
	Network, Asset string
	Limit          int
	// Payments with MaxAttempts attempts or more are left to the operator, unless they are known to be settled.
	MaxAttempts int
	// Held are the payments that this server works on. Its other payments have no owner: the connection was lost while one was
	// recorded, for example in a failover, and nobody knew that it was.
	Held []uuid.UUID
}

// unheld is how old an open payment of this server must be before it can have no owner. A payment that begins after its server
// listed the held ones is younger.
const unheld = 10 * time.Second

// TakeOpenPayments takes open payments and leases them to the caller. It takes payments whose lease is over, payments whose
// server has died, and payments of this server that it does not hold. Several servers may take concurrently; each payment goes to
// one of them.
func (s *Store) TakeOpenPayments(ctx context.Context, open OpenPayments, lease time.Duration) (_ []Payment, err error) {
	defer wrapInto(&err, "take open payments")
	// With an array the planner uses the index, even if the table was small when the statement was planned.
	return query[Payment](ctx, s, `
		WITH alive AS (
			SELECT objid::bigint AS owner FROM pg_locks
			WHERE locktype = 'advisory' AND classid::bigint = @class AND objsubid = 2 AND granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		)
		UPDATE payments SET `+asRetried+`
		WHERE id = ANY (ARRAY(
			SELECT id FROM payments
			WHERE state IN ('settling', 'unknown') AND network = @network AND asset = @asset
				AND (attempts < @most OR transaction <> '')
				AND (lease_until < now() OR (owner <> @owner AND owner NOT IN (SELECT owner FROM alive))
					OR (owner = @owner AND state = 'settling' AND updated_at < now() - @unheld::interval AND id <> ALL (@held)))
			ORDER BY lease_until LIMIT @limit FOR UPDATE SKIP LOCKED
		)) RETURNING `+paymentColumns, named{
		"class": presenceClass, "owner": s.owner, "lease": lease, "network": open.Network, "asset": open.Asset, "limit": open.Limit,
		"most": open.MaxAttempts, "unheld": unheld, "held": open.Held,
	})
}
