package reconcile

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// checkUnmatched asks the chain about a settled payment that has no transfer up to the last block.
func (c *comparison) checkUnmatched(ctx context.Context, record store.PaymentRecord) {
	c.Missing += record.Amount
	state, err := c.chain.Authorization(ctx, record.Asset, record.Payer, record.Nonce, record.CreatedAt)
	switch {
	case err != nil:
		c.addPayment(unchecked, record, "", err.Error())
	case state.Used && state.To == record.PayTo && atomic(state.Amount) == record.Amount:
		if record.Transaction != "" && !strings.EqualFold(record.Transaction, state.Transaction) {
			c.addPayment(contradiction, record, state.Transaction, "settled in this transaction, but the ledger has "+record.Transaction)
			return
		}
		c.addPayment(notice, record, state.Transaction, fmt.Sprintf("settled after block %d", c.Block))
	case state.Used:
		c.addPayment(contradiction, record, state.Transaction,
			fmt.Sprintf("its authorization has paid %s to %s instead", x402.FormatUSD(state.Amount), state.To))
	case state.Cancelled:
		c.addPayment(contradiction, record, state.Transaction, "is recorded as paid, but its authorization was cancelled")
	case state.ChainTime.Before(record.UpdatedAt):
		c.addPayment(notice, record, "", "was settled after the newest block of the endpoint, which has the time "+timestamp(state.ChainTime))
	default:
		c.addPayment(contradiction, record, "", "is recorded as paid, but its authorization is unused")
	}
}

// checkOpen asks the chain about an open payment.
func (c *comparison) checkOpen(ctx context.Context, record store.PaymentRecord) {
	state, err := c.chain.Authorization(ctx, record.Asset, record.Payer, record.Nonce, record.CreatedAt)
	weight := notice
	var text string
	switch {
	case err != nil:
		weight, text = unchecked, err.Error()
	case state.Used && state.To == record.PayTo && atomic(state.Amount) == record.Amount:
		text = "settled on the chain, not yet delivered"
	case state.Used:
		text = fmt.Sprintf("can never be settled: its authorization has paid %s to %s", x402.FormatUSD(state.Amount), state.To)
	case state.Cancelled:
		text = "can never be settled: its authorization was cancelled"
	case state.ChainTime.After(record.ValidBefore):
		text = "can never be settled: its authorization was not used in time"
	default:
		text = "not settled; that is possible until " + timestamp(record.ValidBefore)
	}
	c.addPayment(weight, record, state.Transaction, text)
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
