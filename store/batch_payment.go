package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// beginFields are the columns of a payment that begins. The last one is how long it is leased.
var beginFields = fields[*Payment]{
	each("id", "uuid", func(p *Payment) [16]byte { return p.ID }),
	each("x402_version", "smallint", func(p *Payment) int16 { return p.X402Version }),
	each("scheme", "text", func(p *Payment) string { return p.Scheme }),
	each("network", "text", func(p *Payment) string { return p.Network }),
	each("asset", "text", func(p *Payment) string { return p.Asset }),
	each("payer", "text", func(p *Payment) string { return p.Payer }),
	each("nonce", "text", func(p *Payment) string { return p.Nonce }),
	each("pay_to", "text", func(p *Payment) string { return p.PayTo }),
	each("amount", "bigint", func(p *Payment) int64 { return p.Amount }),
	each("valid_before", "timestamptz", func(p *Payment) time.Time { return p.ValidBefore }),
	each("operation", "text", func(p *Payment) string { return p.Operation }),
	each("agent_id", "uuid", func(p *Payment) *[16]byte { return (*[16]byte)(p.AgentID) }),
	each("key_hash", "bytea", func(p *Payment) []byte { return p.KeyHash }),
	each("fingerprint", "bytea", func(p *Payment) []byte { return p.Fingerprint }),
	each("signature_hash", "bytea", func(p *Payment) []byte { return p.SignatureHash }),
	optional("payment_identifier", "text", func(p *Payment) *string { return p.PaymentIdentifier }),
	optional("idempotency_key", "text", func(p *Payment) *string { return p.IdempotencyKey }),
	each("request", "bytea", func(p *Payment) []byte { return p.Request }),
	each("payload", "bytea", func(p *Payment) []byte { return p.Payload }),
	optional("payment_channel_id", "text", func(p *Payment) *string { return p.PaymentChannelID }),
	optional("cumulative_amount", "bigint", func(p *Payment) *int64 { return p.CumulativeAmount }),
	each("secret", "boolean", func(p *Payment) bool { return p.Secret }),
	optional("deposit_amount", "bigint", (*Payment).deposit),
	each("lease", "interval", func(p *Payment) time.Duration { return p.Lease }),
}

// beginPayments inserts payments that begin, and returns those that were not in the ledger yet. It inserts them in a fixed order, so that
// two statements that insert the same payments cannot deadlock. The start time and the lease use the clock of the database.
var beginPayments = func() string {
	columns := beginFields[:len(beginFields)-1].names()
	return `
	INSERT INTO payments (` + columns + `, state, attempts, owner, lease_until, created_at, updated_at)
	SELECT ` + strings.Replace(columns, "deposit_amount", "coalesce(deposit_amount, 0)", 1) + `,
		'settling', 1, @owner, now() + lease, now(), now()
	FROM ` + beginFields.table("p") + `
	ORDER BY payer, nonce ON CONFLICT DO NOTHING RETURNING id, created_at`
}()

// deposit is what the payment adds to its payment channel; nil if it adds nothing.
func (p *Payment) deposit() *int64 {
	if p.DepositAmount == 0 {
		return nil
	}
	return &p.DepositAmount
}

// begunPayment is a row that beginPayments returns.
type begunPayment struct {
	ID        uuid.UUID
	CreatedAt time.Time
}

// insertBegun runs beginPayments.
func insertBegun(ctx context.Context, on session, batch []batchItem[*Payment]) ([]begunPayment, error) {
	return query[begunPayment](ctx, on, beginPayments, append(beginFields.of(batch), pair{"owner", on.reader().owner}))
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

var deliveryFields = fieldsOfDelivery(func(c Closing) *Delivery { return c.Delivery })

func fieldsOfDelivery[T any](of func(T) *Delivery) fields[T] {
	return fields[T]{
		each("payment", "uuid", func(t T) *[16]byte { return (*[16]byte)(of(t).payment()) }),
		each("state", "text", func(t T) string { return of(t).State }),
		each("fingerprint", "bytea", func(t T) []byte { return of(t).Fingerprint }),
		each("transaction", "text", func(t T) string { return of(t).Transaction }),
		each("response", "bytea", func(t T) []byte { return of(t).Response }),
	}
}

// closeDelivered begins the statements that close delivered payments.
var closeDelivered = `
	UPDATE payments p SET fingerprint = d.fingerprint, transaction = d.transaction, response = d.response, state = 'delivered',
		failure_reason = '', request = NULL, payload = NULL, key_hash = NULL, owner = NULL, updated_at = now()
	FROM ` + deliveryFields.table("d")

// deliverPayments closes payments that are deliverable.
var deliverPayments = closeDelivered + ` WHERE p.id = d.payment AND ` + deliverable + ` RETURNING p.id`

// asRetried are the changes of an open payment that this server takes for another attempt.
const asRetried = `state = 'settling', attempts = attempts + 1, owner = @owner, lease_until = now() + @lease::interval, updated_at = now()`

// ResumeSettlement takes an open payment that no server works on, and leases it to the caller. Its outcome is unknown,
// or the lease of the server that settled it is over. It returns ErrStalePayment if there is no such payment.
func (s *Store) ResumeSettlement(ctx context.Context, id uuid.UUID, lease time.Duration) (*Payment, error) {
	payment, err := query[Payment](ctx, s, `
		UPDATE payments SET `+asRetried+`
		WHERE id = @id AND (state = 'unknown' OR (state = 'settling' AND lease_until < now())) RETURNING `+paymentColumns,
		named{"id": id, "owner": s.owner, "lease": lease})
	if err != nil {
		return nil, fmt.Errorf("resume settlement: %w", err)
	}
	if len(payment) == 0 {
		return nil, ErrStalePayment
	}
	return &payment[0], nil
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
