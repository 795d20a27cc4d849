package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/store"
)

type paymentsSummary struct {
	Ledger  ledger  `embed:""`
	Filters filters `embed:""`
	Cost    string  `name:"transaction-cost" default:"0.0024" placeholder:"USD"`
	Gas     bool
	RPCURL  settings.Secret `name:"rpc-url" env:"PARLEY_RPC_URL" placeholder:"URL" help:"A JSON-RPC endpoint of the chain, for --gas."`
	JSON    bool            `name:"json" help:"Write one JSON object instead of a table."`
}

// sums are the payments of one operation and day, or of all operations and days, by outcome.
type sums struct {
	Day           string `json:"day,omitempty"`
	Operation     string `json:"operation,omitempty"`
	Delivered     sum    `json:"delivered"`
	Undeliverable sum    `json:"undeliverable"`
	Refused       sum    `json:"refused"`
	Open          sum    `json:"open"`
	Deposited     sum    `json:"deposited"`
	Refunded      sum    `json:"refunded"`
}

type sum struct {
	Calls     int64  `json:"calls"`
	Amount    int64  `json:"amount"`
	AmountUSD string `json:"amount_usd"`
}

func sumOf(one store.PaymentSum) sum { return sum{one.Calls, one.Amount, usd(one.Amount)} }

func (s *sum) add(other store.PaymentSum) {
	s.Calls += other.Calls
	s.Amount += other.Amount
	s.AmountUSD = usd(s.Amount)
}

func (s *sums) add(other store.PaymentSums) {
	s.Delivered.add(other.Delivered)
	s.Undeliverable.add(other.Undeliverable)
	s.Refused.add(other.Failed)
	s.Open.add(other.Open)
	s.Deposited.add(other.Deposited)
	s.Refunded.add(other.Refunded)
}

func (p *paymentsSummary) Run(ctx context.Context, to console.Console) error {
	return p.Ledger.with(ctx, func(database *store.Store) error { return p.sum(ctx, to, database) })
}

func (p *paymentsSummary) sum(ctx context.Context, to console.Console, database *store.Store) error {
	found, err := database.PaymentSums(ctx, p.Filters.filter())
	if err != nil {
		return err
	}
	summary := struct {
		Days       []sums      `json:"days"`
		Total      sums        `json:"total"`
		Settlement *settlement `json:"settlement"`
	}{Days: []sums{}}
	summary.Total.add(store.PaymentSums{}) // formats zero amounts
	for _, one := range found {
		line := sums{Day: one.Day.UTC().Format(time.DateOnly), Operation: one.Operation}
		line.add(one)
		summary.Total.add(one)
		summary.Days = append(summary.Days, line)
	}
	if summary.Settlement, err = p.settlement(ctx, database); err != nil {
		return err
	}
	if p.JSON {
		return console.EncodeJSON(to.Out, summary)
	}
	out := console.Table(to.Out)
	fmt.Fprintln(out, "DAY\tOPERATION\tDELIVERED\tUSD\tUNDELIVERABLE\tUSD\tREFUSED\tUSD\tOPEN\tUSD\tDEPOSITED\tUSD\tREFUNDED\tUSD")
	total := summary.Total
	total.Day = "total"
	for _, line := range append(summary.Days, total) {
		fmt.Fprintf(out, "%s\t%s", line.Day, line.Operation)
		for _, one := range []sum{line.Delivered, line.Undeliverable, line.Refused, line.Open, line.Deposited, line.Refunded} {
			fmt.Fprintf(out, "\t%d\t%s", one.Calls, one.AmountUSD)
		}
		fmt.Fprintln(out)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return summary.Settlement.print(to.Out)
}
