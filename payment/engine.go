package payment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// action is what an attempt needs, given where its payment stands in the ledger.
type action string

const (
	settleFirst action = "settle first" // the ledger does not know the payment
	repeat      action = "repeat"       // it was delivered: the stored response
	redeem      action = "redeem"       // it settled for a call that was rejected then: deliver, without settling
	resume      action = "resume"       // its outcome is unknown, or its server is gone: another attempt
	wait        action = "wait"         // another call is at it
	reject      action = "reject"
)

// decide says what an attempt needs. Row is its payment in the ledger, nil if it is not there; proven tells whether the
// caller has shown more than what stands on the chain, where the response holds a secret. docs/payments.md has the same as a
// table.
func (e *Engine) decide(a *Attempt, row *store.Payment, proven bool) (action, error) {
	switch {
	case row == nil && a.repeatOnly() != nil:
		return reject, a.repeatOnly()
	case row == nil:
		return settleFirst, nil
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
	case row.State == store.PaymentUndeliverable:
		return redeem, nil
	case row.State == store.PaymentUnknown, row.LeaseOver():
		return resume, nil
	}
	return wait, nil
}

// Pay brings the payment of a call from wherever it stands in the ledger to its response.
func (e *Engine) Pay(ctx context.Context, call *Call) (*Receipt, error) {
	crash("parsed")
	a := call.Attempt
	// Most payments are new: the ledger says so when they are written. It is looked up before only where something depends on it.
	look := a.operation.Secret || a.repeatOnly() != nil || a.expired != nil || !e.Ready()
	for joined := time.Now(); ; look = true {
		var row *store.Payment
		var err error
		if look {
			if row, err = e.lookUp(ctx, a); err != nil {
				return nil, err
			}
		}
		receipt, err := e.step(ctx, call, row)
		if row == nil && err != nil && !a.begun && a.repeatOnly() == nil && !errors.Is(err, store.ErrPaymentMoved) {
			// A payment that was rejected before it began may be in the ledger: as one whose effect is what the call was rejected for.
			if known, lookErr := e.lookUp(ctx, a); lookErr == nil && known != nil {
				continue
			}
		}
		if !errors.Is(err, store.ErrPaymentMoved) {
			return receipt, err
		}
		// Another copy was faster, or is at it: what becomes of that counts.
		if !look { // most copies come long after the first, which has been delivered
			continue
		}
		if time.Since(joined) > joinTime {
			return nil, errInProgress
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// step does what the payment needs. store.ErrPaymentMoved: look the payment up again.
func (e *Engine) step(ctx context.Context, call *Call, row *store.Payment) (*Receipt, error) {
	a := call.Attempt
	proven := !a.operation.Secret || a.proven
	if !proven && row != nil && a.owns(row) {
		var err error
		if proven, err = e.prove(ctx, a, row); err != nil {
			return nil, err
		}
		a.proven = proven // a call that waits for another copy is proven once
	}
	action, err := e.decide(a, row, proven)
	switch action {
	case settleFirst:
		return e.settleFirst(ctx, call)
	case repeat:
		return e.repeat(ctx, call, row)
	case redeem:
		if call.Admit != nil {
			if err := call.Admit(); err != nil {
				return nil, err
			}
		}
		return e.deliver(ctx, call, row, row.Transaction, nil)
	case resume:
		receipt, err := e.resume(ctx, call, row)
		if err == nil && !proven { // finished, but not for whoever only has what stands on the chain
			return nil, errProofRequired
		}
		return receipt, err
	case wait:
		return nil, store.ErrPaymentMoved
	default: // reject
		return nil, err
	}
}

// lookUp finds the payment in the ledger: by its authorization, by the identifier that its payer gave it, or, where the
// response holds a secret, as one that the same wallet has made before.
func (e *Engine) lookUp(ctx context.Context, a *Attempt) (*store.Payment, error) {
	network, asset, payer := a.requirements.Network, strings.ToLower(a.requirements.Asset), a.checked.Payer
	row, err := e.store.Payment(ctx, network, asset, payer, a.checked.Nonce)
	if err != nil || row != nil {
		return row, err
	}
	if a.identifier != "" {
		row, err = e.store.PaymentByIdentifier(ctx, a.account(), payer, a.operation.ID, *a.identifierHash())
		if err != nil || row != nil {
			return row, err
		}
	}
	if a.operation.Secret && a.expired == nil {
		return e.store.PaymentOfWallet(ctx, network, asset, payer, a.operation.ID, a.account(), a.fingerprint[:])
	}
	return nil, nil //nolint:nilnil // it is not in the ledger
}

// prove tells whether the caller has shown more than what stands on the chain: the payment's identifier, which only its
// payer knows, or another authorization by the same wallet, which was never sent to be settled.
func (e *Engine) prove(ctx context.Context, a *Attempt, row *store.Payment) (bool, error) {
	if row.PaymentIdentifier != nil && a.identifier != "" && *row.PaymentIdentifier == *a.identifierHash() {
		return true, nil
	}
	if a.same(row) || row.Payer != a.checked.Payer {
		return false, nil
	}
	fresh, err := e.scheme.Fresh(ctx, a)
	return fresh, e.invalid(a, err)
}

// settleFirst takes a payment that the ledger does not know.
func (e *Engine) settleFirst(ctx context.Context, call *Call) (*Receipt, error) {
	a := call.Attempt
	if a.expired != nil {
		return nil, a.expired
	}
	if err := e.scheme.Available(); err != nil {
		return nil, err
	}
	if err := e.scheme.Fund(ctx, a); err != nil {
		return nil, e.invalid(a, err)
	}
	if call.Admit != nil {
		if err := call.Admit(); err != nil {
			return nil, err
		}
	}
	response, err := e.dryRun(ctx, call)
	if err != nil {
		return nil, err
	}
	crash("dry-run")
	// From here on the caller may hang up: what was begun is finished.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
	defer cancel()
	row := a.row()
	if err := e.begin(ctx, call, row); err != nil {
		return nil, err
	}
	a.begun = true
	crash("begun")
	return e.settle(ctx, call, row, response)
}

// dryRun finds out whether the operation's rules allow the call, before any money moves: their refusal is free. It returns
// the response of an operation that is read-only, the one that will be paid for.
func (e *Engine) dryRun(ctx context.Context, call *Call) (response []byte, err error) {
	a := call.Attempt
	release, err := e.slots.acquire(ctx, a, e.PaidLately(a.checked.Payer))
	if err != nil {
		return nil, err
	}
	defer release()
	switch {
	case a.operation.ReadOnly:
		return call.Handle(ctx, e.store, a.paid())
	case call.Batched != nil:
		return nil, call.Batched.Check(ctx)
	}
	return nil, e.store.DryRun(ctx, func(tx *store.Store) error {
		_, err := call.Handle(ctx, tx, a.paid())
		return err
	})
}

// begin writes the payment as settling, with what the operation reserves.
func (e *Engine) begin(ctx context.Context, call *Call, row *store.Payment) error {
	if call.Reserve == nil {
		return e.store.BeginSettlement(ctx, row, Lease)
	}
	return e.store.Transaction(ctx, func(tx *store.Store) error {
		if err := tx.BeginSettlement(ctx, row, Lease); err != nil {
			return err
		}
		return call.Reserve(ctx, tx, call.Attempt.paid())
	})
}

// resume takes up a payment whose outcome nobody knows yet. It goes on with the payment as it is in the ledger: what
// was sent now may be signed anew, and that second authorization must not be used as well.
func (e *Engine) resume(ctx context.Context, call *Call, row *store.Payment) (*Receipt, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
	defer cancel()
	row, err := e.store.ResumeSettlement(ctx, row.ID, Lease)
	if err != nil {
		return nil, err
	}
	attempt, err := e.restore(row)
	if err != nil {
		return nil, err
	}
	stored := *call
	stored.Attempt = attempt
	return e.settle(ctx, &stored, row, nil)
}

// repeat returns the response of a payment that was delivered. A read whose response was too long to be stored is run again
// while the payment is valid.
func (e *Engine) repeat(ctx context.Context, call *Call, row *store.Payment) (*Receipt, error) {
	a := call.Attempt
	var response []byte
	var err error
	switch {
	case row.Answer != nil && a.operation.Secret && row.Now.Sub(row.UpdatedAt) > store.SecretLifetime:
		return nil, errGone
	case row.Answer != nil:
		if response, err = openResponse(a.request, row.Answer); err != nil {
			return nil, err
		}
	case !a.operation.ReadOnly || row.Now.After(row.ValidBefore):
		return nil, errGone
	default:
		if response, err = e.dryRun(ctx, call); err != nil {
			return nil, err
		}
	}
	e.metrics.payment(row, outcomeRepeated)
	return &Receipt{Response: response, Settled: settledAs(row, row.Transaction), Repeated: true}, nil
}

// invalid makes the 402 of a payment that the scheme found at fault; other errors stay as they are.
func (e *Engine) invalid(a *Attempt, err error) error {
	if bad, ok := errors.AsType[*x402.Invalid](err); ok {
		return e.refused(a.operation, bad.Reason, bad.Message)
	}
	return err
}

// failed is the 402 of a payment that did not settle and never will.
func (e *Engine) failed(a *Attempt, reason string) *Error {
	failed := e.refused(a.operation, reason, fmt.Sprintf("the payment was not settled (%s) and nothing was taken: sign a new one", reason))
	failed.Settled = &x402.SettleResponse{Success: false, ErrorReason: Shorten(reason, maxReason), Network: a.requirements.Network, Payer: a.checked.Payer}
	return failed
}

func settledAs(row *store.Payment, transaction string) *x402.SettleResponse {
	return &x402.SettleResponse{Success: true, Transaction: transaction, Network: row.Network, Payer: row.Payer}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
