package operator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// paymentsRefund records a transfer that the operator has made with the payee's wallet. Parley itself has no key of that wallet.
type paymentsRefund struct {
	changes
	ID          paymentID       `arg:"" help:"The payment's id."`
	Transaction string          `required:"" placeholder:"0x…"`
	RPCURL      settings.Secret `name:"rpc-url" env:"PARLEY_RPC_URL" placeholder:"URL"`
}

func (p *paymentsRefund) Run(ctx context.Context, to console.Console) error {
	switch {
	case !transactionHash.MatchString(p.Transaction):
		return errors.New("--transaction must be a transaction hash: 0x and 64 hex digits")
	case !settings.IsHTTP(p.RPCURL.Value):
		return errors.New("cannot check the transaction without --rpc-url (PARLEY_RPC_URL), an http(s) JSON-RPC endpoint of the chain")
	}
	return p.with(ctx, func(database *store.Store, by store.Operator) error {
		record, err := findPayment(ctx, database, p.ID.UUID)
		if err != nil {
			return err
		}
		amount, err := p.given(ctx, record)
		if err != nil {
			return err
		}
		refund := store.Refund{Payer: record.Payer, PaymentID: record.ID, Amount: amount, Transaction: strings.ToLower(p.Transaction)}
		if err := database.RecordRefund(ctx, by, refund); err != nil {
			return err
		}
		_, err = fmt.Fprintf(to.Out, "payment %s: %s of %s USD are recorded as refunded\n", p.ID.UUID, usd(amount), usd(record.Amount))
		return err
	})
}

// given returns what the transaction gave back to the payer.
func (p *paymentsRefund) given(ctx context.Context, record *store.PaymentRecord) (int64, error) {
	chain := &x402.Chain{URL: p.RPCURL.Value}
	if _, err := chain.Serving(ctx, record.Network); err != nil {
		return 0, err
	}
	transfers, err := chain.TransfersIn(ctx, record.Asset, p.Transaction)
	if err != nil {
		return 0, err
	}
	most := int64(0)
	for _, transfer := range transfers {
		if transfer.From != record.PayTo || transfer.To != record.Payer || transfer.Amount == 0 || transfer.Amount > math.MaxInt64 {
			continue
		}
		amount := int64(transfer.Amount)
		if amount <= record.Amount {
			return amount, nil
		}
		most = max(most, amount)
	}
	if most > 0 {
		return 0, fmt.Errorf("the transaction gives %s USD back, and the payment is for %s USD; a refund is at most the payment", usd(most),
			usd(record.Amount))
	}
	return 0, fmt.Errorf("the transaction has no transfer from the payee %s to the payer %s", record.PayTo, record.Payer)
}
