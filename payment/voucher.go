package payment

import (
	"context"
	"errors"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// repeatableRead is for how long the same voucher executes a read again whose response was too long to store.
	repeatableRead = time.Hour
	// chargeTimeout bounds the transaction that charges a voucher.
	chargeTimeout = 30 * time.Second
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
	if !e.payers.channelPaidLately(id) { // costs those who cannot pay one read, and the server no transaction
		channel, err := e.store.PaymentChannel(ctx, id, a.checked.Payer)
		if err != nil {
			return nil, err
		}
		if err := e.misfit(ctx, a, channel); err != nil {
			return nil, err
		}
	}
	if err := call.admit(); err != nil {
		return nil, err
	}
	release, err := e.queues.join(ctx, id)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, chargeTimeout)
	defer cancel()
	for deadlocks := 0; ; deadlocks++ {
		receipt, err := e.chargeOnce(ctx, call)
		switch {
		case errors.Is(err, store.ErrVoucherMismatch):
			channel, err := e.store.PaymentChannel(ctx, id, a.checked.Payer)
			if err != nil {
				return nil, err
			}
			if err := e.misfit(ctx, a, channel); err != nil {
				return nil, err
			}
			return nil, store.ErrStalePayment // it has changed since
		case store.Deadlocked(err) && deadlocks < maxDeadlocks:
			continue
		}
		return receipt, err
	}
}

// chargeOnce runs the transaction of charge.
func (e *Engine) chargeOnce(ctx context.Context, call *Call) (*Receipt, error) {
	a := call.Attempt
	var response []byte
	var channel *store.PaymentChannel
	row := a.row()
	row.Request, row.Payload, row.KeyHash = nil, nil, nil // needed for recovery only
	err := e.store.Transaction(ctx, func(tx *store.Store) (err error) {
		if channel, err = tx.ChargeVoucher(ctx, e.toCharge(a), e.mirrorLifetime()); err != nil {
			return err
		}
		if response, err = call.Handle(ctx, tx, a.paid()); err != nil {
			return err
		}
		if !a.operation.ReadOnly || len(response) <= maxStoredRead {
			if row.Response, err = sealResponse(a.request, response); err != nil {
				return err
			}
		}
		crash("charging")
		return tx.RecordVoucher(ctx, row, channel.UsedAt, repeatableRead)
	})
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
	return &Receipt{Response: response, Settled: chargedAs(a, row, channel, uint64(row.Amount))}, nil //nolint:gosec // positive
}

// toCharge is the voucher as the store needs it.
func (e *Engine) toCharge(a *Attempt) store.Voucher {
	return store.Voucher{
		Channel: a.channel.ChannelID, Payer: a.checked.Payer, Price: int64(a.operation.Price), Max: int64(a.channel.Max), //nolint:gosec // at most x402.MaxChannelAmount
		MaxUnclaimed: e.maxUnclaimed(), Signature: a.payload.batch.Payload.Voucher.Signature,
	}
}

// withoutDeposit is the attempt to pay with the voucher alone, after its deposit has arrived.
func (a *Attempt) withoutDeposit() *Attempt {
	voucher := *a
	of := *a.channel
	of.Deposit, of.Type, of.Conclusive = 0, x402.BatchVoucher, true
	voucher.checked = batchChecked(of)
	voucher.payload.batch = a.payload.batch.AsVoucher()
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
