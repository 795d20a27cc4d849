package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/internal/reconcile"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// booksAndChain are a ledger and the chain to compare it with.
type booksAndChain struct {
	Ledger ledger          `embed:""`
	RPCURL settings.Secret `name:"rpc-url" env:"PARLEY_RPC_URL" placeholder:"URL" help:"A JSON-RPC endpoint of the chain."`
	Terms  terms           `embed:""`
	Since  moment          `placeholder:"TIME"`
}

// paymentsReconcile compares the ledger with the chain in both directions (internal/reconcile).
type paymentsReconcile struct {
	Books  booksAndChain `embed:""`
	Strict bool          `help:"Exit with status 1 also if the chain knows what the ledger lacks, as after a restore from a backup."`
	JSON   bool          `name:"json" help:"Write one JSON object instead of tables."`
}

// compare compares the ledger with the chain for a function.
func (b booksAndChain) compare(ctx context.Context, use func(*store.Store, *reconcile.Report) error) error {
	var wrong settings.Wrong
	wrong.RPCURL(b.RPCURL)
	if wrong != nil {
		return console.Usage(wrong)
	}
	return b.Ledger.with(ctx, func(database *store.Store) error {
		terms, err := b.Terms.choose(ctx, database)
		if err != nil {
			return err
		}
		report, err := reconcile.Compare(ctx, database, b.chain(), terms, b.Since.Time)
		if err != nil {
			return err
		}
		return use(database, report)
	})
}

func (b booksAndChain) chain() *x402.Chain { return &x402.Chain{URL: b.RPCURL.Value} }

func (p *paymentsReconcile) Run(ctx context.Context, to console.Console) error {
	return p.Books.compare(ctx, func(_ *store.Store, report *reconcile.Report) error { return p.tell(to, report) })
}

// tell prints a report. The error says what is wrong.
func (p *paymentsReconcile) tell(to console.Console, report *reconcile.Report) (err error) {
	if p.JSON {
		err = console.EncodeJSON(to.Out, report)
	} else {
		err = printReconciliation(to.Out, report)
	}
	switch {
	case err != nil:
		return err
	case p.Strict && report.Behind > 0:
		return fmt.Errorf("the chain knows what the ledger lacks (behind: %d, contradictions: %d, not checked: %d); "+
			"after a restore from a backup run `parley payments recover`",
			report.Behind, report.Contradictions, report.Unchecked)
	case report.Contradictions+report.Unchecked > 0:
		return fmt.Errorf("%d contradictions between ledger and chain, %d payments that the endpoint cannot check", report.Contradictions,
			report.Unchecked)
	}
	return nil
}

func printReconciliation(to io.Writer, r *reconcile.Report) error {
	out := console.Table(to)
	fmt.Fprintf(out, "network\t%s\nasset\t%s\npayee\t%s\n", r.Network, r.Asset, r.Payee)
	fmt.Fprintf(out, "blocks\t%d to %d, of %s\n\n", r.FromBlock, r.Block, timestamp(r.At))
	fmt.Fprintf(out, "balance on the chain\t%s USD\n", usd(r.Balance))
	fmt.Fprintf(out, "delivered and undeliverable\t%s USD in %d payments\n", usd(r.Ledger), r.Payments)
	fmt.Fprintf(out, "difference\t%s USD\n", usd(r.Difference))
	before := fmt.Sprintf("balance before block %d", r.FromBlock)
	if !r.BeforeKnown {
		before += " (calculated: the endpoint no longer knows it)"
	}
	for _, part := range []struct {
		name   string
		amount int64
	}{
		{before, r.Before}, {"payouts of payment channels", r.PaidOut}, {"other incoming transfers", r.Other},
		{"for payments that are open", r.Open},
		{"for payments that failed", r.Unpaid}, {"for payments created earlier or later", r.Beyond},
		{"refunds", -r.Refunded}, {"other outgoing transfers", -r.Left}, {fmt.Sprintf("missing up to block %d", r.Block), -r.Missing},
	} {
		if part.amount != 0 {
			fmt.Fprintf(out, "  %s\t%s USD\n", part.name, usd(part.amount))
		}
	}
	if c := r.Channels; c != nil {
		fmt.Fprintf(out, "\ncharged to payment channels\t%s USD in %d\n", usd(c.Charged), c.Count)
		fmt.Fprintf(out, "  recorded as claimed\t%s USD\n", usd(c.Claimed))
		fmt.Fprintf(out, "  claimed on the chain\t%s USD, of which %s USD are paid out\n", usd(c.ChainClaimed), usd(c.ChainSettled))
		fmt.Fprintf(out, "  not claimed\t%s USD\n", usd(c.Charged-c.Claimed))
	}
	if len(r.Findings) == 0 {
		fmt.Fprintln(out, "\nnothing to report")
		return out.Flush()
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nFINDING\tPAYMENT OR CHANNEL\tSTATE\tPAYER\tUSD\tWHAT\tTRANSACTION")
	for _, found := range r.Findings {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", found.Weight, cmp.Or(found.Payment, found.Channel), found.State, found.Payer,
			found.AmountUSD, console.Printable(found.Text), found.Transaction)
	}
	return out.Flush()
}
