package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// VoucherCharge is a voucher to charge, and the payment that is recorded as delivered in the same transaction. MaxAge is how
// old the recorded state of the blockchain may be. The charge sets Channel: the payment channel, with what can differ between
// its charges.
type VoucherCharge struct {
	Voucher Voucher
	Payment *Payment
	MaxAge  time.Duration
	Channel *PaymentChannel
}

// chargedChannel is what a batch returns of a payment channel that it has charged.
type chargedChannel struct{ Balance, Claimed, RefundNonce int64 }

// done sets Channel. A payment without a voucher has no charge.
func (c *VoucherCharge) done(charged chargedChannel) {
	if c != nil {
		c.Channel = &PaymentChannel{
			ID: c.Voucher.Channel, Payer: c.Voucher.Payer, Charged: c.Voucher.Max, SignedMax: c.Voucher.Max, Signature: c.Voucher.Signature,
			Balance: charged.Balance, Claimed: charged.Claimed, RefundNonce: charged.RefundNonce, State: PaymentChannelOpen,
		}
	}
}

// voucherFields are the values of a voucher and its payment. Everything else in the row of the payment comes from the payment channel.
func voucherFields[T any](charge func(T) *VoucherCharge) fields[T] {
	voucher := func(t T) *Voucher { return &charge(t).Voucher }
	payment := func(t T) *Payment { return charge(t).Payment }
	return fields[T]{
		each("payment", "uuid", func(t T) [16]byte { return payment(t).ID }),
		each("channel", "text", func(t T) string { return voucher(t).Channel }),
		each("channel_payer", "text", func(t T) string { return voucher(t).Payer }),
		each("price", "bigint", func(t T) int64 { return voucher(t).Price }),
		each("cumulative", "bigint", func(t T) int64 { return voucher(t).Max }),
		each("max_unclaimed", "bigint", func(t T) int64 { return voucher(t).MaxUnclaimed }),
		each("signature", "text", func(t T) string { return voucher(t).Signature }),
		each("max_age", "interval", func(t T) time.Duration { return charge(t).MaxAge }),
		each("operation", "text", func(t T) string { return payment(t).Operation }),
		each("account", "uuid", func(t T) *[16]byte { return (*[16]byte)(payment(t).AgentID) }),
		each("fingerprint", "bytea", func(t T) []byte { return payment(t).Fingerprint }),
		each("signature_hash", "bytea", func(t T) []byte { return payment(t).SignatureHash }),
		optional("identifier", "text", func(t T) *string { return payment(t).PaymentIdentifier }),
		optional("idempotency_key", "text", func(t T) *string { return payment(t).IdempotencyKey }),
		each("secret", "boolean", func(t T) bool { return payment(t).Secret }),
		each("response", "bytea", func(t T) []byte { return payment(t).Response }),
	}
}

var chargeFields = voucherFields(func(c Closing) *VoucherCharge { return c.Charge })

// whereFits is the condition of a payment channel that a voucher fits: see lockFitting. $ stands before the names of the voucher's values.
const whereFits = `
	WHERE id = $channel AND payer = $channel_payer AND charged + $price = $cumulative AND balance >= $cumulative
		AND claimed < $cumulative AND claimed >= CAST($cumulative AS bigint) - $max_unclaimed AND state = 'open'
		AND withdraw_requested_at = 0 AND synced_at > now() - CAST($max_age AS interval)
	FOR NO KEY UPDATE`

// lockPaymentChannel locks a payment channel if a voucher fits it.
var lockPaymentChannel = `SELECT id FROM payment_channels` + strings.ReplaceAll(whereFits, "$", "@")

// lockFitting locks the payment channel of a voucher until the transaction ends, so the vouchers of a payment channel are charged one
// after another, over any number of servers. It returns ErrVoucherMismatch if the voucher is not exactly the next one, the balance does not
// cover it, it was claimed already, more than MaxUnclaimed would be unclaimed, the payer withdraws, a deposit is being settled, or the
// state of the blockchain is older than MaxAge.
func (tx *Tx) lockFitting(ctx context.Context, charge *VoucherCharge) error {
	voucher := charge.Voucher
	fits, err := query[string](ctx, tx, lockPaymentChannel, named{
		"channel": voucher.Channel, "channel_payer": voucher.Payer, "price": voucher.Price, "cumulative": voucher.Max,
		"max_unclaimed": voucher.MaxUnclaimed, "max_age": charge.MaxAge,
	})
	switch {
	case err != nil:
		return fmt.Errorf("lock payment channel: %w", err)
	case len(fits) == 0:
		return ErrVoucherMismatch
	}
	return nil
}

// The parts of the statements that charge vouchers. They may not wait for a payment channel while they have locked another one, so they
// skip those that are locked. A row lock reads the current version of the row, so the condition holds until the transaction ends.
//
//   - dueVouchers locks the payment channels that the vouchers fit.
//   - recordVouchers inserts payments, unless the payment identifier or the key is in the ledger. Two servers that insert the same
//     identifiers do so in the same order.
//   - raiseCharged charges the payment channels whose payments were inserted.
var (
	dueVouchers = `
		SELECT ` + chargeFields.names() + `, i.n, p.network, p.asset, p.pay_to
		FROM item i CROSS JOIN LATERAL (
			SELECT network, asset, pay_to FROM payment_channels` + strings.ReplaceAll(whereFits, "$", "i.") + ` SKIP LOCKED
		) p`

	recordVouchers = `
		INSERT INTO payments (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id,
			fingerprint, signature_hash, payment_identifier, idempotency_key, payment_channel_id, cumulative_amount, state, lease_until,
			secret, response, created_at, updated_at)
		SELECT d.payment, 2, 'batch-settlement', d.network, d.asset, d.channel_payer, d.channel || ':' || d.cumulative, d.pay_to, d.price, now(),
			d.operation, d.account, d.fingerprint, d.signature_hash, d.identifier, d.idempotency_key, d.channel, d.cumulative,
			'delivered', now(), d.secret, d.response, now(), now()
		FROM due d $join ORDER BY d.account, d.operation, d.identifier, d.idempotency_key ON CONFLICT DO NOTHING RETURNING id`

	raiseCharged = `
		UPDATE payment_channels p SET charged = d.cumulative, signed_max = d.cumulative, signature = d.signature, used_at = now(),
			unclaimed_since = coalesce(p.unclaimed_since, now())
		FROM due d JOIN recorded r ON r.id = d.payment WHERE p.id = d.channel AND p.payer = d.channel_payer
		RETURNING d.n, d.payment AS id, p.balance, p.claimed, p.refund_nonce`

	// chargeVouchers returns a row for each voucher that it has charged.
	chargeVouchers = `
		WITH item AS (SELECT ` + chargeFields.names() + `, n FROM ` + chargeFields.items() + `), due AS MATERIALIZED (` + dueVouchers + `),
		recorded AS (` + strings.Replace(recordVouchers, "$join", "", 1) + `), charged AS (` + raiseCharged + `)
		SELECT id, balance, claimed, refund_nonce FROM charged`
)
