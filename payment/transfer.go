package payment

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// What movers share: an EIP-3009 authorization that the facilitator brings to the chain.

const (
	// settleTimeout bounds a settlement: a facilitator waits for a block, and may be slow.
	settleTimeout = 90 * time.Second
	// ChainTimeout bounds how long a caller waits for the chain to report the state of its payment.
	ChainTimeout = 1500 * time.Millisecond
	// balanceTimeout bounds the balance request. After that the facilitator is asked instead, so that a caller learns within
	// two seconds that neither responds.
	balanceTimeout = 300 * time.Millisecond
	// shownTimeout bounds how long the chain may take to show a settlement that the facilitator reports, and shownPause is the pause
	// between two looks: the endpoint may be some blocks behind.
	shownTimeout = 5 * time.Second
	shownPause   = 500 * time.Millisecond
)

// Covered returns nil if the wallet has what its payments under way move, and the error of poor, which gets the beginning of its text, if
// it has not. Only the facilitator can judge the signature of a smart wallet. It is asked too if the chain does not respond in time: it
// uses an endpoint of its own. The error is for the caller.
func (e *Engine) Covered(ctx context.Context, a *Attempt, mover Mover, poor func(has string) error) error {
	if a.Conclusive {
		signed, _ := a.refusalOf()
		if has, ok := e.strangers.refused.Get("poor " + signed); ok {
			return poor(has)
		}
		if err := e.takeTokens(a, chainCost); err != nil {
			return err
		}
		asking, cancel := context.WithTimeout(ctx, balanceTimeout)
		defer cancel()
		switch balance, err := e.Chain.Balance(asking, strings.ToLower(a.Requirements.Asset), a.Payer()); {
		case err != nil && a.others == 0:
		case err == nil && balance < mover.Moves():
			has := fmt.Sprintf("the balance of %s is %d atomic units, below the ", a.Payer(), balance)
			e.strangers.refused.Add("poor "+signed, has, refusedFor)
			return poor(has)
		case err != nil, balance < mover.Moves()+a.othersMove:
			return &Error{Code: CodeLimited, Undecided: true, RetryAfter: 2, Message: "other payments of this wallet are being settled, and it is " +
				"not certain that it has enough for this one too; wait for Retry-After seconds, then " + Again}
		default:
			return nil
		}
	}
	_, err := e.Verified(ctx, a, mover)
	return err
}

// Unused reports whether the authorization was never used, so that it is not public. The chain is asked, because anybody may have brought
// it there, and it may have been used at another service of the same payee.
func (e *Engine) Unused(ctx context.Context, a *Attempt, mover Mover) (bool, error) {
	if a.Conclusive {
		if err := e.takeTokens(a, chainCost); err != nil {
			return false, err
		}
		asking, cancel := context.WithTimeout(ctx, ChainTimeout)
		defer cancel()
		state, err := e.Chain.Authorization(asking, strings.ToLower(a.Requirements.Asset), a.Payer(), a.Nonce, e.Store.Now())
		if err == nil {
			return !state.Used && !state.Cancelled, nil
		}
	}
	_, err := e.Verified(ctx, a, mover)
	return true, err
}

// Verified asks the facilitator to check a payment against the chain. It does not ask about a payment, or a smart wallet at an address, of
// which it has rejected one just now. The error is for the caller.
func (e *Engine) Verified(ctx context.Context, a *Attempt, mover Mover) (*x402.VerifyResponse, error) {
	signed, wallet := a.refusalOf()
	rejected := func(reason string) error {
		return e.Refused(a.Operation, reason, "the facilitator rejected the payment ("+reason+"); sign a new payment")
	}
	if reason, ok := e.strangers.refused.Get(signed); ok {
		return nil, rejected(reason)
	}
	if reason, ok := e.strangers.refused.Get(wallet); ok {
		return nil, &Error{Code: CodeLimited, RetryAfter: int(refusedFor.Seconds()), Message: "the facilitator has just rejected another " +
			"payment of this smart wallet from your address (" + reason + "), so nothing was charged; wait for Retry-After seconds, then " + Again}
	}
	if err := e.takeTokens(a, facilitatorCost); err != nil {
		return nil, err
	}
	said, err := mover.Verify(ctx)
	switch {
	case err != nil:
		return nil, e.Facilitator.Unavailable(err)
	case !said.IsValid:
		e.strangers.refused.Add(signed, said.InvalidReason, refusedFor)
		if wallet != "" {
			e.strangers.refused.Add(wallet, said.InvalidReason, refusedFor)
		}
		return nil, rejected(said.InvalidReason)
	}
	return said, nil
}

// move asks the facilitator to settle. It asks the chain first if an earlier attempt may have moved the money, and last if the
// facilitator's word is not enough. The error is a *RefusedSettlement or an *UnclearSettlement.
func (e *Engine) move(ctx context.Context, a *Attempt, mover Mover, row *store.Payment) (settled *x402.SettleResponse, err error) {
	if row.Attempts > 1 {
		if settled, err := e.onChain(ctx, a, mover, row, ChainTimeout); !errors.Is(err, errStillOpen) {
			return settled, err
		}
	}
	settled, err = e.ask(ctx, mover, row)
	switch {
	case err == nil && settled.Success && mover.Doubts(ctx, settled):
		return e.shown(ctx, a, mover, row)
	case err != nil, settled.Success:
		return settled, err
	}
	if found, err := e.onChain(ctx, a, mover, row, ChainTimeout); !errors.Is(err, errStillOpen) {
		return found, err
	}
	if row.Attempts == 1 && !settled.Inconclusive() {
		return nil, &RefusedSettlement{settled.ErrorReason}
	}
	// An earlier attempt may still move the money, or our endpoint lags behind the facilitator's. Only the chain can rule that out.
	return nil, &UnclearSettlement{Unclear: store.Unclear{Reason: settled.ErrorReason, Sent: true}}
}

// ask asks the facilitator to settle. The error is an *UnclearSettlement.
func (e *Engine) ask(ctx context.Context, mover Mover, row *store.Payment) (*x402.SettleResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	asked := time.Now()
	settled, err := mover.Settle(ctx)
	e.metrics.settling.WithLabelValues(strconv.FormatBool(err == nil)).Observe(time.Since(asked).Seconds())
	if row.Attempts > 1 {
		Crash("resettled")
	}
	if err != nil {
		unknown, ok := errors.AsType[*x402.UnknownOutcome](err)
		return nil, &UnclearSettlement{store.Unclear{Reason: "settlement outcome unknown", Sent: !ok || !unknown.NotSent}, err}
	}
	return settled, nil
}

var errStillOpen = errors.New("the authorization is neither used nor cancelled nor expired")

// MovedBy returns what a transaction moved by the attempt's authorization: nothing, if it does not contain it. It asks the chain once.
func (e *Engine) MovedBy(ctx context.Context, a *Attempt, transaction string) (x402.AuthorizationState, error) {
	ctx, cancel := context.WithTimeout(ctx, ChainTimeout)
	defer cancel()
	moved, err := e.Chain.TransferBy(ctx, a.Requirements.Asset, a.Payer(), a.Nonce, transaction)
	if err != nil || moved == nil {
		return x402.AuthorizationState{}, err
	}
	return x402.AuthorizationState{Used: true, To: moved.To, Amount: moved.Amount}, nil
}

// shown waits for the chain to show a settlement that the facilitator reports, and returns the outcome in the form of move.
func (e *Engine) shown(ctx context.Context, a *Attempt, mover Mover, row *store.Payment) (*x402.SettleResponse, error) {
	for end := time.Now().Add(shownTimeout); ; time.Sleep(shownPause) {
		settled, err := e.onChain(ctx, a, mover, row, shownTimeout)
		switch {
		case !errors.Is(err, errStillOpen):
			return settled, err
		case time.Now().After(end):
			return nil, &UnclearSettlement{Unclear: store.Unclear{Reason: "reported as settled, but not on the blockchain", Sent: true}}
		}
	}
}

// onChain returns the outcome of an authorization that is used, cancelled or expired, in the form of move. It returns errStillOpen
// otherwise. A caller waits for at most limit; the recovery worker can wait longer.
func (e *Engine) onChain(
	ctx context.Context, a *Attempt, mover Mover, row *store.Payment, limit time.Duration,
) (*x402.SettleResponse, error) {
	if !a.retried {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	state, err := e.Chain.Authorization(ctx, row.Asset, row.Payer, row.Nonce, row.CreatedAt)
	switch {
	case err != nil:
		return nil, &UnclearSettlement{store.Unclear{Reason: "the blockchain endpoint is unavailable", Sent: true}, err}
	case state.Used:
		if why := mover.Judge(state, row); why != "" {
			return nil, &RefusedSettlement{why}
		}
		return &x402.SettleResponse{Success: true, Transaction: state.Transaction}, nil
	case state.Cancelled:
		return nil, &RefusedSettlement{"the authorization was cancelled"}
	case state.ChainTime.After(row.ValidBefore):
		return nil, &RefusedSettlement{mover.Expired()}
	}
	return nil, errStillOpen
}
