package payment

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// repeatableRead is for how long after its delivery the same payment executes a read again whose response was too long to
	// store. The read is executed on the present state, so this is short: the payment would buy newer messages too.
	repeatableRead = time.Minute
	// maxDeadlocks is how often a transaction is repeated that the database ended because of others.
	maxDeadlocks = 3
)

// vouchers is the part of ChannelScheme that charges a payment channel and moves no money on the chain.
type vouchers struct{ *ChannelScheme }

// Check adds whether the payment channel was charged lately.
func (v vouchers) Check(ctx context.Context, requirements x402.PaymentRequirements, payload payload) (checked, error) {
	of, err := v.ChannelScheme.Check(ctx, requirements, payload)
	if of.channel != nil {
		of.unproven = !v.chargedLately(of.channel.ChannelID)
	}
	return of, err
}

// PaidLately looks for the payment channel, whose key signs the voucher.
func (v vouchers) PaidLately(payload payload) bool {
	return v.chargedLately(strings.ToLower(payload.channel.Payload.Voucher.ChannelID))
}

func (v vouchers) Moves() bool { return false }

// Same reports whether the row was charged with the same voucher. It may have come with a deposit.
func (v vouchers) Same(a *Attempt, row *store.Payment) bool {
	return a.sameNonce(row) || a.sameVoucher(row)
}

// OfWallet finds only payments of the payment channel: a voucher does not prove the wallet that it names.
func (v vouchers) OfWallet(ctx context.Context, a *Attempt) (*store.Payment, error) {
	row, err := v.ChannelScheme.OfWallet(ctx, a)
	if row != nil && !a.sameChannel(row) {
		row = nil
	}
	return row, err
}

// Proves reports whether the voucher is for more than its payment channel was charged, so that it was never claimed.
func (v vouchers) Proves(ctx context.Context, a *Attempt, row *store.Payment) (bool, error) {
	channel, err := v.engine.store.PaymentChannel(ctx, a.channel.ChannelID, a.checked.Payer)
	return a.sameChannel(row) && channel != nil && int64(a.channel.Max) > channel.Charged, err //nolint:gosec // at most x402.MaxChannelAmount
}

// Decide adds that the next voucher is the proof for a secret, and its payer does not know which one that is.
func (v vouchers) Decide(a *Attempt, row *store.Payment, proven bool) (action, error) {
	if row.State == store.PaymentDelivered && !proven && a.owns(row) && !a.same(row) {
		return correct, nil
	}
	return v.ChannelScheme.Decide(a, row, proven)
}

// Pay charges the voucher if it is new.
func (v vouchers) Pay(ctx context.Context, call *Call, row *store.Payment, next action) (*Receipt, error) {
	if next == settleFirst {
		return v.charge(ctx, call)
	}
	return v.ChannelScheme.Pay(ctx, call, row, next)
}

// charge charges a voucher and makes the effect in one transaction. No money moves, so there is no dry run: a rejection rolls
// everything back, and the same voucher stays good for the next request. It returns store.ErrStalePayment if the caller must
// try again, because a deposit is being settled.
func (c *ChannelScheme) charge(ctx context.Context, call *Call) (*Receipt, error) {
	a := call.Attempt
	id := a.channel.ChannelID
	if err := c.barred(a); err != nil {
		return nil, err
	}
	known := c.chargedLately(id)
	if !known { // costs those who cannot pay one read, and the server no transaction
		if err := c.checkChannel(ctx, a); err != nil {
			return nil, err
		}
	}
	if err := call.admit(); err != nil {
		return nil, err
	}
	release, err := c.engine.queues.join(ctx, id, errQueueLong)
	if err != nil {
		return nil, err
	}
	defer release()
	if known && !c.next(a) { // a voucher that does not fit must not cost a read of messages
		if err := c.checkChannel(ctx, a); err != nil {
			return nil, err
		}
	}
	// From here on the call continues even if the caller hangs up: otherwise its work would be free.
	ctx, cancel := detach(ctx)
	defer cancel()
	for deadlocks := 0; ; deadlocks++ {
		receipt, err := c.chargeOnce(ctx, call)
		switch {
		case errors.Is(err, store.ErrVoucherMismatch):
			c.charged.change(id, 0)
			if err := c.checkChannel(ctx, a); err != nil {
				return nil, err
			}
			return nil, store.ErrStalePayment // it has changed since
		case store.Deadlocked(err) && deadlocks < maxDeadlocks:
			continue
		}
		return receipt, err
	}
}

// checkChannel returns why the voucher does not fit its payment channel, as misfit.
func (c *ChannelScheme) checkChannel(ctx context.Context, a *Attempt) error {
	channel, err := c.engine.store.PaymentChannel(ctx, a.channel.ChannelID, a.checked.Payer)
	if err != nil {
		return err
	}
	return c.misfit(ctx, a, channel)
}

// chargeOnce makes the effect and charges the voucher.
func (c *ChannelScheme) chargeOnce(ctx context.Context, call *Call) (*Receipt, error) {
	a := call.Attempt
	row := a.row()
	row.Request, row.Payload, row.KeyHash = nil, nil, nil // needed for recovery only
	charge := &store.VoucherCharge{Voucher: c.toCharge(a), Payment: row, MaxAge: c.mirrorLifetime()}
	response, err := c.engine.commit(ctx, call, nil, store.Closing{Charge: charge, Seal: c.engine.sealer(a, row)})
	_, refused := errors.AsType[*store.Refusal](err)
	switch {
	case err == nil:
	case refused, errors.Is(err, store.ErrVoucherMismatch), errors.Is(err, store.ErrStalePayment), store.NotCommitted(err):
		return nil, err
	default: // also if the commit had no response
		return nil, outcomeUnknown(err)
	}
	crash("charged")
	c.engine.metrics.payment(row, outcomeDelivered)
	c.wasCharged(a)
	c.unclaimed.charged(row.Amount)
	return &Receipt{Response: response, Settled: chargedAs(a, row, charge.Channel, uint64(row.Amount))}, nil //nolint:gosec // positive
}

// toCharge is the voucher as the store needs it.
func (c *ChannelScheme) toCharge(a *Attempt) store.Voucher {
	return store.Voucher{
		Channel: a.channel.ChannelID, Payer: a.checked.Payer, Price: int64(a.operation.Price), Max: int64(a.channel.Max), //nolint:gosec // at most x402.MaxChannelAmount
		MaxUnclaimed: c.maxUnclaimed(), Signature: a.payload.channel.Payload.Voucher.Signature,
	}
}

// withoutDeposit is the attempt to pay with the voucher alone, after its deposit has arrived.
func (c *ChannelScheme) withoutDeposit(a *Attempt) *Attempt {
	voucher := *a
	of := *a.channel
	of.Deposit, of.Type, of.Conclusive = 0, x402.BatchVoucher, true
	voucher.scheme, voucher.checked = vouchers{c}, channelChecked(of)
	voucher.payload.channel = a.payload.channel.AsVoucher()
	voucher.expired = nil
	return &voucher
}

// chargeDeposited pays with the voucher of a deposit that has arrived for a call that was then rejected. PAYMENT-RESPONSE
// reports the deposit too: the payer may have lost the first one.
func (c *ChannelScheme) chargeDeposited(ctx context.Context, call *Call, deposit *store.Payment) (*Receipt, error) {
	again := *call
	again.Attempt = c.withoutDeposit(call.Attempt)
	receipt, err := c.engine.Pay(ctx, &again)
	if refusal, ok := errors.AsType[*store.Refusal](err); ok {
		channel, lookErr := c.engine.store.PaymentChannel(ctx, again.Attempt.channel.ChannelID, again.Attempt.checked.Payer)
		if lookErr != nil || channel == nil {
			return nil, err
		}
		return nil, rejectedDeposit(refusal, chargedAs(call.Attempt, deposit, channel, 0))
	}
	if err == nil {
		receipt.Settled.Transaction, receipt.Settled.Amount = deposit.Transaction, depositAmount(deposit)
	}
	return receipt, err
}
