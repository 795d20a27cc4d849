package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// The states of a payment. settling and unknown are open: the facilitator may or may not have moved the money, and the
// row holds what is needed to find out and to deliver.
const (
	PaymentSettling      = "settling"      // being settled, or settled and being delivered
	PaymentUnknown       = "unknown"       // the facilitator gave no clear response
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
	Response          []byte
	CreatedAt         time.Time
	UpdatedAt         time.Time
	Now               time.Time     `gorm:"-"`
	Lease             time.Duration `gorm:"-" db:"-"` // of a payment that begins
}

// LeaseOver tells whether the server that worked on the payment has given it up.
func (p *Payment) LeaseOver() bool { return p.LeaseUntil.Before(p.Now) }

// paymentColumns are the columns of Payment, and the time.
const paymentColumns = `id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id, key_hash,
	fingerprint, signature_hash, payment_identifier, request, payload, state, transaction, failure_reason, attempts, lease_until, owner,
	secret, response, created_at, updated_at, clock_timestamp() AS now`

// ErrStalePayment means that the caller's state of the payment is stale: look it up again.
var ErrStalePayment = errors.New("the payment is in another state by now")

// Payment returns the ledger's row of an authorization, or nil. Asset, payer and nonce are lower-case.
func (s *Store) Payment(ctx context.Context, network, asset, payer, nonce string) (*Payment, error) {
	return s.onePayment(ctx, "network = $1 AND asset = $2 AND payer = $3 AND nonce = $4", network, asset, payer, nonce)
}

// PaymentByIdentifier returns the row that an account made for an operation under this (hashed) payment identifier, or
// nil. Where there is no account yet the payer stands for it.
func (s *Store) PaymentByIdentifier(ctx context.Context, agent *uuid.UUID, payer, operation, identifier string) (*Payment, error) {
	account := payer
	if agent != nil {
		account = agent.String()
	}
	return s.onePayment(ctx, "coalesce(agent_id::text, payer) = $1 AND operation = $2 AND payment_identifier = $3", account, operation, identifier)
}

// PaymentOfWallet returns what a wallet has paid for an operation whose response holds a secret, and what a fresh
// authorization by that wallet gives it access to: the payment of the same request while it is open or its response is kept,
// or a payment of that operation and account that could not be delivered. nil if there is none.
func (s *Store) PaymentOfWallet(ctx context.Context, network, asset, payer, operation string, agent *uuid.UUID, fingerprint []byte) (*Payment, error) {
	return s.onePayment(ctx, `secret AND network = $1 AND asset = $2 AND payer = $3 AND operation = $4 AND (
			(state = 'delivered' AND fingerprint = $5 AND response IS NOT NULL AND updated_at > now() - $6::interval)
			OR (state IN ('settling', 'unknown') AND fingerprint = $5)
			OR (state = 'undeliverable' AND agent_id IS NOT DISTINCT FROM $7::uuid)
		) ORDER BY fingerprint = $5 DESC, created_at DESC LIMIT 1`, network, asset, payer, operation, fingerprint, SecretLifetime, agent)
}

// onePayment loads a payment with the database's time; nil if there is none. It is on pgx, because GORM allocates half as much
// again for each repetition.
func (s *Store) onePayment(ctx context.Context, condition string, values ...any) (*Payment, error) {
	found, err := query[Payment](ctx, s, `SELECT `+paymentColumns+` FROM payments WHERE `+condition, values...)
	if err != nil {
		return nil, fmt.Errorf("look payment up: %w", err)
	}
	if len(found) == 0 {
		return nil, nil //nolint:nilnil // it is not in the ledger
	}
	return &found[0], nil
}

// BeginSettlement writes the payment as settling, leased to the caller until lease has passed: in this transaction, or
// else together with other payments. ErrStalePayment if another copy of the same authorization, or another payment with the
// same identifier, came first.
func (s *Store) BeginSettlement(ctx context.Context, payment *Payment, lease time.Duration) error {
	payment.State, payment.Attempts, payment.Lease, payment.Owner = PaymentSettling, 1, lease, &s.owner
	if s.tx == nil {
		err := s.begins.do(payment)
		if errors.Is(err, ErrNotBatched) {
			return s.Transaction(ctx, func(tx *Store) error { return tx.BeginSettlement(ctx, payment, lease) })
		}
		return err
	}
	// Raw: leases and ages are measured with the database's clock alone.
	now, err := gorm.G[time.Time](s.db).Raw("SELECT now()").Take(ctx)
	if err != nil {
		return fmt.Errorf("ask for the time: %w", err)
	}
	payment.CreatedAt, payment.UpdatedAt, payment.LeaseUntil = now, now, now.Add(lease)
	written := s.gorm(ctx, &Payment{}).Clauses(clause.OnConflict{DoNothing: true}).Create(payment)
	switch {
	case written.Error != nil:
		return fmt.Errorf("write payment: %w", written.Error)
	case written.RowsAffected == 0:
		return ErrStalePayment
	}
	return nil
}

// CountOpenPayments counts the payments whose story has not ended, by state.
func (s *Store) CountOpenPayments(ctx context.Context) (map[string]int64, error) {
	counts := map[string]int64{PaymentSettling: 0, PaymentUnknown: 0, PaymentUndeliverable: 0}
	// Each condition is, word for word, that of an index.
	for _, condition := range []string{"state IN ('settling', 'unknown')", "state = 'undeliverable'"} {
		var rows []struct {
			State string
			Count int64
		}
		if err := s.gorm(ctx, &Payment{}).Select("state, count(*) AS count").Where(condition).Group("state").Find(&rows).Error; err != nil {
			return nil, fmt.Errorf("count open payments: %w", err)
		}
		for _, row := range rows {
			counts[row.State] = row.Count
		}
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
// second to five minutes. ErrStalePayment if somebody else has taken it up meanwhile.
func (s *Store) PaymentUnclear(ctx context.Context, payment *Payment, what Unclear) error {
	changes := map[string]any{
		"state": PaymentUnknown, "failure_reason": what.Reason, "owner": nil,
		"lease_until": gorm.Expr("now() + least(greatest((now() - created_at) / 2, interval '1 second'), interval '5 minutes')"),
	}
	if !what.Sent {
		changes["attempts"] = gorm.Expr("attempts - 1")
	}
	if what.Transaction != "" {
		changes["transaction"] = what.Transaction
	}
	return s.movePayment(ctx, payment.ID, changes, inHand, payment.Attempts)
}

// inHand is true of a payment as long as the caller works on it and nobody else has taken it up.
const inHand = "state = 'settling' AND attempts = ?"

// PaymentFailed closes a payment that was refused for good, and lets go of what was kept for it. ErrStalePayment if
// somebody else has taken it up meanwhile: then the refusal is not the last word.
func (s *Store) PaymentFailed(ctx context.Context, payment *Payment, reason string) error {
	return s.failPayment(ctx, payment.ID, reason, inHand, payment.Attempts)
}

func (s *Store) failPayment(ctx context.Context, id uuid.UUID, reason, condition string, values ...any) error {
	changes := closing(PaymentFailed, map[string]any{"failure_reason": reason, "payment_identifier": nil})
	return s.closePayment(ctx, id, changes, condition, values...)
}

// PaymentUndeliverable records that the money was taken but the operation was refused after all. The payment may be redeemed
// with another request, so it keeps no username.
func (s *Store) PaymentUndeliverable(ctx context.Context, id uuid.UUID, transaction, reason string) error {
	changes := closing(PaymentUndeliverable, map[string]any{"transaction": transaction, "failure_reason": reason})
	return s.closePayment(ctx, id, changes, "state IN ('settling', 'undeliverable')")
}

// closePayment closes a payment that has no effect, and lets go of the username that was claimed for it. One that did not move
// keeps its claim: it may yet be delivered.
func (s *Store) closePayment(ctx context.Context, id uuid.UUID, changes map[string]any, condition string, values ...any) error {
	return s.Transaction(ctx, func(tx *Store) error {
		if err := tx.movePayment(ctx, id, changes, condition, values...); err != nil {
			return err
		}
		return tx.releaseUsername(ctx, id)
	})
}

// closing are the changes of a payment that is closed. What it needs no more is erased.
func closing(state string, changes map[string]any) map[string]any {
	all := map[string]any{"state": state, "request": nil, "payload": nil, "key_hash": nil, "owner": nil}
	maps.Copy(all, changes)
	return all
}

// Delivery is what closes a payment that was delivered: Response is the response that its repetition gets, nil if none is
// kept. Fingerprint is that of the request that was delivered.
type Delivery struct {
	Payment     uuid.UUID
	Fingerprint []byte
	Transaction string
	Response    []byte
}

// PaymentDelivered closes the payment. In the transaction that makes the effect both become visible, or neither. Without a
// transaction, for what has no effect, it is closed together with others. ErrStalePayment if the payment was closed before.
func (s *Store) PaymentDelivered(ctx context.Context, delivery Delivery) error {
	switch {
	case s.tx == nil && s.pending != nil && s.pending.mark != nil:
		return s.deliverRead(ctx, delivery, s.pending.mark)
	case s.tx == nil:
		return s.deliveries.do(delivery)
	}
	changes := closing(PaymentDelivered, map[string]any{
		"fingerprint": delivery.Fingerprint, "transaction": delivery.Transaction, "response": delivery.Response, "failure_reason": "",
	})
	return s.movePayment(ctx, delivery.Payment, changes, "state IN ('settling', 'undeliverable')")
}

// AbandonSettlement takes back a payment that was begun and certainly not sent to be settled: it leaves no trace.
// ErrStalePayment if somebody else has taken it up meanwhile.
func (s *Store) AbandonSettlement(ctx context.Context, payment *Payment) error {
	return s.Transaction(ctx, func(tx *Store) error {
		taken, err := gorm.G[Payment](tx.db).Where("id = ? AND state = 'settling' AND attempts = 1 AND owner = ?", payment.ID, tx.owner).Delete(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("abandon payment: %w", err)
		case taken == 0:
			return ErrStalePayment
		}
		return tx.releaseUsername(ctx, payment.ID)
	})
}

// movePayment changes a payment if the condition holds. ErrStalePayment if not: the caller's state is stale.
func (s *Store) movePayment(ctx context.Context, id uuid.UUID, changes map[string]any, condition string, values ...any) error {
	changes["updated_at"] = gorm.Expr("now()")
	moved := s.gorm(ctx, &Payment{}).Where("id = ?", id).Where(condition, values...).Updates(changes)
	switch {
	case moved.Error != nil:
		return fmt.Errorf("move payment: %w", moved.Error)
	case moved.RowsAffected == 0:
		return ErrStalePayment
	}
	return nil
}

func (s *Store) releaseUsername(ctx context.Context, payment uuid.UUID) error {
	if _, err := gorm.G[Registration](s.db).Where("claimed_by = ?", payment).Update(ctx, "claimed_by", nil); err != nil {
		return fmt.Errorf("release username: %w", err)
	}
	return nil
}
