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
// row holds what is needed to find out and to deliver. owed and defaulted belong to deferred settlement.
const (
	PaymentSettling      = "settling"      // being settled, or settled and being delivered
	PaymentUnknown       = "unknown"       // the facilitator gave no clear answer
	PaymentDelivered     = "delivered"     // settled, and its effect is in the database
	PaymentFailed        = "failed"        // refused for good; nothing was taken
	PaymentUndeliverable = "undeliverable" // settled, but the operation was refused meanwhile; may be redeemed
	PaymentOwed          = "owed"          // delivered, to be settled soon
	PaymentDefaulted     = "defaulted"     // delivered, and settlement failed
)

// Payment is one row of the ledger: one x402 authorization. Amount is in atomic units of the asset. Fingerprint is the
// SHA-256 of the request that it pays for, SignatureHash that of the signature, KeyHash that of the caller's API key,
// PaymentIdentifier that of the payer's own identifier. Transaction, in an open payment, says that it has settled.
// Payload can be spent: it never reaches a log.
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
	UnclearAt         *time.Time
	Shard             *int16
	Answer            []byte
	CreatedAt         time.Time
	UpdatedAt         time.Time
}

// ErrPaymentMoved means that somebody else has moved the payment on; look it up again.
var ErrPaymentMoved = errors.New("the payment is in another state by now")

// Payment returns the ledger's row of an authorization, or nil. Asset, payer and nonce are lower-case.
func (s *Store) Payment(ctx context.Context, network, asset, payer, nonce string) (*Payment, error) {
	payment, err := lookOne[Payment](ctx, s, `SELECT * FROM payments WHERE network = @network AND asset = @asset AND payer = @payer AND nonce = @nonce`,
		pgx.NamedArgs{"network": network, "asset": asset, "payer": payer, "nonce": nonce})
	if err != nil {
		return nil, fmt.Errorf("look payment up: %w", err)
	}
	return payment, nil
}

// PaymentByIdentifier returns the row that an account made for an operation under this (hashed) payment identifier, or
// nil. Where there is no account yet the payer stands for it.
func (s *Store) PaymentByIdentifier(ctx context.Context, agent *uuid.UUID, payer, operation, identifier string) (*Payment, error) {
	account := payer
	if agent != nil {
		account = agent.String()
	}
	return onePayment(gorm.G[Payment](s.db).
		Where("coalesce(agent_id::text, payer) = ? AND operation = ? AND payment_identifier = ?", account, operation, identifier).Take(ctx))
}

func onePayment(payment Payment, err error) (*Payment, error) {
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look payment up: %w", err)
	}
	return &payment, nil
}

// BeginSettlement writes the payment as settling, leased to the caller until lease has passed. ErrPaymentMoved if
// another copy of the same authorization, or another payment with the same identifier, came first.
func (s *Store) BeginSettlement(ctx context.Context, payment *Payment, lease time.Duration) error {
	now := time.Now()
	payment.State, payment.Attempts, payment.LeaseUntil, payment.CreatedAt, payment.UpdatedAt = PaymentSettling, 1, now.Add(lease), now, now
	payment.Owner = &s.owner
	if _, err := find[int](ctx, s, insertPayments, paymentValues([]*Payment{payment})...); err != nil {
		return inserted(err)
	}
	return nil
}

// paymentColumns are what is known of a payment as it begins, with their types.
var paymentColumns = [][2]string{
	{"id", "uuid"}, {"x402_version", "smallint"}, {"scheme", "text"}, {"network", "text"}, {"asset", "text"}, {"payer", "text"}, {"nonce", "text"},
	{"pay_to", "text"}, {"amount", "bigint"}, {"valid_before", "timestamptz"}, {"operation", "text"}, {"agent_id", "uuid"}, {"key_hash", "bytea"},
	{"fingerprint", "bytea"}, {"signature_hash", "bytea"}, {"payment_identifier", "text"}, {"request", "bytea"}, {"payload", "bytea"}, {"state", "text"},
	{"attempts", "integer"}, {"lease_until", "timestamptz"}, {"owner", "integer"}, {"shard", "smallint"}, {"answer", "bytea"}, {"created_at", "timestamptz"},
	{"updated_at", "timestamptz"},
}

var paymentNames = func() string {
	var names []string
	for _, column := range paymentColumns {
		names = append(names, column[0])
	}
	return strings.Join(names, ", ")
}()

// paymentArrays are the parameters of paymentValues, from $first on.
func paymentArrays(first int) string {
	var values []string
	for i, column := range paymentColumns {
		values = append(values, fmt.Sprintf("CAST($%d AS %s[])", first+i, column[1]))
	}
	return strings.Join(values, ", ")
}

// insertPayments writes payments as they begin, always in the same order: two that write the same ones must not wait for
// each other.
var insertPayments = "INSERT INTO payments (" + paymentNames + ") SELECT * FROM unnest(" + paymentArrays(1) + ") AS p (" + paymentNames + ") ORDER BY p.payer, p.nonce"

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
		column(all, func(p *Payment) time.Time { return p.LeaseUntil }), column(all, func(p *Payment) *int32 { return p.Owner }),
		column(all, func(p *Payment) *int16 { return p.Shard }), column(all, func(p *Payment) []byte { return p.Answer }),
		column(all, func(p *Payment) time.Time { return p.CreatedAt }), column(all, func(p *Payment) time.Time { return p.UpdatedAt }),
	}
}

func column[T any](all []*Payment, of func(*Payment) T) []T {
	values := make([]T, len(all))
	for i, payment := range all {
		values[i] = of(payment)
	}
	return values
}

// inserted says what an error of insertPayments means.
func inserted(err error) error {
	if hasCode(err, uniqueViolation) {
		return ErrPaymentMoved
	}
	return fmt.Errorf("write payment: %w", err)
}

// takeUp is how an open payment comes into the hands of this server for another attempt. Where the one before it died
// during its own, the outcome of that is unclear as of now.
const takeUp = `
	SET state = CASE state WHEN 'owed' THEN 'owed' ELSE 'settling' END, attempts = attempts + 1, owner = @owner,
		lease_until = now() + @seconds * interval '1 second', updated_at = now(),
		unclear_at = CASE WHEN owner IS NULL THEN unclear_at ELSE now() END`

// ResumeSettlement takes an open payment that nobody works on (its outcome is unknown, or the server that settled it
// died) and leases it to the caller. ErrPaymentMoved if there is nothing to take.
func (s *Store) ResumeSettlement(ctx context.Context, id uuid.UUID, lease time.Duration) (*Payment, error) {
	payment, err := gorm.G[Payment](s.db).Raw(`UPDATE payments`+takeUp+`
		WHERE id = @id AND (state = 'unknown' OR (state = 'settling' AND lease_until < now())) RETURNING *`,
		map[string]any{"id": id, "owner": s.owner, "seconds": lease.Seconds()}).Find(ctx)
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
	payments, err := gorm.G[Payment](s.db).Raw(`
		WITH alive AS (
			SELECT objid::bigint AS owner FROM pg_locks
			WHERE locktype = 'advisory' AND classid::bigint = @class AND objsubid = 2 AND granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		)
		UPDATE payments`+takeUp+`
		WHERE id = ANY (ARRAY(
			SELECT id FROM payments
			WHERE state IN ('settling', 'unknown', 'owed') AND network = @network AND asset = @asset
				AND (attempts < @most OR transaction <> '')
				AND (lease_until < now() OR (owner <> @owner AND owner NOT IN (SELECT owner FROM alive)))
			ORDER BY lease_until LIMIT @limit FOR UPDATE SKIP LOCKED
		)) RETURNING *`, map[string]any{
		"class": presenceClass, "owner": s.owner, "seconds": lease.Seconds(), "network": network, "asset": asset, "limit": limit, "most": maxAttempts,
	}).Find(ctx)
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
		SELECT state, count(*) AS count FROM payments WHERE state IN ('settling', 'unknown', 'owed') GROUP BY state
		UNION ALL SELECT 'undeliverable', count(*) FROM payments WHERE state = 'undeliverable'`).Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("count open payments: %w", err)
	}
	counts := map[string]int64{PaymentSettling: 0, PaymentUnknown: 0, PaymentOwed: 0}
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
	// Refused tells that the facilitator said no, and only an attempt before this one is unclear.
	Refused bool
	// Transaction, if not empty, says that the money has moved; only the delivery is missing.
	Transaction string
}

// PaymentUnclear gives a payment back for a later attempt: unknown, or still owed. The pause grows with its age, from a
// second to five minutes. ErrPaymentMoved if somebody else has taken it up meanwhile.
func (s *Store) PaymentUnclear(ctx context.Context, payment *Payment, what Unclear) error {
	return s.movePayment(ctx, `
		UPDATE payments SET state = CASE state WHEN 'owed' THEN 'owed' ELSE 'unknown' END, failure_reason = @reason, owner = NULL,
			attempts = attempts - CASE WHEN @sent THEN 0 ELSE 1 END,
			unclear_at = CASE WHEN @unclear THEN now() ELSE unclear_at END,
			transaction = CASE WHEN @transaction = '' THEN transaction ELSE @transaction END,
			lease_until = now() + least(greatest((now() - created_at) / 2, interval '1 second'), interval '5 minutes'),
			updated_at = now()
		WHERE id = @id AND state IN ('settling', 'owed') AND attempts = @attempts RETURNING id`, map[string]any{
		"id": payment.ID, "attempts": payment.Attempts, "reason": what.Reason, "sent": what.Sent,
		"unclear": what.Sent && !what.Refused, "transaction": what.Transaction,
	})
}

// PaymentFailed closes a payment that was refused for good, and lets go of what was kept for it. ErrPaymentMoved if
// somebody else has taken it up meanwhile: then the refusal is not the last word.
func (s *Store) PaymentFailed(ctx context.Context, payment *Payment, reason string) error {
	return s.movePayment(ctx, `
		WITH released AS (UPDATE registrations SET claimed_by = NULL WHERE claimed_by = @id)
		UPDATE payments SET state = 'failed', failure_reason = @reason, payment_identifier = NULL, `+forget+`
		WHERE id = @id AND state = 'settling' AND attempts = @attempts RETURNING id`,
		map[string]any{"id": payment.ID, "attempts": payment.Attempts, "reason": reason})
}

// forget erases what a closed payment needs no more.
const forget = `request = NULL, payload = NULL, key_hash = NULL, owner = NULL, updated_at = now()`

// PaymentDelivered closes the payment with the answer that its repetition gets. Called last in the transaction that makes
// the effect: both become visible, or neither, and the transaction ends with ErrPaymentMoved if it was delivered
// meanwhile. What a payer of deferred calls had failed to pay counts as made up for by as much as it pays now.
func (s *Store) PaymentDelivered(ctx context.Context, id uuid.UUID, fingerprint []byte, transaction string, answer []byte) error {
	return s.last(ctx, `
		WITH moved AS (
			UPDATE payments SET state = 'delivered', fingerprint = @fingerprint, transaction = @transaction, answer = @answer,
				failure_reason = '', `+forget+`
			WHERE id = @id AND state IN ('settling', 'undeliverable') RETURNING id, network, asset, payer, amount
		), paid AS (
			UPDATE deferred_payers p SET defaulted = greatest(p.defaulted - moved.amount, 0) FROM moved
			WHERE p.network = moved.network AND p.asset = moved.asset AND p.payer = moved.payer AND p.defaulted > 0
		)
		SELECT 1 / count(*) FROM moved`, func(err error) error {
		if hasCode(err, divisionByZero) {
			return ErrPaymentMoved
		}
		return fmt.Errorf("move payment: %w", err)
	}, pgx.NamedArgs{"id": id, "fingerprint": fingerprint, "transaction": transaction, "answer": answer})
}

// PaymentUndeliverable records that the money was taken but the operation was refused after all.
func (s *Store) PaymentUndeliverable(ctx context.Context, id uuid.UUID, transaction, reason string) error {
	return s.movePayment(ctx, `
		UPDATE payments SET state = 'undeliverable', transaction = @transaction, failure_reason = @reason, `+forget+`
		WHERE id = @id AND state IN ('settling', 'undeliverable') RETURNING id`,
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
