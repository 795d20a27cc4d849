package payment

import (
	"bytes"
	"cmp"
	"context"
	"strings"

	"github.com/parley-chat/parley/store"
)

// Action is what an attempt needs, given the state of its payment in the ledger.
type Action string

// The actions. A [Scheme] may return Charge, Correct and Reject.
const (
	settleFirst Action = "settle first" // the ledger does not know the payment, which moves money on the chain
	Charge      Action = "charge"       // charge a new voucher, or the voucher of a deposit that has arrived without its call
	repeat      Action = "repeat"       // delivered: return the stored response
	redeem      Action = "redeem"       // settled for a call that was then rejected: deliver without settling
	resume      Action = "resume"       // outcome unknown, or the lease is over: make another attempt
	wait        Action = "wait"         // another call works on it
	Correct     Action = "correct"      // the voucher was charged for another request: return the state of its channel
	Reject      Action = "reject"
)

// decide returns what an attempt needs. Row is its payment in the ledger, or nil. Proven is true if the response holds no
// secret, or if the caller has proved possession (see prove). docs/payments.md sums up the rules.
func (e *Engine) decide(a *Attempt, row *store.Payment, proven bool) (Action, error) {
	switch {
	case row == nil && a.NothingNew() != nil:
		return Reject, a.NothingNew()
	case row == nil && a.Expired != nil:
		return Reject, a.Expired
	case row == nil && a.moves():
		return settleFirst, nil
	case row == nil:
		return Charge, nil
	case a.payment.Same(row) && row.Scheme != a.Requirements.Scheme:
		return Reject, errReused // an authorization and a deposit with one nonce
	}
	if next, err := a.payment.Decide(row, proven); next != "" {
		return next, err
	}
	switch {
	// Whoever proves nothing does not learn whether the payment is for this request: anybody could guess the username in it.
	case !proven && (row.State == store.PaymentDelivered || (row.State == store.PaymentUndeliverable && row.AgentID == nil)):
		return Reject, errProofRequired
	case (proven || row.State == store.PaymentUndeliverable) && !a.Owns(row) && a.hasKey(row):
		return Reject, errKeyReused
	case (proven || row.State == store.PaymentUndeliverable) && !a.Owns(row):
		return Reject, errReused
	case row.State == store.PaymentDelivered:
		return repeat, nil
	case a.repeatOnly() != nil:
		return Reject, a.repeatOnly()
	case row.State == store.PaymentFailed:
		return Reject, e.failed(a, row.FailureReason)
	case row.State == store.PaymentUndeliverable && row.FailureReason == store.Refunded:
		return Reject, e.Refused(a.Operation, store.Refunded, "the operator has refunded this payment; sign a new one")
	case row.State == store.PaymentUndeliverable && a.NothingNew() != nil:
		return Reject, a.NothingNew()
	case row.State == store.PaymentUndeliverable:
		return redeem, nil
	case !proven && (row.State == store.PaymentUnknown || row.LeaseOver()):
		return Reject, OutcomeUnknown(nil) // the recovery worker completes it
	case row.State == store.PaymentUnknown, row.LeaseOver():
		return resume, nil
	}
	return wait, nil
}

// SameNonce reports whether the row is of this very authorization.
func (a *Attempt) SameNonce(row *store.Payment) bool {
	return row.Payer == a.Payer() && row.Nonce == a.Nonce
}

// Owns reports whether the row's payment was made for this request. An undeliverable payment may be redeemed with another
// request of the same operation and account, a restored one with any request of its account that has the same price.
func (a *Attempt) Owns(row *store.Payment) bool {
	sameRequest := bytes.Equal(row.Fingerprint, a.fingerprint[:])
	if row.State == store.PaymentUndeliverable {
		account := a.account()
		sameAccount := row.AgentID == account || (row.AgentID != nil && account != nil && *row.AgentID == *account)
		sameOperation := row.Operation == a.Operation.ID || row.Operation == store.OperationRestored && account != nil && row.Amount == a.price()
		sameRequest = sameOperation && sameAccount
	}
	if !a.payment.Same(row) {
		return sameRequest
	}
	if row.Operation != store.OperationRestored && !equal(row.PaymentIdentifier, a.identifier) {
		return row.State == store.PaymentFailed && sameRequest // a failed payment keeps no identifier
	}
	// An authorization pays for one call, however that is named. A voucher is only for a sum, so two calls can come with the same one.
	if !a.moves() && a.key != nil && row.IdempotencyKey != nil && !a.hasKey(row) {
		return false
	}
	// A signature that we cannot check proves nothing: anybody can read payer and nonce of a settled payment on the chain.
	// Only the signature that was verified at the first attempt is accepted.
	if hash := a.signatureHash(); !a.Conclusive && !bytes.Equal(row.SignatureHash, hash[:]) {
		return false
	}
	return sameRequest
}

// lookUp finds the payment in the ledger by its idempotency key, by its authorization or voucher, by its payment identifier, or, if the
// response holds a secret, by wallet and request.
func (e *Engine) lookUp(ctx context.Context, a *Attempt) (*store.Payment, error) {
	if a.key != nil { // the key names the call even if the payment was used for another one
		row, err := e.Store.PaymentByKey(ctx, a.account(), a.Payer(), a.Operation.ID, *a.key)
		if err != nil || row != nil {
			return row, err
		}
	}
	network, asset := a.Requirements.Network, strings.ToLower(a.Requirements.Asset)
	row, err := e.Store.Payment(ctx, network, asset, a.Payer(), a.Nonce)
	if err != nil || row != nil {
		return row, err
	}
	row, err = a.payment.Find(ctx)
	if err != nil || row != nil && (a.payment.Same(row) || a.Owns(row)) {
		return row, err
	}
	other := row // paid by the voucher of this deposit, for another request
	if a.identifier != nil {
		row, err = e.Store.PaymentByIdentifier(ctx, a.account(), a.Payer(), a.Operation.ID, *a.identifier)
		if err != nil || row != nil {
			return row, err
		}
	}
	if a.Operation.Secret && a.Expired == nil {
		row, err = e.Store.PaymentOfWallet(ctx, network, asset, a.Payer(), a.Operation.ID, a.account(), a.fingerprint[:], a.payment.Channel())
		if row != nil && !a.moves() && (row.PaymentChannelID == nil || *row.PaymentChannelID != a.payment.Channel()) {
			row = nil // a voucher does not prove the wallet that its channel names
		}
	}
	return cmp.Or(row, other), err
}

// identifies reports whether the caller has proved possession with the payment identifier, which only the payer knows.
func (a *Attempt) identifies(row *store.Payment) bool {
	return a.identifier != nil && equal(row.PaymentIdentifier, a.identifier)
}

// hasKey reports whether the call of the row has the idempotency key of this one.
func (a *Attempt) hasKey(row *store.Payment) bool {
	return a.key != nil && equal(row.IdempotencyKey, a.key)
}

// Names reports whether the call is named as that of the row: then its caller has lost the response.
func (a *Attempt) Names(row *store.Payment) bool { return a.identifies(row) || a.hasKey(row) }

// prove reports whether a caller who does not know the payment identifier has proved possession: with an unused authorization from the
// same wallet. An authorization on the chain is public and proves nothing. A voucher becomes
// public when it is claimed; one for more than the channel was charged never was, and proves the key of the channel.
func (e *Engine) prove(ctx context.Context, a *Attempt, row *store.Payment) (bool, error) {
	if a.payment.Same(row) || row.Payer != a.Payer() {
		return false, nil
	}
	switch p := a.payment.(type) {
	case Mover:
		return e.Unused(ctx, a, p)
	case Charger:
		return p.Proves(ctx, row)
	}
	return false, nil
}
