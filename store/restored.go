package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// OperationRestored is the operation of a restored payment: a payment whose row was lost with a restored database, and that was
// entered again from the blockchain. The blockchain tells the wallet, the amount and the payee, but not the call. A restored payment is
// undeliverable until its payer redeems it for a call with the same price. Then it gets the operation and the account of that call.
const OperationRestored = "restored"

// restoredReason is the failure reason of a restored payment.
const restoredReason = "lost_with_a_restored_database"

// Restored reports whether the payment is a restored one that is neither redeemed for any call yet nor refunded.
func (p *Payment) Restored() bool {
	return p.Operation == OperationRestored && p.State == PaymentUndeliverable && p.FailureReason != Refunded
}

// RestoredPayment is a transfer to the payee, made by an EIP-3009 authorization. Addresses, nonce and transaction are in lower case,
// Amount is in atomic units, and At is the time of its block.
type RestoredPayment struct {
	PaymentTerms
	Payer, Nonce, Transaction string
	Amount                    int64
	At                        time.Time
}

// RestorePayment enters a settled payment that the ledger lacks, or has as failed. It returns false if the ledger has it in another state.
func (s *Store) RestorePayment(ctx context.Context, lost RestoredPayment) (_ bool, err error) {
	defer wrapInto(&err, "enter a lost payment")
	id, err := uuid.NewV7()
	if err != nil {
		return false, err
	}
	written, err := exec(ctx, s, `
		INSERT INTO payments AS p (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, fingerprint,
			signature_hash, state, transaction, failure_reason, lease_until, secret, created_at, updated_at)
		VALUES (@id, 2, 'exact', @network, @asset, @payer, @nonce, @payee, @amount, @at, @operation, @unknown,
			@unknown, 'undeliverable', @transaction, @reason, @at, false, @at, @now)
		ON CONFLICT (network, asset, payer, nonce) DO UPDATE SET operation = excluded.operation, agent_id = NULL, key_hash = NULL,
			fingerprint = excluded.fingerprint, signature_hash = excluded.signature_hash, payment_identifier = NULL, idempotency_key = NULL,
			secret = false,
			amount = excluded.amount, pay_to = excluded.pay_to, transaction = excluded.transaction, state = excluded.state,
			failure_reason = excluded.failure_reason, created_at = excluded.created_at, updated_at = excluded.updated_at
		WHERE p.state = 'failed' AND p.scheme = 'exact'`, named{
		"id": id, "network": lost.Network, "asset": lost.Asset, "payer": lost.Payer, "nonce": lost.Nonce, "payee": lost.PayTo,
		"amount": lost.Amount,
		"at":     lost.At, "operation": OperationRestored, "transaction": lost.Transaction, "reason": restoredReason, "now": s.Now(),
		"unknown": make([]byte, 32), // the hash of nothing: no request and no signature matches
	})
	return written == 1, err
}

// RestoredOfWallet returns the oldest restored payment of a wallet with this amount, or nil.
func (s *Store) RestoredOfWallet(ctx context.Context, scheme, network, asset, payer string, amount int64) (*Payment, error) {
	return s.onePayment(ctx, `scheme = @scheme AND network = @network AND asset = @asset AND payer = @payer AND amount = @amount
		AND operation = @operation AND `+owed+`
		ORDER BY created_at LIMIT 1`, named{"scheme": scheme, "network": network, "asset": asset, "payer": payer, "amount": amount,
		"operation": OperationRestored})
}

// HasPaidFor reports whether the wallet has signed a transfer for a delivered call of the account: a payment of scheme exact, or a
// deposit. A voucher is signed by the key of its payment channel, which need not be that of the wallet.
func (s *Store) HasPaidFor(ctx context.Context, network, asset, payer string, agent uuid.UUID) (_ bool, err error) {
	defer wrapInto(&err, "look up for whom a wallet has paid")
	return single(query[bool](ctx, s, `SELECT EXISTS (SELECT FROM payments WHERE network = @network AND asset = @asset AND payer = @payer
		AND agent_id = @agent AND state = 'delivered' AND (scheme = 'exact' OR deposit_amount > 0)) AS found`,
		named{"network": network, "asset": asset, "payer": payer, "agent": agent}))
}

// Redemption is the call for which a restored payment is redeemed. The fields are those of [Payment].
type Redemption struct {
	Payment           uuid.UUID
	Payer             string
	Operation         string
	AgentID           *uuid.UUID
	Fingerprint       []byte
	SignatureHash     []byte
	PaymentIdentifier *string
	IdempotencyKey    *string
	Secret            bool
}

// BindRestored binds a restored payment to a call. From then on it is an undeliverable payment of that operation and account. It
// returns ErrStalePayment if it is bound to a call already, or if another payment has the payment identifier or the key.
func (s *Store) BindRestored(ctx context.Context, call Redemption) error {
	err := s.changePayment(ctx, call.Payment, map[string]any{
		"operation": call.Operation, "agent_id": call.AgentID, "fingerprint": call.Fingerprint, "signature_hash": call.SignatureHash,
		"payment_identifier": call.PaymentIdentifier, "idempotency_key": call.IdempotencyKey, "secret": call.Secret,
	}, "payer = ? AND operation = ? AND "+owed, call.Payer, OperationRestored)
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return ErrStalePayment
	}
	return err
}

// RecoverPayout enters a payout of payment channels that the ledger lacks. It returns false if the ledger has its transaction.
func (s *Store) RecoverPayout(
	ctx context.Context, terms PaymentTerms, transaction string, paid int64, at time.Time,
) (entered bool, err error) {
	defer wrapInto(&err, "enter a lost payout")
	id, err := uuid.NewV7()
	if err != nil {
		return false, err
	}
	added, err := exec(ctx, s, `
		INSERT INTO payment_channel_transactions (id, kind, network, asset, pay_to, payment_channel_ids, claimed, paid, transaction, created_at)
		SELECT @id, 'settle', @network, @asset, @payee, '{}', 0, @paid, @transaction, @at
		WHERE NOT EXISTS (SELECT FROM payment_channel_transactions WHERE transaction = @transaction AND kind = 'settle')`, named{
		"id": id, "network": terms.Network, "asset": terms.Asset, "payee": terms.PayTo, "paid": paid, "transaction": transaction, "at": at,
	})
	return added == 1, err
}
