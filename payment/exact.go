package payment

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// usedBefore is how much older than its row the use of an authorization may be and still count as this payment: the
// chain's clock and the database's may differ.
const usedBefore = time.Minute

// Exact is the x402 scheme "exact": an EIP-3009 authorization of the exact price. The facilitator settles each one in its own
// transaction.
type Exact struct {
	engine  *Engine
	checker x402.Checker
}

// NewExact makes the scheme.
func NewExact(engine *Engine) (*Exact, error) {
	checker, err := x402.NewChecker(engine.Network)
	if err != nil {
		return nil, err
	}
	return &Exact{engine, checker}, nil
}

// Requirements implements [Scheme].
func (x *Exact) Requirements(operation *Operation) x402.PaymentRequirements {
	return x.engine.Network.Requirements(operation.Price, x.engine.PayTo, MaxTimeoutSeconds)
}

// Renewed implements [Scheme].
func (*Exact) Renewed(*Operation, string) (_ x402.PaymentRequirements, _ bool) { return }

// KnownAs implements [Scheme].
func (*Exact) KnownAs(*Operation, string, string) {}

// Rank implements [Scheme].
func (*Exact) Rank(uint64, string) Rank { return Preferred }

// Work implements [Scheme]: nothing is to be done beside calls.
func (*Exact) Work(context.Context) {}

// Collectors implements [Scheme].
func (*Exact) Collectors() []prometheus.Collector { return nil }

// Payment implements [Scheme].
func (x *Exact) Payment(attempt *Attempt, payload x402.Payment) Payment {
	exact, ok := payload.(*x402.PaymentPayload)
	if !ok {
		return nil
	}
	if exact.X402Version == x402.VersionV1 { // version 1 does not carry the resource, which the facilitator expects
		resource := x.engine.resource(attempt.Operation)
		exact.Resource = &resource
	}
	return &transfer{x, attempt, exact}
}

// transfer is a payment of scheme exact.
type transfer struct {
	*Exact
	attempt *Attempt
	payload *x402.PaymentPayload
}

func (t *transfer) Match(offers []x402.PaymentRequirements) (x402.PaymentRequirements, bool) {
	offer, ok := x402.Match(offers, t.payload)
	return offer, ok && offer.Scheme == x402.SchemeExact // the payer chooses the scheme that the payload names
}

func (t *transfer) Terms() x402.PaymentRequirements {
	authorization := t.payload.Payload.Authorization
	amount, _ := strconv.ParseUint(authorization.Value, 10, 64) // Check refuses 0
	return t.engine.Network.Requirements(amount, authorization.To, MaxTimeoutSeconds)
}

func (t *transfer) Check(requirements x402.PaymentRequirements, at time.Time, byKey bool) (Checked, error) {
	check := t.checker.CheckTerms
	if byKey {
		check = t.checker.Check
	}
	of, err := check(requirements, t.payload, at)
	return Checked{Checked: of, Identity: of.Payer}, err
}

func (t *transfer) PaidLately() bool { return t.engine.PaidLately(t.payload.PayerAddress()) }

func (*transfer) Channel() string { return "" }

func (*transfer) Record(*store.Payment) {}

func (t *transfer) Same(row *store.Payment) bool { return t.attempt.SameNonce(row) }

func (*transfer) Find(context.Context) (*store.Payment, error) {
	return nil, nil //nolint:nilnil // an authorization is found by its nonce
}

func (*transfer) Decide(*store.Payment, bool) (Action, error) { return "", nil }

// Moves is the price.
func (t *transfer) Moves() uint64 { return t.attempt.Operation.Price }

// Prepare checks the balance of the wallet. Wallets cost nothing to create, so a signature proves no funds. A wallet that
// paid lately is trusted without a check, with as many payments at once as it paid.
func (t *transfer) Prepare(ctx context.Context) (*store.PaymentChannel, error) {
	if t.attempt.Conclusive && t.attempt.others < t.engine.payers.paidLately(t.attempt.Payer()) {
		return nil, nil //nolint:nilnil // no payment channel
	}
	return nil, t.engine.Covered(ctx, t.attempt, t, func(has string) error {
		return t.engine.Refused(t.attempt.Operation, x402.ReasonInsufficientBalance, has+fmt.Sprintf(
			"price of %d, and nothing was charged; add funds and sign a new payment", t.attempt.Operation.Price))
	})
}

func (t *transfer) Verify(ctx context.Context) (*x402.VerifyResponse, error) {
	return t.engine.Facilitator.Verify(ctx, func(ctx context.Context, f Facilitator) (*x402.VerifyResponse, error) {
		return f.Verify(ctx, t.payload, t.attempt.Requirements)
	})
}

func (t *transfer) Settle(ctx context.Context) (*x402.SettleResponse, error) {
	return t.engine.Facilitator.Settle(ctx, func(ctx context.Context, f Facilitator) (*x402.SettleResponse, error) {
		return f.Settle(ctx, t.payload, t.attempt.Requirements)
	})
}

func (*transfer) Judge(used x402.AuthorizationState, row *store.Payment) string {
	switch {
	case !used.At.IsZero() && used.At.Before(row.CreatedAt.Add(-usedBefore)):
		// It was public on the chain before it came here, so the sender need not be the payer.
		return "the authorization was used before it was sent here"
	case strings.EqualFold(used.To, row.PayTo) && used.Amount == uint64(row.Amount): //nolint:gosec // positive
		return ""
	}
	return "the nonce was used for another transfer"
}

func (*transfer) Expired() string { return x402.ReasonValidBefore }

// Doubts: a facilitator may repeat the response to another payment, whose transaction does not contain this one. While the endpoint does
// not have the transaction, the facilitator is trusted with one price.
func (t *transfer) Doubts(ctx context.Context, settled *x402.SettleResponse) bool {
	found, err := t.engine.MovedBy(ctx, t.attempt, settled.Transaction)
	return err == nil && !strings.EqualFold(found.To, t.attempt.Requirements.PayTo)
}

func (t *transfer) Deliver(
	ctx context.Context, call *Call, row *store.Payment, settled *x402.SettleResponse, response store.Response,
) (*Receipt, error) {
	return t.engine.deliver(ctx, call, row, settled.Transaction, response)
}

// Repeated is as in the first response.
func (*transfer) Repeated(_ context.Context, row *store.Payment) (*x402.SettleResponse, error) {
	return settledAs(row, row.Transaction), nil
}
