package payment

import (
	"context"

	"github.com/parley-chat/parley/store"
)

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
	case a.nothingNew() != nil:
		return a.nothingNew()
	case err != nil:
		return err
	}
	signature := a.signatureHash()
	err := e.store.BindRestored(ctx, store.Redemption{
		Payment: row.ID, Payer: row.Payer, Operation: a.operation.ID, AgentID: a.account(), Fingerprint: a.fingerprint[:],
		SignatureHash: signature[:], PaymentIdentifier: a.identifierHash(), Secret: a.operation.Secret,
	})
	if err != nil {
		return err
	}
	return store.ErrStalePayment
}

// redeems returns nil if the caller may redeem a restored payment for this call.
func (e *Engine) redeems(ctx context.Context, a *Attempt, row *store.Payment) error {
	if row.Scheme != a.requirements.Scheme || row.Amount != int64(a.operation.Price) || a.same(row) && !a.Conclusive { //nolint:gosec // a price
		return errReused
	}
	if a.caller == nil {
		proven, err := e.prove(ctx, a, row)
		if err == nil && !proven {
			err = errProofRequired
		}
		a.proven = proven
		return err
	}
	paid, err := e.store.HasPaidFor(ctx, row.Network, row.Asset, row.Payer, *a.account())
	if err == nil && !paid {
		err = errNotItsWallet
	}
	return err
}
