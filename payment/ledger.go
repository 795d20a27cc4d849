package payment

import (
	"cmp"
	"context"
	"strings"

	"github.com/parley-chat/parley/store"
)

// lookUp finds the payment in the ledger by its authorization or voucher, by its payment identifier, or, if the response holds
// a secret, by wallet and request. A restored payment comes last: another payment may have bought what its call was to buy.
func (e *Engine) lookUp(ctx context.Context, a *Attempt) (*store.Payment, error) {
	network, asset := a.Requirements.Network, strings.ToLower(a.Requirements.Asset)
	row, err := e.Store.Payment(ctx, network, asset, a.Payer(), a.Nonce)
	if err != nil || row != nil && !row.Restored() {
		return row, err
	}
	other := row // restored, or paid by the voucher of this deposit, for another request
	row, err = a.payment.Find(ctx)
	if err != nil || row != nil && (a.payment.Same(row) || a.Owns(row)) {
		return row, err
	}
	if row != nil {
		other = row
	}
	if a.identifier != "" {
		row, err = e.Store.PaymentByIdentifier(ctx, a.account(), a.Payer(), a.Operation.ID, *a.identifierHash())
		if err != nil || row != nil {
			return row, err
		}
	}
	if !a.Operation.Secret || a.Expired != nil {
		return other, nil
	}
	row, err = e.Store.PaymentOfWallet(ctx, network, asset, a.Payer(), a.Operation.ID, a.account(), a.fingerprints(), a.payment.Channel())
	if row != nil && !a.moves() && (row.PaymentChannelID == nil || *row.PaymentChannelID != a.payment.Channel()) {
		row = nil // a voucher does not prove the wallet that its channel names
	}
	if err != nil || row != nil || other != nil || a.Caller != nil {
		return cmp.Or(row, other), err
	}
	return e.Store.RestoredOfWallet(ctx, a.Requirements.Scheme, network, asset, a.Payer(), int64(a.Operation.Price)) //nolint:gosec // a price
}

// prove reports whether the caller has proved possession: with the payment identifier, which only the payer knows, or with an
// unused authorization from the same wallet. An authorization on the chain is public and proves nothing. A voucher becomes
// public when it is claimed; one for more than the channel was charged never was, and proves the key of the channel.
func (e *Engine) prove(ctx context.Context, a *Attempt, row *store.Payment) (bool, error) {
	if row.PaymentIdentifier != nil && a.identifier != "" && *row.PaymentIdentifier == *a.identifierHash() {
		return true, nil
	}
	if a.payment.Same(row) || row.Payer != a.Payer() {
		return false, nil
	}
	switch payment := a.payment.(type) {
	case Mover:
		return e.unused(ctx, a, payment)
	case Charger:
		return payment.Proves(ctx, row)
	}
	return false, nil
}

// A restored payment (store.OperationRestored) is money at the payee whose call was lost with a restored database. Its
// authorization and signature are public on the blockchain. So the same payment alone redeems it only for an account for which the
// wallet has paid otherwise, and a registration needs a newly signed payment by the same wallet, as any response with a secret.

var errNotItsWallet = &Error{Code: CodeProof,
	Message: "this payment has settled and its call was lost with a restored database; make another paid call of this account with the same wallet, " +
		"as proof that it is yours, and then send the same payment again: it pays for one call at its price; or ask the operator for a refund"}

// bindRestored binds a restored payment to the call of its payer. It returns store.ErrStalePayment if it did, so that the caller
// continues with an undeliverable payment of this call.
func (e *Engine) bindRestored(ctx context.Context, a *Attempt, row *store.Payment) error {
	switch err := e.redeems(ctx, a, row); {
	case a.NothingNew() != nil:
		return a.NothingNew()
	case err != nil:
		return err
	}
	signature := a.signatureHash()
	err := e.Store.BindRestored(ctx, store.Redemption{
		Payment: row.ID, Payer: row.Payer, Operation: a.Operation.ID, AgentID: a.account(), Fingerprint: a.fingerprint[:],
		SignatureHash: signature[:], PaymentIdentifier: a.identifierHash(), Secret: a.Operation.Secret,
	})
	if err != nil {
		return err
	}
	return store.ErrStalePayment
}

// redeems returns nil if the caller may redeem a restored payment for this call.
func (e *Engine) redeems(ctx context.Context, a *Attempt, row *store.Payment) error {
	if row.Scheme != a.Requirements.Scheme || row.Amount != int64(a.Operation.Price) || a.payment.Same(row) && !a.Conclusive { //nolint:gosec // a price
		return errReused
	}
	if a.Caller == nil {
		proven, err := e.prove(ctx, a, row)
		if err == nil && !proven {
			err = errProofRequired
		}
		a.proven = proven
		return err
	}
	paid, err := e.Store.HasPaidFor(ctx, row.Network, row.Asset, row.Payer, *a.account())
	if err == nil && !paid {
		err = errNotItsWallet
	}
	return err
}
