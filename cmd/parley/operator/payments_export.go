package operator

import (
	"context"
	"encoding/csv"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/store"
)

type paymentsExport struct {
	Ledger  ledger  `embed:""`
	Filters filters `embed:""`
	Format  string  `enum:"csv,json" default:"csv" help:"csv, with a header, or json, one object per line (${default})."`
}

func (p *paymentsExport) Run(ctx context.Context, to console.Console) error {
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	write := func(record store.PaymentRecord) error { return writeJSON(to.Out, columns, record) }
	out := csv.NewWriter(to.Out)
	if p.Format == "csv" {
		if err := out.Write(names(columns)); err != nil {
			return err
		}
		write = func(record store.PaymentRecord) error { return out.Write(cells(columns, record)) }
	}
	for record, err := range database.PaymentRecords(ctx, p.Filters.filter()) {
		if err != nil {
			return err
		}
		if err := write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// names are the header of a CSV file.
func names[T any](columns []columnOf[T]) (all []string) {
	for _, column := range columns {
		all = append(all, column.name)
	}
	return all
}

// cells are the values of a record in CSV.
func cells[T any](columns []columnOf[T], record T) (all []string) {
	for _, column := range columns {
		all = append(all, cell(column.of(record)))
	}
	return all
}

// cell formats a value for a spreadsheet.
func cell(value any) string {
	if written, isText := value.(string); isText {
		return agent.Cell(written)
	}
	return text(value)
}
