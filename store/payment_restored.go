package store

import (
	"context"
	"time"
)

// OperationRestored is the operation of a restored payment: a payment whose row was lost with a restored database, and that was
// entered again from the blockchain. The blockchain tells the wallet, the amount and the payee, but not the call.
const OperationRestored = "restored"

// RestoredPayment is a transfer to the payee, made by an EIP-3009 authorization. Addresses, nonce and transaction are in lower case,
// Amount is in atomic units, and At is the time of its block.
type RestoredPayment struct {
	PaymentTerms
	Payer, Nonce, Transaction string
	Amount                    int64
	At                        time.Time
}

// RestorePayment enters a settled payment that the ledger lacks, or has as failed, as undeliverable: its payer redeems it with the same
// payment, or the operator refunds it. If the wallet has paid for one account, by scheme exact or with a deposit, it is a restored payment
// of that account. If it has not, and the amount is the price of a registration, it is a payment of that operation, which its wallet
// redeems when it registers. RestorePayment returns false if the ledger has the payment in another state.
func (s *Store) RestorePayment(ctx context.Context, lost RestoredPayment) (_ bool, err error) {
	defer wrapInto(&err, "enter a lost payment")
	written, err := exec(ctx, s, `
		WITH account AS (
			SELECT CASE WHEN count(DISTINCT agent_id) = 1 THEN min(agent_id::text)::uuid END AS id FROM payments
			WHERE nonce IS NOT NULL AND network = @network AND asset = @asset AND payer = @payer AND state = 'delivered'
				AND (scheme = 'exact' OR deposit_amount > 0)
		), registration AS (
			SELECT operation FROM payments, account WHERE account.id IS NULL AND network = @network AND asset = @asset AND amount = @amount
				AND scheme = 'exact' AND secret AND agent_id IS NULL
			ORDER BY created_at DESC LIMIT 1
		)
		INSERT INTO payments AS p (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id,
			fingerprint, signature_hash, state, transaction, failure_reason, lease_until, secret, created_at, updated_at)
		SELECT @id, 2, 'exact', @network, @asset, @payer, @nonce, @payee, @amount, @at, coalesce(registration.operation, @restored), account.id,
			@unknown, @unknown, 'undeliverable', @transaction, 'lost_with_a_restored_database', @at, registration.operation IS NOT NULL, @at, @now
		FROM account LEFT JOIN registration ON true
		ON CONFLICT (network, asset, payer, nonce) WHERE nonce IS NOT NULL DO UPDATE SET
			operation = excluded.operation, agent_id = excluded.agent_id, key_hash = NULL, fingerprint = excluded.fingerprint,
			signature_hash = excluded.signature_hash, payment_identifier = NULL, idempotency_key = NULL, secret = excluded.secret,
			amount = excluded.amount, pay_to = excluded.pay_to, transaction = excluded.transaction,
			state = excluded.state, failure_reason = excluded.failure_reason, created_at = excluded.created_at, updated_at = excluded.updated_at
		WHERE p.state = 'failed' AND p.scheme = 'exact'`, named{
		"id": newID(), "network": lost.Network, "asset": lost.Asset, "payer": lost.Payer, "nonce": lost.Nonce, "payee": lost.PayTo,
		"amount": lost.Amount, "at": lost.At, "restored": OperationRestored, "transaction": lost.Transaction, "now": s.Now(),
		"unknown": make([]byte, 32), // the hash of nothing: no request and no signature matches
	})
	return written == 1, err
}

// RecoverPayout enters a payout of payment channels that the ledger lacks. It returns false if the ledger has its transaction.
func (s *Store) RecoverPayout(
	ctx context.Context, terms PaymentTerms, transaction string, paid int64, at time.Time,
) (entered bool, err error) {
	defer wrapInto(&err, "enter a lost payout")
	added, err := exec(ctx, s, `
		INSERT INTO payment_channel_transactions (id, kind, network, asset, pay_to, payment_channel_ids, claimed, paid, transaction, created_at)
		SELECT @id, 'settle', @network, @asset, @payee, '{}', 0, @paid, @transaction, @at
		WHERE NOT EXISTS (SELECT FROM payment_channel_transactions WHERE transaction = @transaction AND kind = 'settle')`, named{
		"id": newID(), "network": terms.Network, "asset": terms.Asset, "payee": terms.PayTo, "paid": paid, "transaction": transaction, "at": at,
	})
	return added == 1, err
}
