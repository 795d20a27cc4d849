package payment

import (
	"context"
	"errors"
	"time"

	"github.com/parley-chat/parley/store"
)

// joinTime limits how long a copy of a running payment waits for the original before it gets a 409, and a call for its queue.
const joinTime = 3 * time.Second

// repeatableRead is for how long after its delivery the same payment executes a read again whose response was too long to
// store. The read is executed on the present state, so this is short: the payment would buy newer messages too.
const repeatableRead = time.Minute

// Pay takes the payment of a call from its state in the ledger to a response.
func (e *Engine) Pay(ctx context.Context, call *Call) (*Receipt, error) {
	Crash("parsed")
	a := call.Attempt
	if a.executesFirst() { // copies wait, because each of them would execute the read
		release, err := e.Queue(ctx, a.Payer()+":"+a.Nonce, errInProgress)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	// Most payments are new, and writing the row detects the others. The ledger is read first only where the result matters.
	// So it is if the operation would be tried first at some cost.
	look := a.Operation.Secret || a.NothingNew() != nil || a.Expired != nil || a.executesFirst() ||
		(a.moves() && (!e.Ready() || a.Operation.Transacted))
	for began := time.Now(); ; look = true {
		receipt, stale, err := e.payOnce(ctx, call, look)
		switch {
		case !stale:
			return receipt, err
		case !look: // most copies arrive long after the first was delivered
			continue
		case time.Since(began) > joinTime, errors.Is(ctx.Err(), context.DeadlineExceeded):
			return nil, errInProgress
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// payOnce makes one step from the state of the payment in the ledger, which it reads if look is true. The result is stale if the payment
// is in another state by now: another copy of it was faster or is still running, and its outcome counts.
func (e *Engine) payOnce(ctx context.Context, call *Call, look bool) (receipt *Receipt, stale bool, err error) {
	a := call.Attempt
	var row *store.Payment
	if look {
		if row, err = e.lookUp(ctx, a); err != nil {
			return nil, false, err
		}
	}
	receipt, err = e.step(ctx, call, row)
	switch {
	case errors.Is(err, store.ErrStalePayment):
		return nil, true, nil
	case err == nil || row != nil || a.begun || a.Unrecorded || a.NothingNew() != nil:
		return receipt, false, err
	}
	// The payment may be in the ledger after all: its own effect can be the reason why the operation rejected this call.
	known, lookErr := e.lookUp(ctx, a)
	if lookErr != nil && !store.Unavailable(err) { // a rejection must not hide a payment that may have settled
		err = OutcomeUnknown(lookErr)
	}
	return nil, lookErr == nil && known != nil, err
}

// step does what the payment needs. It returns store.ErrStalePayment if the ledger is to be read again.
func (e *Engine) step(ctx context.Context, call *Call, row *store.Payment) (*Receipt, error) {
	a := call.Attempt
	proven := !a.Operation.Secret || a.proven || row != nil && a.identifies(row)
	if !proven && row != nil && a.Owns(row) {
		var err error
		if proven, err = e.prove(ctx, a, row); err != nil {
			return nil, err
		}
		a.proven = proven // prove once, however often the call waits
	}
	action, err := e.decide(a, row, proven)
	mover, _ := a.payment.(Mover)
	charger, _ := a.payment.(Charger)
	switch action {
	case settleFirst:
		return e.settleFirst(ctx, call, mover)
	case Charge:
		return charger.Charge(ctx, call, row)
	case Correct:
		return nil, charger.Correct(ctx)
	case repeat:
		receipt, err := e.repeat(ctx, call, row)
		if errors.Is(err, store.ErrVoucherMismatch) {
			return nil, charger.Correct(ctx)
		}
		return receipt, err
	case redeem:
		if err := call.Admitted(); err != nil {
			return nil, err
		}
		return e.deliver(context.WithoutCancel(ctx), call, row, row.Transaction, store.Response{}) // see dryRun
	case resume:
		return e.resume(ctx, call, row)
	case wait:
		return nil, store.ErrStalePayment
	default: // Reject
		return nil, err
	}
}

// repeat returns the response of a delivered payment. A read whose response was too long to store runs again within
// repeatableRead of its delivery.
func (e *Engine) repeat(ctx context.Context, call *Call, row *store.Payment) (*Receipt, error) {
	a := call.Attempt
	settled, err := a.payment.Repeated(ctx, row)
	if err != nil {
		return nil, err
	}
	response, err := a.stored(row)
	switch {
	case err != nil:
		return nil, err
	case response != nil && a.Operation.recorded(), response == nil && a.Operation.ReadOnly && row.Now.Sub(row.UpdatedAt) <= repeatableRead:
		if response, err = e.readAgain(ctx, call, row, response); err != nil {
			return nil, err
		}
	case response == nil:
		return nil, errGone
	}
	e.Count(row, outcomeRepeated)
	return &Receipt{Response: response, Settled: settled, Repeated: true}, nil
}

// readAgain makes the response of a delivered payment again: a page from what the ledger stored of it, and a read of which it stored
// nothing by executing it. It does so for one copy of a payment at a time, however many arrive.
func (e *Engine) readAgain(ctx context.Context, call *Call, row *store.Payment, stored []byte) (response []byte, err error) {
	release, err := e.Queue(ctx, row.ID.String(), errInProgress)
	if err != nil {
		return nil, err
	}
	defer release()
	detached, cancel := Detach(ctx)
	defer cancel()
	if stored == nil {
		executed, err := e.dryRun(ctx, detached, call)
		return executed.Body, err
	}
	end, err := e.admission.turn(ctx, call.Attempt)
	if err != nil {
		return nil, err
	}
	defer end()
	return call.Repeat(detached, row, stored)
}

// stored returns what the ledger stored of the response of a payment, or nil if there is nothing.
func (a *Attempt) stored(row *store.Payment) ([]byte, error) {
	switch {
	case row.Response == nil:
		return nil, nil
	case a.Operation.Secret && row.Now.Sub(row.UpdatedAt) > store.SecretLifetime:
		return nil, errGone
	}
	return decodeStored(row.Response)
}
