package agent

import (
	"context"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/x402"
)

// pollOperation is the operation that fetches unread messages.
const pollOperation = "listUnreadMessages"

func isPoll(operation string) bool { return operation == pollOperation }

// intent is what a call is for. It travels in the context of the call, from the agent to its ledger.
type intent struct {
	// ID is the payment identifier of the call.
	ID        string
	Operation string
	// Peer is the agent or the conversation that the call is about, for reports.
	Peer string
	// Request is the hash of the request.
	Request string
	// Approval is the id of the approval that lets the call be paid above the limits, or "".
	Approval string
}

type intentKey struct{}

func withIntent(ctx context.Context, of intent) context.Context {
	return context.WithValue(client.WithIdentifier(ctx, of.ID), intentKey{}, of)
}

func intentOf(ctx context.Context) intent {
	of, _ := ctx.Value(intentKey{}).(intent)
	return of
}

// Reserve implements [client.Budget]. The error is a [*LimitError] or [ErrFrozen] if the payment is not allowed.
func (l *Ledger) Reserve(ctx context.Context, r client.Reservation) error {
	of := intentOf(ctx)
	return l.locked(ctx, func(add func(entry) error) error {
		if l.frozen() {
			return ErrFrozen
		}
		limits, err := l.limits()
		if err != nil {
			return err
		}
		approved, err := l.approved(of, r.Price, r.Amount)
		if err != nil {
			return err
		}
		if !approved {
			if err := l.within(limits, of.Operation, r); err != nil {
				return err
			}
			of.Approval = ""
		}
		if left := limits.PerDay - min(l.counted().deposits, limits.PerDay); r.Deposit > left {
			return &LimitError{Limit: "of deposits per day", Price: r.Deposit, Left: left}
		}
		return add(entry{
			Step: stepReserved, ID: r.ID, Operation: of.Operation, Peer: of.Peer, Price: r.Price, Amount: r.Amount, Deposit: r.Deposit,
			Channel: r.Channel, Scheme: r.Offer.Scheme, Network: r.Offer.Network, Asset: r.Offer.Asset, Payee: r.Offer.PayTo, Approval: of.Approval,
		})
	})
}

// within returns a [*LimitError] if a payment is above the limits.
func (l *Ledger) within(limits Limits, operation string, r client.Reservation) error {
	counted := l.counted()
	switch left := limits.PerDay - min(counted.all, limits.PerDay); {
	case r.Price > limits.PerCall:
		return &LimitError{Limit: "per call", Price: r.Price, Left: limits.PerCall}
	case r.Amount > left:
		return &LimitError{Limit: "per day", Price: r.Price, Left: left}
	}
	if left := limits.Polls - min(counted.polls, limits.Polls); isPoll(operation) && r.Amount > left {
		return &LimitError{Limit: "polls per day", Price: r.Price, Left: left}
	}
	return nil
}

// Release implements [client.Budget]. A payment that was sent stays counted until [Ledger.Settle] knows that it was not taken.
func (l *Ledger) Release(ctx context.Context, r client.Reservation, sent bool) {
	if sent {
		return
	}
	// If this fails, the payment stays counted.
	_ = l.locked(ctx, func(add func(entry) error) error {
		return add(entry{Step: stepReleased, ID: r.ID, Amount: r.Amount})
	})
}

// Authorizations reads from the chain what became of exact payments. [x402.Chain] does.
type Authorizations interface {
	Authorization(ctx context.Context, asset, authorizer, nonce string, since time.Time) (x402.AuthorizationState, error)
}

// Settle looks up the payments that the server refused and that still count, and stops to count those that can never be taken. It
// returns how many these are.
func (l *Ledger) Settle(ctx context.Context, chain Authorizations, wallet string) (settled int, err error) {
	var refused []*exposure
	err = l.locked(ctx, func(func(entry) error) error {
		refused = l.refused()
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, x := range refused {
		state, err := chain.Authorization(ctx, x.Asset, wallet, x.nonce, x.Time)
		if err != nil {
			return settled, err
		}
		if state.Used || !state.Cancelled && state.ChainTime.Before(time.Unix(x.ValidBefore, 0)) {
			continue
		}
		if err := l.locked(ctx, func(add func(entry) error) error {
			return add(entry{Step: stepReleased, ID: x.ID, Amount: x.Amount, Nonce: x.nonce})
		}); err != nil {
			return settled, err
		}
		settled++
	}
	return settled, nil
}

// refused returns the exact payments that the server refused and that still count, also those after which the call was paid again.
func (l *Ledger) refused() (found []*exposure) {
	since := l.now().Add(-day)
	refused := map[string]bool{}
	for _, e := range l.entries {
		if e.Step == stepRefused || e.Step == stepAnswered {
			refused[e.ID] = e.Step == stepRefused
		}
	}
	for _, x := range l.exposures() {
		if x.nonce != "" && !x.released && !x.Time.Before(since) && (x.later || refused[x.ID]) {
			found = append(found, x)
		}
	}
	return found
}
