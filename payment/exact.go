package payment

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// settleTimeout bounds a settlement: a facilitator waits for a block, and may be slow.
	settleTimeout = 90 * time.Second
	// chainTimeout bounds how long a caller waits for the chain to report the state of its payment.
	chainTimeout = 1500 * time.Millisecond
	// balanceTimeout bounds the balance request. After that the facilitator is asked instead, so that a caller learns within
	// two seconds that neither responds.
	balanceTimeout = 300 * time.Millisecond
	// usedBefore is how much older than its row the use of an authorization may be and still count as this payment: the
	// chain's clock and the database's may differ.
	usedBefore = time.Minute
)

// exact is the x402 scheme "exact": an EIP-3009 authorization of the exact price. The facilitator settles each one in its own
// transaction.
type exact struct {
	transfers
	checker x402.Checker
}

func newExact(of transfers) (*exact, error) {
	checker, err := x402.NewChecker(of.engine.config.Network)
	if err != nil {
		return nil, err
	}
	return &exact{of, checker}, nil
}

func (x *exact) Requirements(price uint64) x402.PaymentRequirements {
	return x.engine.config.Network.Requirements(price, x.engine.config.PayTo, maxTimeoutSeconds)
}

// Match compares the payment with the offers of this scheme.
func (x *exact) Match(offers []x402.PaymentRequirements, payload payload) (x402.PaymentRequirements, bool) {
	offer, ok := x402.Match(offers, payload.exact)
	return offer, ok && offer.Scheme == x402.SchemeExact // the payer chooses the scheme that the payload names
}

// Terms returns the terms that the authorization has.
func (x *exact) Terms(payload payload) x402.PaymentRequirements {
	authorization := payload.exact.Payload.Authorization
	amount, _ := strconv.ParseUint(authorization.Value, 10, 64) // Check refuses 0
	return x.engine.config.Network.Requirements(amount, authorization.To, maxTimeoutSeconds)
}

// Restore uses the row's terms: the price or the payee may have changed since.
func (x *exact) Restore(attempt *Attempt, row *store.Payment) error {
	attempt.requirements = x.engine.config.Network.Requirements(uint64(row.Amount), row.PayTo, maxTimeoutSeconds) //nolint:gosec // positive
	return nil
}

// CheckKey runs the checks of a payer that signs with its own key.
func (x *exact) CheckKey(requirements x402.PaymentRequirements, payload payload) (checked, error) {
	byKey, err := x.checker.Check(requirements, payload.exact, x.engine.store.Now())
	return keyChecked(byKey), err
}

// Check runs the checks that need no facilitator. A 65-byte signature that does not recover to the payer is invalid unless
// the payer is a contract, which may define valid signatures itself. Only the chain knows whether the payer is a contract, so
// that lookup comes last. An expired payment skips it: it cannot begin, and it is repeated only with the signature that was
// verified before.
func (x *exact) Check(ctx context.Context, requirements x402.PaymentRequirements, payload payload) (checked, error) {
	byKey, err := x.CheckKey(requirements, payload)
	bad, isBad := errors.AsType[*x402.Invalid](err)
	if !isBad || bad.Reason != x402.ReasonSignature {
		return byKey, err
	}
	unsigned, termsErr := x.checker.CheckTerms(requirements, payload.exact, x.engine.store.Now())
	if termsErr != nil {
		return keyChecked(unsigned), termsErr
	}
	return x.ofContract(ctx, payload, byKey, keyChecked(unsigned), err)
}

func keyChecked(of x402.Checked) checked { return checked{Checked: of, identity: of.Payer} }

// PaidLately looks for the wallet.
func (x *exact) PaidLately(payload payload) bool { return x.engine.PaidLately(payload.payer()) }

func (x *exact) Moves() bool { return true }

func (x *exact) Record(*Attempt, *store.Payment) {}

func (x *exact) Same(a *Attempt, row *store.Payment) bool { return a.sameNonce(row) }

func (x *exact) Find(context.Context, *Attempt) (*store.Payment, error) {
	return nil, nil //nolint:nilnil // an authorization is found by its nonce
}

// OfWallet finds payments of the wallet.
func (x *exact) OfWallet(ctx context.Context, a *Attempt) (*store.Payment, error) {
	return x.engine.ofWallet(ctx, a, "")
}

func (x *exact) Decide(*Attempt, *store.Payment, bool) (action, error) { return "", nil }

// Pay settles the payment.
func (x *exact) Pay(ctx context.Context, call *Call, _ *store.Payment, _ action) (*Receipt, error) {
	return x.engine.settleFirst(ctx, call)
}

// Deliver makes the effect.
func (x *exact) Deliver(ctx context.Context, call *Call, row *store.Payment, moved settlement, response []byte) (*Receipt, error) {
	return x.engine.deliver(ctx, call, row, moved, response)
}

// Repeated is as in the first response.
func (x *exact) Repeated(_ context.Context, _ *Attempt, row *store.Payment) (*x402.SettleResponse, error) {
	return settledAs(row, row.Transaction), nil
}

// Prepare checks the balance of the wallet. Wallets cost nothing to create, so a signature proves no funds. A wallet that
// settled a payment recently is trusted without a check.
func (x *exact) Prepare(ctx context.Context, a *Attempt) (*store.PaymentChannel, error) {
	return nil, x.engine.invalid(a, x.fund(ctx, a))
}

func (x *exact) fund(ctx context.Context, a *Attempt) error {
	switch {
	case !a.Conclusive: // only the chain can judge the signature
		return x.verify(ctx, a)
	case x.engine.payers.settledLately(a.checked.Payer):
		return nil
	}
	return x.covers(ctx, a, a.operation.Price, x.verify, &x402.Invalid{Reason: x402.ReasonInsufficientBalance,
		Message: "the balance of the wallet is below the price and nothing was charged; add funds and sign a new payment"})
}

// Proves asks the chain, because an authorization may have been used at another service of the same payee, and is public then.
func (x *exact) Proves(ctx context.Context, a *Attempt, _ *store.Payment) (bool, error) {
	return x.fresh(ctx, a, x.verify)
}

// verify asks the facilitator to check a payment against the chain.
func (x *exact) verify(ctx context.Context, a *Attempt) error {
	return x.verdict(x.engine.facilitator.Verify(ctx, a.payload.exact, a.requirements))
}

// Settle asks the facilitator to settle. If an earlier attempt may have moved the money, it asks the chain first.
func (x *exact) Settle(ctx context.Context, a *Attempt, row *store.Payment) (settlement, error) {
	transaction, err := x.settle(ctx, a, row)
	return settlement{transaction: transaction}, err
}

func (x *exact) settle(ctx context.Context, a *Attempt, row *store.Payment) (string, error) {
	if row.Attempts > 1 {
		transaction, err := x.onChain(ctx, a, row)
		if err == nil || !errors.Is(err, errStillOpen) {
			return transaction, err
		}
	}
	settled, err := x.timed(ctx, row, func(ctx context.Context) (*x402.SettleResponse, error) {
		return x.engine.facilitator.Settle(ctx, a.payload.exact, a.requirements)
	})
	switch {
	case err != nil:
		return "", err
	case settled.Success:
		return settled.Transaction, nil
	case settled.ErrorReason == x402.ReasonNonceAlreadyUsed:
		return x.usedByWhom(ctx, a, row)
	case row.Attempts == 1 && !x402.Inconclusive(settled.ErrorReason):
		return "", &refusedSettlement{settled.ErrorReason}
	}
	// An earlier attempt may still move the money. Only the chain can rule that out.
	return "", &unclearSettlement{Unclear: store.Unclear{Reason: settled.ErrorReason, Sent: true}}
}

// usedByWhom asks the chain who used an authorization that the facilitator reports as used, and for which transfer.
func (x *exact) usedByWhom(ctx context.Context, a *Attempt, row *store.Payment) (string, error) {
	transaction, err := x.onChain(ctx, a, row)
	if !errors.Is(err, errStillOpen) {
		return transaction, err
	}
	// Our endpoint lags behind that of the facilitator.
	return "", &unclearSettlement{Unclear: store.Unclear{Reason: x402.ReasonNonceAlreadyUsed, Sent: true}}
}

var errStillOpen = errors.New("the authorization is neither used nor cancelled nor expired")

// onChain returns the outcome of an authorization that is used, cancelled or expired, in the form of Settle. It returns
// errStillOpen otherwise.
func (x *exact) onChain(ctx context.Context, a *Attempt, row *store.Payment) (string, error) {
	if !a.retried { // a caller is waiting; the recovery worker can wait longer
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, chainTimeout)
		defer cancel()
	}
	state, err := x.chain.Authorization(ctx, row.Asset, row.Payer, row.Nonce, row.CreatedAt)
	switch {
	case err != nil:
		return "", &unclearSettlement{store.Unclear{Reason: "the blockchain endpoint is unavailable", Sent: true}, err}
	case state.Used && !state.At.IsZero() && state.At.Before(row.CreatedAt.Add(-usedBefore)):
		// It was public on the chain before it came here, so the sender need not be the payer.
		return "", &refusedSettlement{"the authorization was used before it was sent here"}
	case state.Used && strings.EqualFold(state.To, row.PayTo) && state.Amount == uint64(row.Amount): //nolint:gosec // positive
		return state.Transaction, nil
	case state.Used:
		return "", &refusedSettlement{"the nonce was used for another transfer"}
	case state.Cancelled:
		return "", &refusedSettlement{"the authorization was cancelled"}
	case state.ChainTime.After(row.ValidBefore):
		return "", &refusedSettlement{x402.ReasonValidBefore}
	}
	return "", errStillOpen
}
