package x402

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// BatchChecker makes the checks of a resource server on payments of scheme batch-settlement that need no I/O. Create it
// with [NewBatchChecker]. It is safe for concurrent use.
type BatchChecker struct {
	chains map[string]batchChain // by network
}

type batchChain struct {
	channels BatchDomain
	token    Domain
}

// NewBatchChecker returns a checker for channels with the tokens of these networks. It returns an error for a malformed
// token address.
func NewBatchChecker(networks ...Network) (BatchChecker, error) {
	chains := make(map[string]batchChain, len(networks))
	for _, network := range networks {
		token, err := network.domain()
		if err != nil {
			return BatchChecker{}, err
		}
		chains[network.ID] = batchChain{NewBatchDomain(network.ChainID), token}
	}
	return BatchChecker{chains}, nil
}

// BatchChecked is the result of the local checks of a payment, as a ledger stores it. Addresses and ids are in lower
// case.
type BatchChecked struct {
	// Type is [BatchDeposit], [BatchVoucher] or [BatchRefund].
	Type string
	// ChannelID identifies the channel. It is computed from the configuration.
	ChannelID string
	// Payer and PayerAuthorizer are the members of the configuration. The voucher's signature proves PayerAuthorizer.
	// It does not prove Payer: anybody can name any payer, and deposit into such a channel with a collector of its own.
	Payer, PayerAuthorizer string
	// Max is the voucher's cumulative amount, at most [MaxChannelAmount].
	Max uint64
	// Deposit is the amount of a deposit, at most [MaxChannelAmount]. It is 0 for other types.
	Deposit uint64
	// DepositNonce is the deposit's EIP-3009 nonce. (network, token, Payer, DepositNonce) identifies the deposit.
	DepositNonce string
	// ValidBefore is the end of the deposit's authorization, in full seconds.
	ValidBefore time.Time
	// Conclusive is false if only the chain can verify the deposit's signature, which is that of a smart wallet: call
	// the facilitator's /verify.
	Conclusive bool
	// Refund is the amount that a refund asks for. 0 means everything that is not charged.
	Refund uint64
}

// Check checks a payment against the server's own payment requirements (not the payer's copy) at the server's time now:
// the channel's receiver, authorizer, token and delay, its id, the voucher's signature, and of a deposit its amount, its
// signature and its time window, as [Checker.Check]. [BatchChecked.Fits] then compares the amounts with the channel.
//
// The error is an [*Invalid] if the payment is invalid. With an Invalid whose OutOfTime is true, BatchChecked still
// identifies the deposit. Any other error is a mistake of the server: the payment requirements are not for a network and
// token of this checker. Check expects a payment from [ParseBatchPayment], which checks its form.
func (c BatchChecker) Check(offer PaymentRequirements, payment *BatchPayment, now time.Time) (BatchChecked, error) {
	return c.check(offer, payment, now, true)
}

// CheckContract is [BatchChecker.Check] without the check of the deposit's signature, for a payer that is known to be a
// contract. The result of a deposit is never Conclusive.
func (c BatchChecker) CheckContract(offer PaymentRequirements, payment *BatchPayment, now time.Time) (BatchChecked, error) {
	return c.check(offer, payment, now, false)
}

func (c BatchChecker) check(offer PaymentRequirements, payment *BatchPayment, now time.Time, byKey bool) (BatchChecked, error) {
	chain, ok := c.chains[offer.Network]
	terms, err := TermsOf(offer)
	if err != nil || !ok || !chain.token.isOf(offer) {
		return BatchChecked{}, fmt.Errorf("check payment: the offer (scheme %q, network %q, asset %q) is not one of this checker's",
			offer.Scheme, offer.Network, offer.Asset)
	}
	payload := payment.Payload
	if err := checkTermsOf(payload.ChannelConfig, offer, terms); err != nil {
		return BatchChecked{}, err
	}
	id, err := chain.channels.ChannelID(payload.ChannelConfig)
	if err != nil {
		return BatchChecked{}, invalid(ReasonInvalidPayload, "%s", err)
	}
	if !strings.EqualFold(id, payload.Voucher.ChannelID) {
		return BatchChecked{}, invalid(ReasonBatchChannelID,
			"voucher.channelId is not the id of channelConfig, which is %s: the digest of channelConfig in %s", id, chain.channels.domain)
	}
	if err := chain.channels.VerifyVoucher(payload.Voucher, payload.ChannelConfig.PayerAuthorizer); err != nil {
		return BatchChecked{}, err
	}
	checked := BatchChecked{
		Type: payload.Type, ChannelID: id, Conclusive: true,
		Payer: strings.ToLower(payload.ChannelConfig.Payer), PayerAuthorizer: strings.ToLower(payload.ChannelConfig.PayerAuthorizer),
	}
	if checked.Max, ok = channelAmount(payload.Voucher.MaxClaimableAmount); !ok {
		return BatchChecked{}, invalid(ReasonBatchExceedsBalance,
			"voucher.maxClaimableAmount is above 2^63-1, the largest amount that this server accepts")
	}
	if checked.Refund, err = refundAmount(payload); err != nil {
		return BatchChecked{}, err
	}
	if payload.Deposit != nil {
		return chain.token.checkDeposit(checked, payload, offer, now, byKey)
	}
	return checked, nil
}

// checkTermsOf compares a channel with the terms of an offer.
func checkTermsOf(config ChannelConfig, offer PaymentRequirements, terms ChannelTerms) error {
	switch {
	case !strings.EqualFold(config.Receiver, offer.PayTo):
		return invalid(ReasonBatchReceiver, "channelConfig.receiver is %s, but the payee is %s: open a channel to the offer's payTo",
			config.Receiver, offer.PayTo)
	case !strings.EqualFold(config.ReceiverAuthorizer, terms.ReceiverAuthorizer):
		return invalid(ReasonBatchReceiverAuthorizer, "channelConfig.receiverAuthorizer is %s, but the offer's extra.receiverAuthorizer is %s: "+
			"open a channel with it", config.ReceiverAuthorizer, terms.ReceiverAuthorizer)
	case !strings.EqualFold(config.Token, offer.Asset):
		return invalid(ReasonBatchToken, "channelConfig.token is %s, but the offer's asset is %s: open a channel with it", config.Token,
			offer.Asset)
	case config.WithdrawDelay != terms.WithdrawDelay:
		return invalid(ReasonBatchWithdrawDelay, "channelConfig.withdrawDelay is %d, but the offer's extra.withdrawDelay is %d seconds: open a "+
			"channel with it", config.WithdrawDelay, terms.WithdrawDelay)
	case config.PayerAuthorizer == zeroAddress:
		return invalid(ReasonBatchVoucherSignature, "channelConfig.payerAuthorizer is the zero address, but this server takes only vouchers "+
			"that a private key signs: set payerAuthorizer to the address of a key, which may differ from payer (voucherSigner in the official "+
			"client)")
	}
	return nil
}

// refundAmount returns the amount that a refund asks for, or 0 for everything.
func refundAmount(payload BatchPayload) (uint64, error) {
	if payload.Type != BatchRefund || payload.Amount == "" {
		return 0, nil
	}
	amount, ok := channelAmount(payload.Amount)
	if !ok || amount == 0 {
		return 0, invalid(ReasonBatchRefundAmountInvalid,
			"amount must be from 1 to 2^63-1 atomic units; leave it out to refund everything that is not charged")
	}
	return amount, nil
}

// checkDeposit checks the deposit of a payment and adds it to checked.
func (d Domain) checkDeposit(
	checked BatchChecked, payload BatchPayload, offer PaymentRequirements, now time.Time, byKey bool,
) (BatchChecked, error) {
	deposit, signed := *payload.Deposit, payload.Deposit.Authorization.ERC3009
	var ok bool
	var err error
	if checked.Deposit, ok = channelAmount(deposit.Amount); !ok || checked.Deposit == 0 {
		return BatchChecked{}, invalid(ReasonInvalidPayload, "deposit.amount must be from 1 to 2^63-1 atomic units")
	}
	if checked.DepositNonce, err = DepositNonce(checked.ChannelID, signed.Salt); err != nil {
		return BatchChecked{}, invalid(ReasonInvalidPayload, "%s", err)
	}
	checked.Conclusive = byKey && isHex(signed.Signature, signatureBytes, signatureBytes)
	if checked.Conclusive {
		digest, err := d.DepositDigest(payload.ChannelConfig.Payer, checked.ChannelID, deposit)
		if err != nil {
			return BatchChecked{}, invalid(ReasonInvalidPayload, "%s", err)
		}
		signer, err := RecoverHex(digest, signed.Signature)
		if err != nil {
			return BatchChecked{}, invalid(ReasonBatchDepositSignature, "the deposit's signature is invalid: %s", err)
		}
		if signer != checked.Payer {
			return BatchChecked{}, invalid(ReasonBatchDepositSignature,
				"the deposit's signature is not by channelConfig.payer %s: sign ReceiveWithAuthorization with its key, in %s, with to %s, "+
					"value deposit.amount and nonce keccak256(abi.encode(channelId, salt)) = %s", payload.ChannelConfig.Payer, d,
				DepositCollectorContract, checked.DepositNonce)
		}
	}
	checked.ValidBefore, err = checkWindow(Authorization{ValidAfter: signed.ValidAfter, ValidBefore: signed.ValidBefore}, offer, now)
	if late, ok := errors.AsType[*Invalid](err); ok {
		if late.Reason == ReasonValidAfter {
			late.Reason = ReasonBatchValidAfter
		} else {
			late.Reason = ReasonBatchValidBefore
		}
	}
	return checked, err
}

// ChannelSums are the amounts of a channel, in atomic units, as a resource server knows them.
type ChannelSums struct {
	// Charged is what the channel was charged since it exists. For a channel that the server does not know it is
	// TotalClaimed.
	Charged uint64
	// Balance and TotalClaimed are the contract's: see [Channel].
	Balance, TotalClaimed uint64
}

// Fits checks the voucher's cumulative amount against the channel: it must be exactly Charged plus price (for a refund:
// exactly Charged), at most the balance including the deposit, and above what is claimed (for a refund: at least that).
// The error is an [*Invalid]. Return a [Corrective] 402 for the reasons [ReasonBatchCumulativeMismatch] and
// [ReasonBatchBelowClaimed].
func (c BatchChecked) Fits(sums ChannelSums, price uint64) error {
	if c.Type == BatchRefund {
		price = 0
	}
	// No sum overflows: all amounts are at most 2^63-1.
	due, available := sums.Charged+price, sums.Balance+c.Deposit
	switch {
	case c.Max < sums.TotalClaimed || c.Max == sums.TotalClaimed && c.Type != BatchRefund:
		return invalid(ReasonBatchBelowClaimed, "voucher.maxClaimableAmount is %d, but %d was claimed from the channel already: sign a "+
			"voucher for %d",
			c.Max, sums.TotalClaimed, due)
	case c.Max != due:
		return invalid(ReasonBatchCumulativeMismatch, "voucher.maxClaimableAmount is %d, but the channel was charged %d and this request costs "+
			"%d: sign a voucher for exactly %d; nothing was charged", c.Max, sums.Charged, price, due)
	case c.Max > available:
		return invalid(ReasonBatchExceedsBalance, "voucher.maxClaimableAmount is %d, but the channel has only %d, of which %d is charged: send "+
			"a payment of type \"deposit\" with at least %d", c.Max, available, sums.Charged, c.Max-available)
	}
	return nil
}
