package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
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
// SHA-256 of the request that it pays for, SignatureHash that of the signature. Payload can be spent: it never reaches a log.
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
	Answer            []byte
	CreatedAt         time.Time
	UpdatedAt         time.Time
}

// ErrPaymentMoved means that somebody else has moved the payment on; look it up again.
var ErrPaymentMoved = errors.New("the payment is in another state by now")

// Payment returns the ledger's row of an authorization, or nil. Asset, payer and nonce are lower-case.
func (s *Store) Payment(ctx context.Context, network, asset, payer, nonce string) (*Payment, error) {
	payment, err := gorm.G[Payment](s.db).Where("network = ? AND asset = ? AND payer = ? AND nonce = ?", network, asset, payer, nonce).Take(ctx)
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look payment up: %w", err)
	}
	return &payment, nil
}

// BeginSettlement writes the payment as settling, leased to the caller until lease has passed. ErrPaymentMoved if
// another copy of the same authorization came first.
func (s *Store) BeginSettlement(ctx context.Context, payment *Payment, lease time.Duration) error {
	now := time.Now()
	payment.State, payment.Attempts, payment.LeaseUntil, payment.CreatedAt, payment.UpdatedAt = PaymentSettling, 1, now.Add(lease), now, now
	err := gorm.G[Payment](s.db).Create(ctx, payment)
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return ErrPaymentMoved
	}
	if err != nil {
		return fmt.Errorf("begin settlement: %w", err)
	}
	return nil
}

// ResumeSettlement takes an open payment that nobody works on (its outcome is unknown, or the server that settled it
// died) and leases it to the caller. ErrPaymentMoved if there is nothing to take.
func (s *Store) ResumeSettlement(ctx context.Context, id uuid.UUID, lease time.Duration) (*Payment, error) {
	payment, err := gorm.G[Payment](s.db).Raw(`
		UPDATE payments SET state = 'settling', attempts = attempts + 1, lease_until = now() + @seconds * interval '1 second', updated_at = now()
		WHERE id = @id AND (state = 'unknown' OR (state = 'settling' AND lease_until < now())) RETURNING *`,
		map[string]any{"id": id, "seconds": lease.Seconds()}).Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("resume settlement: %w", err)
	}
	if len(payment) == 0 {
		return nil, ErrPaymentMoved
	}
	return &payment[0], nil
}

// PaymentUnknown gives the payment back for a later attempt. sent tells whether the facilitator can have received it:
// only then may a nonce that turns out to be used count as used by us.
func (s *Store) PaymentUnknown(ctx context.Context, id uuid.UUID, reason string, sent bool) error {
	return s.movePayment(ctx, `UPDATE payments SET state = 'unknown', failure_reason = @reason, updated_at = now(),
		attempts = attempts - CASE WHEN @sent THEN 0 ELSE 1 END WHERE id = @id AND state = 'settling' RETURNING id`,
		map[string]any{"id": id, "reason": reason, "sent": sent})
}

// PaymentFailed closes a payment that was refused for good, and lets go of what was kept for it.
func (s *Store) PaymentFailed(ctx context.Context, id uuid.UUID, reason string) error {
	return s.movePayment(ctx, `
		WITH released AS (UPDATE registrations SET claimed_by = NULL WHERE claimed_by = @id)
		UPDATE payments SET state = 'failed', failure_reason = @reason, request = NULL, payload = NULL, updated_at = now()
		WHERE id = @id AND state = 'settling' RETURNING id`, map[string]any{"id": id, "reason": reason})
}

// PaymentDelivered closes the payment with the answer that its repetition gets. Called in the transaction that makes
// the effect: both become visible, or neither. ErrPaymentMoved if it was delivered meanwhile; then roll back.
func (s *Store) PaymentDelivered(ctx context.Context, id uuid.UUID, fingerprint []byte, transaction string, answer []byte) error {
	return s.movePayment(ctx, `
		UPDATE payments SET state = 'delivered', fingerprint = @fingerprint, transaction = @transaction, answer = @answer,
			failure_reason = '', request = NULL, payload = NULL, updated_at = now()
		WHERE id = @id AND state IN ('settling', 'undeliverable') RETURNING id`,
		map[string]any{"id": id, "fingerprint": fingerprint, "transaction": transaction, "answer": answer})
}

// PaymentUndeliverable records that the money was taken but the operation was refused after all.
func (s *Store) PaymentUndeliverable(ctx context.Context, id uuid.UUID, transaction, reason string) error {
	return s.movePayment(ctx, `
		UPDATE payments SET state = 'undeliverable', transaction = @transaction, failure_reason = @reason, request = NULL, payload = NULL, updated_at = now()
		WHERE id = @id AND state IN ('settling', 'undeliverable') RETURNING id`,
		map[string]any{"id": id, "transaction": transaction, "reason": reason})
}

func (s *Store) movePayment(ctx context.Context, statement string, values map[string]any) error {
	moved, err := gorm.G[uuid.UUID](s.db).Raw(statement, values).Find(ctx)
	if err != nil {
		return fmt.Errorf("move payment: %w", err)
	}
	if len(moved) == 0 {
		return ErrPaymentMoved
	}
	return nil
}
