package x402

// The error codes of the scheme batch-settlement on EVM, as in the official SDKs. Facilitators return others too. Treat
// codes from a facilitator as opaque.
const (
	ReasonBatchScheme              = "invalid_batch_settlement_evm_scheme"
	ReasonBatchNetworkMismatch     = "invalid_batch_settlement_evm_network_mismatch"
	ReasonBatchPayloadType         = "invalid_batch_settlement_evm_payload_type"
	ReasonBatchReceiver            = "invalid_batch_settlement_evm_receiver_mismatch"
	ReasonBatchReceiverAuthorizer  = "invalid_batch_settlement_evm_receiver_authorizer_mismatch"
	ReasonBatchToken               = "invalid_batch_settlement_evm_token_mismatch"
	ReasonBatchWithdrawDelay       = "invalid_batch_settlement_evm_withdraw_delay_mismatch"
	ReasonBatchWithdrawDelayRange  = "invalid_batch_settlement_evm_withdraw_delay_out_of_range"
	ReasonBatchChannelID           = "invalid_batch_settlement_evm_channel_id_mismatch"
	ReasonBatchVoucherSignature    = "invalid_batch_settlement_evm_voucher_signature"
	ReasonBatchChannelNotFound     = "invalid_batch_settlement_evm_channel_not_found"
	ReasonBatchExceedsBalance      = "invalid_batch_settlement_evm_cumulative_exceeds_balance"
	ReasonBatchBelowClaimed        = "invalid_batch_settlement_evm_cumulative_below_claimed"
	ReasonBatchERC3009Required     = "invalid_batch_settlement_evm_erc3009_authorization_required"
	ReasonBatchMissingDomain       = "invalid_batch_settlement_evm_missing_eip712_domain"
	ReasonBatchValidBefore         = "invalid_batch_settlement_evm_payload_authorization_valid_before"
	ReasonBatchValidAfter          = "invalid_batch_settlement_evm_payload_authorization_valid_after"
	ReasonBatchDepositSignature    = "invalid_batch_settlement_evm_receive_authorization_signature"
	ReasonBatchDepositBelowMin     = "invalid_batch_settlement_evm_deposit_below_min_deposit"
	ReasonBatchInsufficientBalance = "invalid_batch_settlement_evm_insufficient_balance"

	// From /settle.
	ReasonBatchDepositSimulation    = "invalid_batch_settlement_evm_deposit_simulation_failed"
	ReasonBatchClaimSimulation      = "invalid_batch_settlement_evm_claim_simulation_failed"
	ReasonBatchRefundSimulation     = "invalid_batch_settlement_evm_refund_simulation_failed"
	ReasonBatchDepositTransaction   = "invalid_batch_settlement_evm_deposit_transaction_failed"
	ReasonBatchClaimTransaction     = "invalid_batch_settlement_evm_claim_transaction_failed"
	ReasonBatchSettleTransaction    = "invalid_batch_settlement_evm_settle_transaction_failed"
	ReasonBatchRefundTransaction    = "invalid_batch_settlement_evm_refund_transaction_failed"
	ReasonBatchAuthorizerMismatch   = "invalid_batch_settlement_evm_authorizer_address_mismatch"
	ReasonBatchAuthorizerNotPresent = "invalid_batch_settlement_evm_authorizer_not_configured"
	ReasonBatchNothingToSettle      = "invalid_batch_settlement_evm_nothing_to_settle"
	ReasonBatchRefundNoBalance      = "invalid_batch_settlement_evm_refund_no_balance"

	// From a resource server. The official clients correct their state only after a 402 with
	// ReasonBatchCumulativeMismatch or ReasonBatchBelowClaimed: see [Corrective].
	ReasonBatchCumulativeMismatch  = "invalid_batch_settlement_evm_cumulative_amount_mismatch"
	ReasonBatchChannelBusy         = "invalid_batch_settlement_evm_channel_busy"
	ReasonBatchRefundAmountInvalid = "invalid_batch_settlement_evm_refund_amount_invalid"
)
