package channel

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// refundPause is the pause before a payer can ask for another refund of a payment channel. Each costs the operator a
	// transaction, and the voucher that asks for it is public once it is claimed.
	refundPause = time.Minute
	// refundLeast is the smallest refund of a part, and of the rest of an idle payment channel, in atomic units: one cent. The
	// transaction costs the operator about a third of that. A payer can ask for the rest whatever it is.
	refundLeast = 10_000
	// A deposit and its refund cost the operator about 0.007 USD. What was charged since the last claim or refund must be worth that, in
	// atomic units; else a client has so many refunds an hour, on each server. Its money is not lost: it can withdraw on the chain.
	refundWorth  = 10_000
	cheapRefunds = 10
	// refundsAtOnce is how many refunds a server resumes at a time.
	refundsAtOnce = 8
)

var (
	errChannelBusy = &payment.Error{Code: payment.CodeInProgress, RetryAfter: 2,
		Message: "another payment of this payment channel is at work; send the same request with the same payment again"}
	errRefundProof = &payment.Error{Code: payment.CodeProof,
		Message: "the voucher of this refund was claimed, so it is public, and nothing was refunded; ask for a part with the X-API-KEY of " +
			"an account that used the payment channel, or ask for everything"}
)

var nothingLeft = &x402.Invalid{Reason: x402.ReasonBatchRefundNoBalance,
	Message: "everything in the payment channel is charged; nothing is left to refund"}

// tooSoon returns the 429 for a refund that is to be asked for again after some time.
func tooSoon(why string, after time.Duration) error {
	return &payment.Error{Code: payment.CodeLimited, RetryAfter: int(math.Ceil(after.Seconds())),
		Message: why + "; nothing was refunded now; try again after Retry-After"}
}

// Refund pays what is not charged back to the payer, if the payment of a request is of type refund; otherwise it returns nil
// and nil. The voucher of a refund proves the key of the payment channel, so no account is needed except for some parts: see
// asStranger. Account is the caller's, or nil. The error is as from [payment.Engine.Pay].
func (c *Scheme) Refund(
	ctx context.Context, operation *payment.Operation, header http.Header, account *uuid.UUID, client string, address netip.Prefix,
) (*x402.SettleResponse, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // Parse handles any other payment
	}
	decoded, _ := x402.DecodePayment(header.Get(x402.HeaderPaymentSignature))
	payload, ok := decoded.(*x402.BatchPayment)
	if !ok || payload.Payload.Type != x402.BatchRefund || len(header.Values(x402.HeaderPaymentSignature)) > 1 {
		return nil, nil //nolint:nilnil // as above, and Parse reports errors
	}
	v := &voucher{Scheme: c, a: &payment.Attempt{Operation: operation, Client: client, Address: address}, payload: payload}
	if account != nil {
		v.a.Caller = &payment.Caller{Account: *account}
	}
	if v.a.Requirements, ok = v.Match(operation.Requirements()); !ok {
		return nil, c.engine.Mismatch(operation, payload)
	}
	checked, err := v.Check(v.a.Requirements, c.store.Now(), true)
	if bad, ok := errors.AsType[*x402.Invalid](err); ok {
		return nil, c.engine.Refused(operation, bad.Reason, bad.Message)
	}
	if err != nil {
		return nil, err
	}
	v.a.Checked = checked
	if err := c.engine.Facilitator.Available(); err != nil { // no voucher is charged while a refund is open
		return nil, err
	}
	if err := c.informed(ctx); err != nil {
		return nil, err
	}
	stranger, err := v.asStranger(ctx)
	if err != nil {
		return nil, err
	}
	channel, err := v.refundable(ctx)
	if err != nil {
		return nil, err
	}
	left := channel.Balance - channel.Charged
	if left <= 0 {
		return nil, v.corrective(ctx, channel, nothingLeft)
	}
	amount, err := v.refunds(left)
	if err == nil && !stranger {
		err = v.mayRefundNow(channel, channel.Charged-channel.Claimed < refundWorth)
	}
	if err != nil {
		return nil, err
	}
	// From here on the refund continues even if the caller hangs up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), payment.Lease)
	defer cancel()
	settled, err := c.beginRefund(ctx, channel, amount, refundPause)
	if bad, ok := errors.AsType[*payment.RefusedSettlement](err); ok {
		return nil, c.engine.Refused(operation, bad.Reason, "the facilitator rejected the refund ("+bad.Reason+")")
	}
	if err == nil && amount == left {
		c.renewRefunded(ctx, channel, client)
	}
	return settled, err
}

// refundable returns the payment channel of a refund, if the refund's voucher fits.
func (v *voucher) refundable(ctx context.Context) (*store.PaymentChannel, error) {
	channel, err := v.channel(ctx)
	if err == nil {
		err = v.mismatch(ctx, channel)
	}
	if errors.Is(err, store.ErrStalePayment) {
		return nil, errChannelBusy
	}
	return channel, err
}

// asStranger reports whether a refund may come from somebody else than the payer: see mayBeStranger. The amount of a refund is not signed,
// so a stranger could ask for a part each minute: it gets errRefundProof. It can ask for everything once after each deposit, because then
// nothing is left, and official clients send no API key. Its errors do not depend on what was charged since the claim.
func (v *voucher) asStranger(ctx context.Context) (bool, error) {
	channel, err := v.channel(ctx)
	if err != nil || channel == nil || !v.mayBeStranger(ctx, channel) {
		return false, err
	}
	left := channel.Balance - channel.Claimed
	if left <= 0 {
		return true, v.public(channel, nothingLeft)
	}
	amount, err := v.refunds(left)
	switch {
	case err != nil:
		return true, err
	case amount < left:
		return true, errRefundProof
	}
	return true, v.mayRefundNow(channel, true)
}

// refunds returns how much of what is left is asked for.
func (v *voucher) refunds(left int64) (int64, error) {
	part := int64(v.of.Refund) //nolint:gosec // at most x402.MaxChannelAmount
	switch {
	case part == 0, part >= left:
		return left, nil
	case part < refundLeast:
		return 0, v.engine.Refused(v.a.Operation, x402.ReasonBatchRefundAmountInvalid,
			fmt.Sprintf("a refund of a part must be at least %d atomic units; ask for more, or for everything", refundLeast))
	}
	return part, nil
}

// mayRefundNow returns the 429 if the payment channel was refunded just now, or if it is cheap, which means that it brought in little, and
// the client had many such refunds.
func (v *voucher) mayRefundNow(channel *store.PaymentChannel, cheap bool) error {
	if at := channel.RefundedAt; at != nil {
		if left := refundPause - v.store.Now().Sub(*at); left > 0 {
			return tooSoon("this payment channel was refunded within the last minute", left)
		}
	}
	if !cheap {
		return nil
	}
	if after := v.cheapRefunds.Take(v.refundsOf(), 1); after > 0 {
		return tooSoon("many payment channels that were hardly used were refunded for this client within the last hour: with the header "+
			"X-API-KEY only those of the account count, and withdrawing on the blockchain needs no refund", after)
	}
	return nil
}

// refundsOf names the client in Scheme.cheapRefunds: by its account, which keeps its limit when it rotates its API key.
func (v *voucher) refundsOf() string {
	if v.a.Caller != nil {
		return v.a.Caller.Account.String()
	}
	return v.a.Client
}

// MayBeRefund reports whether a request can be a refund. It spares most payments a second decoding.
func MayBeRefund(header http.Header) bool {
	raw, err := base64.StdEncoding.DecodeString(header.Get(x402.HeaderPaymentSignature))
	return err == nil && bytes.Contains(raw, []byte(`"`+x402.BatchRefund+`"`))
}

// beginRefund begins a refund, unless there was another within the pause, and settles it. If it certainly did not reach the facilitator,
// the payment channel is open again. The error is as from refund, or errChannelBusy if the payment channel has changed before it began.
func (c *Scheme) beginRefund(
	ctx context.Context, channel *store.PaymentChannel, amount int64, pause time.Duration,
) (*x402.SettleResponse, error) {
	channel, err := c.store.BeginRefund(ctx, channel, amount, payment.Lease, pause)
	switch {
	case errors.Is(err, store.ErrVoucherMismatch):
		return nil, errChannelBusy
	case err != nil:
		return nil, err
	}
	payment.Crash("refunding")
	settled, err := c.refund(ctx, channel)
	if unknown, ok := errors.AsType[*x402.UnknownOutcome](err); !ok || !unknown.NotSent {
		return settled, err
	}
	if _, endErr := c.store.EndRefund(ctx, channel, store.OnChain{}, nil); endErr != nil {
		return nil, payment.OutcomeUnknown(errors.Join(err, endErr))
	}
	return nil, payment.Unavailable("the payment facilitator is unavailable", 2, err)
}

// refund settles the refund of a payment channel that BeginRefund or TakeRefunds returned. It claims what is charged first, in
// the same transaction on the chain. The error is a *payment.RefusedSettlement if nothing was refunded.
func (c *Scheme) refund(ctx context.Context, channel *store.PaymentChannel) (*x402.SettleResponse, error) {
	config := configOf(channel)
	domain, key := x402.NewBatchDomain(c.engine.Network.ChainID), c.keys[channel.ReceiverAuthorizer]
	amount := uint64(channel.RefundAmount) //nolint:gosec // positive
	command := x402.NewRefundCommand(config, voucherOf(channel), amount, onChainOf(channel))
	var err error
	nonce := uint64(channel.RefundNonce) //nolint:gosec // not negative
	if command.RefundAuthorizerSignature, err = domain.SignRefund(key, channel.ID, nonce, amount); err != nil {
		return nil, err
	}
	if len(command.Claims) > 0 {
		if command.ClaimAuthorizerSignature, err = domain.SignClaims(key, command.Claims); err != nil {
			return nil, err
		}
	}
	settled, cause := c.engine.Facilitator.Settle(ctx, func(ctx context.Context, f payment.Facilitator) (*x402.SettleResponse, error) {
		return f.SettleRefund(ctx, command, c.requirementsOf(channel))
	})
	payment.Crash("refunded")
	rejected := false
	switch {
	case cause != nil:
	case settled.Success:
		var found x402.Channel
		if found, cause = x402.ReportedChannel(settled.Extra, channel.ID); cause == nil {
			return c.endRefund(ctx, channel, found, settled)
		}
	default:
		rejected, cause = !settled.Inconclusive(), errors.New(settled.ErrorReason)
	}
	// A refund that was made used its nonce, also if it is rejected now because it was settled before.
	found, err := c.chainState(ctx, channel.ID)
	switch {
	case err == nil && found.RefundNonce > nonce:
		amount := strconv.FormatInt(channel.RefundAmount, 10)
		return c.endRefund(ctx, channel, found, &x402.SettleResponse{Success: true, Network: channel.Network, Amount: amount})
	case err != nil || !rejected: // it is settled again later
		c.metrics.count(store.ChannelRefund, unclear)
		return nil, payment.OutcomeUnknown(errors.Join(cause, err))
	}
	if _, err := c.store.EndRefund(ctx, channel, store.OnChain{}, nil); err != nil {
		return nil, payment.OutcomeUnknown(err)
	}
	c.metrics.count(store.ChannelRefund, refused)
	return nil, &payment.RefusedSettlement{Reason: settled.ErrorReason}
}

// endRefund records a refund and returns the content of PAYMENT-RESPONSE.
func (c *Scheme) endRefund(
	ctx context.Context, channel *store.PaymentChannel, found x402.Channel, settled *x402.SettleResponse,
) (*x402.SettleResponse, error) {
	chain := MirrorOf(found)
	paid, err := strconv.ParseInt(settled.Amount, 10, 64)
	if err != nil || paid < 0 { // the facilitator need not report it
		paid = channel.RefundAmount
	}
	ended, err := c.store.EndRefund(ctx, channel, chain, &store.PaymentChannelTransaction{
		Kind: store.ChannelRefund, Network: channel.Network, Asset: channel.Asset, PayTo: channel.PayTo,
		PaymentChannelIDs: store.ChannelIDs{channel.ID}, Paid: paid, Transaction: settled.Transaction,
	})
	if err != nil {
		return nil, payment.OutcomeUnknown(err)
	}
	c.metrics.count(store.ChannelRefund, confirmed)
	c.mayPayOut(channel.PayTo) // what the refund claimed
	state := stateOf(ended)
	return &x402.SettleResponse{
		Success: true, Transaction: settled.Transaction, Network: channel.Network, Payer: channel.Payer, Amount: settled.Amount,
		Extra: x402.BatchExtra{ChannelState: &state}.Encode(),
	}, nil
}

// resumeRefunds settles refunds again whose outcome is not known.
func (c *Scheme) resumeRefunds(ctx context.Context) {
	if !c.engine.Ready() {
		return
	}
	channels, err := c.store.TakeRefunds(ctx, c.network, c.asset, c.authorizers(), refundsAtOnce, payment.Lease)
	if err != nil && ctx.Err() == nil {
		c.failing.Do(func() { c.engine.Log.WarnContext(ctx, "look for open refunds", "error", err) })
	}
	for i := range channels {
		settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), payment.Lease)
		_, err := c.refund(settling, &channels[i])
		cancel()
		text := ""
		if err != nil {
			text = payment.Cause(err)
		}
		c.engine.Log.InfoContext(ctx, "refund retried", "payment_channel_id", channels[i].ID, "error", text)
	}
}

// voucherOf is the newest voucher of a payment channel.
func voucherOf(channel *store.PaymentChannel) x402.Voucher {
	return x402.Voucher{ChannelID: channel.ID, MaxClaimableAmount: strconv.FormatInt(channel.SignedMax, 10), Signature: channel.Signature}
}

// configOf is the configuration of a payment channel.
func configOf(channel *store.PaymentChannel) x402.ChannelConfig {
	return x402.ChannelConfig{
		Payer: channel.Payer, PayerAuthorizer: channel.PayerAuthorizer, Receiver: channel.PayTo, ReceiverAuthorizer: channel.ReceiverAuthorizer,
		Token: channel.Asset, WithdrawDelay: uint64(channel.WithdrawDelay), Salt: channel.Salt, //nolint:gosec // positive
	}
}
