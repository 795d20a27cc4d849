package reconcile

import (
	"context"
	"fmt"
	"strings"
	"time"

	scheme "github.com/parley-chat/parley/payment/channel"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Channels compares the payment channels of the payee with the chain. Amounts are in atomic units. Deposits and refunds are money of
// the payers.
type Channels struct {
	Count   int64 `json:"count"`
	Charged int64 `json:"charged"`
	Claimed int64 `json:"claimed"` // as recorded
	// ChainClaimed and ChainSettled are what the payee has claimed and was paid out, over all payment channels of the token.
	ChainClaimed int64 `json:"chain_claimed"`
	ChainSettled int64 `json:"chain_settled"`
	// Unknown is the part of ChainClaimed that is from payment channels that the ledger does not have and that are not in
	// [Report.LostChannels]: they were created before the blocks that were read.
	Unknown int64 `json:"unknown"`
}

// compareChannels compares the payment channels and the recorded transactions with the chain. Payment channels that were used last
// before since are not read from the chain.
func (c *comparison) compareChannels(ctx context.Context, domain x402.BatchDomain, done []store.PaymentChannelTransaction,
	since time.Time) error {
	for i := range done {
		c.checkTransaction(ctx, &done[i])
	}
	found := &Channels{}
	// Read before the payment channels: what is claimed meanwhile makes the rest negative.
	received, err := c.chain.Received(ctx, c.Payee, c.Asset)
	if err != nil {
		c.add(unchecked, Finding{Payer: c.Payee, Text: "what is claimed from payment channels: " + err.Error()})
		return ctx.Err()
	}
	known := int64(0)
	for channel, err := range c.database.PaymentChannels(ctx, store.ChannelFilter{Network: c.Network, Asset: c.Asset, PayTo: c.Payee}) {
		if err != nil {
			return err
		}
		found.Count++
		found.Charged += channel.Charged
		found.Claimed += channel.Claimed
		if channel.UsedAt.Before(since) {
			known += channel.Claimed
			continue
		}
		known += c.checkChannel(ctx, &channel)
	}
	found.ChainClaimed, found.ChainSettled = atomic(received.Claimed), atomic(received.Settled)
	found.Unknown = max(found.ChainClaimed-known, 0)
	if found.Unknown > 0 {
		lost, err := c.loseChannels(ctx, domain)
		if err != nil {
			return err
		}
		found.Unknown = max(found.Unknown-lost, 0)
	}
	if found.Unknown > 0 {
		c.add(contradiction, Finding{Payer: c.Payee, Amount: found.Unknown,
			Text: "was claimed from payment channels that the ledger does not have"})
	}
	if found.Count > 0 || found.ChainClaimed > 0 {
		c.Channels = found
	}
	return ctx.Err()
}

// checkChannel compares a payment channel with the chain, and returns what is claimed from it.
func (c *comparison) checkChannel(ctx context.Context, channel *store.PaymentChannel) int64 {
	tell := func(weight string, amount int64, text string) {
		c.add(weight, Finding{Channel: channel.ID, State: channel.State, Payer: channel.Payer, Amount: amount, Text: text})
	}
	chain, _, err := c.chain.Channel(ctx, channel.ID)
	if err != nil {
		tell(unchecked, channel.Charged-channel.Claimed, err.Error())
		return channel.Claimed
	}
	claimed, balance := atomic(chain.TotalClaimed), atomic(chain.Balance)
	if claimed != channel.Claimed || balance != channel.Balance || (chain.WithdrawRequestedAt != 0) != (channel.WithdrawRequestedAt != 0) {
		c.ChangedChannels = append(c.ChangedChannels, ChangedChannel{channel, scheme.MirrorOf(chain)})
	}
	switch {
	case claimed < channel.Claimed:
		tell(contradiction, channel.Claimed-claimed, "is recorded as claimed, but is not claimed")
	case claimed > channel.Charged:
		tell(contradiction, claimed-channel.Charged, "was claimed, but not charged by this ledger")
	case claimed > channel.Claimed:
		tell(behind, claimed-channel.Claimed, "was claimed and is not recorded yet")
	}
	switch {
	case balance < channel.Charged:
		tell(contradiction, channel.Charged-balance, "was charged, but is no longer in the payment channel: it is lost")
	case balance != channel.Balance && channel.State == store.PaymentChannelOpen:
		tell(behind, balance-channel.Balance, "was deposited, withdrawn or refunded since the ledger read the balance")
	}
	if chain.WithdrawRequestedAt != 0 {
		ends := time.Unix(chain.WithdrawRequestedAt+channel.WithdrawDelay, 0)
		tell(notice, atomic(chain.WithdrawAmount), "can be withdrawn by the payer from "+timestamp(ends)+" on")
	}
	return claimed
}

// checkTransaction compares a recorded claim, payout or refund with the events of its transaction.
func (c *comparison) checkTransaction(ctx context.Context, done *store.PaymentChannelTransaction) {
	if done.Transaction == "" { // the response was lost; the payment channel itself is compared
		return
	}
	tell := func(weight string, amount int64, text string) {
		c.add(weight, Finding{Payer: c.Payee, State: done.Kind, Amount: amount, Transaction: done.Transaction, Text: text})
	}
	chain, err := c.chain.ChannelTransaction(ctx, c.Asset, done.Transaction)
	if err != nil {
		tell(unchecked, done.Claimed+done.Paid, err.Error())
		return
	}
	claimed, paid := uint64(0), chain.Settled[strings.ToLower(c.Payee)]
	for _, id := range done.PaymentChannelIDs {
		claimed += chain.Claimed[id]
		paid += chain.Refunded[id]
	}
	if atomic(claimed) < done.Claimed {
		tell(contradiction, done.Claimed-atomic(claimed),
			fmt.Sprintf("is recorded as claimed in this transaction, which claimed %s", x402.FormatUSD(claimed)))
	}
	if atomic(paid) != done.Paid {
		tell(contradiction, done.Paid-atomic(paid), fmt.Sprintf("is recorded as paid in this transaction, which paid %s", x402.FormatUSD(paid)))
	}
}

// takePayouts takes the payouts of payment channels out of the transfers to the payee. They pay for many calls, so no payment matches.
func (c *comparison) takePayouts(done []store.PaymentChannelTransaction) {
	recorded := map[string]bool{}
	unnamed := map[int64]int{} // payouts whose transaction the facilitator did not report, by amount
	for _, one := range done {
		if one.Transaction == "" && one.Kind == store.ChannelSettle {
			unnamed[one.Paid]++
		}
		recorded[one.Transaction] = true
	}
	for key, transfers := range c.transfers {
		if !strings.EqualFold(key.payer, x402.BatchSettlementContract) {
			continue
		}
		for _, transfer := range transfers {
			amount := atomic(transfer.Amount)
			c.PaidOut += amount
			switch {
			case recorded[transfer.Transaction]:
			case unnamed[amount] > 0:
				unnamed[amount]--
			default:
				c.LostPayouts = append(c.LostPayouts, LostPayout{amount, transfer.Transaction, transfer.Block})
				c.add(behind, Finding{Payer: transfer.From, Amount: amount, Transaction: transfer.Transaction,
					Text: "payout of payment channels that is not in the ledger"})
			}
		}
		delete(c.transfers, key)
	}
}
