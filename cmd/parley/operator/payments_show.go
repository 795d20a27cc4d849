package operator

import (
	"context"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/cmd/parley/console"
)

type paymentsShow struct {
	Ledger ledger    `embed:""`
	ID     uuid.UUID `arg:"" help:"The payment's id."`
	JSON   bool      `name:"json" help:"Write one line of JSON."`
}

func (p *paymentsShow) Run(ctx context.Context, to console.Console) error {
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	record, err := findPayment(ctx, database, p.ID)
	if err != nil {
		return err
	}
	return show(to.Out, p.JSON, columns, *record)
}
