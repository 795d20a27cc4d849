package payment

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// A deposit goes through the states of every payment that moves money. It is safer for the payer: money in its payment channel
// is not charged, so a call that is rejected after the settlement costs nothing.

// Same reports whether the row is of the same deposit.
func (c *ChannelScheme) Same(a *Attempt, row *store.Payment) bool { return a.sameNonce(row) }

// sameVoucher reports whether the row was charged with the voucher of this attempt, which may come with another deposit now: the
// payer did not see the response to the first.
func (a *Attempt) sameVoucher(row *store.Payment) bool {
	return row.Payer == a.checked.Payer && row.State == store.PaymentDelivered && a.sameChannel(row) &&
		*row.CumulativeAmount == int64(a.channel.Max) //nolint:gosec // at most x402.MaxChannelAmount
}

// sameChannel reports whether the row was paid by the payment channel of this attempt.
func (a *Attempt) sameChannel(row *store.Payment) bool {
	return row.PaymentChannelID != nil && *row.PaymentChannelID == a.channel.ChannelID
}

// Find finds the payment whose deposit brought the voucher of this attempt.
func (c *ChannelScheme) Find(ctx context.Context, a *Attempt) (*store.Payment, error) {
	return c.engine.store.PaymentOfVoucher(ctx, a.channel.ChannelID, a.checked.Payer, int64(a.channel.Max)) //nolint:gosec // at most x402.MaxChannelAmount
}

// OfWallet finds payments of the wallet that deposits, also by its payment channel.
func (c *ChannelScheme) OfWallet(ctx context.Context, a *Attempt) (*store.Payment, error) {
	return c.engine.ofWallet(ctx, a, a.channel.ChannelID)
}

// Decide adds what becomes of a deposit that was kept, and of a voucher that was charged for another request.
func (c *ChannelScheme) Decide(a *Attempt, row *store.Payment, _ bool) (action, error) {
	same := a.same(row)
	switch {
	case row.State == store.PaymentDelivered && !a.owns(row) && (same || a.sameVoucher(row)):
		return correct, nil
	case row.State != store.PaymentDeposited || !same:
		return "", nil
	case a.nothingNew() != nil:
		return reject, a.nothingNew()
	case a.expired != nil && int64(a.channel.Max) != *row.CumulativeAmount: //nolint:gosec // at most x402.MaxChannelAmount
		return reject, a.expired // of former terms, only the voucher that came with the deposit
	}
	return useVoucher, nil
}

// Pay settles the deposit, charges the voucher of one that has arrived, or corrects the payer's state of the channel.
func (c *ChannelScheme) Pay(ctx context.Context, call *Call, row *store.Payment, next action) (*Receipt, error) {
	switch next {
	case useVoucher:
		return c.chargeDeposited(ctx, call, row)
	case correct:
		return nil, c.outOfStep(ctx, call.Attempt)
	}
	return c.engine.settleFirst(ctx, call)
}

// Prepare returns the payment channel that a deposit opens or adds to, if the deposit and its voucher fit and the wallet
// has the deposit. A channel that the ledger does not know starts from what was claimed on the chain.
func (c *ChannelScheme) Prepare(ctx context.Context, a *Attempt) (*store.PaymentChannel, error) {
	if err := c.barred(a); err != nil {
		return nil, err
	}
	if least := c.terms.LeastDeposit(); a.channel.Deposit < least {
		return nil, c.engine.refused(a.operation, x402.ReasonBatchDepositBelowMin, fmt.Sprintf(
			"the deposit of %d atomic units is too small and nothing was charged; deposit at least %d, a tenth of extra.minDeposit, or pay with scheme exact",
			a.channel.Deposit, least))
	}
	channel, err := c.engine.store.PaymentChannel(ctx, a.channel.ChannelID, a.checked.Payer)
	if err != nil {
		return nil, err
	}
	if channel != nil {
		if err := c.misfit(ctx, a, channel); err != nil {
			return nil, err
		}
	}
	if err := c.fund(ctx, a); err != nil || channel != nil {
		return channel, c.engine.invalid(a, err)
	}
	found, err := c.before(ctx, a)
	if err != nil {
		return nil, c.engine.invalid(a, err)
	}
	channel = newChannel(a, found)
	if channel.Claimed > 0 {
		c.claimedElsewhere(ctx, channel)
	}
	if bad, ok := errors.AsType[*x402.Invalid](a.channel.Fits(sumsOf(channel), a.operation.Price)); ok {
		return nil, c.corrective(a, channel, bad)
	}
	return channel, nil
}

// before returns the payment channel on the chain before a deposit.
func (c *ChannelScheme) before(ctx context.Context, a *Attempt) (x402.Channel, error) {
	asking, cancel := context.WithTimeout(ctx, chainTimeout)
	defer cancel()
	channel, _, err := c.chain.Channel(asking, a.channel.ChannelID)
	if err == nil {
		return channel, nil
	}
	verdict, err := c.engine.facilitator.VerifyBatch(ctx, a.payload.channel, a.requirements)
	switch {
	case err != nil:
		return x402.Channel{}, c.engine.facilitator.unavailable(err)
	case !verdict.IsValid:
		return x402.Channel{}, &x402.Invalid{Reason: verdict.InvalidReason,
			Message: "the facilitator rejected the deposit (" + verdict.InvalidReason + "); sign a new payment"}
	}
	if channel, err = x402.ReportedChannel(verdict.Extra, a.channel.ChannelID); err != nil {
		return x402.Channel{}, c.engine.facilitator.unavailable(err)
	}
	return channel, nil
}

// newChannel makes the row of a payment channel.
func newChannel(a *Attempt, found x402.Channel) *store.PaymentChannel {
	config, chain := a.payload.channel.Payload.ChannelConfig, mirrorOf(found)
	return &store.PaymentChannel{
		ID: a.channel.ChannelID, Payer: a.checked.Payer, PayerAuthorizer: a.channel.PayerAuthorizer, Network: a.requirements.Network,
		Asset: strings.ToLower(a.requirements.Asset), PayTo: strings.ToLower(config.Receiver), ReceiverAuthorizer: strings.ToLower(config.ReceiverAuthorizer),
		WithdrawDelay: int64(config.WithdrawDelay), Salt: strings.ToLower(config.Salt), //nolint:gosec // at most x402.MaxWithdrawDelay
		Charged: chain.Claimed, SignedMax: chain.Claimed, Balance: chain.Balance, Claimed: chain.Claimed,
		WithdrawRequestedAt: chain.WithdrawRequestedAt, RefundNonce: chain.RefundNonce, State: store.PaymentChannelOpen,
	}
}

// Deliver records the deposit in its payment channel, charges the voucher, makes the effect and closes the payment, in
// one transaction. If the operation rejects the call, or the voucher does not fit any more, only the deposit is recorded.
func (c *ChannelScheme) Deliver(ctx context.Context, call *Call, row *store.Payment, moved settlement, response []byte) (*Receipt, error) {
	a := call.Attempt
	unclear := func(cause error) error {
		return c.engine.unclear(ctx, row, &unclearSettlement{store.Unclear{Reason: "settled, not delivered", Sent: true, Transaction: moved.transaction}, cause})
	}
	if moved.channel == nil {
		found, err := c.onChain(ctx, a)
		if err != nil {
			return nil, unclear(err)
		}
		moved.channel = &found
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.CallTime)
	defer cancel()
	chain := mirrorOf(*moved.channel)
	closing := c.engine.delivered(a, row, moved.transaction)
	closing.Deposit = &store.DepositCharge{Voucher: c.toCharge(a), Chain: chain}
	response, err := c.engine.commit(ctx, call, response, closing)
	row.Transaction = moved.transaction
	refusal, refused := errors.AsType[*store.Refusal](err)
	switch {
	case err == nil:
		crash("delivered")
		c.engine.metrics.payment(row, outcomeDelivered)
		c.wasCharged(a)
		c.unclaimed.charged(row.Amount)
		return &Receipt{Response: response, Settled: chargedAs(a, row, closing.Deposit.Channel, a.operation.Price)}, nil
	case errors.Is(err, store.ErrStalePayment):
		return nil, err
	case !refused && !errors.Is(err, store.ErrVoucherMismatch):
		return nil, unclear(err)
	}
	reason := x402.ReasonBatchCumulativeMismatch
	if refused {
		reason = refusal.Code
	}
	channel, err := c.engine.store.KeepDeposit(ctx, row, moved.transaction, reason, chain)
	switch {
	case errors.Is(err, store.ErrStalePayment):
		return nil, err
	case err != nil:
		return nil, unclear(err)
	}
	c.engine.metrics.payment(row, outcomeDeposited)
	settled := chargedAs(a, row, channel, 0)
	if refused {
		return nil, rejectedDeposit(refusal, settled)
	}
	return nil, c.depositOnly(a, channel, settled)
}

// depositOnly returns the 402 for a deposit that arrived with a voucher that does not fit the channel any more.
func (c *ChannelScheme) depositOnly(a *Attempt, channel *store.PaymentChannel, settled *x402.SettleResponse) *Error {
	bad := &x402.Invalid{Reason: x402.ReasonBatchCumulativeMismatch,
		Message: "the deposit is in the payment channel, but its voucher does not fit the channel and nothing was charged; sign a new voucher"}
	if invalid, ok := errors.AsType[*x402.Invalid](a.channel.Fits(sumsOf(channel), a.operation.Price)); ok {
		bad = invalid
	}
	kept := c.corrective(a, channel, bad)
	kept.Settled = settled
	return kept
}

// rejectedDeposit returns the error for a call that was rejected after its deposit settled.
func rejectedDeposit(refusal *store.Refusal, settled *x402.SettleResponse) *Error {
	return &Error{
		Code: CodeRejected, Refusal: refusal, Settled: settled,
		Message: refusal.Message + ". The deposit is in your payment channel and nothing was charged: the same voucher pays for the next call.",
	}
}
