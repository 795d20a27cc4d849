package operator

import (
	"context"
	"fmt"
	"io"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/internal/reconcile"
	"github.com/parley-chat/parley/store"
)

// paymentsRecover enters what a restored database lost and the chain knows. The payers redeem their payments
// (docs/payments.md, "Payments that a restore lost").
type paymentsRecover struct {
	Books  booksAndChain `embed:""`
	DryRun bool          `help:"Only list what would be entered."`
}

func (p *paymentsRecover) Run(ctx context.Context, to console.Console) error {
	return p.Books.compare(ctx, func(database *store.Store, report *reconcile.Report) error {
		if err := printLost(to.Out, report); err != nil || p.DryRun {
			return err
		}
		entered, err := report.Enter(ctx, database, p.Books.chain())
		fmt.Fprintf(to.Out, "entered %d\n", entered)
		return err
	})
}

// printLost lists what the ledger lacks.
func printLost(to io.Writer, r *reconcile.Report) error {
	out := console.Table(to)
	sum := int64(0)
	if len(r.LostPayments)+len(r.LostPayouts)+len(r.LostChannels)+len(r.ChangedChannels) > 0 {
		fmt.Fprintln(out, "LOST\tPAYER\tUSD\tNONCE OR PAYMENT CHANNEL\tTRANSACTION")
	}
	for _, one := range r.LostPayments {
		sum += one.Amount
		what := "payment"
		if one.Failed != "" {
			what = "payment recorded as failed"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", what, one.Payer, usd(one.Amount), one.Nonce, one.Transaction)
	}
	for _, one := range r.LostPayouts {
		fmt.Fprintf(out, "payout\t\t%s\t\t%s\n", usd(one.Amount), one.Transaction)
	}
	for _, one := range r.LostChannels {
		fmt.Fprintf(out, "payment channel\t%s\t%s\t%s\t\n", one.Payer, usd(one.Claimed), one.ID)
	}
	for _, one := range r.ChangedChannels {
		fmt.Fprintf(out, "state of a payment channel\t%s\t%s\t%s\t\n", one.Payer, usd(one.Now.Claimed), one.ID)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if len(r.LostPayments) > 0 {
		fmt.Fprintln(to, "every transfer by an authorization to the payee counts as a payment of this server, also one that another service "+
			"of the payee got; --since leaves out older ones")
	}
	_, err := fmt.Fprintf(to, "lost: %d payments of %s USD, %d payouts, %d payment channels, in blocks %d to %d\n",
		len(r.LostPayments), usd(sum), len(r.LostPayouts), len(r.LostChannels), r.FromBlock, r.Block)
	return err
}
