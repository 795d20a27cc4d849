package payment

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// settleTimeout bounds a settlement: a facilitator waits for a block, and may be slow.
	settleTimeout = 90 * time.Second
	// chainTimeout is how long a caller waits for the chain to say what became of its payment.
	chainTimeout = 1500 * time.Millisecond
	// balanceTimeout is how long the chain's endpoint is waited for before the facilitator is asked instead: a caller is to
	// know within two seconds that neither of them responds.
	balanceTimeout = 300 * time.Millisecond
	// usedBefore is how long before its row an authorization may have been used on the chain and still count as this payment.
	usedBefore = time.Minute
)

// exact is the scheme of that name: an EIP-3009 authorization over the exact price, which the facilitator settles in a
// transaction of its own.
type exact struct {
	config      Config
	checker     x402.Checker
	facilitator *breaker
	chain       Chain
	contracts   *smartWallets
	payers      *payers
	settling    *prometheus.HistogramVec
}

func newExact(config Config, facilitator Facilitator, chain Chain, payers *payers, log *slog.Logger) (*exact, error) {
	checker, err := x402.NewChecker(config.Network)
	if err != nil {
		return nil, err
	}
	return &exact{
		config: config, checker: checker, facilitator: newBreaker(facilitator, log), chain: chain,
		contracts: newSmartWallets(chain, time.Now), payers: payers,
	}, nil
}

func (x *exact) Requirements(price uint64) x402.PaymentRequirements {
	return x.config.Network.Requirements(price, x.config.PayTo, maxTimeoutSeconds)
}

// Check makes the checks that need no facilitator. A signature of 65 bytes that is not the payer's own is junk, unless
// the payer is a contract, which may judge signatures as it likes; only the chain knows whether it is one. It is asked
// last, and not for a payment that is out of time: that one cannot begin, and is repeated only with the signature that
// was verified then.
func (x *exact) Check(ctx context.Context, requirements x402.PaymentRequirements, payload *x402.PaymentPayload) (x402.Checked, error) {
	now := time.Now()
	checked, err := x.checker.Check(requirements, payload, now)
	bad, isBad := errors.AsType[*x402.Invalid](err)
	if !isBad || bad.Reason != x402.ReasonSignature {
		return checked, err
	}
	unsigned, termsErr := x.checker.CheckTerms(requirements, payload, now)
	if termsErr != nil {
		return unsigned, termsErr
	}
	switch isContract, lookupErr := x.contracts.isContract(ctx, payload.Payload.Authorization.From); {
	case lookupErr != nil:
		return x402.Checked{}, lookupErr
	case !isContract:
		return checked, err
	}
	return unsigned, nil
}

func (x *exact) Available() *Error {
	if x.facilitator.ready() {
		return nil
	}
	return x.unavailable(errNoFacilitator)
}

func (x *exact) unavailable(cause error) *Error {
	return unavailable("the payment facilitator is unavailable", max(2, int(math.Ceil(x.facilitator.backOff().Seconds()))), cause)
}

func (x *exact) Probe(ctx context.Context) error { return x.facilitator.probe(ctx) }

// Fund looks at the wallet's balance: wallets cost nothing, so a signature alone proves no money. A wallet that has paid
// lately is believed.
func (x *exact) Fund(ctx context.Context, a *Attempt) error {
	switch {
	case !a.checked.Conclusive: // only the chain can judge the signature
		return x.verify(ctx, a)
	case x.payers.settledLately(a.checked.Payer):
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, balanceTimeout)
	balance, err := x.chain.Balance(asking, strings.ToLower(a.requirements.Asset), a.checked.Payer)
	cancel()
	if err != nil { // the facilitator has an endpoint of its own
		return x.verify(ctx, a)
	}
	if balance < a.operation.Price {
		return &x402.Invalid{Reason: x402.ReasonInsufficientBalance, Message: "the wallet does not hold the price; nothing was taken. Fund it and sign a new payment"}
	}
	return nil
}

// Fresh asks the chain: what was used elsewhere, for another service of the same payee, is as public as what is in the
// ledger.
func (x *exact) Fresh(ctx context.Context, a *Attempt) (bool, error) {
	if !a.checked.Conclusive {
		return true, x.verify(ctx, a) // a smart wallet's signature
	}
	asking, cancel := context.WithTimeout(ctx, chainTimeout)
	defer cancel()
	state, err := x.chain.Authorization(asking, strings.ToLower(a.requirements.Asset), a.checked.Payer, a.checked.Nonce, time.Now())
	if err != nil { // the facilitator has an endpoint of its own
		return true, x.verify(ctx, a)
	}
	return !state.Used && !state.Cancelled, nil
}

// verify asks the facilitator about a payment that only the chain can judge.
func (x *exact) verify(ctx context.Context, a *Attempt) error {
	verdict, err := x.facilitator.Verify(ctx, a.payload, a.requirements)
	if err != nil {
		return x.unavailable(err)
	}
	if !verdict.IsValid {
		return &x402.Invalid{Reason: verdict.InvalidReason, Message: "the payment was refused: " + verdict.InvalidReason + "; sign a new one"}
	}
	return nil
}

// Settle asks the facilitator. Where an earlier attempt may have moved the money it looks at the chain first: that is where
// the truth is.
func (x *exact) Settle(ctx context.Context, a *Attempt, row *store.Payment) (string, error) {
	if row.Attempts > 1 {
		transaction, err := x.onChain(ctx, a, row)
		if err == nil || !errors.Is(err, errStillOpen) {
			return transaction, err
		}
	}
	settling, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	asked := time.Now()
	settled, err := x.facilitator.Settle(settling, a.payload, a.requirements)
	x.settling.WithLabelValues(strconv.FormatBool(err == nil)).Observe(time.Since(asked).Seconds())
	if row.Attempts > 1 {
		crash("resettled")
	}
	switch {
	case err != nil:
		unknown, ok := errors.AsType[*x402.UnknownOutcome](err)
		return "", &unclearSettlement{store.Unclear{Reason: "settlement outcome unknown", Sent: !ok || !unknown.NotSent}, err}
	case settled.Success:
		return settled.Transaction, nil
	case settled.ErrorReason == x402.ReasonNonceAlreadyUsed:
		return x.usedByWhom(ctx, a, row)
	case row.Attempts == 1 && !x402.Inconclusive(settled.ErrorReason):
		return "", &refusedSettlement{settled.ErrorReason}
	}
	// An earlier attempt may still move the money: only the chain will say that it did not.
	return "", &unclearSettlement{Unclear: store.Unclear{Reason: settled.ErrorReason, Sent: true}}
}

// usedByOthers is why a payment is open whose authorization was used already when it was sent for the first time, at a moment
// that the chain has not told yet. The ledger remembers it: that payment was not settled by a later attempt either.
const usedByOthers = "the authorization was used already, and the chain does not say when"

// usedByWhom asks the chain about an authorization that the facilitator calls used: by whom, and for what?
func (x *exact) usedByWhom(ctx context.Context, a *Attempt, row *store.Payment) (string, error) {
	transaction, err := x.onChain(ctx, a, row)
	if !errors.Is(err, errStillOpen) {
		return transaction, err
	}
	// Our endpoint is behind the facilitator's.
	reason := x402.ReasonNonceAlreadyUsed
	if row.Attempts == 1 {
		reason = usedByOthers
	}
	return "", &unclearSettlement{Unclear: store.Unclear{Reason: reason, Sent: true}}
}

var errStillOpen = errors.New("the authorization is neither used nor cancelled nor expired")

// onChain says what became of an authorization that is used, cancelled or expired, as Settle does; errStillOpen if it is
// none of these.
func (x *exact) onChain(ctx context.Context, a *Attempt, row *store.Payment) (string, error) {
	if !a.recovered { // a caller waits for it; the worker has more patience
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, chainTimeout)
		defer cancel()
	}
	byOthers := row.Attempts == 1 || row.FailureReason == usedByOthers
	state, err := x.chain.Authorization(ctx, row.Asset, row.Payer, row.Nonce, row.CreatedAt)
	switch {
	case err != nil:
		reason := "the chain does not say"
		if byOthers {
			reason = usedByOthers
		}
		return "", &unclearSettlement{store.Unclear{Reason: reason, Sent: true}, err}
	case state.Used && byOthers && !state.At.IsZero() && state.At.Before(row.CreatedAt.Add(-usedBefore)):
		// It stood on the chain for everybody to read before it came here, so whoever sends it need not be its payer.
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
