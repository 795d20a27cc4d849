package store

import "context"

// VoucherCharge is a voucher to charge, and the payment that is recorded as delivered in the same transaction. The charge sets Channel: the
// payment channel, with what can differ between its charges.
type VoucherCharge struct {
	Voucher Voucher
	Payment *Payment
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

// voucherValues are the values of chargeVouchers and sendCharged that come from vouchers and their payments. The statements have the rest
// of the payment's row; its network, asset, nonce and payee are NULL, because the payment channel has them (see PaymentRecord).
func voucherValues[T any](batch []batchItem[T], charge func(T) *VoucherCharge) pairs {
	voucher := func(t T) *Voucher { return &charge(t).Voucher }
	payment := func(t T) *Payment { return charge(t).Payment }
	return pairs{
		{"payment", column(batch, func(t T) [16]byte { return payment(t).ID })},
		{"channel", column(batch, func(t T) string { return voucher(t).Channel })},
		{"channel_payer", column(batch, func(t T) string { return voucher(t).Payer })},
		{"price", column(batch, func(t T) int64 { return voucher(t).Price })},
		{"cumulative", column(batch, func(t T) int64 { return voucher(t).Max })},
		{"max_unclaimed", column(batch, func(t T) int64 { return voucher(t).MaxUnclaimed })},
		{"claim_sum", column(batch, func(t T) int64 { return voucher(t).ClaimSum })},
		{"signature", column(batch, func(t T) string { return voucher(t).Signature })},
		{"operation", column(batch, func(t T) string { return payment(t).Operation })},
		{"account", column(batch, func(t T) *[16]byte { return (*[16]byte)(payment(t).AgentID) })},
		{"fingerprint", column(batch, func(t T) []byte { return payment(t).Fingerprint })},
		{"signature_hash", column(batch, func(t T) []byte { return payment(t).SignatureHash })},
		{"identifier", optionalColumn(batch, func(t T) *string { return payment(t).PaymentIdentifier })},
		{"idempotency_key", optionalColumn(batch, func(t T) *string { return payment(t).IdempotencyKey })},
		{"secret", column(batch, func(t T) bool { return payment(t).Secret })},
		{"response", column(batch, func(t T) []byte { return payment(t).Response })},
	}
}

// lockPaymentChannel locks a payment channel if a voucher fits it.
const lockPaymentChannel = `
	SELECT id FROM payment_channels c WHERE id = @channel AND payer = @channel_payer
		AND voucher_fits(c, @price, @cumulative, @max_unclaimed) FOR NO KEY UPDATE`

// lockFitting locks the payment channel of a voucher until the transaction ends, so the vouchers of a payment channel are charged one
// after another, over any number of servers. It returns ErrVoucherMismatch if the voucher is not exactly the next one, the balance does not
// cover it, it was claimed already, more than MaxUnclaimed would be unclaimed, the payer withdraws, or a deposit is being settled.
func (tx *Tx) lockFitting(ctx context.Context, charge *VoucherCharge) error {
	voucher := charge.Voucher
	fits, err := query[string](ctx, tx, lockPaymentChannel, named{
		"channel": voucher.Channel, "channel_payer": voucher.Payer, "price": voucher.Price, "cumulative": voucher.Max,
		"max_unclaimed": voucher.MaxUnclaimed,
	})
	return changedOr(len(fits), err, "lock payment channel", ErrVoucherMismatch)
}
