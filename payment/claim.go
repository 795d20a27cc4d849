package payment

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// claimBatch is how many vouchers are claimed in one transaction. Facilitators take at least 25.
	claimBatch = 25
	// claimRetry is the pause after a claim of a payment channel that failed.
	claimRetry = 10 * time.Minute
)

// payouts are the payees to whom something may be due that is claimed and not paid out.
type payouts struct {
	mu     sync.Mutex
	payees map[string]struct{} // in lower case
}

func (p *payouts) add(payee string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.payees == nil {
		p.payees = map[string]struct{}{}
	}
	p.payees[payee] = struct{}{}
}

// take returns the payees and forgets them.
func (p *payouts) take() map[string]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.payees
	p.payees = nil
	return taken
}

// claimDue claims the payment channels that are due. If half of what may be unclaimed in total is reached, all are due.
func (e *Engine) claimDue(ctx context.Context) {
	sums, total := e.sumUp(ctx)
	age := e.config.ClaimAge
	if most := e.config.MaxUnclaimedTotal; most > 0 && uint64(total) >= most/2 { //nolint:gosec // not negative
		age = 0
	}
	if e.claimSums(ctx, sums, age, "") > 0 {
		e.sumUp(ctx)
	}
}

// sumUp reads from the ledger what is not claimed.
func (e *Engine) sumUp(ctx context.Context) (sums []store.UnclaimedSum, total int64) {
	sums, err := e.store.Unclaimed(ctx, e.config.Network.ID, strings.ToLower(e.config.Network.Asset))
	if err != nil {
		if ctx.Err() == nil {
			e.log.WarnContext(ctx, "look for unclaimed vouchers", "error", err)
		}
		return nil, e.unclaimed.sum.Load()
	}
	for _, one := range sums {
		total += one.Sum
	}
	e.unclaimed.sum.Store(total)
	return sums, total
}

// claimSums claims the payment channels that are due, of all authorizers and payees, and returns how many it claimed. Id
// restricts it to one, if it is not "".
func (e *Engine) claimSums(ctx context.Context, sums []store.UnclaimedSum, age time.Duration, id string) (claimed int) {
	for _, one := range sums {
		if e.channels.keys[one.ReceiverAuthorizer] == nil {
			continue // the metrics show it
		}
		policy := store.ClaimPolicy{
			Network: e.config.Network.ID, Asset: strings.ToLower(e.config.Network.Asset), ReceiverAuthorizer: one.ReceiverAuthorizer, PayTo: one.PayTo,
			ID: id, Age: age, Sum: int64(e.config.ClaimSum), //nolint:gosec // a sum of money
		}
		for ctx.Err() == nil {
			due, err := e.store.UnclaimedChannels(ctx, policy, claimBatch, max(Lease, claimRetry))
			if err != nil && ctx.Err() == nil {
				e.log.WarnContext(ctx, "look for payment channels to claim", "error", err)
			}
			if len(due) == 0 {
				break
			}
			settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
			claimed += e.claimAll(settling, due)
			cancel()
		}
	}
	return claimed
}

// claimAll claims vouchers of one authorizer and one payee in one transaction, and returns how many it claimed. A voucher that
// the chain rejects reverts all, so rejected claims are split in halves until the others are claimed.
func (e *Engine) claimAll(ctx context.Context, channels []store.PaymentChannel) (claimed int) {
	ctx, span := e.tracer.Root(ctx, "claim", trace.SpanKindInternal)
	span.SetInt("parley.payment_channels", len(channels))
	defer func() { span.End(claimed == 0) }()
	claims := make([]x402.VoucherClaim, len(channels))
	for i := range channels {
		claims[i] = x402.NewClaim(configOf(&channels[i]), voucherOf(&channels[i]))
		claims[i].TotalClaimed = strconv.FormatInt(channels[i].Claimable(), 10)
	}
	signature, err := x402.NewBatchDomain(e.config.Network.ChainID).SignClaims(e.channels.keys[channels[0].ReceiverAuthorizer], claims)
	if err != nil {
		e.log.ErrorContext(ctx, "sign claims", "error", err)
		return 0
	}
	crash("claiming")
	settled, err := e.facilitator.SettleClaims(ctx, e.receiver(channels[0].PayTo), claims, signature)
	crash("claimed on chain")
	switch {
	case err != nil, !settled.Success && x402.Inconclusive(settled.ErrorReason):
		// Claims can be repeated: they raise what is claimed to a sum. The lease is the pause.
		if err == nil {
			err = errors.New(settled.ErrorReason)
		}
		e.metrics.channelTransaction(store.ChannelClaim, outcomeUnclear)
		e.log.WarnContext(ctx, "claim", "payment_channels", len(channels), "error", err)
		return 0
	case settled.Success:
		e.payouts.add(channels[0].PayTo)
		e.metrics.channelTransaction(store.ChannelClaim, outcomeSettled)
		e.log.LogAttrs(ctx, slog.LevelInfo, "claimed", slog.Int("payment_channels", len(channels)), slog.String("transaction", settled.Transaction))
		if err := e.recordClaims(ctx, channels, settled.Transaction); err != nil {
			e.log.WarnContext(ctx, "record claims", "error", err)
		}
		return len(channels)
	case len(channels) > 1:
		half := len(channels) / 2
		return e.claimAll(ctx, channels[:half]) + e.claimAll(ctx, channels[half:])
	}
	e.metrics.channelTransaction(store.ChannelClaim, outcomeRefused)
	e.log.LogAttrs(ctx, slog.LevelError, "claim rejected", slog.String("payment_channel_id", channels[0].ID), slog.String("reason", settled.ErrorReason))
	e.recheck(ctx, &channels[0])
	return 0
}

// recheck reads the state of a payment channel after a claim that the chain rejected: the payer may have withdrawn what it was
// charged. The rest of the balance is claimed next time.
func (e *Engine) recheck(ctx context.Context, channel *store.PaymentChannel) {
	found, _, err := e.channels.chain.Channel(ctx, channel.ID)
	if err == nil {
		_, err = e.synced(ctx, channel, found)
	}
	if err != nil {
		e.log.WarnContext(ctx, "refresh payment channels", "error", err)
	}
}

// recordClaims records a claim. If it fails, the vouchers are claimed again later, without effect on the chain.
func (e *Engine) recordClaims(ctx context.Context, channels []store.PaymentChannel, transaction string) (err error) {
	for range maxDeadlocks {
		if err = e.store.ChannelsClaimed(ctx, channels, transaction); !store.Deadlocked(err) {
			return err
		}
	}
	return err
}

// payOut transfers to the payees what is claimed. It tries again later if the outcome is not known.
func (e *Engine) payOut(ctx context.Context) {
	for payee := range e.payouts.take() {
		settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
		_, err := e.payOutTo(settling, payee)
		cancel()
		if err != nil {
			e.payouts.add(payee)
			e.log.WarnContext(ctx, "pay out", "error", err)
		}
	}
}

// payOutTo transfers everything that is claimed to a payee, and records it. It returns nil if nothing was due.
func (e *Engine) payOutTo(ctx context.Context, payee string) (*x402.SettleResponse, error) {
	settled, err := e.facilitator.SettleReceiver(ctx, e.receiver(payee))
	crash("paid out")
	switch {
	case err != nil:
		e.metrics.channelTransaction(store.ChannelSettle, outcomeUnclear)
		return nil, err
	case settled.ErrorReason == x402.ReasonBatchNothingToSettle:
		return nil, nil //nolint:nilnil // nothing was due
	case !settled.Success:
		e.metrics.channelTransaction(store.ChannelSettle, outcomeRefused)
		return nil, errors.New(settled.ErrorReason)
	}
	e.metrics.channelTransaction(store.ChannelSettle, outcomeSettled)
	e.log.LogAttrs(ctx, slog.LevelInfo, "paid out", slog.String("amount", settled.Amount), slog.String("transaction", settled.Transaction))
	paid, _ := strconv.ParseInt(settled.Amount, 10, 64) // 0 if the facilitator does not report it; the chain has it
	err = e.store.RecordChannelTransaction(ctx, &store.PaymentChannelTransaction{
		Kind: store.ChannelSettle, Network: e.config.Network.ID, Asset: strings.ToLower(e.config.Network.Asset), PayTo: payee,
		Paid: max(paid, 0), Transaction: settled.Transaction,
	})
	if err != nil {
		e.log.WarnContext(ctx, "record payout", "error", err)
	}
	return settled, nil
}

func (e *Engine) receiver(payee string) x402.ChannelReceiver {
	return x402.ChannelReceiver{Network: e.config.Network.ID, Asset: e.config.Network.Asset, PayTo: payee}
}
