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
//	settling      -> delivered      Commit, with the effect
//	settling      -> undeliverable  PaymentUndeliverable: settled, then rejected by the operation's rules
//	settling      -> deposited      KeepDeposit: the same for a deposit, which is in the payer's channel
//	unknown       -> settling       ResumeSettlement (a caller), TakeOpenPayments (the recovery worker)
//	settling      -> settling       the same, once the lease is over
//	undeliverable -> delivered      Commit: redeemed with another request
func (e *Engine) settle(ctx context.Context, call *Call, row *store.Payment, response []byte) (*Receipt, error) {
	moved, err := settlement{transaction: row.Transaction}, error(nil)
	if moved.transaction == "" {
		moved, err = e.move(ctx, call.Attempt, row)
	}
	if err == nil {
		crash("settled")
		call.Attempt.id = row.ID
		return call.Attempt.scheme.Deliver(ctx, call, row, moved, response)
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
		recording, cancel := detach(ctx)
		err := e.store.PaymentUnclear(recording, row, unclear.Unclear)
		cancel()
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

// deliver is Scheme.Deliver for a payment of the price itself.
func (e *Engine) deliver(ctx context.Context, call *Call, row *store.Payment, moved settlement, response []byte) (*Receipt, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.CallTime)
	defer cancel()
	transaction := moved.transaction
	response, err := e.commit(ctx, call, response, e.delivered(call.Attempt, row, transaction))
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

// delivered is the closing of a payment that has settled.
func (e *Engine) delivered(a *Attempt, row *store.Payment, transaction string) store.Closing {
	return store.Closing{
		Delivery: &store.Delivery{Payment: row.ID, Fingerprint: a.fingerprint[:], Transaction: transaction}, Seal: e.sealer(a, row),
	}
}

// commit runs the call and closes its payment in one transaction. Response, if not nil, is the dry run's: a read is not executed again.
func (e *Engine) commit(ctx context.Context, call *Call, response []byte, closing store.Closing) (_ []byte, err error) {
	name := "deliver"
	if closing.Charge != nil {
		name = "charge"
	}
	ctx, span := e.tracer.Start(ctx, name)
	defer func() { endSpan(span, err) }()
	work := call.work()
	if response != nil {
		work = store.Made(response)
	}
	return e.store.Commit(ctx, work, closing)
}

// errNobodyReads leaves a payment undeliverable: the recovery worker would deliver a response that is too long to store to nobody. The payer
// redeems the payment with the same request.
var errNobodyReads = &store.Refusal{Kind: store.Conflict, Code: "response_too_long", Message: "the response is too long to be stored"}

// sealer seals the response of a call for the ledger, unless it is too long. Reads are stored too: if the voucher that was charged last
// executed them again, it would buy newer messages for nothing, and a poll that marked its messages as read would be lost with its
// response.
func (e *Engine) sealer(a *Attempt, row *store.Payment) func(response []byte) ([]byte, error) {
	return func(response []byte) (sealed []byte, err error) {
		if a.retried && a.operation.ReadOnly && len(response) > maxStoredRead {
			return nil, errNobodyReads
		}
		if !a.operation.ReadOnly || len(response) <= maxStoredRead {
			sealed, err = e.responseKeys.seal(row.ID, a.request, response, a.operation.Reads())
		}
		crash("committing")
		return sealed, err
	}
}
