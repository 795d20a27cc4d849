package payment

import (
	"context"
	"errors"
	"strconv"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// deliver makes the effect of a payment of the price itself, after the money moved.
func (e *Engine) deliver(
	ctx context.Context, call *Call, row *store.Payment, transaction string, response store.Response,
) (*Receipt, error) {
	ctx, cancel := e.Store.LimitCall(context.WithoutCancel(ctx))
	defer cancel()
	response, refusal, err := e.CommitDelivery(ctx, call, row, transaction, response, nil)
	settled := settledAs(row, transaction)
	switch {
	case err != nil:
		return nil, err
	case refusal == nil:
		e.paid(call.Attempt, row.Payer)
		return &Receipt{Response: response.Body, Settled: settled}, nil
	}
	if err := e.Store.PaymentUndeliverable(ctx, row.ID, transaction, refusal.Code); err != nil {
		return nil, e.NotDelivered(ctx, row, transaction, err)
	}
	e.Count(row, outcomeUndeliverable)
	redeeming := row.State == store.PaymentUndeliverable
	if !redeeming {
		e.paid(call.Attempt, row.Payer)
	}
	return nil, &Error{
		Code: CodeRejected, Refusal: refusal, Charged: true, Earlier: redeeming, Settled: settled,
		Message: refusal.Message + ". The operation was rejected after the payment settled, so you were charged. " +
			"Retry with a corrected request of this operation and the same payment, at no extra cost.",
	}
}

// CommitDelivery runs the call and closes its payment, after the money moved. Response, if not zero, is the dry run's. With a deposit the
// voucher that came with it is charged. It returns a refusal if the operation rejects the call, or ErrVoucherMismatch if the voucher does
// not fit; the payment is still open then. Any other error is for the caller.
func (e *Engine) CommitDelivery(
	ctx context.Context, call *Call, row *store.Payment, transaction string, response store.Response, deposit *store.DepositCharge,
) (_ store.Response, refusal *store.Refusal, err error) {
	a := call.Attempt
	a.id = row.ID // which the effect keeps: an earlier attempt may have written the row
	response, err = e.Execute(ctx, call, response, store.Closing{
		Delivery: &store.Delivery{Payment: row.ID, State: row.State, Fingerprint: a.fingerprint[:], Transaction: transaction}, Deposit: deposit,
	})
	refusal, refused := errors.AsType[*store.Refusal](err)
	switch {
	case err == nil:
		Crash("delivered")
		e.Count(row, OutcomeDelivered)
		return response, nil, nil
	case refused:
		return store.Response{}, refusal, nil
	case errors.Is(err, store.ErrVoucherMismatch):
		return store.Response{}, nil, err
	}
	return store.Response{}, nil, e.NotDelivered(ctx, row, transaction, err)
}

// NotDelivered keeps a payment open whose money moved, and returns the error for the caller. A stale payment is delivered by another copy.
func (e *Engine) NotDelivered(ctx context.Context, row *store.Payment, transaction string, cause error) error {
	unclear := store.Unclear{Reason: "settled, not delivered", Sent: true, Transaction: transaction}
	return e.unclear(ctx, row, &UnclearSettlement{unclear, cause})
}

// Execute runs the call and closes its payment in one transaction. Response, if not zero, is the dry run's: a read is not executed again.
func (e *Engine) Execute(
	ctx context.Context, call *Call, response store.Response, closing store.Closing,
) (_ store.Response, err error) {
	closing.Encode = call.Attempt.encodeResponse
	if response.Body != nil {
		return e.Store.Commit(ctx, store.Done(response), closing)
	}
	leave, err := e.admission.enter(ctx, call.Attempt, false)
	if err != nil {
		return response, err
	}
	defer leave()
	err = e.admission.run(ctx, call, func(work store.Work) (err error) {
		response, err = e.Store.Commit(ctx, work, closing)
		return err
	})
	return response, err
}

// errNobodyReads leaves a payment undeliverable: the recovery worker would deliver a response that is too long to store to nobody. The
// payer redeems the payment with the same request.
var errNobodyReads = &store.Refusal{Kind: store.Conflict, Code: "response_too_long", Message: "the response is too long to be stored"}

// encodeResponse returns a response as the ledger stores it; nil for one that is too long to be stored. Reads are stored too: if the
// voucher that was charged last executed them again, it would buy newer messages for nothing, and a poll that marked its messages as read
// would be lost with its response.
func (a *Attempt) encodeResponse(response store.Response) (stored []byte, err error) {
	content := response.Stored()
	switch tooLong := a.Operation.ReadOnly && len(content) > maxStoredRead; {
	case tooLong && a.retried:
		return nil, errNobodyReads
	case !tooLong:
		stored = encodeStored(content, a.Operation.Reads())
	}
	Crash("committing")
	return stored, nil
}

// settledAs is the content of PAYMENT-RESPONSE for a payment that a transaction settled.
func settledAs(row *store.Payment, transaction string) *x402.SettleResponse {
	return &x402.SettleResponse{Success: true, Transaction: transaction, Network: row.Network, Payer: row.Payer,
		Amount: strconv.FormatInt(row.Amount, 10)}
}
