package x402

import "regexp"

// FormError means that a header or a JSON object does not have the form that the protocol requires. A resource server
// returns 400.
type FormError struct {
	// Reason is one of the protocol's error codes, such as "invalid_payload".
	Reason string
	// Message is a sentence for the payer. It names the problem and the remedy. It never contains a signature or a
	// payload.
	Message string
}

// Error returns the message.
func (e *FormError) Error() string { return e.Message }

// Invalid means that a payment is well-formed but does not pay the payment requirements. A resource server returns 402.
type Invalid struct {
	// Reason is one of the protocol's error codes, such as "invalid_exact_evm_signature".
	Reason string
	// Message is a sentence for the payer. It names the problem and the remedy.
	Message string
	// OutOfTime is true if only the time window of the payment is invalid. The payment cannot be settled now. If its
	// settlement started in time, the payer may still request the response.
	OutOfTime bool
}

// Error returns the message.
func (e *Invalid) Error() string { return e.Message }

// MayBeContract reports whether the only fault is a signature that is not by the payer's key. A payer that is a contract may have it.
func (e *Invalid) MayBeContract() bool {
	return e.Reason == ReasonSignature || e.Reason == ReasonBatchDepositSignature
}

// The error codes of the protocol that this package and the development facilitator return (x402 v2, scheme exact on
// EVM). Facilitators return many others. Treat codes from a facilitator as opaque.
const (
	ReasonInvalidVersion      = "invalid_x402_version"
	ReasonInvalidPayload      = "invalid_payload"
	ReasonInvalidRequirements = "invalid_payment_requirements"
	ReasonInvalidNetwork      = "invalid_network"
	ReasonUnsupportedPayload  = "unsupported_payload_type"
	ReasonSettlementPending   = "settlement_pending"
	ReasonUnexpectedSettle    = "unexpected_settle_error"

	ReasonScheme              = "invalid_exact_evm_scheme"
	ReasonNetworkMismatch     = "invalid_exact_evm_network_mismatch"
	ReasonPayload             = "invalid_exact_evm_payload"
	ReasonMissingSignature    = "invalid_exact_evm_payload_missing_signature"
	ReasonSignatureFormat     = "invalid_exact_evm_signature_format"
	ReasonMissingDomain       = "invalid_exact_evm_missing_eip712_domain"
	ReasonRecipientMismatch   = "invalid_exact_evm_recipient_mismatch"
	ReasonValueMismatch       = "invalid_exact_evm_payload_authorization_value_mismatch"
	ReasonValidBefore         = "invalid_exact_evm_payload_authorization_valid_before"
	ReasonValidAfter          = "invalid_exact_evm_payload_authorization_valid_after"
	ReasonSignature           = "invalid_exact_evm_signature"
	ReasonNonceAlreadyUsed    = "invalid_exact_evm_nonce_already_used"
	ReasonInsufficientBalance = "invalid_exact_evm_insufficient_balance"
	ReasonTokenName           = "invalid_exact_evm_token_name_mismatch"
	ReasonTokenVersion        = "invalid_exact_evm_token_version_mismatch"
	ReasonNotEIP3009          = "invalid_exact_evm_eip3009_not_supported"
)

// isRefusal matches the reasons that are about a payment. Reasons for a facilitator's own failures have other forms: hosted ones
// return settle_exact_node_failure, unknown_error or unexpected_error for transfers that are mined later.
var isRefusal = regexp.MustCompile(`^(invalid|insufficient|unsupported|extension|eip6492|kyt|request_blocked)_`)

// Inconclusive reports whether a rejection by /settle leaves the outcome open. The transfer may have been sent to the
// chain, by this call or by another call for the same payment: the rejection names a transaction, or its reason is not about the
// payment. Settle the payment again later.
func (r *SettleResponse) Inconclusive() bool {
	switch r.ErrorReason {
	case ReasonNonceAlreadyUsed, "invalid_exact_evm_failed_to_get_receipt", "invalid_exact_evm_failed_to_execute_transfer",
		// The official facilitator also returns this reason if the node accepted the transfer but its response was
		// lost. A reverted transfer can also mean that another transfer with the same authorization was mined first.
		"invalid_exact_evm_transaction_failed",
		// The scheme batch-settlement: the same.
		ReasonBatchDepositTransaction, ReasonBatchClaimTransaction, ReasonBatchSettleTransaction, ReasonBatchRefundTransaction:
		return true
	}
	return r.Transaction != "" || !isRefusal.MatchString(r.ErrorReason)
}
