package x402

// FormError says that a header or a JSON object is not what the protocol prescribes: a resource server returns 400.
type FormError struct {
	// Reason is one of the protocol's error codes, such as "invalid_payload".
	Reason string
	// Message is a sentence for the payer: what is wrong and how to mend it. It never holds a signature or a payload.
	Message string
}

// Error returns the message.
func (e *FormError) Error() string { return e.Message }

// Invalid says that a well-formed payment does not pay for the offer: a resource server returns 402.
type Invalid struct {
	// Reason is one of the protocol's error codes, such as "invalid_exact_evm_signature".
	Reason string
	// Message is a sentence for the payer: what is wrong and how to mend it.
	Message string
	// OutOfTime is true if the payment is good but for its time window: it cannot begin any more (or yet), but the
	// response of one that began in time may still be asked for again.
	OutOfTime bool
}

// Error returns the message.
func (e *Invalid) Error() string { return e.Message }

// The protocol's error codes that this package and the development facilitator give (x402 v2, scheme exact on EVM).
// Facilitators know many more: treat a code that comes from outside as opaque.
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
	ReasonUndeployedWallet    = "invalid_exact_evm_payload_undeployed_smart_wallet"
	ReasonNonceAlreadyUsed    = "invalid_exact_evm_nonce_already_used"
	ReasonInsufficientBalance = "invalid_exact_evm_insufficient_balance"
	ReasonTokenName           = "invalid_exact_evm_token_name_mismatch"
	ReasonTokenVersion        = "invalid_exact_evm_token_version_mismatch"
	ReasonNotEIP3009          = "invalid_exact_evm_eip3009_not_supported"
)

// Inconclusive reports whether a refusal of /settle with this reason leaves it open whether the money moves: the
// transfer may have been sent to the chain, by this call or by another one for the same payment. Settle it again later.
func Inconclusive(reason string) bool {
	switch reason {
	case "", ReasonSettlementPending, ReasonUnexpectedSettle, "duplicate_settlement",
		"invalid_exact_evm_failed_to_get_receipt", "invalid_exact_evm_failed_to_execute_transfer",
		// The official facilitator answers so too when the node took the transfer and its response was lost; and a
		// transfer that was reverted may have come second to another with the same authorization.
		"invalid_exact_evm_transaction_failed":
		return true
	}
	return false
}
