package payment

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// claimBatch is how many vouchers are claimed in one transaction. Facilitators take at least 25.
	claimBatch = 25
	// claimRetry is the pause after a claim of a payment channel that the chain rejected.
	claimRetry = 10 * time.Minute
	// claimEvery is how often the worker looks for payment channels to claim and to refresh.
	claimEvery = 5 * time.Second
	// refreshBatch is how many payment channels it refreshes at a time.
	refreshBatch = 50
)

// claimChannels claims what payment channels were charged, and pays out what is claimed, until ctx ends. Any number of servers may
// run it on one database.
func (e *Engine) claimChannels(ctx context.Context) {
	if e.channels == nil {
		return
	}
	unpaid := true // a claim before a restart may not be paid out
	for tick := time.NewTicker(claimEvery); ; {
		if e.Ready() {
			e.refreshChannels(ctx)
			if e.claimDue(ctx) {
				unpaid = true
			}
			if unpaid {
				unpaid = !e.payOut(ctx)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// refreshChannels looks at the chain for withdrawals from payment channels that owe us money.
func (e *Engine) refreshChannels(ctx context.Context) {
	stale, err := e.store.StaleChannels(ctx, e.config.WithdrawDelay/24, refreshBatch)
	for i := range stale {
		channel := &stale[i]
		found, chainErr := e.channels.onChain(ctx, e.attemptOf(channel))
		if chainErr != nil {
			err = chainErr
			break // it is unavailable: try again later
		}
		err = errors.Join(err, e.store.SyncPaymentChannel(ctx, channel, mirrorOf(found)))
	}
	if err != nil && ctx.Err() == nil {
		e.log.WarnContext(ctx, "refresh payment channels", "error", err)
	}
}

// attemptOf makes an attempt with the newest voucher of a payment channel, to ask for its state.
func (e *Engine) attemptOf(channel *store.PaymentChannel) *Attempt {
	payment := &x402.BatchPayment{X402Version: x402.Version, Accepted: e.channels.Requirements(1), Payload: x402.BatchPayload{
		Type: x402.BatchVoucher, ChannelConfig: configOf(channel), Voucher: voucherOf(channel),
	}}
	return &Attempt{
		scheme: e.channels, payload: payload{batch: payment}, requirements: payment.Accepted,
		checked: checked{channel: &x402.BatchChecked{ChannelID: channel.ID}},
	}
}

// claimDue claims the payment channels that are due, and tells whether it claimed any.
func (e *Engine) claimDue(ctx context.Context) (claimed bool) {
	policy := store.ClaimPolicy{Authorizer: e.channels.authorizer(), Age: e.config.ClaimAge, Sum: int64(e.config.ClaimSum)} //nolint:gosec // a sum of money
	for ctx.Err() == nil {
		due, err := e.store.UnclaimedChannels(ctx, policy, claimBatch, max(Lease, claimRetry))
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "look for payment channels to claim", "error", err)
		}
		if len(due) == 0 {
			return claimed
		}
		settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
		if e.claimAll(settling, due) {
			claimed = true
		}
		cancel()
	}
	return claimed
}

// claimAll claims vouchers in one transaction, and tells whether it claimed any. A voucher that the chain rejects reverts all, so
// a rejected batch is split in halves until the others are claimed.
func (e *Engine) claimAll(ctx context.Context, channels []store.PaymentChannel) (claimed bool) {
	claims := make([]x402.VoucherClaim, len(channels))
	for i := range channels {
		claims[i] = x402.NewClaim(configOf(&channels[i]), voucherOf(&channels[i]))
	}
	signature, err := x402.NewBatchDomain(e.config.Network.ChainID).SignClaims(e.config.Authorizer, claims)
	if err != nil {
		e.log.ErrorContext(ctx, "sign claims", "error", err)
		return false
	}
	crash("claiming")
	settled, err := e.facilitator.SettleClaims(ctx, e.receiver(), claims, signature)
	crash("claimed on chain")
	switch {
	case err != nil, !settled.Success && x402.Inconclusive(settled.ErrorReason):
		// Claims can be repeated: they raise what is claimed to a sum. The lease is the pause.
		e.log.WarnContext(ctx, "claim", "payment_channels", len(channels), "error", err)
		return false
	case settled.Success:
		for i := range channels {
			err = errors.Join(err, e.store.PaymentChannelClaimed(ctx, &channels[i]))
		}
		e.log.LogAttrs(ctx, slog.LevelInfo, "claimed", slog.Int("payment_channels", len(channels)), slog.String("transaction", settled.Transaction))
		if err != nil {
			e.log.WarnContext(ctx, "record claims", "error", err)
		}
		return true
	case len(channels) > 1:
		half := len(channels) / 2
		first, second := e.claimAll(ctx, channels[:half]), e.claimAll(ctx, channels[half:])
		return first || second
	}
	e.log.LogAttrs(ctx, slog.LevelError, "claim rejected", slog.String("payment_channel_id", channels[0].ID), slog.String("reason", settled.ErrorReason))
	return false
}

// payOut transfers everything that is claimed to the payee, and tells whether nothing is left.
func (e *Engine) payOut(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
	defer cancel()
	settled, err := e.facilitator.SettleReceiver(ctx, e.receiver())
	switch {
	case err != nil:
		e.log.WarnContext(ctx, "pay out", "error", err)
		return false
	case settled.Success:
		e.log.LogAttrs(ctx, slog.LevelInfo, "paid out", slog.String("amount", settled.Amount), slog.String("transaction", settled.Transaction))
		return true
	}
	return settled.ErrorReason == x402.ReasonBatchNothingToSettle
}

func (e *Engine) receiver() x402.ChannelReceiver {
	return x402.ChannelReceiver{Network: e.config.Network.ID, Asset: e.config.Network.Asset, PayTo: e.config.PayTo}
}
