package payment

import (
	"context"
	"errors"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Lease is how long a payment belongs to the server that settles it. After that another server may retry it. No call waits
// longer for its settlement.
const Lease = settleTimeout + 15*time.Second

// settleFirst handles a payment that is not in the ledger and moves money.
func (e *Engine) settleFirst(ctx context.Context, call *Call, mover Mover) (*Receipt, error) {
	a := call.Attempt
	if err := e.Facilitator.Available(); err != nil {
		return nil, err
	}
	others, sum, end := e.underWay.begin(a.Payer(), a.Nonce, mover.Moves())
	defer end()
	a.others, a.othersMove = others, sum
	channel, err := mover.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	if err := call.Admitted(); err != nil {
		return nil, err
	}
	detached, cancel := Detach(ctx)
	defer cancel()
	response, err := e.dryRun(ctx, detached, call)
	if err != nil {
		return nil, err
	}
	ctx = detached // see dryRun
	if !e.admission.keep(response) {
		response = store.Response{} // executed again when it is paid for
	}
	defer e.admission.forget(response)
	Crash("dry-run")
	row := a.row()
	if row.Payload, err = withoutExtensions(row.Payload); err != nil {
		return nil, err
	}
	defer e.held.add(row.ID)()
	if channel != nil {
		err = e.Store.BeginDeposit(ctx, channel, row, Lease, call.reserve(ctx))
	} else {
		err = e.Store.BeginSettlement(ctx, row, Lease, call.reserve(ctx))
	}
	if err != nil {
		return nil, e.notBegun(ctx, row, err)
	}
	a.begun = true
	Crash("begun")
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
	defer cancel()
	return e.settle(settling, call, row, response)
}

// dryRun checks the operation's rules before any money moves, so that a rejection is free. For a read-only operation it returns
// the response, which is the one that is paid for. The call waits for its place with ctx. From there on it continues, with detached, even
// if the caller hangs up: otherwise its work would be free.
func (e *Engine) dryRun(ctx, detached context.Context, call *Call) (response store.Response, err error) {
	a := call.Attempt
	leave, err := e.admission.enter(ctx, a, !e.PaidLately(a.Payer()))
	if err != nil {
		return store.Response{}, err
	}
	defer leave()
	if !a.Operation.ReadOnly {
		return store.Response{}, e.Store.DryRun(detached, e.admission.work(call, 0))
	}
	err = e.admission.run(detached, call, func(work store.Work) (err error) {
		response, err = e.Store.Read(detached, work)
		return err
	})
	return response, err
}

// Detach returns a context that does not end when the caller hangs up, but has the same deadline.
func Detach(ctx context.Context) (context.Context, context.CancelFunc) {
	free := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(free, deadline)
	}
	return free, func() {}
}

// notBegun handles an error of BeginSettlement. Unless it is certain that the row was not committed, the recovery worker may
// find it and settle it, so the outcome is unknown.
func (e *Engine) notBegun(ctx context.Context, row *store.Payment, err error) error {
	if _, refused := errors.AsType[*store.Refusal](err); refused || store.NotCommitted(err) {
		return err
	}
	return e.unclear(ctx, row, &UnclearSettlement{store.Unclear{Reason: "not known whether the payment was recorded", Sent: false}, err})
}

// resume makes another attempt at a payment whose outcome is unknown. It uses the payload in the ledger: the caller may have
// signed a second authorization, which must not be settled as well.
func (e *Engine) resume(ctx context.Context, call *Call, row *store.Payment) (*Receipt, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
	defer cancel()
	defer e.held.add(row.ID)()
	row, err := e.Store.ResumeSettlement(ctx, row.ID, Lease)
	if err != nil {
		return nil, err
	}
	attempt, err := e.restore(row)
	if err != nil {
		return nil, e.unreadable(ctx, row, err)
	}
	stored := *call
	stored.Attempt = attempt
	return e.settle(ctx, &stored, row, store.Response{})
}

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
func (e *Engine) settle(ctx context.Context, call *Call, row *store.Payment, response store.Response) (*Receipt, error) {
	mover, ok := call.Attempt.payment.(Mover)
	if !ok {
		return nil, e.unreadable(ctx, row, errNotMoving)
	}
	settled, err := &x402.SettleResponse{Transaction: row.Transaction}, error(nil)
	if row.Transaction == "" {
		settled, err = e.move(ctx, call.Attempt, mover, row)
	}
	if err == nil {
		Crash("settled")
		return mover.Deliver(ctx, call, row, settled, response)
	}
	e.payers.refused(row.Payer) // also while its outcome is unknown
	no, refused := errors.AsType[*RefusedSettlement](err)
	if !refused {
		return nil, e.notSettled(ctx, row, err)
	}
	if err := e.Store.PaymentFailed(ctx, row, no.Reason); err != nil {
		return nil, e.unclear(ctx, row, &UnclearSettlement{store.Unclear{Reason: no.Reason, Sent: true}, err})
	}
	e.Count(row, outcomeRefused)
	return nil, e.failed(call.Attempt, no.Reason)
}

// errNotMoving means that a row of the ledger is open although its payment moves no money.
var errNotMoving = errors.New("the payment is of a scheme that settles nothing")

// notSettled handles an attempt without a clear outcome. A first attempt that certainly did not reach the facilitator is
// deleted from the ledger: nothing was charged, and nothing stays open.
func (e *Engine) notSettled(ctx context.Context, row *store.Payment, cause error) error {
	unclear, ok := errors.AsType[*UnclearSettlement](cause)
	if !ok || unclear.Sent || row.Attempts > 1 || e.Store.AbandonSettlement(ctx, row) != nil {
		return e.unclear(ctx, row, cause)
	}
	e.Count(row, outcomeNotSent)
	if err := e.Facilitator.Available(); err != nil {
		err.Cause = cause
		return err
	}
	return Unavailable("the payment facilitator is unavailable", 2, cause)
}

// unclear keeps the payment open for a later attempt, unless another copy was faster, whose outcome counts.
func (e *Engine) unclear(ctx context.Context, row *store.Payment, cause error) error {
	if errors.Is(cause, store.ErrStalePayment) {
		return cause
	}
	unclear, ok := errors.AsType[*UnclearSettlement](cause)
	if !ok {
		unclear = &UnclearSettlement{store.Unclear{Reason: "settlement outcome unknown", Sent: true}, cause}
	}
	if row.State != store.PaymentUndeliverable {
		recording, cancel := Detach(ctx)
		err := e.Store.PaymentUnclear(recording, row, unclear.Unclear)
		cancel()
		if err != nil && !errors.Is(err, store.ErrStalePayment) {
			cause = errors.Join(cause, err)
			e.unrecorded.Store(row, unrecordedOutcome{unclear.Unclear, time.Now().Add(Lease)})
		}
	}
	e.Count(row, outcomeUnclear)
	unknown := OutcomeUnknown(cause)
	unknown.Charged = unclear.Transaction != ""
	return unknown
}

// failed returns the 402 for a payment that did not settle and never will.
func (e *Engine) failed(a *Attempt, reason string) *Error {
	failed := e.Refused(a.Operation, reason, "the payment was not settled ("+reason+") and nothing was charged; sign a new payment")
	failed.Settled = &x402.SettleResponse{Success: false, ErrorReason: Shorten(reason, maxReason), Network: a.Requirements.Network,
		Payer: a.Payer()}
	return failed
}
