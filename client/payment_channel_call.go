package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/x402"
)

// sign returns the value of the PAYMENT-SIGNATURE header: a voucher, with a deposit if the balance does not cover it. A
// deposit is in the store before it is sent.
func (c *channelCall) sign(ctx context.Context) (string, error) {
	due := c.channel.Charged + c.price
	if due > x402.MaxChannelAmount {
		return "", fmt.Errorf("%w: it is used up; choose another salt", errUnusable)
	}
	c.deposits, c.assumed, c.before = false, false, c.channel
	var deposit uint64
	if due > c.channel.Balance {
		var err error
		if deposit, err = c.coverWithDeposit(ctx, due); err != nil {
			return "", err
		}
	}
	reserved := Reservation{Price: c.price, Amount: due - min(due, c.channel.Signed), Deposit: deposit, Channel: c.signer.ID, Cumulative: due,
		Offer: c.offer}
	if err := c.channels.reserve(ctx, reserved); err != nil {
		return "", err
	}
	var payment *x402.BatchPayment
	var err error
	if deposit > 0 {
		err = c.signDeposit(ctx, deposit)
	}
	if err == nil {
		payment, err = c.signer.Sign(ctx, due, 0, c.channels.now())
	}
	if err != nil { // the deposit is neither stored nor sent
		c.channels.release(ctx, reserved)
		return "", err
	}
	if c.deposits {
		payment.Payload.Type, payment.Payload.Deposit = x402.BatchDeposit, &c.channel.Pending.Signed
	}
	c.channel.Signed = max(c.channel.Signed, due)
	if c.deposits { // a lost voucher is proven by the server, a lost deposit is not
		if err := c.save(); err != nil {
			return "", err
		}
	}
	payment.Resource, payment.Extensions = c.resource, c.extensions
	return x402.EncodeBatchPayment(payment)
}

// sendUnlocked sends the request and lets other calls use the channel until the response comes. Then it takes over what they changed. The
// voucher may not fit any more; then the response is a corrective 402, as always.
func (c *channelCall) sendUnlocked(
	ctx context.Context, header string, send Send, unlock func(),
) (_ *http.Response, relocked func(), err error) {
	if err := c.save(); err != nil {
		return nil, unlock, err
	}
	unlock()
	response, err := send(ctx, header)
	locking, cancel := context.WithTimeout(context.WithoutCancel(ctx), relockTime)
	defer cancel()
	relocked, failed := c.channels.Store.Lock(locking, c.signer.ID)
	if failed != nil {
		return response, func() {}, errors.Join(err, failed)
	}
	stored, failed := c.channels.Store.Load(c.signer.ID)
	if failed == nil {
		stored.Signed = max(stored.Signed, c.channel.Signed)
		c.channel, c.stored, c.others = stored, stored, stored.Charged
	}
	return response, relocked, errors.Join(err, failed)
}

// coverWithDeposit decides how a voucher above the balance is covered: by a pending deposit that may have arrived, by
// sending it again, or by a new one, whose amount it returns.
func (c *channelCall) coverWithDeposit(ctx context.Context, due uint64) (amount uint64, err error) {
	room, err := c.room(ctx)
	if err != nil {
		return 0, err
	}
	room = min(room, c.channels.MaxDeposit)
	now := c.channels.now()
	if pending := c.channel.Pending; pending != nil {
		valid := time.Unix(pending.ValidBefore, 0).After(now.Add(depositRoom))
		covers := c.channel.Balance+pending.Amount >= due
		switch {
		case pending.Lost && !c.refused && covers:
			c.assumed = true
			return 0, nil
		case valid && covers && !pending.Lost && pending.Amount > room: // refused before, and not allowed now
			return 0, &DepositLimitError{pending.Amount, room}
		case valid && covers:
			c.deposits = true
			return 0, nil
		case valid: // two deposits could be under way; the smaller one counts once it is seen to have arrived
		case pending.Lost:
			c.channel.LostDeposits++
		}
		if !valid && c.readChain(ctx) && due <= c.channel.Balance {
			return 0, nil // it did arrive
		}
		c.channel.Pending = nil
	}
	if c.channel.LostDeposits >= maxLostDeposits {
		return 0, fmt.Errorf("%w: the server claims not to have received %d deposits into payment channel %s; "+
			"read its balance from the chain (field Chain)",
			errUnusable, c.channel.LostDeposits, c.signer.ID)
	}
	return c.depositAmount(due-c.channel.Balance, room)
}

// signDeposit signs a new deposit.
func (c *channelCall) signDeposit(ctx context.Context, amount uint64) error {
	now := c.channels.now()
	deposit, err := c.signer.SignDeposit(ctx, amount, now)
	if err != nil {
		return err
	}
	before, err := strconv.ParseInt(deposit.Authorization.ERC3009.ValidBefore, 10, 64)
	if err != nil {
		return err
	}
	c.channel.Pending = &PendingDeposit{Amount: amount, ValidBefore: before, Signed: deposit}
	c.deposits = true
	return nil
}

// readChain takes over the channel's balance from the chain. It returns false if it cannot read the chain.
func (c *channelCall) readChain(ctx context.Context) bool {
	if c.channels.Chain == nil {
		return false
	}
	onChain, _, err := c.channels.Chain.Channel(ctx, c.signer.ID)
	if err != nil {
		return false
	}
	c.channel.Pending, c.channel.LostDeposits, c.channel.Balance = c.stillPending(onChain.Balance), 0, onChain.Balance
	c.onChain = &onChain
	// The contract accepts claims only with our signature.
	c.channel.Signed = max(c.channel.Signed, onChain.TotalClaimed)
	return true
}

// stillPending returns the pending deposit unless the balance includes it.
func (c *channelCall) stillPending(balance uint64) *PendingDeposit {
	if pending := c.channel.Pending; pending == nil || balance < c.channel.Balance+pending.Amount {
		return pending
	}
	return nil
}

// depositAmount returns the amount of a deposit that must be at least needed and at most room.
func (c *channelCall) depositAmount(needed, room uint64) (uint64, error) {
	terms, _ := x402.TermsOf(c.offer) // choose has checked them
	least := max(needed, terms.LeastDeposit())
	if least > room {
		return 0, &DepositLimitError{least, room}
	}
	amount := cmp.Or(c.channels.Deposit, terms.MinDeposit, defaultDepositCalls*c.price)
	return min(max(amount, least), room), nil
}

// save stores the channel if it changed.
func (c *channelCall) save() error {
	if c.channel == c.stored {
		return nil
	}
	if err := c.channels.Store.Save(c.signer.ID, c.channel); err != nil {
		return err
	}
	c.stored = c.channel
	return nil
}

// lost notes that the outcome of the payment is not known.
func (c *channelCall) lost() error {
	if c.deposits {
		pending := *c.channel.Pending
		pending.Lost = true
		c.channel.Pending = &pending
	}
	return c.save()
}

// settle follows the response. It returns true if the call should be signed and sent again.
func (c *channelCall) settle(ctx context.Context, response *http.Response) (again bool, err error) {
	settled, err := x402.DecodeSettleResponse(response.Header.Get(x402.HeaderPaymentResponse))
	switch {
	case err == nil && settled.Success:
		c.accept(settled)
	case response.StatusCode == http.StatusPaymentRequired:
		again = c.correct(ctx, response)
	case response.StatusCode == http.StatusOK:
		c.accept(nil) // a proxy removed the header
	}
	// Any other refusal charges nothing, and the deposit was not sent to the chain as far as we know.
	return again, c.save()
}

// resumed follows the response to a payment that was signed before.
func (c *PaymentChannels) resumed(ctx context.Context, signed SignedPayment, response *http.Response) error {
	decoded, err := x402.DecodePayment(signed.Payment)
	payment, ok := decoded.(*x402.BatchPayment)
	if err != nil || !ok {
		return err
	}
	call, unlock, err := c.begin(ctx, &x402.PaymentRequired{Accepts: []x402.PaymentRequirements{payment.Accepted}})
	if err != nil {
		return err
	}
	defer unlock()
	call.channel.Signed = max(call.channel.Signed, signed.Cumulative)
	call.before, call.others = call.channel, call.channel.Charged
	call.before.Charged = signed.Cumulative - call.price
	pending := call.channel.Pending
	call.deposits = pending != nil && payment.Payload.Deposit != nil && pending.Signed == *payment.Payload.Deposit
	_, err = call.settle(ctx, response)
	return err
}

// accept books a response with status 200, or with the settlement of a deposit. A voucher is for exactly the price, so a
// server can charge the price or nothing. What it charged in all is not above what was signed; anything else is left to
// the next corrective 402.
func (c *channelCall) accept(settled *x402.SettleResponse) {
	var extra struct {
		ChargedAmount string             `json:"chargedAmount"`
		ChannelState  *x402.ChannelState `json:"channelState"`
	}
	if settled != nil {
		_ = json.Unmarshal(settled.Extra, &extra) // a malformed one says nothing
	}
	c.charged = c.price
	if extra.ChargedAmount == "0" {
		c.charged = 0
	}
	c.channel.Charged = c.before.Charged + c.charged // a voucher is charged only if nothing was charged since it was signed
	if extra.ChannelState != nil && strings.EqualFold(extra.ChannelState.ChannelID, c.signer.ID) {
		if charged, ok := extra.ChannelState.Charged(); ok && charged <= c.channel.Signed {
			c.channel.Charged = charged
		}
	}
	c.channel.Charged = max(c.channel.Charged, c.others) // they can be charged after this call, before its response is read
	if c.deposits || c.assumed {
		c.channel.Balance += c.channel.Pending.Amount
		c.channel.Pending, c.channel.LostDeposits = nil, 0
	}
}

// correct follows a 402 response to a paid request. It returns true if the channel's state changed since the payment was signed, so that
// another payment may be accepted.
func (c *channelCall) correct(ctx context.Context, response *http.Response) bool {
	required, err := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	if err != nil {
		return false
	}
	switch required.Error {
	case x402.ReasonBatchCumulativeMismatch, x402.ReasonBatchBelowClaimed, x402.ReasonBatchRefundNoBalance:
		c.follow(ctx, required)
	case x402.ReasonBatchExceedsBalance, x402.ReasonBatchChannelNotFound:
		if c.assumed { // the pending deposit did not arrive
			c.refused = true
			return true
		}
		if !c.follow(ctx, required) {
			c.channel.Balance = min(c.channel.Balance, c.channel.Charged) // the rest was withdrawn, refunded, or never arrived
		}
	case x402.ReasonBatchChannelBusy:
		return sleep(ctx, busyPause) == nil
	}
	return c.channel.Charged != c.before.Charged || c.channel.Balance != c.before.Balance
}

// follow takes over the state of the channel that the server reports, as far as it is plausible and cannot cost more than
// what was signed, and that of the chain. It returns false if there is none.
func (c *channelCall) follow(ctx context.Context, required *x402.PaymentRequired) bool {
	fromChain := c.readChain(ctx)
	for _, offer := range required.Accepts {
		state, voucher, ok := x402.Correction(offer)
		if !ok || !strings.EqualFold(state.ChannelID, c.signer.ID) {
			continue
		}
		reported, err := state.Channel()
		charged, hasCharged := state.Charged()
		if err != nil || !hasCharged {
			continue
		}
		if !c.isSigned(charged, voucher) || fromChain && charged < c.onChain.TotalClaimed { // or its ledger is behind the chain
			return fromChain
		}
		c.channel.Charged = charged
		if !fromChain {
			c.channel.Pending, c.channel.Balance = c.stillPending(reported.Balance), reported.Balance
		}
		return true
	}
	if fromChain { // a server that lost its state starts from what is claimed
		c.channel.Charged = c.onChain.TotalClaimed
	}
	return fromChain
}

// isSigned reports whether an amount that the server claims to have charged is at most what this wallet has signed, as it
// remembers or as the server proves.
func (c *channelCall) isSigned(charged uint64, voucher *x402.VoucherState) bool {
	if voucher != nil {
		if signed, err := strconv.ParseUint(voucher.SignedMaxClaimable, 10, 63); err == nil && c.signer.Signed(signed, voucher.Signature) {
			c.channel.Signed = max(c.channel.Signed, signed)
		}
	}
	return charged <= c.channel.Signed
}
