package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
)

// The states of a payment. settling and unknown are open: the facilitator may or may not have moved the money, and the
// row holds what is needed to find out and to deliver.
const (
	PaymentSettling      = "settling"      // being settled, or settled and being delivered
	PaymentUnknown       = "unknown"       // the facilitator gave no clear answer
	PaymentDelivered     = "delivered"     // settled, and its effect is in the database
	PaymentFailed        = "failed"        // refused for good; nothing was taken
	PaymentUndeliverable = "undeliverable" // settled, but the operation was refused meanwhile; may be redeemed
)

// Payment is one row of the ledger: one x402 authorization. Amount is in atomic units of the asset. Fingerprint is the
// SHA-256 of the request that it pays for, SignatureHash that of the signature, KeyHash that of the caller's API key,
// PaymentIdentifier that of the payer's own identifier. Secret marks a response that holds a TAN or an API key. Transaction,
// in an open payment, says that it has settled. Payload can be spent: it never reaches a log. Now is the database's time at
// which the row was read: leases and ages are measured with that clock alone.
type Payment struct {
	ID                uuid.UUID
	X402Version       int16 `gorm:"column:x402_version"`
	Scheme            string
	Network           string
	Asset             string
	Payer             string
	Nonce             string
	PayTo             string
	Amount            int64
	ValidBefore       time.Time
	Operation         string
	AgentID           *uuid.UUID
	KeyHash           []byte
	Fingerprint       []byte
	SignatureHash     []byte
	PaymentIdentifier *string
	Request           []byte
	Payload           []byte
	State             string
	Transaction       string
	FailureReason     string
	Attempts          int
	LeaseUntil        time.Time
	Owner             *int32
	Secret            bool
	Answer            []byte
	CreatedAt         time.Time
	UpdatedAt         time.Time
	Now               time.Time     `gorm:"-"`
	Lease             time.Duration `gorm:"-" db:"-"` // of a payment that begins
}

// LeaseOver tells whether the server that worked on the payment has given it up.
func (p *Payment) LeaseOver() bool { return p.LeaseUntil.Before(p.Now) }

// paymentFields are the columns of Payment, and the time.
const paymentFields = `id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id, key_hash,
	fingerprint, signature_hash, payment_identifier, request, payload, state, transaction, failure_reason, attempts, lease_until, owner,
	secret, answer, created_at, updated_at, clock_timestamp() AS now`

// ErrPaymentMoved means that somebody else has moved the payment on; look it up again.
var ErrPaymentMoved = errors.New("the payment is in another state by now")

// Payment returns the ledger's row of an authorization, or nil. Asset, payer and nonce are lower-case.
func (s *Store) Payment(ctx context.Context, network, asset, payer, nonce string) (*Payment, error) {
	return s.onePayment(ctx, `network = @network AND asset = @asset AND payer = @payer AND nonce = @nonce`,
		pgx.NamedArgs{"network": network, "asset": asset, "payer": payer, "nonce": nonce})
}

// PaymentByIdentifier returns the row that an account made for an operation under this (hashed) payment identifier, or
// nil. Where there is no account yet the payer stands for it.
func (s *Store) PaymentByIdentifier(ctx context.Context, agent *uuid.UUID, payer, operation, identifier string) (*Payment, error) {
	account := payer
	if agent != nil {
		account = agent.String()
	}
	return s.onePayment(ctx, `coalesce(agent_id::text, payer) = @account AND operation = @operation AND payment_identifier = @identifier`,
		pgx.NamedArgs{"account": account, "operation": operation, "identifier": identifier})
}

// PaymentOfWallet returns what a wallet has paid for an operation whose response holds a secret, and what a fresh
// authorization by that wallet gives it access to: the payment of the same request while it is open or its response is kept,
// or a payment of that operation and account that could not be delivered. nil if there is none.
func (s *Store) PaymentOfWallet(ctx context.Context, network, asset, payer, operation string, agent *uuid.UUID, fingerprint []byte) (*Payment, error) {
	return s.onePayment(ctx, `secret AND network = @network AND asset = @asset AND payer = @payer AND operation = @operation AND (
			(state = 'delivered' AND fingerprint = @fingerprint AND answer IS NOT NULL AND updated_at > now() - @lifetime::interval)
			OR (state IN ('settling', 'unknown') AND fingerprint = @fingerprint)
			OR (state = 'undeliverable' AND agent_id IS NOT DISTINCT FROM @agent)
		) ORDER BY fingerprint = @fingerprint DESC, created_at DESC LIMIT 1`,
		pgx.NamedArgs{"network": network, "asset": asset, "payer": payer, "operation": operation, "agent": agent, "fingerprint": fingerprint, "lifetime": SecretLifetime})
}

func (s *Store) onePayment(ctx context.Context, condition string, values pgx.NamedArgs) (*Payment, error) {
	payment, err := lookOne[Payment](ctx, s, `SELECT `+paymentFields+` FROM payments WHERE `+condition, values)
	if err != nil {
		return nil, fmt.Errorf("look payment up: %w", err)
	}
	return payment, nil
}

// BeginSettlement writes the payment as settling, leased to the caller until lease has passed: in this transaction, or
// else together with other payments. ErrPaymentMoved if another copy of the same authorization, or another payment with the
// same identifier, came first.
func (s *Store) BeginSettlement(ctx context.Context, payment *Payment, lease time.Duration) error {
	payment.State, payment.Attempts, payment.Lease, payment.Owner = PaymentSettling, 1, lease, &s.owner
	if s.tx == nil {
		err := s.begins.do(&batchItem{payment: payment})
		if errors.Is(err, errAlone) {
			return s.Transaction(ctx, func(tx *Store) error { return tx.BeginSettlement(ctx, payment, lease) })
		}
		return err
	}
	written, err := find[begunPayment](ctx, s, insertPayments, paymentValues([]*Payment{payment})...)
	switch {
	case err != nil:
		return fmt.Errorf("write payment: %w", err)
	case len(written) == 0:
		return ErrPaymentMoved
	}
	payment.CreatedAt = written[0].CreatedAt
	return nil
}

// begunPayment is what the database says of a payment that was written.
type begunPayment struct {
	ID        uuid.UUID
	CreatedAt time.Time
}

// paymentColumns are what is known of a payment as it begins, with their types.
var paymentColumns = [][2]string{
	{"id", "uuid"}, {"x402_version", "smallint"}, {"scheme", "text"}, {"network", "text"}, {"asset", "text"}, {"payer", "text"}, {"nonce", "text"},
	{"pay_to", "text"}, {"amount", "bigint"}, {"valid_before", "timestamptz"}, {"operation", "text"}, {"agent_id", "uuid"}, {"key_hash", "bytea"},
	{"fingerprint", "bytea"}, {"signature_hash", "bytea"}, {"payment_identifier", "text"}, {"request", "bytea"}, {"payload", "bytea"}, {"state", "text"},
	{"attempts", "integer"}, {"owner", "integer"}, {"secret", "boolean"}, {"lease", "interval"},
}

// insertPayments writes payments as they begin, in one order: two statements that write the same ones must not wait for each
// other. It returns those that were not in the ledger yet. The database's clock says when they begin and how long they are
// leased.
var insertPayments = func() string {
	var names, types []string
	for _, column := range paymentColumns {
		names, types = append(names, column[0]), append(types, column[1])
	}
	own := strings.Join(names[:len(names)-1], ", ") // without lease
	return `INSERT INTO payments (` + own + `, lease_until, created_at, updated_at)
		SELECT ` + own + `, clock_timestamp() + p.lease, clock_timestamp(), clock_timestamp()
		FROM ` + unnest(1, types...) + ` AS p (` + strings.Join(names, ", ") + `) ORDER BY p.payer, p.nonce
		ON CONFLICT DO NOTHING RETURNING id, created_at`
}()

// paymentValues are the values of paymentColumns, each of all payments.
func paymentValues(all []*Payment) []any {
	return []any{
		column(all, func(p *Payment) [16]byte { return p.ID }), column(all, func(p *Payment) int16 { return p.X402Version }),
		column(all, func(p *Payment) string { return p.Scheme }), column(all, func(p *Payment) string { return p.Network }),
		column(all, func(p *Payment) string { return p.Asset }), column(all, func(p *Payment) string { return p.Payer }),
		column(all, func(p *Payment) string { return p.Nonce }), column(all, func(p *Payment) string { return p.PayTo }),
		column(all, func(p *Payment) int64 { return p.Amount }), column(all, func(p *Payment) time.Time { return p.ValidBefore }),
		column(all, func(p *Payment) string { return p.Operation }), column(all, func(p *Payment) *[16]byte { return (*[16]byte)(p.AgentID) }),
		column(all, func(p *Payment) []byte { return p.KeyHash }), column(all, func(p *Payment) []byte { return p.Fingerprint }),
		column(all, func(p *Payment) []byte { return p.SignatureHash }), column(all, func(p *Payment) *string { return p.PaymentIdentifier }),
		column(all, func(p *Payment) []byte { return p.Request }), column(all, func(p *Payment) []byte { return p.Payload }),
		column(all, func(p *Payment) string { return p.State }), column(all, func(p *Payment) int32 { return int32(p.Attempts) }), //nolint:gosec // few
		column(all, func(p *Payment) *int32 { return p.Owner }), column(all, func(p *Payment) bool { return p.Secret }),
		column(all, func(p *Payment) time.Duration { return p.Lease }),
	}
}

func column[T any](all []*Payment, of func(*Payment) T) []T {
	values := make([]T, len(all))
	for i, payment := range all {
		values[i] = of(payment)
	}
	return values
}

// takeUp is how an open payment comes into the hands of this server for another attempt.
const takeUp = `
	SET state = 'settling', attempts = attempts + 1, owner = @owner,
		lease_until = now() + @seconds * interval '1 second', updated_at = now()`

// ResumeSettlement takes an open payment that nobody works on (its outcome is unknown, or the server that settled it
// died) and leases it to the caller. ErrPaymentMoved if there is nothing to take.
func (s *Store) ResumeSettlement(ctx context.Context, id uuid.UUID, lease time.Duration) (*Payment, error) {
	payment, err := find[Payment](ctx, s, `UPDATE payments`+takeUp+`
		WHERE id = @id AND (state = 'unknown' OR (state = 'settling' AND lease_until < now())) RETURNING `+paymentFields,
		pgx.NamedArgs{"id": id, "owner": s.owner, "seconds": lease.Seconds()})
	if err != nil {
		return nil, fmt.Errorf("resume settlement: %w", err)
	}
	if len(payment) == 0 {
		return nil, ErrPaymentMoved
	}
	return &payment[0], nil
}

// ClaimOpenPayments takes up to limit open payments of a network whose time has come, or whose server is gone, and
// leases them to the caller. Several servers may claim at once; none gets what another has. Payments with more than
// maxAttempts attempts are left to the operator, unless it is known that they have settled.
func (s *Store) ClaimOpenPayments(ctx context.Context, network, asset string, limit, maxAttempts int, lease time.Duration) ([]Payment, error) {
	// An array is looked up in the index, however small the table was when this was planned.
	payments, err := find[Payment](ctx, s, `
		WITH alive AS (
			SELECT objid::bigint AS owner FROM pg_locks
			WHERE locktype = 'advisory' AND classid::bigint = @class AND objsubid = 2 AND granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		)
		UPDATE payments`+takeUp+`
		WHERE id = ANY (ARRAY(
			SELECT id FROM payments
			WHERE state IN ('settling', 'unknown') AND network = @network AND asset = @asset
				AND (attempts < @most OR transaction <> '')
				AND (lease_until < now() OR (owner <> @owner AND owner NOT IN (SELECT owner FROM alive)))
			ORDER BY lease_until LIMIT @limit FOR UPDATE SKIP LOCKED
		)) RETURNING `+paymentFields, pgx.NamedArgs{
		"class": presenceClass, "owner": s.owner, "seconds": lease.Seconds(), "network": network, "asset": asset, "limit": limit, "most": maxAttempts,
	})
	if err != nil {
		return nil, fmt.Errorf("claim open payments: %w", err)
	}
	return payments, nil
}

// CountOpenPayments counts the payments whose story has not ended, by state.
func (s *Store) CountOpenPayments(ctx context.Context) (map[string]int64, error) {
	rows, err := gorm.G[struct {
		State string
		Count int64
	}](s.db).Raw(`
		SELECT state, count(*) AS count FROM payments WHERE state IN ('settling', 'unknown') GROUP BY state
		UNION ALL SELECT 'undeliverable', count(*) FROM payments WHERE state = 'undeliverable'`).Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("count open payments: %w", err)
	}
	counts := map[string]int64{PaymentSettling: 0, PaymentUnknown: 0}
	for _, row := range rows {
		counts[row.State] = row.Count
	}
	return counts, nil
}

// Unclear is what is known of an attempt whose outcome is not.
type Unclear struct {
	Reason string
	// Sent tells whether the facilitator can have received it: only then may a nonce that turns out to be used count as
	// used by us.
	Sent bool
	// Transaction, if not empty, says that the money has moved; only the delivery is missing.
	Transaction string
}

// PaymentUnclear gives a payment back for a later attempt. The pause grows with its age, from a
// second to five minutes. ErrPaymentMoved if somebody else has taken it up meanwhile.
func (s *Store) PaymentUnclear(ctx context.Context, payment *Payment, what Unclear) error {
	return s.movePayment(ctx, `
		UPDATE payments SET state = 'unknown', failure_reason = @reason, owner = NULL,
			attempts = attempts - CASE WHEN @sent THEN 0 ELSE 1 END,
			transaction = CASE WHEN @transaction = '' THEN transaction ELSE @transaction END,
			lease_until = now() + least(greatest((now() - created_at) / 2, interval '1 second'), interval '5 minutes'),
			updated_at = now()
		WHERE id = @id AND state = 'settling' AND attempts = @attempts RETURNING id`, map[string]any{
		"id": payment.ID, "attempts": payment.Attempts, "reason": what.Reason, "sent": what.Sent,
		"transaction": what.Transaction,
	})
}

// PaymentFailed closes a payment that was refused for good, and lets go of what was kept for it. ErrPaymentMoved if
// somebody else has taken it up meanwhile: then the refusal is not the last word.
func (s *Store) PaymentFailed(ctx context.Context, payment *Payment, reason string) error {
	return s.movePayment(ctx, `
		WITH moved AS (
			UPDATE payments SET state = 'failed', failure_reason = @reason, payment_identifier = NULL, `+forget+`
			WHERE id = @id AND state = 'settling' AND attempts = @attempts RETURNING id
		)`+release,
		map[string]any{"id": payment.ID, "attempts": payment.Attempts, "reason": reason})
}

// release lets go of the usernames that were claimed for the payments in moved, and returns those. A payment that did not
// move keeps its claim: it may yet be delivered.
const release = `, released AS (UPDATE registrations SET claimed_by = NULL WHERE claimed_by IN (SELECT id FROM moved))
	SELECT id FROM moved`

// forget erases what a closed payment needs no more.
const forget = `request = NULL, payload = NULL, key_hash = NULL, owner = NULL, updated_at = now()`

// Delivery is what closes a payment that was delivered: Answer is the response that its repetition gets, nil if none is
// kept. Fingerprint is that of the request that was delivered.
type Delivery struct {
	Payment     uuid.UUID
	Fingerprint []byte
	Transaction string
	Answer      []byte
}

// closePayments closes payments that were delivered: deliveryValues, from parameter first on.
func closePayments(first int) string {
	return fmt.Sprintf(`
		UPDATE payments p SET state = 'delivered', fingerprint = d.fingerprint, transaction = d.transaction, answer = d.answer, failure_reason = '', %s
		FROM %s AS d (id, fingerprint, transaction, answer)`, forget, unnest(first, "uuid", "bytea", "text", "bytea"))
}

var deliverPayments = closePayments(1) + ` WHERE p.id = d.id AND p.state IN ('settling', 'undeliverable') RETURNING p.id`

// deliverOrFail ends the transaction with a division by zero if nothing was closed.
var deliverOrFail = `WITH moved AS (` + deliverPayments + `) SELECT 1 / count(*) FROM moved`

func deliveryValues(all []*batchItem) []any {
	ids, fingerprints, answers := make([][16]byte, len(all)), make([][]byte, len(all)), make([][]byte, len(all))
	transactions := make([]string, len(all))
	for i, item := range all {
		d := item.delivery
		ids[i], fingerprints[i], transactions[i], answers[i] = d.Payment, d.Fingerprint, d.Transaction, d.Answer
	}
	return []any{ids, fingerprints, transactions, answers}
}

// queue closes the payment as the last statement of a transaction, which fails with ErrPaymentMoved if it is closed already.
func (d *Delivery) queue(batch *pgx.Batch) {
	batch.Queue(deliverOrFail, deliveryValues([]*batchItem{{delivery: d}})...).Fn = func(results pgx.BatchResults) error {
		_, err := results.Exec()
		switch {
		case hasCode(err, divisionByZero):
			return ErrPaymentMoved
		case err != nil:
			return fmt.Errorf("move payment: %w", err)
		}
		return nil
	}
}

// PaymentDelivered closes the payment. Called last in the transaction that makes the effect: both become visible, or neither,
// and the transaction ends with ErrPaymentMoved if the payment was delivered meanwhile. Without a transaction, for what has no
// effect, it is closed together with others.
func (s *Store) PaymentDelivered(ctx context.Context, delivery Delivery) error {
	if s.tx == nil {
		return s.deliveries.do(&batchItem{delivery: &delivery})
	}
	s.tx.delivery = &delivery
	return nil
}

// AbandonSettlement takes back a payment that was begun and certainly not sent to be settled: it leaves no trace.
// ErrPaymentMoved if somebody else has taken it up meanwhile.
func (s *Store) AbandonSettlement(ctx context.Context, payment *Payment) error {
	return s.movePayment(ctx, `
		WITH moved AS (DELETE FROM payments WHERE id = @id AND state = 'settling' AND attempts = 1 AND owner = @owner RETURNING id)`+release,
		pgx.NamedArgs{"id": payment.ID, "owner": s.owner})
}

// PaymentUndeliverable records that the money was taken but the operation was refused after all. The payment may be redeemed
// with another request, so it keeps no username.
func (s *Store) PaymentUndeliverable(ctx context.Context, id uuid.UUID, transaction, reason string) error {
	return s.movePayment(ctx, `
		WITH moved AS (
			UPDATE payments SET state = 'undeliverable', transaction = @transaction, failure_reason = @reason, `+forget+`
			WHERE id = @id AND state IN ('settling', 'undeliverable') RETURNING id
		)`+release,
		map[string]any{"id": id, "transaction": transaction, "reason": reason})
}

func (s *Store) movePayment(ctx context.Context, statement string, values pgx.NamedArgs) error {
	moved, err := find[uuid.UUID](ctx, s, statement, values)
	if err != nil {
		return fmt.Errorf("move payment: %w", err)
	}
	if len(moved) == 0 {
		return ErrPaymentMoved
	}
	return nil
}
