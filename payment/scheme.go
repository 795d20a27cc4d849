package payment

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Scheme is one way to pay. The engine knows schemes by this interface alone.
type Scheme interface {
	// Requirements returns the payment requirements of an operation, for everybody.
	Requirements(operation *Operation) x402.PaymentRequirements
	// Renewed returns the payment requirements for a client that needs others, or false.
	Renewed(operation *Operation, client string) (x402.PaymentRequirements, bool)
	// Rank is how the scheme is offered to a client now: see [Engine.Challenge].
	Rank(price uint64, client string) Rank
	// KnownAs records that a client is known as next too: the call of the operation brought it an API key.
	KnownAs(operation *Operation, client, next string)
	// Payment makes the payment of an attempt from its payload, or returns nil if the payload is of another scheme.
	Payment(attempt *Attempt, payload x402.Payment) Payment
	// Work does what the scheme has to do beside calls, until ctx ends. Any number of servers may run it on one database.
	Work(ctx context.Context)
	// Collectors are the metrics of the scheme.
	Collectors() []prometheus.Collector
}

// Rank is how a scheme is offered.
type Rank int

// The ranks.
const (
	Preferred Rank = iota // in the order of Engine.Offer
	Fallback              // after those that are preferred
	Withheld              // not at all

	ranks = 3
)

// Payment is the payment of an attempt: a [Mover], or a [Charger], or both.
type Payment interface {
	// Match returns the payment requirements among offers that the payer accepted, or false.
	Match(offers []x402.PaymentRequirements) (x402.PaymentRequirements, bool)
	// Terms returns payment requirements with the payload's own terms, which may be former ones of ours.
	Terms() x402.PaymentRequirements
	// Check checks the payload at a time against our requirements, without I/O. With byKey the signature must be by the payer's own key,
	// or be of a form that only the chain can check; without it the payer is a contract, whose signature is not checked. The error is an
	// *x402.Invalid if the payment is invalid.
	Check(requirements x402.PaymentRequirements, at time.Time, byKey bool) (Checked, error)
	// PaidLately reports whether the payer that the payload names paid this server lately. It proves nothing: anybody can name any payer.
	PaidLately() bool

	// Channel is the payment channel that pays, or "".
	Channel() string
	// Record adds to the row of the attempt what only this scheme has.
	Record(row *store.Payment)
	// Same reports whether the row is this very payment.
	Same(row *store.Payment) bool
	// Find finds the payment in the ledger by what this scheme has beside the nonce, or returns nil.
	Find(ctx context.Context) (*store.Payment, error)
	// Decide returns what the attempt needs by the rules of this scheme alone, or "" if the rules of all schemes apply: see Engine.decide.
	Decide(row *store.Payment, proven bool) (Action, error)
	// Repeated returns the content of PAYMENT-RESPONSE for the stored response of a payment, or store.ErrVoucherMismatch if Decide should
	// have returned Correct.
	Repeated(ctx context.Context, row *store.Payment) (*x402.SettleResponse, error)
}

// Mover is a payment that moves money on the chain, with an EIP-3009 authorization that the facilitator brings there. The call is
// delivered after that.
type Mover interface {
	Payment
	// Moves is how much the payment moves, in atomic units.
	Moves() uint64
	// Prepare checks that the payer holds what the payment moves, before any work is done for it. For a deposit it returns the payment
	// channel.
	Prepare(ctx context.Context) (*store.PaymentChannel, error)
	// Verify asks the facilitator to check the payment against the chain.
	Verify(ctx context.Context) (*x402.VerifyResponse, error)
	// Settle asks the facilitator to move the money. See [Breaker.Settle] for the error.
	Settle(ctx context.Context) (*x402.SettleResponse, error)
	// Judge returns "" if a used authorization is the settlement of this payment, else why it is not.
	Judge(used x402.AuthorizationState, row *store.Payment) string
	// Expired is the reason for an authorization that expired.
	Expired() string
	// Doubts reports whether a settlement that the facilitator reports counts only when the chain shows it.
	Doubts(ctx context.Context, settled *x402.SettleResponse) bool
	// Deliver makes the effect and closes the payment in one transaction, after the money moved. Response is the dry run's, if the
	// operation is read-only, else zero. Only Transaction and Extra of settled count.
	Deliver(ctx context.Context, call *Call, row *store.Payment, settled *x402.SettleResponse, response store.Response) (*Receipt, error)
}

// Charger is a payment that the ledger charges, in the transaction of the effect, or whose deposit can be in the ledger without the call.
type Charger interface {
	Payment
	// Chargeable returns why the ledger cannot charge the payment now, or nil.
	Chargeable(ctx context.Context) error
	// Compact forgets what of the payload the checks alone need. Thousands of payments are held while their calls wait.
	Compact()
	// Charge charges the payment and makes the effect. Row belongs to a deposit that arrived without the call, or is nil.
	Charge(ctx context.Context, call *Call, row *store.Payment) (*Receipt, error)
	// Correct returns the 402 for a payment that was charged for another request.
	Correct(ctx context.Context) error
	// Proves reports whether nobody but the payer of the row can have this payment, which is another one.
	Proves(ctx context.Context, row *store.Payment) (bool, error)
}

// Checked is the result of a scheme's checks. Nonce is the ledger's: see store.Payment.
type Checked struct {
	x402.Checked
	// Identity is the lower-case address whose key signed the payment: the wallet, or the one that signs the vouchers of a payment channel.
	// Anybody can deposit into a channel that names another wallet as its payer, so a voucher does not prove the payer.
	Identity string
	Unproven bool // the voucher of a payment channel that did not pay lately
	// NoPayment, if not nil, is why the payload pays for no call, although its signature is valid.
	NoPayment *x402.Invalid
}

// RefusedSettlement means that the money did not move and will not.
type RefusedSettlement struct{ Reason string }

func (e *RefusedSettlement) Error() string { return "settlement refused: " + e.Reason }

// UnclearSettlement means that the money may have moved. If Sent is false, this attempt did not move it.
type UnclearSettlement struct {
	store.Unclear
	Cause error
}

func (e *UnclearSettlement) Error() string {
	if e.Cause == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Cause.Error()
}

func (e *UnclearSettlement) Unwrap() error { return e.Cause }
