package payment

import (
	"context"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Scheme is an x402 payment scheme. It moves money, and knows nothing of the ledger.
type Scheme interface {
	// Requirements returns the payment requirements for a price in atomic units of the token.
	Requirements(price uint64) x402.PaymentRequirements
	// Check checks a payload against our requirements. It must be cheap, because unpaid callers cause it. The error is an
	// *x402.Invalid if the payment is invalid, or an *Error if that cannot be decided now.
	Check(ctx context.Context, requirements x402.PaymentRequirements, payload *x402.PaymentPayload) (x402.Checked, error)
	// Available returns nil if payments can settle now.
	Available() *Error
	// Probe checks whether settlement is available.
	Probe(ctx context.Context) error
	// Fund checks that the payer holds the price, before any work is done for it. The error is an *x402.Invalid or an
	// *Error.
	Fund(ctx context.Context, attempt *Attempt) error
	// Fresh tells whether the authorization was never used, so that only its payer can have it. Errors as for Fund.
	Fresh(ctx context.Context, attempt *Attempt) (bool, error)
	// Settle moves the money. The row counts the attempts. It returns the transaction hash, or an error:
	// *refusedSettlement or *unclearSettlement.
	Settle(ctx context.Context, attempt *Attempt, row *store.Payment) (transaction string, err error)
}

// refusedSettlement means that the money did not move and will not.
type refusedSettlement struct{ reason string }

func (e *refusedSettlement) Error() string { return "settlement refused: " + e.reason }

// unclearSettlement means that the money may have moved. If Sent is false, this attempt did not move it.
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

// Facilitator verifies and settles payments on the chain: x402.Facilitator, or that of the official SDK. An error of Settle
// means that the outcome is not known.
type Facilitator interface {
	Supported(ctx context.Context) (*x402.SupportedResponse, error)
	Verify(ctx context.Context, payload *x402.PaymentPayload, requirements x402.PaymentRequirements) (*x402.VerifyResponse, error)
	Settle(ctx context.Context, payload *x402.PaymentPayload, requirements x402.PaymentRequirements) (*x402.SettleResponse, error)
}

// Chain reads balances, authorizations and code from the chain: x402.Chain, over JSON-RPC.
type Chain interface {
	Balance(ctx context.Context, asset, holder string) (uint64, error)
	Authorization(ctx context.Context, asset, authorizer, nonce string, since time.Time) (x402.AuthorizationState, error)
	HasCode(ctx context.Context, address string) (bool, error)
}
