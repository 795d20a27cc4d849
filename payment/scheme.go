package payment

import (
	"context"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Scheme is a way to pay: it knows how money moves, and nothing of the ledger's states.
type Scheme interface {
	// Requirements are what a 402 asks for. Price is in atomic units of the token.
	Requirements(price uint64) x402.PaymentRequirements
	// Check checks a payload against our requirements, at a cost that an unpaid caller may cause. The error is an
	// *x402.Invalid if the payment is at fault, and an *Error if that cannot be known now.
	Check(ctx context.Context, requirements x402.PaymentRequirements, payload *x402.PaymentPayload) (x402.Checked, error)
	// Available is nil if payments can settle now.
	Available() *Error
	// Probe asks whoever settles whether it is there.
	Probe(ctx context.Context) error
	// Fund makes sure, before any work is done for an attempt, that its payer holds the price. The error is an *x402.Invalid
	// or an *Error.
	Fund(ctx context.Context, attempt *Attempt) error
	// Fresh tells whether the attempt's authorization was never used, so that only its payer can have it. The error is as that
	// of Fund.
	Fresh(ctx context.Context, attempt *Attempt) (bool, error)
	// Settle moves the money of a payment, whose row says how often that was tried before. It returns the transaction, or
	// *refusedSettlement or *unclearSettlement.
	Settle(ctx context.Context, attempt *Attempt, row *store.Payment) (transaction string, err error)
}

// refusedSettlement says that the money did not move and will not.
type refusedSettlement struct{ reason string }

func (e *refusedSettlement) Error() string { return "settlement refused: " + e.reason }

// unclearSettlement says that the money may have moved. With notSent it certainly did not by this attempt.
type unclearSettlement struct {
	store.Unclear
	cause error
}

func (e *unclearSettlement) Error() string {
	if e.cause == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.cause.Error()
}

func (e *unclearSettlement) Unwrap() error { return e.cause }

// Facilitator checks payments against the chain and settles them: x402.Facilitator, or the official SDK's. An error of
// Settle says that the outcome is not known.
type Facilitator interface {
	Supported(ctx context.Context) (*x402.SupportedResponse, error)
	Verify(ctx context.Context, payload *x402.PaymentPayload, requirements x402.PaymentRequirements) (*x402.VerifyResponse, error)
	Settle(ctx context.Context, payload *x402.PaymentPayload, requirements x402.PaymentRequirements) (*x402.SettleResponse, error)
}

// Chain tells what a wallet holds and what became of an authorization: x402.Chain, over JSON-RPC.
type Chain interface {
	Balance(ctx context.Context, asset, holder string) (uint64, error)
	Authorization(ctx context.Context, asset, authorizer, nonce string, since time.Time) (x402.AuthorizationState, error)
	HasCode(ctx context.Context, address string) (bool, error)
}
