package channel

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// mismatch returns why a voucher or a deposit cannot be charged to a payment channel, nil if nothing is wrong, or
// store.ErrStalePayment if the caller should look again soon. The error has PAYMENT-REQUIRED with the state of the channel,
// with which clients correct their own. Only the voucher's signer sees this state: see corrective.
func (v *voucher) mismatch(ctx context.Context, channel *store.PaymentChannel) error {
	if channel == nil {
		v.preferExact()
		// Official clients that count on its money add no deposit. An address without an account may be that of others, too.
		if v.of.Type == x402.BatchVoucher && v.a.Caller != nil {
			v.offerNext(ctx, v.newChannel(x402.Channel{}), slotOf(v.a.Operation, v.a.Client), 2*v.remembered())
		}
		v.a.Unrecorded = true
		return v.engine.Refused(v.a.Operation, x402.ReasonBatchChannelNotFound,
			"this server does not know the payment channel and nothing was charged; send a deposit, or pay with another entry of accepts")
	}
	fits := v.of.Fits(sumsOf(channel), v.a.Operation.Price)
	bad, isBad := errors.AsType[*x402.Invalid](fits)
	switch {
	case channel.State != store.PaymentChannelOpen: // a deposit or a refund is being settled
		return store.ErrStalePayment
	case isBad:
		return v.corrective(ctx, channel, bad)
	case fits != nil:
		return fits
	case channel.WithdrawRequestedAt != 0:
		return v.corrective(ctx, channel, &x402.Invalid{Reason: x402.ReasonBatchExceedsBalance,
			Message: "a withdrawal from the payment channel is under way and nothing was charged; pay with another entry of accepts"})
	case v.of.Type != x402.BatchRefund && v.max()-channel.Claimed > v.toCharge().MaxUnclaimed:
		return v.unclaimedTooMuch("this payment channel")
	}
	return nil
}

// corrective returns the 402 for a payment that does not fit the state of its channel, with that state and the newest
// voucher. The next 402s of the client offer exact first: one that cannot follow the state would be refused for good. Whoever may be a
// stranger gets one 402 that has nothing but what the blockchain shows.
func (v *voucher) corrective(ctx context.Context, channel *store.PaymentChannel, bad *x402.Invalid) *payment.Error {
	if v.mayBeStranger(ctx, channel) {
		return v.public(channel, publicVoucher)
	}
	return v.present(ctx, channel, bad)
}

// public is corrective for a stranger. It may be the payer, who lost the state of its client just before a claim.
func (v *voucher) public(channel *store.PaymentChannel, why *x402.Invalid) *payment.Error {
	v.preferExact()
	found := onChainOf(channel)
	return v.correction(why.Reason, why.Message, found.State(channel.ID, found.TotalClaimed), nil)
}

// present is corrective for the payer.
func (v *voucher) present(ctx context.Context, channel *store.PaymentChannel, bad *x402.Invalid) *payment.Error {
	hasNext := v.renew(ctx, channel)
	message := bad.Message
	switch {
	case v.beginsAgain(channel) && hasNext: // this server did not know which one to offer
		message = "this payment channel was followed by another one of your client, and nothing was charged; send the request again without " +
			"a payment: the next 402 offers the newest one"
	case v.beginsAgain(channel):
		v.preferExact()
		message = v.lostState(channel)
	default:
		if v.max() <= channel.Charged {
			message = "this amount was charged before, and the ledger has no response for it any more; " + message
		}
		if v.isBehind() {
			if _, ok := v.offerNext(ctx, channel, slotOf(v.a.Operation, v.a.Client), v.remembered()); !ok {
				v.preferExact()
			}
		}
		message += "; to repeat a call whose response was lost, send the same request with the same payment identifier; a client that cannot " +
			"sign this voucher sends a request without a payment in a minute: the next 402s offer exact, and then a new payment channel"
	}
	var newest *x402.VoucherState
	if channel.Signature != "" {
		newest = &x402.VoucherState{SignedMaxClaimable: strconv.FormatInt(channel.SignedMax, 10), Signature: channel.Signature}
	}
	return v.correction(bad.Reason, message, stateOf(channel), newest)
}

// correction returns a 402 with a state of the payment channel.
func (v *voucher) correction(reason, message string, state x402.ChannelState, newest *x402.VoucherState) *payment.Error {
	refused := v.engine.Refused(v.a.Operation, reason, message)
	refused.Correction = true
	refused.Required.Accepts = x402.Corrective(v.offers(v.a.Operation.Requirements()), state, newest)
	return refused
}

// publicVoucher is why a public voucher is not charged that its payer need not have sent.
var publicVoucher = &x402.Invalid{Reason: x402.ReasonBatchCumulativeMismatch,
	Message: "this voucher was claimed, so it is public, and this 402 has only what the blockchain shows of the payment channel; nothing " +
		"was charged now. For its present state send the X-API-KEY of an account that used the payment channel to an operation that takes " +
		"one, or a voucher for extra.channelState.chargedCumulativeAmount plus the price"}

// lostState is the message for a client that begins again.
func (v *voucher) lostState(channel *store.PaymentChannel) string {
	price := int64(v.a.Operation.Price) //nolint:gosec // a price
	return fmt.Sprintf("your client lost this channel's state, or another client of the wallet pays from this channel, with the same salt: "+
		"the channel was charged %d and this request costs %d; nothing was charged now. Sign a voucher for exactly %d, or send the request "+
		"again without a payment: the next 402 offers exact first, and a new payment channel",
		channel.Charged, price, channel.Charged+price)
}

// mayBeStranger reports whether somebody else than the payer may have sent the voucher: it may be public, and nothing proves that its
// sender is the payer. The API key of an account that used the payment channel does, another signature than the claimed one, and a deposit
// that was never on the chain.
func (v *voucher) mayBeStranger(ctx context.Context, channel *store.PaymentChannel) bool {
	switch {
	case !v.mayBePublic(channel):
		return false
	case channel.Signature != "" && v.max() == channel.SignedMax && !strings.EqualFold(v.payload.Payload.Voucher.Signature, channel.Signature):
		return false
	case v.a.Caller != nil && v.a.Caller.RepeatOnly == nil:
		if used, err := v.store.HasUsedChannel(ctx, channel, v.a.Caller.Account); err == nil && used {
			return false
		}
	}
	if v.of.Type != x402.BatchDeposit || !v.of.Conclusive || v.a.Expired != nil {
		return true
	}
	unused, err := v.engine.Unused(ctx, v.a, &deposit{v})
	return err != nil || !unused
}

// mayBePublic reports whether the voucher may stand on the chain. Which vouchers a claim under way has, and whether it came through, is not
// recorded, so any that it can have counts.
func (v *voucher) mayBePublic(channel *store.PaymentChannel) bool {
	most := channel.Claimed
	if channel.ClaimAfter != nil {
		most = channel.SignedMax
	}
	return v.max() > 0 && v.max() <= most // nobody claims a voucher for nothing
}

// Correct returns the corrective 402 for a voucher that was charged for another request, or not last.
func (v *voucher) Correct(ctx context.Context) error {
	channel, err := v.channel(ctx)
	if err != nil {
		return err
	}
	if channel == nil {
		return v.mismatch(ctx, channel)
	}
	return v.corrective(ctx, channel, &x402.Invalid{Reason: x402.ReasonBatchCumulativeMismatch, Message: fmt.Sprintf(
		"this voucher was charged for another request, payment identifier or Idempotency-Key, or for a response with a TAN or an API key, "+
			"which it does not return; the channel was charged %d and this request costs %d: sign a voucher for exactly %d; nothing was charged now",
		channel.Charged, v.a.Operation.Price, channel.Charged+int64(v.a.Operation.Price))}) //nolint:gosec // a price
}

func sumsOf(channel *store.PaymentChannel) x402.ChannelSums {
	return x402.ChannelSums{ //nolint:gosec // not negative
		Charged: uint64(channel.Charged), Balance: uint64(channel.Balance), TotalClaimed: uint64(channel.Claimed),
	}
}

// onChainOf is the recorded state of a payment channel on the chain.
func onChainOf(channel *store.PaymentChannel) x402.Channel {
	sums := sumsOf(channel)
	return x402.Channel{
		Balance: sums.Balance, TotalClaimed: sums.TotalClaimed, WithdrawRequestedAt: channel.WithdrawRequestedAt,
		RefundNonce: uint64(channel.RefundNonce), //nolint:gosec // not negative
	}
}

// stateOf returns a payment channel in JSON.
func stateOf(channel *store.PaymentChannel) x402.ChannelState {
	return onChainOf(channel).State(channel.ID, sumsOf(channel).Charged)
}

// MirrorOf is the state of a payment channel on the blockchain as the ledger records it.
func MirrorOf(channel x402.Channel) store.OnChain {
	return store.OnChain{
		Balance: int64(channel.Balance), Claimed: int64(channel.TotalClaimed), //nolint:gosec // at most x402.MaxChannelAmount
		RefundNonce:         int64(channel.RefundNonce), //nolint:gosec // as above
		WithdrawRequestedAt: channel.WithdrawRequestedAt,
	}
}

// chainState returns a payment channel as the blockchain endpoint sees it.
func (c *Scheme) chainState(ctx context.Context, id string) (x402.Channel, error) {
	ctx, cancel := context.WithTimeout(ctx, payment.ChainTimeout)
	defer cancel()
	channel, _, err := c.engine.Chain.Channel(ctx, id)
	return channel, err
}

// newChannel makes the row of a payment channel that the ledger does not have.
func (v *voucher) newChannel(found x402.Channel) *store.PaymentChannel {
	config, chain := v.payload.Payload.ChannelConfig, MirrorOf(found)
	return &store.PaymentChannel{
		ID: v.of.ChannelID, Payer: v.a.Payer(), PayerAuthorizer: v.of.PayerAuthorizer, Network: v.a.Requirements.Network,
		Asset: strings.ToLower(v.a.Requirements.Asset), PayTo: strings.ToLower(config.Receiver),
		ReceiverAuthorizer: strings.ToLower(config.ReceiverAuthorizer),
		WithdrawDelay:      int64(config.WithdrawDelay), Salt: strings.ToLower(config.Salt), //nolint:gosec // at most x402.MaxWithdrawDelay
		Charged: chain.Claimed, SignedMax: chain.Claimed, Balance: chain.Balance, Claimed: chain.Claimed,
		WithdrawRequestedAt: chain.WithdrawRequestedAt, RefundNonce: chain.RefundNonce, State: store.PaymentChannelOpen,
	}
}
