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

// transfers is what the schemes share: both move money with an EIP-3009 authorization that the facilitator brings to the chain.
type transfers struct {
	engine    *Engine
	chain     Chain
	contracts *smartWallets
}

// verify asks the facilitator to check a payment against the chain. The error is an *x402.Invalid or an *Error.
type verify func(ctx context.Context, a *Attempt) error

// ofContract decides about a payment with a signature that is not by the payer's key (invalid): only a contract may have one. It
// returns byKey and invalid, or unsigned if the payer is a contract.
func (t *transfers) ofContract(ctx context.Context, payload payload, byKey, unsigned checked, invalid error) (checked, error) {
	switch isContract, err := t.contracts.isContract(ctx, payload.payer()); {
	case err != nil:
		return checked{}, err
	case !isContract:
		return byKey, invalid
	}
	return unsigned, nil
}

// covers returns poor if the wallet has less than amount. The facilitator is asked if the chain does not respond in time: it uses an
// endpoint of its own.
func (t *transfers) covers(ctx context.Context, a *Attempt, amount uint64, verify verify, poor *x402.Invalid) error {
	asking, cancel := context.WithTimeout(ctx, balanceTimeout)
	balance, err := t.chain.Balance(asking, strings.ToLower(a.requirements.Asset), a.checked.Payer)
	cancel()
	switch {
	case err != nil:
		return verify(ctx, a)
	case balance < amount:
		return poor
	}
	return nil
}

// fresh reports whether the authorization was never used. Only the facilitator can judge the signature of a smart wallet.
func (t *transfers) fresh(ctx context.Context, a *Attempt, verify verify) (bool, error) {
	if !a.Conclusive {
		return true, verify(ctx, a)
	}
	asking, cancel := context.WithTimeout(ctx, chainTimeout)
	defer cancel()
	state, err := t.chain.Authorization(asking, strings.ToLower(a.requirements.Asset), a.checked.Payer, a.Nonce, t.engine.store.Now())
	if err != nil {
		return true, verify(ctx, a)
	}
	return !state.Used && !state.Cancelled, nil
}

// verdict turns what the facilitator said of a payment into the error of verify.
func (t *transfers) verdict(said *x402.VerifyResponse, err error) error {
	switch {
	case err != nil:
		return t.engine.facilitator.unavailable(err)
	case !said.IsValid:
		return &x402.Invalid{Reason: said.InvalidReason, Message: "the facilitator rejected the payment (" + said.InvalidReason + "); sign a new payment"}
	}
	return nil
}

// timed asks the facilitator to settle. The error is an *unclearSettlement.
func (t *transfers) timed(ctx context.Context, row *store.Payment, settle func(context.Context) (*x402.SettleResponse, error)) (*x402.SettleResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	asked := time.Now()
	settled, err := settle(ctx)
	t.engine.metrics.settling.WithLabelValues(strconv.FormatBool(err == nil)).Observe(time.Since(asked).Seconds())
	if row.Attempts > 1 {
		crash("resettled")
	}
	if err != nil {
		unknown, ok := errors.AsType[*x402.UnknownOutcome](err)
		return nil, &unclearSettlement{store.Unclear{Reason: "settlement outcome unknown", Sent: !ok || !unknown.NotSent}, err}
	}
	return settled, nil
}
