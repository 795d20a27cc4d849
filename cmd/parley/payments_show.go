//go:build !noserver

package main

import (
	"context"

	"github.com/google/uuid"
)

type paymentsShow struct {
	Ledger ledger    `embed:""`
	ID     uuid.UUID `arg:"" help:"The payment's id."`
	JSON   bool      `name:"json" help:"Write one line of JSON."`
}

func (p *paymentsShow) Run(ctx context.Context, to console) error {
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	record, err := findPayment(ctx, database, p.ID)
	if err != nil {
		return err
	}
	return show(to.out, p.JSON, columns, *record)
}
