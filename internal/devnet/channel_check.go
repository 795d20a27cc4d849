package devnet

import (
	"cmp"
	"strings"
	"time"

	"github.com/parley-chat/parley/x402"
)

// checkBatch makes the checks of /verify on a payer's payment, in the order of the official facilitator. It returns the
// channel on the chain, and the first reason to reject the payment, or nil.
func (f *Facilitator) checkBatch(request *batchRequest, now time.Time) (x402.Channel, *x402.Invalid) {
	payload := request.payment.Payload
	invalid := cmp.Or(request.checkTerms(), checkChannelTerms(payload, request.requirements))
	if invalid == nil && payload.Deposit != nil {
		invalid = checkDeposit(payload, request.requirements, now)
	}
	if invalid == nil {
		invalid = checkVoucher(payload)
	}
	if invalid != nil {
		return x402.Channel{}, invalid
	}
	channel := f.ledger.Channel(payload.Voucher.ChannelID)
	invalid = f.checkAmounts(payload, channel)
	if invalid == nil && payload.Deposit != nil {
		invalid = f.simulateDeposit(payload, request.requirements)
	}
	return channel, invalid
}

// checkChannelTerms checks the channel's id and compares the channel with the requirements.
func checkChannelTerms(payload x402.BatchPayload, requirements x402.PaymentRequirements) *x402.Invalid {
	config := payload.ChannelConfig
	authorizer, _ := requirements.Extra["receiverAuthorizer"].(string)
	delay, delayGiven := requirements.Extra["withdrawDelay"]
	id, err := channelDomain.ChannelID(config)
	switch {
	case err != nil || !strings.EqualFold(id, payload.Voucher.ChannelID):
		return refusal(x402.ReasonBatchChannelID, "voucher.channelId is not the id of channelConfig")
	case !strings.EqualFold(config.Receiver, requirements.PayTo):
		return refusal(x402.ReasonBatchReceiver, "channelConfig.receiver is not payTo")
	case authorizer == "" || authorizer == zeroAddress || !strings.EqualFold(config.ReceiverAuthorizer, authorizer):
		return refusal(x402.ReasonBatchReceiverAuthorizer, "channelConfig.receiverAuthorizer is not extra.receiverAuthorizer")
	case !strings.EqualFold(config.Token, requirements.Asset):
		return refusal(x402.ReasonBatchToken, "channelConfig.token is not asset")
	case delayGiven && delay != float64(config.WithdrawDelay):
		return refusal(x402.ReasonBatchWithdrawDelay, "channelConfig.withdrawDelay is not extra.withdrawDelay")
	case config.WithdrawDelay < x402.MinWithdrawDelay || config.WithdrawDelay > x402.MaxWithdrawDelay:
		return refusal(x402.ReasonBatchWithdrawDelayRange, "channelConfig.withdrawDelay is not from 900 to 2592000 seconds")
	}
	return nil
}

// checkDeposit checks the time window and the signature of a deposit, in the domain that the requirements name.
func checkDeposit(payload x402.BatchPayload, requirements x402.PaymentRequirements, now time.Time) *x402.Invalid {
	signed := payload.Deposit.Authorization.ERC3009
	domain, err := x402.DomainOf(requirements)
	if err != nil {
		return refusal(x402.ReasonBatchMissingDomain, err.Error())
	}
	window := x402.Authorization{ValidAfter: signed.ValidAfter, ValidBefore: signed.ValidBefore}
	if invalid := checkTimes(window, now, x402.ReasonBatchValidBefore, x402.ReasonBatchValidAfter); invalid != nil {
		return invalid
	}
	digest, err := domain.DepositDigest(payload.ChannelConfig.Payer, payload.Voucher.ChannelID, *payload.Deposit)
	if err != nil || !x402.SignedBy(digest, signed.Signature, payload.ChannelConfig.Payer) {
		return refusal(x402.ReasonBatchDepositSignature, "the deposit is not signed by channelConfig.payer; the dev network has "+
			"no smart wallets")
	}
	return nil
}

// checkVoucher checks the voucher's signature. A payer without code signs with its own key if it has no authorizer.
func checkVoucher(payload x402.BatchPayload) *x402.Invalid {
	signer := payload.ChannelConfig.PayerAuthorizer
	if signer == zeroAddress {
		signer = payload.ChannelConfig.Payer
	}
	if err := channelDomain.VerifyVoucher(payload.Voucher, signer); err != nil {
		return refusal(x402.ReasonBatchVoucherSignature, err.Error())
	}
	return nil
}

// checkAmounts compares the voucher with the channel, including a deposit.
func (f *Facilitator) checkAmounts(payload x402.BatchPayload, channel x402.Channel) *x402.Invalid {
	most, available := clamp(payload.Voucher.MaxClaimableAmount), channel.Balance
	if payload.Deposit != nil {
		deposit := clamp(payload.Deposit.Amount)
		if f.ledger.Balance(payload.ChannelConfig.Payer) < deposit {
			return refusal(x402.ReasonBatchInsufficientBalance, errInsufficientBalance.Error())
		}
		available += deposit // at most all money
	}
	switch {
	case available == 0:
		return refusal(x402.ReasonBatchChannelNotFound, "nobody has deposited into the channel")
	case most > available:
		return refusal(x402.ReasonBatchExceedsBalance, "maxClaimableAmount is more than the channel's balance")
	case most < channel.TotalClaimed || most == channel.TotalClaimed && payload.Type != x402.BatchRefund:
		return refusal(x402.ReasonBatchBelowClaimed, "maxClaimableAmount is claimed already")
	}
	return nil
}

// simulateDeposit returns the reason why the contracts would reject the deposit now, or nil.
func (f *Facilitator) simulateDeposit(payload x402.BatchPayload, requirements x402.PaymentRequirements) *x402.Invalid {
	if requirements.Extra["name"] != token.AssetName || requirements.Extra["version"] != token.AssetVersion {
		return refusal(x402.ReasonBatchDepositSimulation, "the token rejects the signature: its domain is "+
			token.AssetName+", version "+token.AssetVersion)
	}
	build, err := f.depositOf(payload, "")
	if err == nil {
		err = f.ledger.simulate(build)
	}
	return refusalOf(x402.ReasonBatchDepositSimulation, err)
}

// depositOf returns the contract's call for a deposit.
func (f *Facilitator) depositOf(payload x402.BatchPayload, transaction string) (func() (record, error), error) {
	nonce, err := x402.DepositNonce(strings.ToLower(payload.Voucher.ChannelID), payload.Deposit.Authorization.ERC3009.Salt)
	return f.ledger.depositing(payload.ChannelConfig, clamp(payload.Deposit.Amount), nonce, transaction), err
}
