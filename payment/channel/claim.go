package channel

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// claimBatch is how many vouchers are claimed in one transaction. Facilitators take at least 25.
	claimBatch = 25
	// claimRetry is the pause after a claim of a payment channel that failed, or the eighth part of the withdraw delay if that is shorter.
	claimRetry = 10 * time.Minute
	// claimLooks is how often the chain is asked for a claim that the facilitator reports, with claimPause in between.
	claimLooks = 5
	claimPause = time.Second
)

// claimDue claims the payment channels that are due. If half of what may be unclaimed in total is reached, all are due.
func (c *Scheme) claimDue(ctx context.Context) {
	sums, total := c.sumUp(ctx)
	age := c.ClaimAge
	if most := c.MaxUnclaimedTotal; most > 0 && uint64(total) >= most/2 { //nolint:gosec // not negative
		age = 0
	}
	if c.claimSums(ctx, sums, age, "") > 0 {
		c.sumUp(ctx)
	}
}

// sumUp reads from the ledger what is not claimed.
func (c *Scheme) sumUp(ctx context.Context) (sums []store.UnclaimedSum, total int64) {
	err := c.store.FoldSums(ctx)
	if err == nil {
		sums, err = c.store.Unclaimed(ctx, c.network, c.asset)
	}
	if err != nil {
		if ctx.Err() == nil {
			c.engine.Log.WarnContext(ctx, "look for unclaimed vouchers", "error", err)
		}
		return nil, c.unclaimed.Load()
	}
	for _, one := range sums {
		total += one.Sum
	}
	c.unclaimed.Store(total)
	return sums, total
}

// claimSums claims the payment channels that are due, of all authorizers and payees, and returns how many it claimed. Id
// restricts it to one, if it is not "".
func (c *Scheme) claimSums(ctx context.Context, sums []store.UnclaimedSum, age time.Duration, id string) (claimed int) {
	for _, one := range sums {
		if c.keys[one.ReceiverAuthorizer] == nil {
			continue // the metrics show it
		}
		of := store.PaymentTerms{Network: c.network, Asset: c.asset, PayTo: one.PayTo}
		lease := max(payment.Lease, min(claimRetry, c.WithdrawDelay/8))
		for done := 1; done > 0 && ctx.Err() == nil; {
			due, err := c.store.UnclaimedChannels(ctx, of, one.ReceiverAuthorizer, id, age, claimBatch, lease)
			if err != nil && ctx.Err() == nil {
				c.engine.Log.WarnContext(ctx, "look for payment channels to claim", "error", err)
			}
			if len(due) == 0 {
				break
			}
			settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), payment.Lease)
			done = c.claimAll(settling, due) // if nothing can be claimed, the next round tries others
			claimed += done
			cancel()
		}
	}
	return claimed
}

// claimAll claims vouchers of one authorizer and one payee in one transaction, and returns how many it claimed. A voucher that
// the chain rejects reverts all, so failed claims are split in halves until the others are claimed. Claims can be repeated: they raise what
// is claimed to a sum. The lease is the pause.
func (c *Scheme) claimAll(ctx context.Context, channels []store.PaymentChannel) (claimed int) {
	claims := make([]x402.VoucherClaim, len(channels))
	for i := range channels {
		claims[i] = x402.NewClaim(configOf(&channels[i]), voucherOf(&channels[i]))
		claims[i].TotalClaimed = strconv.FormatInt(channels[i].Claimable(), 10)
	}
	signature, err := x402.NewBatchDomain(c.engine.Network.ChainID).SignClaims(c.keys[channels[0].ReceiverAuthorizer], claims)
	if err != nil {
		c.engine.Log.ErrorContext(ctx, "sign claims", "error", err)
		return 0
	}
	payment.Crash("claiming")
	settled, err := c.engine.Facilitator.Settle(ctx, func(ctx context.Context, f payment.Facilitator) (*x402.SettleResponse, error) {
		return f.SettleClaims(ctx, c.receiver(channels[0].PayTo), claims, signature)
	})
	payment.Crash("claimed on chain")
	switch {
	case err == nil && settled.Success && c.isClaimed(ctx, &channels[0]):
		c.mayPayOut(channels[0].PayTo)
		c.metrics.count(store.ChannelClaim, confirmed)
		c.engine.Log.LogAttrs(ctx, slog.LevelInfo, "claimed", slog.Int("payment_channels", len(channels)),
			slog.String("transaction", settled.Transaction))
		if err := c.recordClaims(ctx, channels, settled.Transaction); err != nil {
			c.engine.Log.WarnContext(ctx, "record claims", "error", err)
		}
		return len(channels)
	case err == nil && settled.Success:
		err = errors.New("reported as claimed, but not on the blockchain")
	case !mayBeOne(err):
	case len(channels) > 1:
		half := len(channels) / 2
		return c.claimAll(ctx, channels[:half]) + c.claimAll(ctx, channels[half:])
	default:
		if err == nil {
			err = errors.New(settled.ErrorReason)
		}
		c.metrics.count(store.ChannelClaim, refused)
		c.engine.Log.LogAttrs(ctx, slog.LevelError, "claim rejected", slog.String("payment_channel_id", channels[0].ID),
			slog.String("reason", err.Error()))
		return 0
	}
	c.metrics.count(store.ChannelClaim, unclear)
	c.engine.Log.WarnContext(ctx, "claim", "payment_channels", len(channels), "error", err)
	return 0
}

// mayBeOne reports whether a claim that did not succeed may have failed because of one of its vouchers: the facilitator has responded, and
// it is neither busy (429) nor unavailable (502 to 504).
func mayBeOne(err error) bool {
	unknown, _ := errors.AsType[*x402.UnknownOutcome](err)
	status, ok := errors.AsType[*x402.StatusError](err)
	return err == nil || ok && !unknown.NotSent && status.Status <= http.StatusInternalServerError
}

// isClaimed reports whether the chain shows the claim of a payment channel that the facilitator reports, or cannot be asked. The endpoint
// may be some blocks behind.
func (c *Scheme) isClaimed(ctx context.Context, channel *store.PaymentChannel) bool {
	for range claimLooks {
		found, err := c.chainState(ctx, channel.ID)
		if err != nil || int64(found.TotalClaimed) >= channel.Claimable() { //nolint:gosec // at most x402.MaxChannelAmount
			return true
		}
		time.Sleep(claimPause)
	}
	return false
}

// recordClaims records a claim. If it fails, the vouchers are claimed again later, without effect on the chain.
func (c *Scheme) recordClaims(ctx context.Context, channels []store.PaymentChannel, transaction string) (err error) {
	for range maxDeadlocks {
		if err = c.store.ChannelsClaimed(ctx, channels, transaction); !store.Deadlocked(err) {
			return err
		}
	}
	return err
}

// payOut transfers to the payees what is claimed. It tries again later if the outcome is not known.
func (c *Scheme) payOut(ctx context.Context) {
	for payee := range c.payouts.Range {
		c.payouts.Delete(payee) // a claim meanwhile adds it again
		settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), payment.Lease)
		_, err := c.payOutTo(settling, payee.(string)) //nolint:forcetypeassert // see mayPayOut
		cancel()
		if err != nil {
			c.mayPayOut(payee.(string)) //nolint:forcetypeassert // as above
			c.engine.Log.WarnContext(ctx, "payout failed; it is tried again", "error", err)
		}
	}
}

// mayPayOut notes a payee, in lower case, to whom something may be due that is claimed.
func (c *Scheme) mayPayOut(payee string) { c.payouts.Store(payee, struct{}{}) }

// payOutTo transfers everything that is claimed to a payee, and records it. It returns nil if nothing was due.
func (c *Scheme) payOutTo(ctx context.Context, payee string) (*x402.SettleResponse, error) {
	settled, err := c.engine.Facilitator.Settle(ctx, func(ctx context.Context, f payment.Facilitator) (*x402.SettleResponse, error) {
		return f.SettleReceiver(ctx, c.receiver(payee))
	})
	payment.Crash("paid out")
	switch {
	case err != nil:
		c.metrics.count(store.ChannelSettle, unclear)
		return nil, err
	case settled.ErrorReason == x402.ReasonBatchNothingToSettle:
		return nil, nil //nolint:nilnil // nothing was due
	case !settled.Success:
		c.metrics.count(store.ChannelSettle, refused)
		return nil, errors.New(settled.ErrorReason)
	}
	c.metrics.count(store.ChannelSettle, confirmed)
	c.engine.Log.LogAttrs(ctx, slog.LevelInfo, "paid out", slog.String("amount", settled.Amount),
		slog.String("transaction", settled.Transaction))
	paid, _ := strconv.ParseInt(settled.Amount, 10, 64) // 0 if the facilitator does not report it; the chain has it
	err = c.store.RecordChannelTransaction(ctx, &store.PaymentChannelTransaction{
		Kind: store.ChannelSettle, Network: c.network, Asset: c.asset, PayTo: payee,
		Paid: max(paid, 0), Transaction: settled.Transaction,
	})
	if err != nil {
		c.engine.Log.WarnContext(ctx, "record payout", "error", err)
	}
	return settled, nil
}

func (c *Scheme) receiver(payee string) x402.ChannelReceiver {
	return x402.ChannelReceiver{Network: c.network, Asset: c.engine.Network.Asset, PayTo: payee}
}
