package operator

import (
	"context"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/store"
)

// columns are the displayed values of a payment, in this order.
var columns = []columnOf[store.PaymentRecord]{
	{"id", func(r store.PaymentRecord) any { return r.ID.String() }},
	{"created_at", func(r store.PaymentRecord) any { return timestamp(r.CreatedAt) }},
	{"updated_at", func(r store.PaymentRecord) any { return timestamp(r.UpdatedAt) }},
	{"state", func(r store.PaymentRecord) any { return r.State }},
	{"operation", func(r store.PaymentRecord) any { return r.Operation }},
	{"agent_id", func(r store.PaymentRecord) any { return ifSet(r.AgentID, uuid.UUID.String) }},
	{"payer", func(r store.PaymentRecord) any { return r.Payer }},
	{"pay_to", func(r store.PaymentRecord) any { return r.PayTo }},
	{"network", func(r store.PaymentRecord) any { return r.Network }},
	{"asset", func(r store.PaymentRecord) any { return r.Asset }},
	{"amount", func(r store.PaymentRecord) any { return r.Amount }},
	{"amount_usd", func(r store.PaymentRecord) any { return usd(r.Amount) }},
	{"transaction", func(r store.PaymentRecord) any { return r.Transaction }},
	{"failure_reason", func(r store.PaymentRecord) any { return r.FailureReason }},
	{"attempts", func(r store.PaymentRecord) any { return r.Attempts }},
	{"nonce", func(r store.PaymentRecord) any { return r.Nonce }},
	{"valid_before", func(r store.PaymentRecord) any { return timestamp(r.ValidBefore) }},
	{"lease_until", func(r store.PaymentRecord) any { return timestamp(r.LeaseUntil) }},
	{"x402_version", func(r store.PaymentRecord) any { return r.X402Version }},
	{"scheme", func(r store.PaymentRecord) any { return r.Scheme }},
	{"payment_identifier", func(r store.PaymentRecord) any { return optional(r.PaymentIdentifier) }},
	{"payment_channel_id", func(r store.PaymentRecord) any { return optional(r.PaymentChannelID) }},
	{"cumulative_amount", func(r store.PaymentRecord) any { return optional(r.CumulativeAmount) }},
	{"deposit_amount", func(r store.PaymentRecord) any { return r.DepositAmount }},
	{"refund_amount", func(r store.PaymentRecord) any {
		return ifSet(r.Refund, func(refund store.Refund) any { return refund.Amount })
	}},
	{"refund_transaction", func(r store.PaymentRecord) any {
		return ifSet(r.Refund, func(refund store.Refund) any { return refund.Transaction })
	}},
}

type paymentsList struct {
	Ledger  ledger  `embed:""`
	Filters filters `embed:""`
	Limit   int     `default:"50" help:"Maximum number; 0 for all (${default})."`
	JSON    bool    `name:"json" help:"Write lines of JSON with all columns instead of a table."`
}

func (p *paymentsList) Run(ctx context.Context, to console.Console) error {
	return p.Ledger.with(ctx, func(database *store.Store) error {
		filter := p.Filters.filter()
		filter.NewestFirst = true
		format := "table"
		if p.JSON {
			format = "json"
		}
		inTable := []string{"created_at", "state", "attempts", "operation", "payer", "amount_usd", "id", "failure_reason"}
		return list(to.Out, format, p.Limit, columns, inTable, database.PaymentRecords(ctx, filter))
	})
}

type paymentsExport struct {
	Ledger  ledger  `embed:""`
	Filters filters `embed:""`
	Format  string  `enum:"csv,json" default:"csv" help:"csv, with a header, or json, one object per line (${default})."`
}

func (p *paymentsExport) Run(ctx context.Context, to console.Console) error {
	return p.Ledger.with(ctx, func(database *store.Store) error {
		return list(to.Out, p.Format, 0, columns, nil, database.PaymentRecords(ctx, p.Filters.filter()))
	})
}

type paymentsShow struct {
	Ledger ledger    `embed:""`
	ID     paymentID `arg:"" help:"The payment's id."`
	JSON   bool      `name:"json" help:"Write one line of JSON."`
}

func (p *paymentsShow) Run(ctx context.Context, to console.Console) error {
	return p.Ledger.with(ctx, func(database *store.Store) error {
		record, err := findPayment(ctx, database, p.ID.UUID)
		if err != nil {
			return err
		}
		return show(to.Out, p.JSON, columns, *record)
	})
}
