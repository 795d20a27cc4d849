package payment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// claimEvery is how often the worker looks for payment channels to claim and to refresh.
	claimEvery = 5 * time.Second
	// supportEvery is how often it asks the facilitator whether it settles payment channels, and unsupportedEvery while it does not.
	supportEvery     = 10 * time.Minute
	unsupportedEvery = time.Minute
	// refreshBatch is how many payment channels it refreshes at a time.
	refreshBatch = 50
	// refreshShare is how often a payment channel that owes us money is looked at within its withdraw delay.
	refreshShare = 24
	// idleEvery is how often it looks for idle payment channels, and idlePause the pause after a refund of one that failed.
	idleEvery = time.Minute
	idlePause = 10 * time.Minute
)

// workOnChannels keeps the payment channels in order until ctx ends: it claims what they were charged, pays out what is claimed,
// and refunds those that are idle. Any number of servers may run it on one database.
func (e *Engine) workOnChannels(ctx context.Context) {
	if e.channels == nil {
		return
	}
	e.checkKeys(ctx)
	var supportDue, idleDue time.Time
	for tick := time.NewTicker(claimEvery); ; {
		if now := time.Now(); now.After(supportDue) && e.checkSupport(ctx) {
			supportDue = now.Add(supportEvery)
			if !e.channels.offered() {
				supportDue = now.Add(unsupportedEvery)
			}
		}
		if e.Ready() && e.channels.offered() {
			e.refreshChannels(ctx)
			e.claimDue(ctx)
			e.payOut(ctx)
			if now := time.Now(); e.config.IdleRefund > 0 && now.After(idleDue) {
				e.refundIdle(ctx)
				idleDue = now.Add(idleEvery)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// checkKeys logs payment channels with unclaimed vouchers whose authorizer's key this server does not have.
func (e *Engine) checkKeys(ctx context.Context) {
	sums, _ := e.sumUp(ctx)
	for _, one := range sums {
		if e.channels.keys[one.ReceiverAuthorizer] == nil {
			e.log.ErrorContext(ctx, "vouchers cannot be claimed without the key of their authorizer: add it to the authorizer's key file",
				"authorizer", one.ReceiverAuthorizer, "unclaimed", one.Sum, "age_s", one.Age.Seconds())
		}
	}
}

// refreshChannels looks at the chain for withdrawals from payment channels that owe us money.
func (e *Engine) refreshChannels(ctx context.Context) {
	stale, err := e.store.StaleChannels(ctx, e.config.Network.ID, strings.ToLower(e.config.Network.Asset), e.config.WithdrawDelay/refreshShare, refreshShare, refreshBatch)
	for i := range stale {
		channel := &stale[i]
		found, chainErr := e.channels.onChain(ctx, e.attemptOf(channel))
		if chainErr != nil {
			err = errors.Join(err, chainErr)
			if errors.Is(chainErr, errNotReported) { // it concerns this channel alone
				continue
			}
			break // both are unavailable: try again later
		}
		_, syncErr := e.synced(ctx, channel, found)
		err = errors.Join(err, syncErr)
	}
	if err != nil && ctx.Err() == nil {
		e.log.WarnContext(ctx, "refresh payment channels", "error", err)
	}
}

// attemptOf makes an attempt with the newest voucher of a payment channel, to ask for its state.
func (e *Engine) attemptOf(channel *store.PaymentChannel) *Attempt {
	payment := &x402.BatchPayment{X402Version: x402.Version, Accepted: e.channels.requirementsOf(channel), Payload: x402.BatchPayload{
		Type: x402.BatchVoucher, ChannelConfig: configOf(channel), Voucher: voucherOf(channel),
	}}
	return &Attempt{
		scheme: e.channels, payload: payload{channel: payment}, requirements: payment.Accepted,
		checked: checked{channel: &x402.BatchChecked{ChannelID: channel.ID}},
	}
}

// refundIdle refunds the rest of payment channels that were not used for a long time, and claims what they were charged.
func (e *Engine) refundIdle(ctx context.Context) {
	idle, err := e.store.IdleChannels(ctx, e.channels.scope(), e.config.IdleRefund, idlePause, refundLeast, refreshBatch)
	for i := range idle {
		if ctx.Err() != nil {
			return
		}
		refundErr := e.refundOne(ctx, &idle[i])
		err = errors.Join(err, refundErr)
		if refundErr != nil && !e.Ready() {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		e.log.WarnContext(ctx, "refund idle payment channels", "error", err)
	}
}

// refundOne refunds the rest of an idle payment channel, as the chain has it.
func (e *Engine) refundOne(ctx context.Context, idle *store.PaymentChannel) error {
	found, err := e.channels.onChain(ctx, e.attemptOf(idle))
	if err != nil {
		return err
	}
	channel, err := e.synced(ctx, idle, found)
	if err != nil || channel == nil || !channel.UsedAt.Equal(idle.UsedAt) || channel.WithdrawRequestedAt != 0 || channel.Balance-channel.Charged < refundLeast {
		return err
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
	defer cancel()
	channel, err = e.store.BeginRefund(settling, channel, channel.Balance-channel.Charged, Lease, refundPause)
	if errors.Is(err, store.ErrVoucherMismatch) { // a call was faster
		return nil
	}
	if err != nil {
		return err
	}
	crash("refunding")
	if _, err := e.refundFirst(settling, channel); err != nil {
		return fmt.Errorf("payment channel %s: %s", channel.ID, causeOf(err))
	}
	e.log.InfoContext(ctx, "idle payment channel refunded", "payment_channel_id", channel.ID, "amount", channel.RefundAmount)
	return nil
}
