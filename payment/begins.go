package payment

import (
	"context"
	"errors"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// settleMargin is what is left of the time of an authorization, beside x402.MinimumValidity, when a call that waited begins its payment.
const settleMargin = 2 * time.Second

// Begins checks a payment whose call is to wait before it begins: nothing is recorded, and no money moves. It reports whether Pay would
// begin it now. If it is false, the ledger knows the payment, or it cannot be charged, and Pay says so at once. The error is the one that
// Pay would return for a payer who cannot pay. Pay checks again what can change meanwhile.
func (e *Engine) Begins(ctx context.Context, a *Attempt) (bool, error) {
	if a.NothingNew() != nil || a.Expired != nil {
		return false, nil //nolint:nilerr // Pay says so
	}
	if a.moves() || a.key != nil {
		if row, err := e.lookUp(ctx, a); err != nil || row != nil {
			return false, err
		}
	}
	mover, moves := a.payment.(Mover)
	if !moves { // a voucher that fits was not charged; for another one Pay repeats the response, or says why not
		charger, ok := a.payment.(Charger)
		if !ok || charger.Chargeable(ctx) != nil {
			return false, nil //nolint:nilerr // Pay says why not
		}
		charger.Compact()
		return true, nil
	}
	if err := e.Facilitator.Available(); err != nil {
		return false, err
	}
	_, err := mover.Prepare(ctx)
	if errors.Is(err, store.ErrStalePayment) { // the payment channel is busy
		return false, nil
	}
	return err == nil, err
}

// Patience is how long the payment can wait before it begins, at most limit.
func (e *Engine) Patience(a *Attempt, limit time.Duration) time.Duration {
	if a.ValidBefore.IsZero() { // a voucher
		return limit
	}
	return max(0, min(limit, a.ValidBefore.Sub(e.Store.Now())-x402.MinimumValidity-settleMargin))
}
