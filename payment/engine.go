package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// action is what an attempt needs, given the state of its payment in the ledger.
type action string

const (
	settleFirst action = "settle first" // the ledger does not know the payment
	repeat      action = "repeat"       // delivered: return the stored response
	redeem      action = "redeem"       // settled for a call that was then rejected: deliver without settling
	resume      action = "resume"       // outcome unknown, or the lease is over: make another attempt
	wait        action = "wait"         // another call works on it
	useVoucher  action = "use voucher"  // the deposit has arrived and nothing was charged: charge its voucher
	correct     action = "correct"      // the voucher was charged for another request: return the state of its channel
	reject      action = "reject"
)

// decide returns what an attempt needs. Row is its payment in the ledger, or nil. Proven is true if the response holds no
// secret, or if the caller has proved possession (see prove). docs/payments.md shows the same rules as a table.
func (e *Engine) decide(a *Attempt, row *store.Payment, proven bool) (action, error) {
	switch {
	case row == nil && a.nothingNew() != nil:
		return reject, a.nothingNew()
	case row == nil:
		return settleFirst, nil
	case a.same(row) && row.Scheme != a.requirements.Scheme:
		return reject, errReused // an authorization and a deposit with one nonce
	}
	if next, err := a.scheme.Decide(a, row, proven); next != "" {
		return next, err
	}
	switch {
	case a.operation.Secret && a.same(row) && (row.State == store.PaymentSettling || row.State == store.PaymentUnknown) && !e.responseKeys.known(row.Fingerprint):
		return reject, outcomeUnknown(errNoResponseKey) // another server has the key, and can tell whether it is the same request
	case !a.owns(row):
		return reject, errReused
	case !proven && (row.State == store.PaymentDelivered || (row.State == store.PaymentUndeliverable && row.AgentID == nil)):
		return reject, errProofRequired
	case row.State == store.PaymentDelivered:
		return repeat, nil
	case a.repeatOnly() != nil:
		return reject, a.repeatOnly()
	case row.State == store.PaymentFailed:
		return reject, e.failed(a, row.FailureReason)
	case row.State == store.PaymentUndeliverable && row.FailureReason == store.Refunded:
		return reject, e.refused(a.operation, store.Refunded, "the operator has refunded this payment; sign a new one")
	case row.State == store.PaymentUndeliverable && a.nothingNew() != nil:
		return reject, a.nothingNew()
	case row.State == store.PaymentUndeliverable:
		return redeem, nil
	case row.State == store.PaymentUnknown, row.LeaseOver():
		return resume, nil
	}
	return wait, nil
}

// Pay takes the payment of a call from its state in the ledger to a response.
func (e *Engine) Pay(ctx context.Context, call *Call) (*Receipt, error) {
	crash("parsed")
	a := call.Attempt
	if a.executesFirst() { // copies wait, because each of them would execute the read
		release, err := e.queues.join(ctx, a.checked.Payer+":"+a.Nonce, errInProgress)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	// Most payments are new, and writing the row detects the others. The ledger is read first only where the result matters.
	look := a.operation.Secret || a.nothingNew() != nil || a.expired != nil || a.executesFirst() || (a.scheme.Moves() && !e.Ready())
	for joined := time.Now(); ; look = true {
		var row *store.Payment
		var err error
		if look {
			if row, err = e.lookUp(ctx, a); err != nil {
				return nil, err
			}
		}
		receipt, err := e.step(ctx, call, row)
		if row == nil && err != nil && !a.begun && !a.unknown && a.nothingNew() == nil && !errors.Is(err, store.ErrStalePayment) {
			// The payment may be in the ledger after all: its own effect can be the reason why the operation rejected this call.
			switch known, lookErr := e.lookUp(ctx, a); {
			case lookErr != nil && !store.Unavailable(err): // a rejection must not hide a payment that may have settled
				return nil, outcomeUnknown(lookErr)
			case lookErr == nil && known != nil:
				continue
			}
		}
		if !errors.Is(err, store.ErrStalePayment) {
			return receipt, err
		}
		// Another copy of the payment was faster or is still running. Its outcome counts.
		if !look { // most copies arrive long after the first was delivered
			continue
		}
		if time.Since(joined) > joinTime || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, errInProgress
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// step does what the payment needs. On store.ErrStalePayment the caller reads the ledger again.
func (e *Engine) step(ctx context.Context, call *Call, row *store.Payment) (*Receipt, error) {
	a := call.Attempt
	if row != nil && row.Restored() {
		return nil, e.bindRestored(ctx, a, row)
	}
	proven := !a.operation.Secret || a.proven
	if !proven && row != nil && a.owns(row) {
		var err error
		if proven, err = e.prove(ctx, a, row); err != nil {
			return nil, err
		}
		a.proven = proven // prove once, however often the call waits
	}
	action, err := e.decide(a, row, proven)
	switch action {
	case settleFirst:
		if a.expired != nil {
			return nil, a.expired
		}
		return a.scheme.Pay(ctx, call, row, action)
	case useVoucher, correct:
		return a.scheme.Pay(ctx, call, row, action)
	case repeat:
		receipt, err := e.repeat(ctx, call, row)
		if errors.Is(err, store.ErrVoucherMismatch) {
			return a.scheme.Pay(ctx, call, row, correct)
		}
		return receipt, err
	case redeem:
		if err := call.admit(); err != nil {
			return nil, err
		}
		return a.scheme.Deliver(context.WithoutCancel(ctx), call, row, settlement{transaction: row.Transaction}, nil) // see dryRun
	case resume:
		receipt, err := e.resume(ctx, call, row)
		if err == nil && !proven { // the payment is complete, but public data must not return a secret
			return nil, errProofRequired
		}
		return receipt, err
	case wait:
		return nil, store.ErrStalePayment
	default: // reject
		return nil, err
	}
}

// settleFirst handles a payment that is not in the ledger.
func (e *Engine) settleFirst(ctx context.Context, call *Call) (*Receipt, error) {
	a := call.Attempt
	if err := e.facilitator.available(); err != nil {
		return nil, err
	}
	channel, err := e.verify(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := call.admit(); err != nil {
		return nil, err
	}
	detached, cancel := detach(ctx)
	defer cancel()
	response, err := e.dryRun(ctx, detached, call)
	if err != nil {
		return nil, err
	}
	ctx = detached // see dryRun
	if !e.slots.keep(response) {
		response = nil // executed again when it is paid for
	}
	defer e.slots.forget(response)
	crash("dry-run")
	row := a.row()
	if err := e.responseKeys.sealOpen(row); err != nil {
		return nil, err
	}
	defer e.held.add(row.ID)()
	if channel != nil {
		err = e.store.BeginDeposit(ctx, channel, row, Lease, call.reserve(ctx))
	} else {
		err = e.store.BeginSettlement(ctx, row, Lease, call.reserve(ctx))
	}
	if err != nil {
		return nil, e.notBegun(ctx, row, err)
	}
	a.begun = true
	crash("begun")
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
	defer cancel()
	return e.settle(settling, call, row, response)
}

// verify checks that the payment can settle. For a deposit it returns its payment channel.
func (e *Engine) verify(ctx context.Context, a *Attempt) (channel *store.PaymentChannel, err error) {
	ctx, span := e.tracer.Start(ctx, "verify")
	defer func() { endSpan(span, err) }()
	return a.scheme.Prepare(ctx, a)
}

// dryRun checks the operation's rules before any money moves, so that a rejection is free. For a read-only operation it returns
// the response, which is the one that is paid for. The call waits for its place with ctx. From there on it continues, with detached, even if
// the caller hangs up: otherwise its work would be free.
func (e *Engine) dryRun(ctx, detached context.Context, call *Call) (response []byte, err error) {
	detached, span := e.tracer.Start(detached, "dry run")
	defer func() { endSpan(span, err) }()
	a := call.Attempt
	release, err := e.slots.acquire(ctx, a, e.PaidLately(a.checked.Payer))
	if err != nil {
		return nil, err
	}
	defer release()
	if a.operation.ReadOnly {
		return e.store.Read(detached, call.work())
	}
	return nil, e.store.DryRun(detached, call.work())
}

// detach returns a context that does not end when the caller hangs up, but has the same deadline.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	free := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(free, deadline)
	}
	return free, func() {}
}

// notBegun handles an error of BeginSettlement. Unless it is certain that the row was not committed, the recovery worker may
// find it and settle it, so the outcome is unknown.
func (e *Engine) notBegun(ctx context.Context, row *store.Payment, err error) error {
	_, refused := errors.AsType[*store.Refusal](err)
	if refused || errors.Is(err, store.ErrStalePayment) || store.NotCommitted(err) {
		return err
	}
	return e.unclear(ctx, row, &unclearSettlement{store.Unclear{Reason: "not known whether the payment was recorded", Sent: false}, err})
}

// resume makes another attempt at a payment whose outcome is unknown. It uses the payload in the ledger: the caller may have
// signed a second authorization, which must not be settled as well.
func (e *Engine) resume(ctx context.Context, call *Call, row *store.Payment) (*Receipt, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
	defer cancel()
	defer e.held.add(row.ID)()
	row, err := e.store.ResumeSettlement(ctx, row.ID, Lease)
	if err != nil {
		return nil, err
	}
	attempt, err := e.restore(row)
	if err != nil {
		return nil, e.unreadable(ctx, row, err)
	}
	stored := *call
	stored.Attempt = attempt
	return e.settle(ctx, &stored, row, nil)
}

// repeat returns the response of a delivered payment. A read whose response was too long to store runs again within
// repeatableRead of its delivery.
func (e *Engine) repeat(ctx context.Context, call *Call, row *store.Payment) (*Receipt, error) {
	a := call.Attempt
	settled, err := a.scheme.Repeated(ctx, a, row)
	if err != nil {
		return nil, err
	}
	response, err := e.stored(ctx, a, row)
	switch {
	case err != nil:
		return nil, err
	case response != nil:
	case !a.operation.ReadOnly || row.Now.Sub(row.UpdatedAt) > repeatableRead:
		return nil, errGone
	default: // one at a time, however many copies arrive
		release, err := e.queues.join(ctx, row.ID.String(), errInProgress)
		if err != nil {
			return nil, err
		}
		defer release()
		detached, cancel := detach(ctx)
		defer cancel()
		if response, err = e.dryRun(ctx, detached, call); err != nil {
			return nil, err
		}
	}
	e.metrics.payment(row, outcomeRepeated)
	return &Receipt{Response: response, Settled: settled, Repeated: true}, nil
}

// stored returns the stored response of a payment, or nil if there is none. A response whose key is not there any more counts as
// erased, but not a new one: another server has the key, and the payer must not pay again.
func (e *Engine) stored(ctx context.Context, a *Attempt, row *store.Payment) ([]byte, error) {
	switch {
	case row.Response == nil:
		return nil, nil
	case a.operation.Secret && row.Now.Sub(row.UpdatedAt) > store.SecretLifetime:
		return nil, errGone
	}
	response, err := e.responseKeys.open(row.ID, a.request, row.Response)
	switch {
	case !errors.Is(err, errNoResponseKey):
		return response, err
	case row.Now.Sub(row.UpdatedAt) > store.ResponseLifetime:
		return nil, nil
	}
	e.log.ErrorContext(ctx, "a stored response cannot be opened: all servers of a database need the same --response-key-file, with former keys for an hour",
		"payment_id", row.ID.String())
	return nil, outcomeUnknown(err)
}

// invalid turns a scheme's x402.Invalid into the 402 for the caller. It returns other errors unchanged.
func (e *Engine) invalid(a *Attempt, err error) error {
	if bad, ok := errors.AsType[*x402.Invalid](err); ok {
		return e.refused(a.operation, bad.Reason, bad.Message)
	}
	return err
}

// failed returns the 402 for a payment that did not settle and never will.
func (e *Engine) failed(a *Attempt, reason string) *Error {
	failed := e.refused(a.operation, reason, fmt.Sprintf("the payment was not settled (%s) and nothing was charged; sign a new payment", reason))
	failed.Settled = &x402.SettleResponse{Success: false, ErrorReason: Shorten(reason, maxReason), Network: a.requirements.Network, Payer: a.checked.Payer}
	return failed
}

func settledAs(row *store.Payment, transaction string) *x402.SettleResponse {
	return &x402.SettleResponse{Success: true, Transaction: transaction, Network: row.Network, Payer: row.Payer}
}
