package payment

import (
	"context"
	"errors"
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

// charge charges a voucher and makes the effect in one transaction. No money moves, so there is no dry run: a rejection rolls
// everything back, and the same voucher stays good for the next request. It returns store.ErrStalePayment if the caller must
// try again, because a deposit is being settled.
func (e *Engine) charge(ctx context.Context, call *Call) (*Receipt, error) {
	a := call.Attempt
	id := a.channel.ChannelID
	if err := e.barred(a); err != nil {
		return nil, err
	}
	known := e.payers.channelPaidLately(id)
	if !known { // costs those who cannot pay one read, and the server no transaction
		if err := e.checkChannel(ctx, a); err != nil {
			return nil, err
		}
	}
	if err := call.admit(); err != nil {
		return nil, err
	}
	release, err := e.queues.join(ctx, id, errQueueLong)
	if err != nil {
		return nil, err
	}
	defer release()
	if known && !e.payers.channelFits(a) { // a voucher that does not fit must not cost a read of messages
		if err := e.checkChannel(ctx, a); err != nil {
			return nil, err
		}
	}
	// From here on the call continues even if the caller hangs up: otherwise its work would be free.
	ctx, cancel := detach(ctx)
	defer cancel()
	for deadlocks := 0; ; deadlocks++ {
		receipt, err := e.chargeOnce(ctx, call)
		switch {
		case errors.Is(err, store.ErrVoucherMismatch):
			e.payers.channels.change(id, 0)
			if err := e.checkChannel(ctx, a); err != nil {
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
func (e *Engine) checkChannel(ctx context.Context, a *Attempt) error {
	channel, err := e.store.PaymentChannel(ctx, a.channel.ChannelID, a.checked.Payer)
	if err != nil {
		return err
	}
	return e.misfit(ctx, a, channel)
}

// chargeOnce makes the effect and charges the voucher.
func (e *Engine) chargeOnce(ctx context.Context, call *Call) (*Receipt, error) {
	a := call.Attempt
	row := a.row()
	row.Request, row.Payload, row.KeyHash = nil, nil, nil // needed for recovery only
	charge := &store.VoucherCharge{Voucher: e.toCharge(a), Payment: row, MaxAge: e.mirrorLifetime()}
	response, err := e.commit(ctx, call, nil, store.Closing{Charge: charge, Seal: e.sealer(a, row)})
	_, refused := errors.AsType[*store.Refusal](err)
	switch {
	case err == nil:
	case refused, errors.Is(err, store.ErrVoucherMismatch), errors.Is(err, store.ErrStalePayment), store.NotCommitted(err):
		return nil, err
	default: // also if the commit had no response
		return nil, outcomeUnknown(err)
	}
	crash("charged")
	e.metrics.payment(row, outcomeDelivered)
	e.payers.charged(a)
	e.unclaimed.charged(row.Amount)
	return &Receipt{Response: response, Settled: chargedAs(a, row, charge.Channel, uint64(row.Amount))}, nil //nolint:gosec // positive
}

// toCharge is the voucher as the store needs it.
func (e *Engine) toCharge(a *Attempt) store.Voucher {
	return store.Voucher{
		Channel: a.channel.ChannelID, Payer: a.checked.Payer, Price: int64(a.operation.Price), Max: int64(a.channel.Max), //nolint:gosec // at most x402.MaxChannelAmount
		MaxUnclaimed: e.maxUnclaimed(), Signature: a.payload.channel.Payload.Voucher.Signature,
	}
}

// withoutDeposit is the attempt to pay with the voucher alone, after its deposit has arrived.
func (a *Attempt) withoutDeposit() *Attempt {
	voucher := *a
	of := *a.channel
	of.Deposit, of.Type, of.Conclusive = 0, x402.BatchVoucher, true
	voucher.checked = channelChecked(of)
	voucher.payload.channel = a.payload.channel.AsVoucher()
	voucher.expired = nil
	return &voucher
}

// chargeDeposited pays with the voucher of a deposit that has arrived for a call that was then rejected. PAYMENT-RESPONSE
// reports the deposit too: the payer may have lost the first one.
func (e *Engine) chargeDeposited(ctx context.Context, call *Call, deposit *store.Payment) (*Receipt, error) {
	again := *call
	again.Attempt = call.Attempt.withoutDeposit()
	receipt, err := e.Pay(ctx, &again)
	if refusal, ok := errors.AsType[*store.Refusal](err); ok {
		channel, lookErr := e.store.PaymentChannel(ctx, again.Attempt.channel.ChannelID, again.Attempt.checked.Payer)
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
