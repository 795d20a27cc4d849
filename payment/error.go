package payment

import (
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Code is one of the contract's error codes.
type Code string

// The codes and their HTTP statuses.
const (
	CodeRequired   Code = "payment_required"    // 402: the request has no payment
	CodeRefused    Code = "payment_refused"     // 402: the payment was not accepted, nothing was charged
	CodeInvalid    Code = "invalid_payment"     // 400: the header cannot be read
	CodeReused     Code = "payment_reused"      // 409
	CodeProof      Code = "proof_required"      // 409
	CodeInProgress Code = "payment_in_progress" // 409
	CodeUnknown    Code = "payment_unknown"     // 503: the outcome is not known yet
	CodeBusy       Code = "unavailable"         // 503: nothing was charged
	CodeLimited    Code = "rate_limited"        // 429: nothing was charged
	CodeRejected   Code = "rejected"            // the operation rejected the call after settlement; Error.Refusal says why
)

// Error tells why a call returns no response.
type Error struct {
	Code       Code
	Message    string // for the caller: the problem and the remedy
	Field      string // the header that is malformed
	RetryAfter int    // seconds; 0: none
	// Charged is true if the payer's money moved, also while the call is not delivered (CodeUnknown). Earlier is true if an earlier
	// call moved it.
	Charged, Earlier bool
	Undecided        bool                  // it is not known yet whether the payer's money moves
	Correction       bool                  // Required has the state of the payment channel, for the next voucher
	Required         *x402.PaymentRequired // how to pay
	Header           string                // Required, encoded; "" where that is still to be done
	Settled          *x402.SettleResponse  // what became of the payment
	Refusal          *store.Refusal        // of the operation's rules
	Cause            error                 // for the log
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Cause }

var (
	errReused = &Error{Code: CodeReused,
		Message: "this payment or its payment identifier was already used for another request; sign a new payment, with a new identifier " +
			"if it has one"}
	errKeyReused = &Error{Code: CodeReused,
		Message: "this Idempotency-Key was already used for another request of this operation; use another key for each request"}
	errGone = &Error{Code: CodeReused,
		Message: "this payment already paid for this request, and the response is no longer stored, because its time is over or the TAN or " +
			"API key in it was used; sign a new payment to send the request again, with a new payment identifier and Idempotency-Key if it " +
			"has them"}
	errProofRequired = &Error{Code: CodeProof,
		Message: "this payment has settled, and its response contains a TAN or an API key, so the payment alone does not return it; send " +
			"the request that it paid for with its payment identifier, or with a newly signed payment by the same wallet, which is verified " +
			"and not charged within ten minutes and before the secret is used; for another request sign a new payment"}
	errInProgress = &Error{Code: CodeInProgress, Undecided: true, RetryAfter: 2,
		Message: "this payment is being settled; send the same request with the same payment again"}
)

// Again is the remedy after an error whose payment may have been charged, or can still be used. Meanwhile the payment may expire.
const Again = "send the same request with the same payment again; a 402 then means that nothing was charged, for example because the " +
	"payment expired: sign a new one"

// OutcomeUnknown returns the error for a payment whose outcome is not known. It is never a 402, because the payer would then
// sign a second payment.
func OutcomeUnknown(cause error) *Error {
	return &Error{Code: CodeUnknown, Undecided: true, RetryAfter: 2, Cause: cause,
		Message: "the outcome of this payment is not known yet, so do not sign a new one now; " + Again}
}

// Unavailable returns the error for a call that cannot be served now. No money has moved.
func Unavailable(what string, retryAfter int, cause error) *Error {
	return &Error{Code: CodeBusy, RetryAfter: retryAfter, Cause: cause,
		Message: what + " and nothing was charged; " + Again}
}
