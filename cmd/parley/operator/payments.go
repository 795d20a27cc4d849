package operator

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/store"
)

// payments gives the operator access to the ledger. It can run while servers run. It shows no data that can be spent.
type payments struct {
	List      paymentsList      `cmd:"" help:"List payments, newest first."`
	Show      paymentsShow      `cmd:"" help:"Show one payment."`
	Export    paymentsExport    `cmd:"" help:"Write all payments that match the filters, oldest first, as CSV or as lines of JSON."`
	Summary   paymentsSummary   `cmd:"" help:"Sum payments by day (UTC) and operation."`
	Channels  paymentsChannels  `cmd:"" help:"List payment channels (scheme batch-settlement), those that were used last first."`
	Channel   paymentsChannel   `cmd:"" help:"Show one payment channel with its payments and transactions."`
	Claim     paymentsClaim     `cmd:"" help:"Claim what payment channels were charged, without waiting for the server, and pay it out."`
	Settle    paymentsSettle    `cmd:"" help:"Pay out to the payee what is claimed from payment channels."`
	Recover   paymentsRecover   `cmd:"" help:"Enter what a restored database lost and the chain knows."`
	Refund    paymentsRefund    `cmd:"" help:"Record a refund of a payment that you made by hand."`
	Resolve   paymentsResolve   `cmd:"" help:"Record the outcome of an unknown payment, as seen on the chain."`
	Reconcile paymentsReconcile `cmd:"" help:"Compare the ledger with the chain. Fails if they contradict."`
}

// ledger is the database of a server, which contains the payments.
type ledger struct {
	File        settings.File   `embed:""`
	DatabaseURL settings.Secret `env:"PARLEY_DATABASE_URL" placeholder:"URL" help:"The server's PostgreSQL database, as a postgres:// URL."`
}

// connect opens the database, whatever its schema is.
func (l ledger) connect(ctx context.Context) (*store.Store, error) {
	var wrong settings.Wrong
	wrong.DatabaseURL(l.DatabaseURL)
	if wrong != nil {
		return nil, console.Usage(wrong)
	}
	return store.Open(ctx, l.DatabaseURL.Value, store.Limits{})
}

// with opens the database for a function.
func (l ledger) with(ctx context.Context, use func(*store.Store) error) error {
	database, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	if err := database.CheckSchema(ctx); err != nil {
		return err
	}
	if err := database.ReadClock(ctx); err != nil { // ages and deadlines of payments are times of the database
		return err
	}
	return use(database)
}

// paymentID is the id of a payment as an argument.
type paymentID struct{ uuid.UUID }

// UnmarshalText accepts a UUID.
func (p *paymentID) UnmarshalText(text []byte) (err error) {
	if p.UUID, err = uuid.ParseBytes(text); err != nil {
		return fmt.Errorf("%q is not the id of a payment; parley payments list shows the ids", text)
	}
	return nil
}

func findPayment(ctx context.Context, database *store.Store, id uuid.UUID) (*store.PaymentRecord, error) {
	record, err := database.PaymentRecord(ctx, id)
	if err == nil && record == nil {
		err = fmt.Errorf("the ledger has no payment %s", id)
	}
	return record, err
}
