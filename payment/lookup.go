package payment

import (
	"context"
	"strings"

	"github.com/parley-chat/parley/store"
)

// lookUp finds the payment in the ledger by its authorization or voucher, by its payment identifier, or, if the response holds
// a secret, by wallet and request. A restored payment comes last: another payment may have bought what its call was to buy.
func (e *Engine) lookUp(ctx context.Context, a *Attempt) (*store.Payment, error) {
	row, err := e.store.Payment(ctx, a.requirements.Network, strings.ToLower(a.requirements.Asset), a.checked.Payer, a.Nonce)
	if err != nil || row != nil && !row.Restored() {
		return row, err
	}
	other := row // restored, or paid by the voucher of this deposit, for another request
	row, err = a.scheme.Find(ctx, a)
	if err != nil || row != nil && (a.same(row) || a.owns(row)) {
		return row, err
	}
	if row != nil {
		other = row
	}
	if a.identifier != "" {
		row, err = e.store.PaymentByIdentifier(ctx, a.account(), a.checked.Payer, a.operation.ID, *a.identifierHash())
		if err != nil || row != nil {
			return row, err
		}
	}
	if a.operation.Secret && a.expired == nil {
		row, err = a.scheme.OfWallet(ctx, a)
		if err != nil || row != nil {
			return row, err
		}
	}
	if other == nil && a.operation.Secret && a.caller == nil && a.expired == nil {
		return e.store.RestoredOfWallet(ctx, a.requirements.Scheme, a.requirements.Network, strings.ToLower(a.requirements.Asset), a.checked.Payer,
			int64(a.operation.Price)) //nolint:gosec // a price
	}
	return other, nil
}

// ofWallet finds an earlier payment of the same wallet for the same request, also one by this payment channel of it, if not "".
func (e *Engine) ofWallet(ctx context.Context, a *Attempt, channel string) (*store.Payment, error) {
	return e.store.PaymentOfWallet(ctx, a.requirements.Network, strings.ToLower(a.requirements.Asset), a.checked.Payer, a.operation.ID, a.account(),
		a.fingerprints(), channel)
}

// prove reports whether the caller has proved possession: with the payment identifier, which only the payer knows, or with an
// unused authorization from the same wallet. An authorization on the chain is public and proves nothing. A voucher becomes
// public when it is claimed; one for more than the channel was charged never was, and proves the key of the channel.
func (e *Engine) prove(ctx context.Context, a *Attempt, row *store.Payment) (bool, error) {
	if row.PaymentIdentifier != nil && a.identifier != "" && *row.PaymentIdentifier == *a.identifierHash() {
		return true, nil
	}
	if a.same(row) || row.Payer != a.checked.Payer {
		return false, nil
	}
	proven, err := a.scheme.Proves(ctx, a, row)
	return proven, e.invalid(a, err)
}
