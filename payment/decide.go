package payment

import "github.com/parley-chat/parley/store"

// Action is what an attempt needs, given the state of its payment in the ledger.
type Action string

// The actions. A [Scheme] may return Charge, Correct and Reject.
const (
	settleFirst Action = "settle first" // the ledger does not know the payment, which moves money on the chain
	Charge      Action = "charge"       // charge a new voucher, or that of a deposit that has arrived without its call
	repeat      Action = "repeat"       // delivered: return the stored response
	redeem      Action = "redeem"       // settled for a call that was then rejected: deliver without settling
	resume      Action = "resume"       // outcome unknown, or the lease is over: make another attempt
	wait        Action = "wait"         // another call works on it
	Correct     Action = "correct"      // the voucher was charged for another request: return the state of its channel
	Reject      Action = "reject"
)

// decide returns what an attempt needs. Row is its payment in the ledger, or nil. Proven is true if the response holds no
// secret, or if the caller has proved possession (see prove). docs/payments.md shows the same rules as a table.
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
	open := row.State == store.PaymentSettling || row.State == store.PaymentUnknown
	switch {
	case open && a.Operation.Secret && a.payment.Same(row) && !e.responseKeys.known(row.Fingerprint):
		return Reject, OutcomeUnknown(errNoResponseKey) // another server has the key, and can tell whether it is the same request
	case !a.Owns(row):
		return Reject, errReused
	case !proven && (row.State == store.PaymentDelivered || (row.State == store.PaymentUndeliverable && row.AgentID == nil)):
		return Reject, errProofRequired
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
	case row.State == store.PaymentUnknown, row.LeaseOver():
		return resume, nil
	}
	return wait, nil
}
