package operator

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/store"
)

type paymentsResolve struct {
	changes
	ID         paymentID `arg:"" help:"The payment's id."`
	Settled    string    `xor:"outcome" required:"" placeholder:"0x…"`
	NotSettled bool      `xor:"outcome" required:"" help:"The payment did not settle and can no longer settle. It is recorded as failed."`
}

var transactionHash = regexp.MustCompile(`^0x[0-9a-fA-F]{64}$`)

// notSettled is the reason in the response to the payer. It has the form of a facilitator's reason.
const notSettled = "not_settled"

func (p *paymentsResolve) Run(ctx context.Context, to console.Console) error {
	if p.Settled != "" && !transactionHash.MatchString(p.Settled) {
		return errors.New("--settled must be a transaction hash: 0x and 64 hex digits")
	}
	return p.with(ctx, func(database *store.Store, by store.Operator) error {
		record, err := findPayment(ctx, database, p.ID.UUID)
		if err != nil {
			return err
		}
		done, err := p.resolve(ctx, database, by, record)
		if errors.Is(err, store.ErrStalePayment) {
			if record, err = findPayment(ctx, database, p.ID.UUID); err != nil {
				return err
			}
			return fmt.Errorf("the payment is %s%s; only an unknown payment can be resolved", record.State, known(record))
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(to.Out, "payment %s: %s\n", p.ID.UUID, done)
		return err
	})
}

// resolve records the outcome and returns what happens next.
func (p *paymentsResolve) resolve(ctx context.Context, database *store.Store, by store.Operator, record *store.PaymentRecord) (string,
	error) {
	if !p.NotSettled {
		return "the server closes it in its next recovery run", database.ResolveSettled(ctx, by, p.ID.UUID, strings.ToLower(p.Settled))
	}
	// Until validBefore anybody who has the payment can still settle it, even after it is marked as failed.
	if database.Now().Before(record.ValidBefore) {
		return "", fmt.Errorf("the payment can still be settled until %s: run this command again after that", timestamp(record.ValidBefore))
	}
	return "closed as not settled", database.ResolveFailed(ctx, by, p.ID.UUID, notSettled)
}

// known returns the end of an error message: why an open payment cannot be resolved.
func known(record *store.PaymentRecord) string {
	switch {
	case !slices.Contains(openStates, record.State):
		return ""
	case record.Transaction != "":
		return " and known to be settled in " + record.Transaction
	}
	return " and a server is working on it"
}
