package payment

import (
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Code tells a program what became of a call, in the words of the contract's error codes.
type Code string

// The codes, with the HTTP statuses that belong to them.
const (
	CodeRequired   Code = "payment_required"    // 402: the request has no payment
	CodeRefused    Code = "payment_refused"     // 402: the payment was not accepted, nothing was taken
	CodeInvalid    Code = "invalid_payment"     // 400: the header cannot be read
	CodeReused     Code = "payment_reused"      // 409
	CodeProof      Code = "proof_required"      // 409
	CodeInProgress Code = "payment_in_progress" // 409
	CodeUnknown    Code = "payment_unknown"     // 503: the outcome is not known yet
	CodeBusy       Code = "unavailable"         // 503: nothing was taken
	CodeRejected   Code = "rejected"            // the operation's rules rejected the call after it had settled: see Error.Refusal
)

// Error is why a call gets no response.
type Error struct {
	Code       Code
	Message    string // for the caller: the problem and the remedy
	Field      string // the header that is malformed
	RetryAfter int    // seconds; 0: none
	// Charged tells that the payer's money moved, and Earlier that this call was not the one that moved it.
	Charged, Earlier bool
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
		Message: "this payment, or its payment identifier, was used for another request: sign a new payment, with a new identifier if it has one"}
	errGone = &Error{Code: CodeReused,
		Message: "this payment was used for this very request before: its effect is done, but its response is no longer stored; sign a new payment to ask again"}
	errProofRequired = &Error{Code: CodeProof,
		Message: "this payment was delivered, and its response holds a secret that a settled payment alone does not open, because it is public: send the same request with a newly signed payment by the same wallet (it is only verified, nothing is charged), or with the payment identifier of the first one"}
	errInProgress = &Error{Code: CodeInProgress, RetryAfter: 2,
		Message: "this payment is being settled: send the same request with the same payment again"}
)

// outcomeUnknown is the error of a payment whose outcome is not known. It is never a 402: that would make the payer sign a
// second payment.
func outcomeUnknown(cause error) *Error {
	return &Error{Code: CodeUnknown, RetryAfter: 2, Cause: cause,
		Message: "the outcome of this payment is not known yet: send the same request with the same payment again, do not sign a new one"}
}

// unavailable is the error of a call that cannot be served now and took nothing.
func unavailable(what string, retryAfter int, cause error) *Error {
	return &Error{Code: CodeBusy, RetryAfter: retryAfter, Cause: cause,
		Message: what + " and nothing was taken; send the same request with the same payment again"}
}
