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
	if a.channel != nil {
		row, err = e.store.PaymentOfVoucher(ctx, a.channel.ChannelID, a.checked.Payer, int64(a.channel.Max)) //nolint:gosec // at most x402.MaxChannelAmount
		if err != nil || row != nil && (a.voucher() || a.owns(row)) {
			return row, err
		}
		if row != nil {
			other = row
		}
	}
	if a.identifier != "" {
		row, err = e.store.PaymentByIdentifier(ctx, a.account(), a.checked.Payer, a.operation.ID, *a.identifierHash())
		if err != nil || row != nil {
			return row, err
		}
	}
	if a.operation.Secret && a.expired == nil {
		row, err = e.secretOf(ctx, a)
		if err != nil || row != nil {
			return row, err
		}
	}
	if other == nil && a.operation.Secret && a.caller == nil && a.channel == nil && a.expired == nil {
		return e.store.RestoredOfWallet(ctx, a.requirements.Network, strings.ToLower(a.requirements.Asset), a.checked.Payer,
			int64(a.operation.Price)) //nolint:gosec // a price
	}
	return other, nil
}

// secretOf finds an earlier payment of the same wallet for the same request. A voucher does not prove the wallet that it names, so it
// finds only payments of its channel.
func (e *Engine) secretOf(ctx context.Context, a *Attempt) (*store.Payment, error) {
	asset := strings.ToLower(a.requirements.Asset)
	channel := ""
	if a.channel != nil {
		channel = a.channel.ChannelID
	}
	row, err := e.store.PaymentOfWallet(ctx, a.requirements.Network, asset, a.checked.Payer, a.operation.ID, a.account(), a.fingerprints(), channel)
	if err == nil && row != nil && a.voucher() && !a.sameChannel(row) {
		row = nil
	}
	return row, err
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
	if a.voucher() {
		channel, err := e.store.PaymentChannel(ctx, a.channel.ChannelID, a.checked.Payer)
		return a.sameChannel(row) && channel != nil && int64(a.channel.Max) > channel.Charged, err //nolint:gosec // at most x402.MaxChannelAmount
	}
	fresh, err := a.scheme.Fresh(ctx, a)
	return fresh, e.invalid(a, err)
}
