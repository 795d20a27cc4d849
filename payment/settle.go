package payment

import (
	"context"
	"errors"
	"time"

	"github.com/parley-chat/parley/store"
)

// Lease is how long a payment belongs to the server that settles it. After that another server may retry it. No call waits
// longer for its settlement.
const Lease = settleTimeout + 15*time.Second

// settle moves the money and then delivers. Response is the dry run's, if the operation is read-only.
//
// The ledger allows these transitions. Each is one statement in package store:
//
//	(none)        -> settling       BeginSettlement, before anything is sent
//	settling      -> (none)         AbandonSettlement: certainly not sent
//	settling      -> failed         PaymentFailed: refused for good
//	settling      -> unknown        PaymentUnclear: the money may have moved
//	settling      -> delivered      PaymentDelivered, with the effect
//	settling      -> undeliverable  PaymentUndeliverable: settled, then rejected by the operation's rules
//	settling      -> deposited      KeepDeposit: the same for a deposit, which is in the payer's channel
//	unknown       -> settling       ResumeSettlement (a caller), ClaimOpenPayments (the recovery worker)
//	settling      -> settling       the same, once the lease is over
//	undeliverable -> delivered      PaymentDelivered: redeemed with another request
func (e *Engine) settle(ctx context.Context, call *Call, row *store.Payment, response []byte) (*Receipt, error) {
	moved, err := settlement{transaction: row.Transaction}, error(nil)
	if moved.transaction == "" {
		moved, err = e.move(ctx, call.Attempt, row)
	}
	if err == nil {
		return e.deliver(ctx, call, row, moved, response)
	}
	no, refused := errors.AsType[*refusedSettlement](err)
	if !refused {
		return nil, e.notSettled(ctx, row, err)
	}
	switch err := e.store.PaymentFailed(ctx, row, no.reason); {
	case errors.Is(err, store.ErrStalePayment):
		return nil, err
	case err != nil:
		return nil, e.unclear(ctx, row, &unclearSettlement{Unclear: store.Unclear{Reason: no.reason, Sent: true}, cause: err})
	}
	e.metrics.payment(row, outcomeRefused)
	e.payers.refused(row.Payer)
	return nil, e.failed(call.Attempt, no.reason)
}

// move moves the money.
func (e *Engine) move(ctx context.Context, a *Attempt, row *store.Payment) (moved settlement, err error) {
	ctx, span := e.tracer.Start(ctx, "settle")
	defer func() { endSpan(span, err) }()
	return a.scheme.Settle(ctx, a, row)
}

// notSettled handles an attempt without a clear outcome. A first attempt that certainly did not reach the facilitator is
// deleted from the ledger: nothing was charged, and nothing stays open.
func (e *Engine) notSettled(ctx context.Context, row *store.Payment, cause error) error {
	unclear, ok := errors.AsType[*unclearSettlement](cause)
	if !ok || unclear.Sent || row.Attempts > 1 || e.store.AbandonSettlement(ctx, row) != nil {
		return e.unclear(ctx, row, cause)
	}
	e.metrics.payment(row, outcomeNotSent)
	if err := e.facilitator.available(); err != nil {
		err.Cause = cause
		return err
	}
	return unavailable("the payment facilitator is unavailable", 2, cause)
}

// unclear keeps the payment open for a later attempt.
func (e *Engine) unclear(ctx context.Context, row *store.Payment, cause error) error {
	unclear, ok := errors.AsType[*unclearSettlement](cause)
	if !ok {
		unclear = &unclearSettlement{store.Unclear{Reason: "settlement outcome unknown", Sent: true}, cause}
	}
	if row.State != store.PaymentUndeliverable {
		err := e.store.PaymentUnclear(context.WithoutCancel(ctx), row, unclear.Unclear)
		if err != nil && !errors.Is(err, store.ErrStalePayment) {
			cause = errors.Join(cause, err)
			e.unrecorded.Store(row, unrecordedOutcome{unclear.Unclear, time.Now().Add(Lease)})
		}
	}
	e.metrics.payment(row, outcomeUnclear)
	unknown := outcomeUnknown(cause)
	unknown.Charged = unclear.Transaction != ""
	return unknown
}

// deliver makes the effect and closes the payment in one transaction. Response is the dry run's, if the operation is
// read-only.
func (e *Engine) deliver(ctx context.Context, call *Call, row *store.Payment, moved settlement, response []byte) (*Receipt, error) {
	crash("settled")
	call.Attempt.id = row.ID
	if row.DepositAmount > 0 {
		return e.deliverDeposit(ctx, call, row, moved, response)
	}
	transaction := moved.transaction
	response, err := e.makeEffect(ctx, call, row, transaction, response)
	unclear := &unclearSettlement{store.Unclear{Reason: "settled, not delivered", Sent: true, Transaction: transaction}, err}
	refusal, refused := errors.AsType[*store.Refusal](err)
	switch {
	case err == nil:
		crash("delivered")
		e.metrics.payment(row, outcomeDelivered)
		e.payers.settled(row.Payer, call.Attempt.caller)
		return &Receipt{Response: response, Settled: settledAs(row, transaction)}, nil
	case errors.Is(err, store.ErrStalePayment):
		return nil, err
	case !refused:
		return nil, e.unclear(ctx, row, unclear)
	}
	switch err := e.store.PaymentUndeliverable(ctx, row.ID, transaction, refusal.Code); {
	case errors.Is(err, store.ErrStalePayment): // rejected because another copy was faster
		return nil, err
	case err != nil:
		unclear.cause = err
		return nil, e.unclear(ctx, row, unclear)
	}
	e.metrics.payment(row, outcomeUndeliverable)
	if row.State != store.PaymentUndeliverable {
		e.payers.settled(row.Payer, call.Attempt.caller)
	}
	return nil, &Error{
		Code: CodeRejected, Refusal: refusal, Charged: true, Earlier: row.State == store.PaymentUndeliverable, Settled: settledAs(row, transaction),
		Message: refusal.Message + ". The operation was rejected after the payment settled, so you were charged. Retry with a corrected request of this operation and the same payment, at no extra cost.",
	}
}

// makeEffect runs the call, closes its payment in the same transaction, and returns the response.
func (e *Engine) makeEffect(ctx context.Context, call *Call, row *store.Payment, transaction string, response []byte) ([]byte, error) {
	ctx, span := e.tracer.Start(ctx, "deliver")
	var err error
	defer func() { endSpan(span, err) }()
	a := call.Attempt
	record := func(response []byte) (store.Delivery, error) { return e.deliveryOf(a, row, transaction, response) }
	closePayment := func(on *store.Store, response []byte) error {
		delivery, err := record(response)
		if err != nil {
			return err
		}
		return on.PaymentDelivered(ctx, delivery)
	}
	err = store.ErrNotBatched
	switch {
	case response != nil:
		err = closePayment(e.store, response)
		return response, err
	case call.Batched != nil:
		response, err = call.Batched.Deliver(ctx, record)
	case a.operation.Paged:
		page := e.store.WithoutTransaction()
		if response, err = call.Handle(ctx, page, a.paid()); err == nil {
			err = closePayment(page, response)
		}
	}
	if !errors.Is(err, store.ErrNotBatched) {
		return response, err
	}
	err = e.store.Transaction(ctx, func(tx *store.Store) (err error) {
		if response, err = call.Handle(ctx, tx, a.paid()); err != nil {
			return err
		}
		return closePayment(tx, response)
	})
	return response, err
}

// deliveryOf makes the ledger's entry for a response.
func (e *Engine) deliveryOf(a *Attempt, row *store.Payment, transaction string, response []byte) (delivery store.Delivery, err error) {
	delivery = store.Delivery{Payment: row.ID, Fingerprint: a.fingerprint[:], Transaction: transaction}
	if !a.operation.ReadOnly || len(response) <= maxStoredRead {
		delivery.Response, err = e.responseKeys.seal(row.ID, a.request, response, a.operation.Reads())
	}
	crash("delivering")
	return delivery, err
}
