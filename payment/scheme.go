package payment

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Scheme is one way to pay: exact, a deposit into a payment channel (ChannelScheme), or a voucher of one (vouchers).
type Scheme interface {
	// Requirements returns the payment requirements for a price in atomic units of the token.
	Requirements(price uint64) x402.PaymentRequirements
	// Match returns the payment requirements among offers that the payer accepted, or false.
	Match(offers []x402.PaymentRequirements, payload payload) (x402.PaymentRequirements, bool)
	// Terms returns payment requirements with the payload's own terms, which may be former ones of ours.
	Terms(payload payload) x402.PaymentRequirements
	// Check checks a payload against our requirements. It must be cheap, because unpaid callers cause it. The error is an
	// *x402.Invalid if the payment is invalid, or an *Error if that cannot be decided now.
	Check(ctx context.Context, requirements x402.PaymentRequirements, payload payload) (checked, error)
	// CheckKey is Check without I/O: a signature that is not by the payer's own key is invalid or not Conclusive.
	CheckKey(requirements x402.PaymentRequirements, payload payload) (checked, error)
	// PaidLately reports whether the payer that the payload names paid this server lately. It proves nothing: anybody can name any payer.
	PaidLately(payload payload) bool

	// Moves reports whether the payment moves money on the chain. Otherwise the ledger charges it, in the transaction of the effect.
	Moves() bool
	// Record adds to the row of an attempt what only this scheme has.
	Record(attempt *Attempt, row *store.Payment)
	// Restore completes an attempt that was made from a row: requirements and checked.
	Restore(attempt *Attempt, row *store.Payment) error
	// Same reports whether the row is this very payment.
	Same(attempt *Attempt, row *store.Payment) bool
	// Find finds the payment in the ledger by what this scheme has beside the nonce, or returns nil.
	Find(ctx context.Context, attempt *Attempt) (*store.Payment, error)
	// OfWallet finds an earlier payment for the same request whose payer has this payment too, or returns nil.
	OfWallet(ctx context.Context, attempt *Attempt) (*store.Payment, error)
	// Proves reports whether nobody but the payer of the row can have this payment, which is another one. The error is an *x402.Invalid
	// or an *Error.
	Proves(ctx context.Context, attempt *Attempt, row *store.Payment) (bool, error)
	// Decide returns what the attempt needs by the rules of this scheme alone, or "" if those of all schemes apply: see Engine.decide.
	Decide(attempt *Attempt, row *store.Payment, proven bool) (action, error)

	// Pay takes a payment from the state in which Decide, or Engine.decide, left it to a response: settleFirst or what Decide returned.
	Pay(ctx context.Context, call *Call, row *store.Payment, next action) (*Receipt, error)
	// Prepare checks that the payer holds what the payment moves, before any work is done for it. For a deposit it returns the payment
	// channel.
	Prepare(ctx context.Context, attempt *Attempt) (*store.PaymentChannel, error)
	// Settle moves the money. The row counts the attempts. The error is a *refusedSettlement or an *unclearSettlement.
	Settle(ctx context.Context, attempt *Attempt, row *store.Payment) (settlement, error)
	// Deliver makes the effect and closes the payment in one transaction, after the money moved. Response is the dry run's, if the
	// operation is read-only.
	Deliver(ctx context.Context, call *Call, row *store.Payment, moved settlement, response []byte) (*Receipt, error)
	// Repeated returns the content of PAYMENT-RESPONSE for the stored response of a payment, or store.ErrVoucherMismatch if Decide should
	// have returned correct.
	Repeated(ctx context.Context, attempt *Attempt, row *store.Payment) (*x402.SettleResponse, error)
}

// payload is a decoded payment. Exactly one of its fields is not nil.
type payload struct {
	exact   *x402.PaymentPayload
	channel *x402.BatchPayment
}

func (p payload) version() int {
	if p.channel != nil {
		return p.channel.X402Version
	}
	return p.exact.X402Version
}

func (p payload) raw() []byte {
	if p.channel != nil {
		return p.channel.Raw()
	}
	return p.exact.Raw()
}

func (p payload) extensions() map[string]jsontext.Value {
	if p.channel != nil {
		return p.channel.Extensions
	}
	return p.exact.Extensions
}

// amount is the amount of the offer that the payer accepted, as it says.
func (p payload) amount() string {
	if p.channel != nil {
		return p.channel.Accepted.Amount
	}
	return p.exact.Accepted.Amount
}

// payer is the address that pays, in any case of letters.
func (p payload) payer() string {
	if p.channel != nil {
		return p.channel.Payload.ChannelConfig.Payer
	}
	return p.exact.Payload.Authorization.From
}

// signature is that of the authorization; of a voucher without a deposit its own.
func (p payload) signature() string {
	switch {
	case p.exact != nil:
		return p.exact.Payload.Signature
	case p.channel.Payload.Deposit != nil:
		return p.channel.Payload.Deposit.Authorization.ERC3009.Signature
	}
	return p.channel.Payload.Voucher.Signature
}

// checked is the result of a scheme's checks. Nonce is the ledger's: see store.Payment.
type checked struct {
	x402.Checked
	identity string             // see Attempt.Identity
	channel  *x402.BatchChecked // of ChannelScheme and vouchers
	unproven bool               // the voucher of a payment channel that did not pay lately
}

// settlement is money that moved. Channel is the state of the payment channel after a deposit, or nil if it is not known.
type settlement struct {
	transaction string
	channel     *x402.Channel
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
	VerifyBatch(ctx context.Context, payment *x402.BatchPayment, requirements x402.PaymentRequirements) (*x402.VerifyResponse, error)
	SettleClaims(ctx context.Context, receiver x402.ChannelReceiver, claims []x402.VoucherClaim, signature string) (*x402.SettleResponse, error)
	SettleReceiver(ctx context.Context, receiver x402.ChannelReceiver) (*x402.SettleResponse, error)
	SettleRefund(ctx context.Context, refund x402.RefundCommand, requirements x402.PaymentRequirements) (*x402.SettleResponse, error)
	SettleDeposit(ctx context.Context, payment *x402.BatchPayment, requirements x402.PaymentRequirements) (*x402.SettleResponse, error)
}

// Chain reads balances, authorizations, payment channels and code from the chain: x402.Chain, over JSON-RPC.
type Chain interface {
	Balance(ctx context.Context, asset, holder string) (uint64, error)
	Authorization(ctx context.Context, asset, authorizer, nonce string, since time.Time) (x402.AuthorizationState, error)
	Channel(ctx context.Context, id string) (x402.Channel, time.Time, error)
	HasCode(ctx context.Context, address string) (bool, error)
	Newest(ctx context.Context) (number uint64, at time.Time, err error)
}
