package operator

import (
	"context"
	"fmt"

	"github.com/parley-chat/parley/cmd/parley/console"
)

type paymentsList struct {
	Ledger  ledger  `embed:""`
	Filters filters `embed:""`
	Limit   int     `default:"50" help:"Maximum number; 0 for all (${default})."`
	JSON    bool    `name:"json" help:"Write lines of JSON with all columns instead of a table."`
}

func (p *paymentsList) Run(ctx context.Context, to console.Console) error {
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	filter := p.Filters.filter()
	filter.NewestFirst = true
	out := table(to.Out)
	if !p.JSON {
		fmt.Fprintln(out, "CREATED\tSTATE\tOPERATION\tPAYER\tUSD\tID")
	}
	listed := 0
	for record, err := range database.PaymentRecords(ctx, filter) {
		if err != nil {
			return err
		}
		if p.JSON {
			if err := writeJSON(to.Out, columns, record); err != nil {
				return err
			}
		} else {
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n",
				timestamp(record.CreatedAt), record.State, record.Operation, record.Payer, usd(record.Amount), record.ID)
		}
		if listed++; listed == p.Limit {
			break
		}
	}
	return out.Flush()
}
