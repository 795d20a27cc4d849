package store

import (
	"context"
	"fmt"
	"slices"
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

// addVouchers adds the values of vouchers and their payments. Everything else in the row of a payment comes from its payment channel.
func addVouchers[T any](to pairs, batch []batchItem[T], charge func(T) *VoucherCharge) pairs {
	voucher := func(t T) *Voucher { return &charge(t).Voucher }
	payment := func(t T) *Payment { return charge(t).Payment }
	return append(to, pairs{
		{"payment", column(batch, func(t T) [16]byte { return payment(t).ID })},
		{"channel", column(batch, func(t T) string { return voucher(t).Channel })},
		{"channel_payer", column(batch, func(t T) string { return voucher(t).Payer })},
		{"price", column(batch, func(t T) int64 { return voucher(t).Price })},
		{"cumulative", column(batch, func(t T) int64 { return voucher(t).Max })},
		{"max_unclaimed", column(batch, func(t T) int64 { return voucher(t).MaxUnclaimed })},
		{"signature", column(batch, func(t T) string { return voucher(t).Signature })},
		{"max_age", column(batch, func(t T) time.Duration { return charge(t).MaxAge })},
		{"operation", column(batch, func(t T) string { return payment(t).Operation })},
		{"account", column(batch, func(t T) *[16]byte { return (*[16]byte)(payment(t).AgentID) })},
		{"fingerprint", column(batch, func(t T) []byte { return payment(t).Fingerprint })},
		{"signature_hash", column(batch, func(t T) []byte { return payment(t).SignatureHash })},
		{"identifier", optional(batch, func(t T) *string { return payment(t).PaymentIdentifier })},
		{"secret", column(batch, func(t T) bool { return payment(t).Secret })},
		{"response", column(batch, func(t T) []byte { return payment(t).Response })},
	}...)
}

// lockPaymentChannel locks a payment channel if a voucher fits it.
const lockPaymentChannel = `
	SELECT id FROM payment_channels
	WHERE id = @id AND payer = @payer AND charged + @price = @cumulative AND balance >= @cumulative
		AND claimed < @cumulative AND claimed >= CAST(@cumulative AS bigint) - @max_unclaimed AND state = 'open'
		AND withdraw_requested_at = 0 AND synced_at > now() - CAST(@max_age AS interval)
	FOR NO KEY UPDATE`

// lockFitting locks the payment channel of a voucher until the transaction ends, so the vouchers of a payment channel are charged one
// after another, over any number of servers. It returns ErrVoucherMismatch if the voucher is not exactly the next one, the balance does not
// cover it, it was claimed already, more than MaxUnclaimed would be unclaimed, the payer withdraws, a deposit is being settled, or the state
// of the blockchain is older than MaxAge.
func (tx *Tx) lockFitting(ctx context.Context, charge *VoucherCharge) error {
	voucher := charge.Voucher
	fits, err := query[string](ctx, tx, lockPaymentChannel, named{
		"id": voucher.Channel, "payer": voucher.Payer, "price": voucher.Price, "cumulative": voucher.Max, "max_unclaimed": voucher.MaxUnclaimed, "max_age": charge.MaxAge,
	})
	switch {
	case err != nil:
		return fmt.Errorf("lock payment channel: %w", err)
	case len(fits) == 0:
		return ErrVoucherMismatch
	}
	return nil
}

// chargeVouchers charges vouchers and records their payments. It returns a row for each voucher that it has charged; n is its
// position in the batch, from 1. It may not wait for a payment channel while it has locked another one, so it skips those that are
// locked. A row lock reads the current version of the row, so the condition holds until the transaction ends.
//
//   - due locks the payment channels that the vouchers fit: see lockFitting; the condition of lockPaymentChannel is a copy.
//   - recorded inserts payments, unless the payment identifier is in the ledger. Two servers that insert the same
//     identifiers do so in the same order.
//   - charged charges the payment channels whose payments were inserted.
const chargeVouchers = `
	WITH item AS (
		SELECT payment, channel, channel_payer, price, cumulative, max_unclaimed, signature, max_age, operation, account, fingerprint,
			signature_hash, identifier, secret, response, n
		FROM unnest((SELECT CAST(@payment AS uuid[])),
			(SELECT CAST(@channel AS text[])), (SELECT CAST(@channel_payer AS text[])),
			(SELECT CAST(@price AS bigint[])), (SELECT CAST(@cumulative AS bigint[])), (SELECT CAST(@max_unclaimed AS bigint[])),
			(SELECT CAST(@signature AS text[])), (SELECT CAST(@max_age AS interval[])), (SELECT CAST(@operation AS text[])),
			(SELECT CAST(@account AS uuid[])), (SELECT CAST(@fingerprint AS bytea[])), (SELECT CAST(@signature_hash AS bytea[])),
			(SELECT CAST(@identifier AS text[])), (SELECT CAST(@secret AS boolean[])), (SELECT CAST(@response AS bytea[])))
			WITH ORDINALITY AS i (payment, channel, channel_payer, price,
				cumulative, max_unclaimed, signature, max_age, operation, account, fingerprint, signature_hash, identifier, secret, response, n)
	), due AS MATERIALIZED (
		SELECT i.payment, channel, channel_payer, price, cumulative, max_unclaimed, signature, max_age, operation, account, fingerprint,
			signature_hash, identifier, secret, response,
			i.n, p.network, p.asset, p.pay_to
		FROM item i CROSS JOIN LATERAL (
			SELECT network, asset, pay_to FROM payment_channels
			WHERE id = i.channel AND payer = i.channel_payer AND charged + i.price = i.cumulative AND balance >= i.cumulative
				AND claimed < i.cumulative AND claimed >= CAST(i.cumulative AS bigint) - i.max_unclaimed AND state = 'open'
				AND withdraw_requested_at = 0 AND synced_at > now() - CAST(i.max_age AS interval)
			FOR NO KEY UPDATE SKIP LOCKED
		) p
	), recorded AS (
		INSERT INTO payments (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id,
			fingerprint, signature_hash, payment_identifier, payment_channel_id, cumulative_amount, state, lease_until,
			secret, response, created_at, updated_at)
		SELECT d.payment, 2, 'batch-settlement', d.network, d.asset, d.channel_payer, d.channel || ':' || d.cumulative, d.pay_to, d.price, now(),
			d.operation, d.account, d.fingerprint, d.signature_hash, d.identifier, d.channel, d.cumulative, 'delivered', now(), d.secret,
			d.response, now(), now()
		FROM due d
		ORDER BY d.account, d.operation, d.identifier ON CONFLICT DO NOTHING RETURNING id
	), charged AS (
		UPDATE payment_channels p SET charged = d.cumulative, signed_max = d.cumulative, signature = d.signature, used_at = now(),
			unclaimed_since = coalesce(p.unclaimed_since, now())
		FROM due d JOIN recorded r ON r.id = d.payment WHERE p.id = d.channel AND p.payer = d.channel_payer
		RETURNING d.n, p.balance, p.claimed, p.refund_nonce
	)
	SELECT n, balance, claimed, refund_nonce FROM charged`

// chargedVoucher is a row of chargeVouchers.
type chargedVoucher struct {
	N int
	chargedChannel
}

func chargeValues(batch []batchItem[*VoucherCharge]) pairs {
	return addVouchers(nil, batch, func(c *VoucherCharge) *VoucherCharge { return c })
}

func (r *Reader) chargeBatch(ctx context.Context, batch []batchItem[*VoucherCharge]) {
	charged, err := query[chargedVoucher](ctx, r, chargeVouchers, chargeValues(batch))
	finish(batch, func(i int, charge *VoucherCharge) error { return charge.result(charged, i, err) })
}

// result is the result of item i of a batch for its caller.
func (c *VoucherCharge) result(charged []chargedVoucher, i int, err error) error {
	row := slices.IndexFunc(charged, func(one chargedVoucher) bool { return one.N == i+1 })
	switch {
	case err != nil && !rolledBack(err):
		return fmt.Errorf("charge voucher: %w", err)
	case err != nil, row < 0:
		return errNotBatched
	}
	c.done(charged[row].chargedChannel)
	return nil
}
