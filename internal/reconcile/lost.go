package reconcile

import (
	"context"
	"strings"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// LostPayment is a transfer to the payee by an authorization that the ledger lacks, or that it has as failed; then Failed is the id of
// that payment. Amount is in atomic units.
type LostPayment struct {
	Failed      string `json:"failed_payment,omitempty"`
	Payer       string `json:"payer"`
	Nonce       string `json:"nonce"`
	Amount      int64  `json:"amount"`
	Transaction string `json:"transaction"`
	Block       uint64 `json:"block"`
}

// LostPayout is a payout of payment channels to the payee that the ledger lacks. Amount is in atomic units.
type LostPayout struct {
	Amount      int64  `json:"amount"`
	Transaction string `json:"transaction"`
	Block       uint64 `json:"block"`
}

// LostChannel is a payment channel from which the payee has claimed, and that the ledger lacks.
type LostChannel struct {
	ID      string `json:"payment_channel"`
	Payer   string `json:"payer"`
	Claimed int64  `json:"claimed"` // in atomic units
	config  x402.ChannelConfig
	state   x402.Channel
}

// ChangedChannel is a payment channel whose state on the chain is not that of the ledger.
type ChangedChannel struct {
	*store.PaymentChannel
	Now store.OnChain
}

// lose reports a transfer whose payment is not in the ledger.
func (c *comparison) lose(used x402.UsedAuthorization, transfer x402.Transfer) {
	amount := atomic(transfer.Amount)
	c.Other += amount
	c.LostPayments = append(c.LostPayments, LostPayment{"", used.Authorizer, used.Nonce, amount, transfer.Transaction, transfer.Block})
	c.add(behind, Finding{Payer: used.Authorizer, Amount: amount, Transaction: transfer.Transaction,
		Text: "payment that is not in the ledger"})
}

// loseChannels reports the payment channels of the payee that were created in the blocks of the report, from which the payee has
// claimed, and that the ledger lacks. It returns what is claimed from them. One without a claim needs no entry: the payer's next deposit
// records it.
func (c *comparison) loseChannels(ctx context.Context, domain x402.BatchDomain) (claimed int64, err error) {
	seen := map[string]bool{}
	for created, err := range c.chain.ChannelsCreated(ctx, c.FromBlock, c.Block) {
		if err != nil {
			return claimed, err
		}
		config := created.Config
		if seen[created.ID] || !strings.EqualFold(config.Receiver, c.Payee) || !strings.EqualFold(config.Token, c.Asset) {
			continue
		}
		seen[created.ID] = true
		if id, err := domain.ChannelID(config); err != nil || id != created.ID {
			continue
		}
		known, err := c.database.PaymentChannel(ctx, created.ID, config.Payer)
		if err != nil {
			return claimed, err
		}
		if known != nil {
			continue
		}
		state, _, err := c.chain.Channel(ctx, created.ID)
		if err != nil {
			return claimed, err
		}
		if state.TotalClaimed == 0 {
			continue
		}
		claimed += atomic(state.TotalClaimed)
		c.LostChannels = append(c.LostChannels, LostChannel{created.ID, config.Payer, atomic(state.TotalClaimed), config, state})
		c.add(contradiction, Finding{Channel: created.ID, Payer: config.Payer, Amount: atomic(state.TotalClaimed),
			Text: "was claimed from a payment channel that is not in the ledger"})
	}
	return claimed, nil
}

// Enter enters what the ledger lost: payments, which their payers can redeem ([store.OperationRestored]), payouts, payment channels, and
// the state of others. It returns how many it entered. What a server has entered meanwhile is left out.
func (r *Report) Enter(ctx context.Context, database *store.Store, chain *x402.Chain) (entered int, err error) {
	terms := store.PaymentTerms{Network: r.Network, Asset: r.Asset, PayTo: r.Payee}
	times := map[uint64]time.Time{}
	enter := func(block uint64, restore func(mined time.Time) (bool, error)) error {
		if times[block].IsZero() {
			var err error
			if times[block], err = chain.TimeOf(ctx, block); err != nil {
				return err
			}
		}
		ok, err := restore(times[block])
		if ok {
			entered++
		}
		return err
	}
	for _, lost := range r.LostPayments {
		if err := enter(lost.Block, func(mined time.Time) (bool, error) {
			return database.RestorePayment(ctx, store.RestoredPayment{
				PaymentTerms: terms, Payer: lost.Payer, Nonce: lost.Nonce, Transaction: lost.Transaction, Amount: lost.Amount, At: mined,
			})
		}); err != nil {
			return entered, err
		}
	}
	for _, lost := range r.LostPayouts {
		if err := enter(lost.Block, func(mined time.Time) (bool, error) {
			return database.RecoverPayout(ctx, terms, lost.Transaction, lost.Amount, mined)
		}); err != nil {
			return entered, err
		}
	}
	for _, lost := range r.LostChannels {
		if err := database.AdoptPaymentChannel(ctx, lost.row(terms)); err != nil {
			return entered, err
		}
		entered++
	}
	for _, changed := range r.ChangedChannels {
		now, err := database.SyncPaymentChannel(ctx, changed.PaymentChannel, changed.Now)
		if err != nil {
			return entered, err
		}
		if now != nil {
			entered++
		}
	}
	return entered, nil
}

// row is the payment channel with what the chain knows: it was charged what is claimed.
func (l LostChannel) row(terms store.PaymentTerms) *store.PaymentChannel {
	return &store.PaymentChannel{
		ID: l.ID, Payer: l.Payer, PayerAuthorizer: l.config.PayerAuthorizer, Network: terms.Network, Asset: terms.Asset, PayTo: terms.PayTo,
		ReceiverAuthorizer: l.config.ReceiverAuthorizer, WithdrawDelay: atomic(l.config.WithdrawDelay), Salt: l.config.Salt,
		Charged: l.Claimed, SignedMax: l.Claimed, Claimed: l.Claimed, Balance: atomic(l.state.Balance),
		WithdrawRequestedAt: l.state.WithdrawRequestedAt, RefundNonce: atomic(l.state.RefundNonce), State: store.PaymentChannelOpen,
	}
}
