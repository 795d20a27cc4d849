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

// work keeps the payment channels in order until ctx ends: it claims what they were charged, pays out what is claimed,
// and refunds those that are idle. Any number of servers may run it on one database.
func (c *ChannelScheme) work(ctx context.Context) {
	c.checkKeys(ctx)
	var supportDue, idleDue time.Time
	for tick := time.NewTicker(claimEvery); ; {
		if now := time.Now(); now.After(supportDue) && c.checkSupport(ctx) {
			supportDue = now.Add(supportEvery)
			if !c.offered() {
				supportDue = now.Add(unsupportedEvery)
			}
		}
		if c.engine.Ready() && c.offered() {
			c.refreshChannels(ctx)
			c.claimDue(ctx)
			c.payOut(ctx)
			if now := time.Now(); c.engine.config.IdleRefund > 0 && now.After(idleDue) {
				c.refundIdle(ctx)
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
func (c *ChannelScheme) checkKeys(ctx context.Context) {
	sums, _ := c.sumUp(ctx)
	for _, one := range sums {
		if c.keys[one.ReceiverAuthorizer] == nil {
			c.engine.log.ErrorContext(ctx, "vouchers cannot be claimed without the key of their authorizer: add it to the authorizer's key file",
				"authorizer", one.ReceiverAuthorizer, "unclaimed", one.Sum, "age_s", one.Age.Seconds())
		}
	}
}

// refreshChannels looks at the chain for withdrawals from payment channels that owe us money.
func (c *ChannelScheme) refreshChannels(ctx context.Context) {
	stale, err := c.engine.store.StaleChannels(ctx, c.engine.config.Network.ID, strings.ToLower(c.engine.config.Network.Asset), c.engine.config.WithdrawDelay/refreshShare, refreshShare, refreshBatch)
	for i := range stale {
		channel := &stale[i]
		found, chainErr := c.onChain(ctx, c.attemptOf(channel))
		if chainErr != nil {
			err = errors.Join(err, chainErr)
			if errors.Is(chainErr, errNotReported) { // it concerns this channel alone
				continue
			}
			break // both are unavailable: try again later
		}
		_, syncErr := c.synced(ctx, channel, found)
		err = errors.Join(err, syncErr)
	}
	if err != nil && ctx.Err() == nil {
		c.engine.log.WarnContext(ctx, "refresh payment channels", "error", err)
	}
}

// attemptOf makes an attempt with the newest voucher of a payment channel, to ask for its state.
func (c *ChannelScheme) attemptOf(channel *store.PaymentChannel) *Attempt {
	payment := &x402.BatchPayment{X402Version: x402.Version, Accepted: c.requirementsOf(channel), Payload: x402.BatchPayload{
		Type: x402.BatchVoucher, ChannelConfig: configOf(channel), Voucher: voucherOf(channel),
	}}
	return &Attempt{
		scheme: vouchers{c}, payload: payload{channel: payment}, requirements: payment.Accepted,
		checked: checked{channel: &x402.BatchChecked{ChannelID: channel.ID}},
	}
}

// refundIdle refunds the rest of payment channels that were not used for a long time, and claims what they were charged.
func (c *ChannelScheme) refundIdle(ctx context.Context) {
	idle, err := c.engine.store.IdleChannels(ctx, c.scope(), c.engine.config.IdleRefund, idlePause, refundLeast, refreshBatch)
	for i := range idle {
		if ctx.Err() != nil {
			return
		}
		refundErr := c.refundOne(ctx, &idle[i])
		err = errors.Join(err, refundErr)
		if refundErr != nil && !c.engine.Ready() {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		c.engine.log.WarnContext(ctx, "refund idle payment channels", "error", err)
	}
}

// refundOne refunds the rest of an idle payment channel, as the chain has it.
func (c *ChannelScheme) refundOne(ctx context.Context, idle *store.PaymentChannel) error {
	found, err := c.onChain(ctx, c.attemptOf(idle))
	if err != nil {
		return err
	}
	channel, err := c.synced(ctx, idle, found)
	if err != nil || channel == nil || !channel.UsedAt.Equal(idle.UsedAt) || channel.WithdrawRequestedAt != 0 || channel.Balance-channel.Charged < refundLeast {
		return err
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
	defer cancel()
	channel, err = c.engine.store.BeginRefund(settling, channel, channel.Balance-channel.Charged, Lease, refundPause)
	if errors.Is(err, store.ErrVoucherMismatch) { // a call was faster
		return nil
	}
	if err != nil {
		return err
	}
	crash("refunding")
	if _, err := c.refundFirst(settling, channel); err != nil {
		return fmt.Errorf("payment channel %s: %s", channel.ID, causeOf(err))
	}
	c.engine.log.InfoContext(ctx, "idle payment channel refunded", "payment_channel_id", channel.ID, "amount", channel.RefundAmount)
	return nil
}
