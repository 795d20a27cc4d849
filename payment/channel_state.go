package payment

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// mirrorLifetime is how old the recorded state of a payment channel on the chain may be for a voucher to be charged: half of
// the withdraw delay. The other half is left to notice a withdrawal and to claim.
func (c *ChannelScheme) mirrorLifetime() time.Duration { return c.engine.config.WithdrawDelay / 2 }

// recheckAfter is how old the recorded state of a payment channel must be before the chain is asked again for a voucher that
// cannot be charged: the payer may have ended a withdrawal, or deposited on its own. A voucher for more than was charged may also
// show that the database was restored from a backup: the chain then tells what is claimed.
const recheckAfter = time.Minute

// misfit returns why a voucher or a deposit cannot be charged to a payment channel, nil if nothing is wrong, or
// store.ErrStalePayment if the caller should look again soon. The error has PAYMENT-REQUIRED with the state of the channel,
// with which clients correct their own. Only who signed the voucher gets that far.
func (c *ChannelScheme) misfit(ctx context.Context, a *Attempt, channel *store.PaymentChannel) error {
	if channel == nil {
		if err := c.adopt(ctx, a); err != nil {
			return err
		}
		c.preferExact(a)
		a.unknown = true
		return c.engine.refused(a.operation, x402.ReasonBatchChannelNotFound,
			"this server does not know the payment channel and nothing was charged; send a deposit, or pay with another entry of accepts")
	}
	fits := a.channel.Fits(sumsOf(channel), a.operation.Price)
	bad, isBad := errors.AsType[*x402.Invalid](fits)
	recheck := channel.Now.Sub(channel.SyncedAt) > recheckAfter
	switch {
	case channel.State != store.PaymentChannelOpen: // a deposit or a refund is being settled
		return store.ErrStalePayment
	case isBad && recheck && (int64(a.channel.Max) > channel.Charged || bad.Reason == x402.ReasonBatchExceedsBalance): //nolint:gosec // at most x402.MaxChannelAmount
		if err := c.sync(ctx, a, channel); errors.Is(err, store.ErrStalePayment) {
			return err
		}
		return c.corrective(a, channel, bad)
	case isBad:
		return c.corrective(a, channel, bad)
	case fits != nil:
		return fits
	case channel.WithdrawRequestedAt != 0 && !recheck:
		return c.corrective(a, channel, &x402.Invalid{Reason: x402.ReasonBatchExceedsBalance,
			Message: "a withdrawal from the payment channel is under way and nothing was charged; pay with another entry of accepts"})
	case channel.WithdrawRequestedAt != 0, channel.Now.Sub(channel.SyncedAt) > min(c.mirrorLifetime(), time.Since(c.started)):
		// A state from before this server started may be that of a restored database, which lacks claims.
		return c.sync(ctx, a, channel)
	case a.channel.Type != x402.BatchRefund && int64(a.channel.Max)-channel.Claimed > c.maxUnclaimed(): //nolint:gosec // at most x402.MaxChannelAmount
		return c.unclaimedTooMuch(a, "this payment channel")
	}
	return nil
}

// sync records the state of the payment channel on the chain. It returns store.ErrStalePayment, because the caller should look
// again, or an *Error if neither the blockchain endpoint nor the facilitator responds.
func (c *ChannelScheme) sync(ctx context.Context, a *Attempt, channel *store.PaymentChannel) error {
	found, err := c.onChain(ctx, a)
	if err != nil {
		return unavailable("the state of the payment channel on the blockchain is not known", 2, err)
	}
	if _, err := c.synced(ctx, channel, found); err != nil {
		return err
	}
	return store.ErrStalePayment
}

// corrective returns the 402 for a payment that does not fit the state of its channel, with that state and the newest
// voucher. A voucher that may have been claimed is public, so it does not open the newest one, with which a stranger could
// ask for a refund. The next 402s of the client offer exact first: one that cannot follow the state would be refused for good.
func (c *ChannelScheme) corrective(a *Attempt, channel *store.PaymentChannel, bad *x402.Invalid) *Error {
	c.preferExact(a)
	refused := c.engine.refused(a.operation, bad.Reason, bad.Message)
	var newest *x402.VoucherState
	if channel.Signature != "" && !mayBePublic(a, channel) {
		newest = &x402.VoucherState{SignedMaxClaimable: strconv.FormatInt(channel.SignedMax, 10), Signature: channel.Signature}
	}
	refused.Correction = true
	refused.Required.Accepts = x402.Corrective(a.operation.requirements, stateOf(channel), newest)
	return refused
}

// mayBePublic reports whether the voucher may stand on the chain. Which vouchers a claim under way has, and whether it came through, is not
// recorded, so any that it can have counts.
func mayBePublic(a *Attempt, channel *store.PaymentChannel) bool {
	most := channel.Claimed
	if channel.ClaimAfter != nil {
		most = channel.SignedMax
	}
	return most > 0 && int64(a.channel.Max) <= most //nolint:gosec // at most x402.MaxChannelAmount
}

// outOfStep returns the corrective 402 for a voucher that was charged for another request, or not last.
func (c *ChannelScheme) outOfStep(ctx context.Context, a *Attempt) error {
	channel, err := c.engine.store.PaymentChannel(ctx, a.channel.ChannelID, a.checked.Payer)
	if err != nil {
		return err
	}
	if channel == nil {
		return c.misfit(ctx, a, channel)
	}
	return c.corrective(a, channel, &x402.Invalid{Reason: x402.ReasonBatchCumulativeMismatch, Message: fmt.Sprintf(
		"this voucher was charged for another request; the channel was charged %d and this request costs %d: "+
			"sign a voucher for exactly %d; nothing was charged now",
		channel.Charged, a.operation.Price, channel.Charged+int64(a.operation.Price))}) //nolint:gosec // a price
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

func mirrorOf(channel x402.Channel) store.OnChain {
	return store.OnChain{
		Balance: int64(channel.Balance), Claimed: int64(channel.TotalClaimed), RefundNonce: int64(channel.RefundNonce), //nolint:gosec // at most x402.MaxChannelAmount
		WithdrawRequestedAt: channel.WithdrawRequestedAt,
	}
}

// chargedAs returns the content of PAYMENT-RESPONSE for a call that a payment channel pays: what this response charges, and the
// channel. Clients add the amount to what they know to be charged, and reject it if the sum is not the channel's.
func chargedAs(a *Attempt, row *store.Payment, channel *store.PaymentChannel, amount uint64) *x402.SettleResponse {
	state := stateOf(channel)
	settled := settledAs(row, row.Transaction)
	settled.Payer, settled.Network, settled.Amount = a.checked.Payer, a.requirements.Network, depositAmount(row)
	settled.Extra = x402.BatchExtra{ChargedAmount: strconv.FormatUint(amount, 10), ChannelState: &state}.Encode()
	return settled
}

// depositAmount is what a payment added to its channel, in JSON.
func depositAmount(row *store.Payment) string {
	if row.DepositAmount == 0 {
		return ""
	}
	return strconv.FormatInt(row.DepositAmount, 10)
}

// Repeated is chargedAs for the stored response of a payment. It returns store.ErrVoucherMismatch if the attempt has a voucher that
// was not charged last.
func (c *ChannelScheme) Repeated(ctx context.Context, a *Attempt, row *store.Payment) (*x402.SettleResponse, error) {
	if a.sameVoucher(row) {
		c.inStep(a)
	}
	channel, err := c.engine.store.PaymentChannel(ctx, a.channel.ChannelID, a.checked.Payer)
	if err != nil {
		return nil, err
	}
	// The same voucher with another deposit repeats a payment whose response was lost, unless the channel was charged since: then a
	// client that lost its state may want the same again.
	repeatsVoucher := a.sameVoucher(row) && (!a.scheme.Moves() || !a.same(row) && !a.operation.Secret)
	switch {
	case channel == nil: // found by the payment identifier, paid in another way
		return settledAs(row, row.Transaction), nil
	case repeatsVoucher && channel.Charged != *row.CumulativeAmount:
		return nil, store.ErrVoucherMismatch
	case !a.same(row): // paid by an earlier payment: this one is not charged
		free := *row
		free.Transaction, free.DepositAmount = "", 0
		charged := uint64(0)
		if int64(a.channel.Max) == channel.Charged { //nolint:gosec // at most x402.MaxChannelAmount
			charged = a.operation.Price // the client does not know of that charge: it lost the response to its deposit
		}
		return chargedAs(a, &free, channel, charged), nil
	}
	channel.Charged = *row.CumulativeAmount                    // as in the first response
	return chargedAs(a, row, channel, uint64(row.Amount)), nil //nolint:gosec // positive
}
