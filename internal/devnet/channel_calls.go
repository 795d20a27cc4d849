package devnet

import (
	"strings"

	"github.com/parley-chat/parley/x402"
)

// The functions of the contract for payment channels. They check what the official contract checks, in the same order,
// and return its errors as a [Revert]. Those that need no signature act for the account that the contract requires.

const zeroAddress = "0x0000000000000000000000000000000000000000"

// channelID returns the id of a channel in the only token.
func channelID(config x402.ChannelConfig) (string, error) {
	id, err := channelDomain.ChannelID(config)
	if err != nil || !strings.EqualFold(config.Token, token.Asset) {
		return "", RevertInvalidChannel
	}
	return id, nil
}

// DepositIntoChannel deposits from the payer's own account, without an EIP-3009 authorization. It returns a [Revert] or
// [errInsufficientBalance].
func (l *Ledger) DepositIntoChannel(config x402.ChannelConfig, amount uint64) error {
	return l.transact(l.depositing(config, amount, "", newTransaction()))
}

// depositing builds a deposit with the authorization of this nonce, or a plain one if nonce is "".
func (l *Ledger) depositing(config x402.ChannelConfig, amount uint64, nonce, transaction string) func() (record, error) {
	return func() (record, error) {
		id, err := channelID(config)
		switch {
		case err != nil:
			return record{}, err
		case config.Payer == zeroAddress || config.Receiver == zeroAddress || config.ReceiverAuthorizer == zeroAddress:
			return record{}, RevertInvalidChannel
		case config.WithdrawDelay < x402.MinWithdrawDelay || config.WithdrawDelay > x402.MaxWithdrawDelay:
			return record{}, RevertWithdrawDelayOutOfRange
		case amount == 0:
			return record{}, RevertZeroDeposit
		}
		return record{
			Kind: kindDeposit, Channel: id, From: strings.ToLower(config.Payer), To: contractAddress, Amount: amount,
			Nonce: nonce, Transaction: transaction, Config: (*channelConfig)(&config),
		}, nil
	}
}

// claiming builds a claim that a receiverAuthorizer signed.
func (l *Ledger) claiming(claims []x402.VoucherClaim, signature, transaction string) func() (record, error) {
	return func() (record, error) {
		if err := checkClaimSignature(claims, signature); err != nil {
			return record{}, err
		}
		rows, err := l.claimRows(claims)
		return record{Kind: kindClaim, Claims: rows, Transaction: transaction}, err
	}
}

// checkClaimSignature checks the signature over a batch, and that one receiverAuthorizer is responsible for all rows.
func checkClaimSignature(claims []x402.VoucherClaim, signature string) error {
	if len(claims) == 0 {
		return RevertEmptyBatch
	}
	authorizer := claims[0].Voucher.Channel.ReceiverAuthorizer
	digest, err := channelDomain.ClaimBatchDigest(claims)
	if err != nil || !x402.SignedBy(digest, signature, authorizer) {
		return RevertInvalidSignature
	}
	for _, row := range claims {
		if !strings.EqualFold(row.Voucher.Channel.ReceiverAuthorizer, authorizer) {
			return RevertNotReceiverAuthorizer
		}
	}
	return nil
}

// claimRows returns the rows that raise what is claimed. The contract skips the others without looking at them.
func (l *Ledger) claimRows(claims []x402.VoucherClaim) ([]claim, error) {
	if len(claims) == 0 {
		return nil, RevertEmptyBatch
	}
	rows, claimed := []claim{}, map[string]uint64{}
	for _, row := range claims {
		config := row.Voucher.Channel
		id, err := channelID(config)
		if err != nil {
			return nil, err
		}
		state, total := l.channels.channel(id), clamp(row.TotalClaimed)
		switch {
		case total <= max(state.TotalClaimed, claimed[id]):
			continue
		case total > clamp(row.Voucher.MaxClaimableAmount):
			return nil, RevertClaimExceedsCeiling
		case total > state.Balance:
			return nil, RevertClaimExceedsBalance
		}
		signer := config.PayerAuthorizer
		if signer == zeroAddress { // a payer without code signs with its own key
			signer = config.Payer
		}
		voucher := x402.Voucher{ChannelID: id, MaxClaimableAmount: row.Voucher.MaxClaimableAmount, Signature: row.Signature}
		if channelDomain.VerifyVoucher(voucher, signer) != nil {
			return nil, RevertInvalidSignature
		}
		claimed[id] = total
		rows = append(rows, claim{id, strings.ToLower(config.Receiver), total})
	}
	return rows, nil
}

// settleReceiver pays out what a receiver claimed. It returns the amount, which may be 0.
func (l *Ledger) settleReceiver(receiver, transaction string) (amount uint64, err error) {
	err = l.transact(func() (record, error) {
		sums := l.channels.received(strings.ToLower(receiver))
		amount = sums.Claimed - sums.Settled
		return record{Kind: kindSettle, From: contractAddress, To: strings.ToLower(receiver), Amount: amount, Transaction: transaction}, nil
	})
	return amount, err
}

// RefundChannel refunds up to amount from the receiver's own account, without a signature of the receiverAuthorizer. It
// returns a [Revert] if the contract rejects the refund.
func (l *Ledger) RefundChannel(config x402.ChannelConfig, amount uint64) error {
	return l.transact(func() (record, error) { return l.refundRecord(config, amount, nil, newTransaction()) })
}

// refunding builds a refund that a receiverAuthorizer signed, after the claims in it, as a multicall does.
func (l *Ledger) refunding(refund x402.RefundCommand, transaction string) func() (record, error) {
	return func() (record, error) {
		var rows []claim
		if len(refund.Claims) > 0 {
			var err error
			if err = checkClaimSignature(refund.Claims, refund.ClaimAuthorizerSignature); err != nil {
				return record{}, err
			}
			if rows, err = l.claimRows(refund.Claims); err != nil {
				return record{}, err
			}
		}
		id, err := channelID(refund.ChannelConfig)
		if err != nil {
			return record{}, err
		}
		nonce, amount := clamp(refund.RefundNonce), clamp(refund.Amount)
		if nonce != l.channels.channel(id).RefundNonce {
			return record{}, RevertInvalidRefundNonce
		}
		digest, err := channelDomain.RefundDigest(id, nonce, amount)
		if err != nil || !x402.SignedBy(digest, refund.RefundAuthorizerSignature, refund.ChannelConfig.ReceiverAuthorizer) {
			return record{}, RevertInvalidSignature
		}
		return l.refundRecord(refund.ChannelConfig, amount, rows, transaction)
	}
}

// refund makes a refund that a receiverAuthorizer signed, and returns the amount that moved.
func (l *Ledger) refund(command x402.RefundCommand, transaction string) (amount uint64, err error) {
	build := l.refunding(command, transaction)
	err = l.transact(func() (record, error) {
		r, err := build()
		amount = r.Amount
		return r, err
	})
	return amount, err
}

// refundRecord lowers the amount to what is not claimed after the rows.
func (l *Ledger) refundRecord(config x402.ChannelConfig, amount uint64, rows []claim, transaction string) (record, error) {
	id, err := channelID(config)
	if err != nil {
		return record{}, err
	}
	if amount == 0 {
		return record{}, RevertZeroRefund
	}
	state := l.channels.channel(id)
	claimed := state.TotalClaimed
	for _, row := range rows {
		if row.Channel == id {
			claimed = row.Total
		}
	}
	return record{
		Kind: kindRefund, Channel: id, From: contractAddress, To: strings.ToLower(config.Payer),
		Amount: min(amount, state.Balance-claimed), Claims: rows, Transaction: transaction,
	}, nil
}

// InitiateWithdraw starts the withdrawal of amount by the payer. From now on the payer only waits: see
// [Ledger.FinalizeWithdraw]. It returns a [Revert] if the contract rejects the withdrawal.
func (l *Ledger) InitiateWithdraw(config x402.ChannelConfig, amount uint64) error {
	return l.transact(func() (record, error) {
		id, err := channelID(config)
		state := l.channels.channel(id)
		switch {
		case err != nil:
			return record{}, err
		case amount == 0:
			return record{}, RevertNothingToWithdraw
		case state.WithdrawRequestedAt != 0:
			return record{}, RevertWithdrawalAlreadyPending
		case amount > state.Balance-state.TotalClaimed:
			return record{}, RevertWithdrawAmountExceeds
		}
		return record{Kind: kindWithdraw, Channel: id, Amount: amount, Transaction: newTransaction(), Config: (*channelConfig)(&config)}, nil
	})
}

// FinalizeWithdraw moves the initiated withdrawal to the payer, or what is not claimed if that is less. The channel's
// withdrawDelay must have passed since: see [Ledger.Advance]. It returns the amount, or a [Revert] if the contract
// rejects the withdrawal.
func (l *Ledger) FinalizeWithdraw(config x402.ChannelConfig) (amount uint64, err error) {
	err = l.transact(func() (record, error) {
		id, err := channelID(config)
		state := l.channels.channel(id)
		amount = min(state.WithdrawAmount, state.Balance-state.TotalClaimed)
		switch {
		case err != nil:
			return record{}, err
		case state.WithdrawRequestedAt == 0:
			return record{}, RevertWithdrawalNotPending
		case l.clock().Unix() < state.WithdrawRequestedAt+int64(config.WithdrawDelay): //nolint:gosec // 40 bits
			return record{}, RevertWithdrawDelayNotElapsed
		}
		return record{
			Kind: kindWithdrawn, Channel: id, From: contractAddress, To: strings.ToLower(config.Payer), Amount: amount,
			Transaction: newTransaction(),
		}, nil
	})
	return amount, err
}

// simulate returns the error that a call would have now, like eth_call.
func (l *Ledger) simulate(build func() (record, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := build()
	if err != nil {
		return err
	}
	return l.check(r)
}
