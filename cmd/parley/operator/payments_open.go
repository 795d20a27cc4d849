package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/store"
)

type paymentsOpen struct {
	Ledger ledger `embed:""`
	JSON   bool   `name:"json" help:"Write lines of JSON with all columns instead of a table."`
}

// openStates are the states of payments without a final outcome.
var openStates = []string{store.PaymentSettling, store.PaymentUnknown, store.PaymentUndeliverable}

func (p *paymentsOpen) Run(ctx context.Context, to console.Console) error {
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	now := database.Now()
	age := func(r store.PaymentRecord) time.Duration { return now.Sub(r.CreatedAt).Truncate(time.Second) }
	withAge := append(slices.Clone(columns), column{"age_s", func(r store.PaymentRecord) any { return int64(age(r).Seconds()) }})
	out := table(to.Out)
	if !p.JSON {
		fmt.Fprintln(out, "AGE\tSTATE\tATTEMPTS\tOPERATION\tUSD\tID\tREASON")
	}
	for record, err := range database.PaymentRecords(ctx, store.PaymentFilter{States: openStates}) {
		if err != nil {
			return err
		}
		if p.JSON {
			if err := writeJSON(to.Out, withAge, record); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n",
			age(record), record.State, record.Attempts, record.Operation, usd(record.Amount), record.ID, console.Printable(record.FailureReason))
	}
	return out.Flush()
}
