package channel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// resumeEvery is how often the worker looks for open refunds.
	resumeEvery = time.Second
	// claimEvery is how often the worker looks for payment channels to claim.
	claimEvery = 5 * time.Second
	// supportEvery is how often it asks the facilitator whether it settles payment channels, and unsupportedEvery while it does not.
	supportEvery     = 10 * time.Minute
	unsupportedEvery = time.Minute
	// idleBatch is how many idle payment channels it looks for at a time, and maxRetired how many retired ones wait.
	idleBatch  = 500
	maxRetired = 500
	// idleEvery is how often it looks for idle payment channels, and idlePause the pause after a refund of one that failed.
	idleEvery = time.Minute
	idlePause = 10 * time.Minute
)

// Work keeps the payment channels in order until ctx ends: it resumes refunds, claims what was charged, pays out what is claimed,
// and refunds those that are idle. Any number of servers may run it on one database.
func (c *Scheme) Work(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { payment.Every(ctx, resumeEvery, c.resumeRefunds) })
	running.Go(func() { c.refundRetired(ctx) })
	running.Go(func() { payment.Every(ctx, scanEvery, c.scanEvents) })
	c.checkKeys(ctx)
	var supportDue, idleDue time.Time
	payment.Every(ctx, claimEvery, func(ctx context.Context) {
		if now := time.Now(); now.After(supportDue) && c.checkSupport(ctx) {
			supportDue = now.Add(supportEvery)
			if !c.offered() {
				supportDue = now.Add(unsupportedEvery)
			}
		}
		if !c.engine.Ready() || !c.offered() {
			return
		}
		c.claimDue(ctx)
		c.payOut(ctx)
		if now := time.Now(); c.IdleRefund > 0 && now.After(idleDue) {
			c.refundIdle(ctx)
			idleDue = now.Add(idleEvery)
		}
	})
}

// checkKeys logs payment channels with unclaimed vouchers whose authorizer's key this server does not have.
func (c *Scheme) checkKeys(ctx context.Context) {
	sums, _ := c.sumUp(ctx)
	for _, one := range sums {
		if c.keys[one.ReceiverAuthorizer] == nil {
			c.engine.Log.ErrorContext(ctx, "vouchers cannot be claimed without the key of their authorizer: add it to the authorizer's key file",
				"authorizer", one.ReceiverAuthorizer, "unclaimed", one.Sum, "age_s", one.Age.Seconds())
		}
	}
}

// scanEvents looks for withdrawals.
func (c *Scheme) scanEvents(ctx context.Context) {
	if err := c.look(ctx); err != nil && ctx.Err() == nil {
		c.unreadable.Do(func() { c.engine.Log.WarnContext(ctx, "read the events of payment channels", "error", err) })
	}
}

// refundIdle refunds the rest of payment channels that were not used for a long time, and claims what they were charged.
func (c *Scheme) refundIdle(ctx context.Context) {
	idle, err := c.store.IdleChannels(ctx, c.network, c.asset, c.authorizers(), c.IdleRefund, idlePause, refundLeast, idleBatch)
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
		c.engine.Log.WarnContext(ctx, "refund idle payment channels", "error", err)
	}
}

// refundOne refunds the rest of an idle or retired payment channel, as the chain has it.
func (c *Scheme) refundOne(ctx context.Context, idle *store.PaymentChannel) error {
	found, err := c.chainState(ctx, idle.ID)
	if err != nil {
		return err
	}
	channel, err := c.synced(ctx, idle, found)
	if err != nil || channel == nil || !channel.UsedAt.Equal(idle.UsedAt) || channel.WithdrawRequestedAt != 0 ||
		channel.Balance-channel.Charged < refundLeast {
		return err
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), payment.Lease)
	defer cancel()
	left := channel.Balance - channel.Charged
	switch _, err := c.beginRefund(settling, channel, left, 0); {
	case errors.Is(err, errChannelBusy): // a call was faster
		return nil
	case err != nil:
		return fmt.Errorf("payment channel %s: %s", channel.ID, payment.Cause(err))
	}
	c.engine.Log.InfoContext(ctx, "unused payment channel refunded", "payment_channel_id", channel.ID, "amount", left)
	return nil
}

// ClaimNow claims everything that payment channels were charged, of one or, with id "", of all, without waiting for its time. It
// returns how many payment channels it claimed from, and how many have unclaimed vouchers. Servers may run meanwhile.
func (c *Scheme) ClaimNow(ctx context.Context, id string) (claimed int, unclaimed int64, err error) {
	unclaimed, err = c.store.ClaimAtOnce(ctx, c.network, c.asset, id)
	if err != nil {
		return 0, 0, err
	}
	c.checkKeys(ctx)
	sums, _ := c.sumUp(ctx)
	return c.claimSums(ctx, sums, 0, id), unclaimed, nil
}

// PayOutNow transfers everything that is claimed to the payee. It returns nil if nothing was due.
func (c *Scheme) PayOutNow(ctx context.Context) (*x402.SettleResponse, error) {
	return c.payOutTo(ctx, strings.ToLower(c.engine.PayTo))
}
