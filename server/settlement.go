package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// settleTimeout bounds a settlement: a facilitator waits for a block, and may be slow.
	settleTimeout = 90 * time.Second
	// lease is how long a payment belongs to the server that settles it; after that another may take it up.
	lease = settleTimeout + 15*time.Second
	// underWay is how long an attempt may still move money after its answer was lost. Only after that does a later refusal
	// say anything about it, unless the chain itself can be asked.
	underWay = 30 * time.Second
)

// Chain tells what became of an authorization: x402.Chain, over JSON-RPC.
type Chain interface {
	Authorization(ctx context.Context, asset, authorizer, nonce string, since time.Time) (x402.AuthorizationState, error)
	HasCode(ctx context.Context, address string) (bool, error)
}

// payFirst takes a payment that the ledger does not know.
func (s *Server) payFirst(ctx context.Context, paid *payment, request any, handle handler) (*receipt, error) {
	if paid.outOfTime != nil {
		return nil, paid.outOfTime
	}
	if !s.facilitator.ready() {
		return nil, s.away(errAway)
	}
	if s.mayDefer(paid) {
		receipt, err := s.deliverFirst(ctx, paid, handle)
		if !errors.Is(err, store.ErrOverCap) {
			return receipt, err
		}
	}
	if !paid.checked.Conclusive {
		if err := s.verify(ctx, paid); err != nil {
			return nil, err
		}
	}
	if err := s.beforeRehearsal(ctx, paid, request); err != nil {
		return nil, err
	}
	// The rules speak before any money moves: their refusal is free.
	var rehearsed []byte
	rehearse := func(tx *store.Store) (err error) {
		rehearsed, err = handle(ctx, tx)
		return err
	}
	var err error
	if paid.operation.readOnly {
		err = rehearse(s.store)
	} else {
		err = s.store.Rehearse(ctx, rehearse)
		rehearsed = nil // its ids were rolled back
	}
	if err != nil {
		return nil, err
	}
	crash("rehearsed")
	// From here on the caller may hang up: what was begun is finished.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	row := paid.row()
	row.Request = paid.request
	if caller := callerFrom(ctx); caller != nil {
		row.KeyHash = caller.KeyHash
	}
	err = s.store.Transaction(ctx, func(tx *store.Store) error {
		if err := tx.BeginSettlement(ctx, row, lease); err != nil {
			return err
		}
		return s.reserve(ctx, tx, paid, request)
	})
	if err != nil {
		return nil, err
	}
	crash("begun")
	return s.settle(ctx, row, paid, rehearsed, handle)
}

// payAgain takes up a payment whose outcome nobody knows yet. It goes on with the payment as it is in the ledger: what
// was sent now may be signed anew, and that second authorization must not be used as well.
func (s *Server) payAgain(ctx context.Context, row *store.Payment, handle handler) (*receipt, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	row, err := s.store.ResumeSettlement(ctx, row.ID, lease)
	if err != nil {
		return nil, err
	}
	paid, err := s.stored(row)
	if err != nil {
		return nil, err
	}
	return s.settle(context.WithValue(ctx, paymentKey, paid), row, paid, nil, handle)
}

// verify asks the facilitator about a signature that only the chain can judge (smart wallets).
func (s *Server) verify(ctx context.Context, paid *payment) error {
	verdict, err := s.facilitator.Verify(ctx, paid.payload, paid.offer)
	if err != nil {
		return s.away(err)
	}
	if !verdict.IsValid {
		return s.refused(paid.operation, verdict.InvalidReason, "the payment was refused: "+verdict.InvalidReason+"; sign a new one")
	}
	return nil
}

func (s *Server) away(cause error) *problem {
	return &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodeUnavailable, retryAfter: 2, cause: cause,
		message: "the payment facilitator is away and nothing was taken; send the same request with the same payment again"}
}

// settle moves the money, then delivers.
func (s *Server) settle(ctx context.Context, row *store.Payment, paid *payment, rehearsed []byte, handle handler) (*receipt, error) {
	transaction, err := s.attempt(ctx, row, paid)
	if err == nil {
		return s.deliver(ctx, row, paid, transaction, rehearsed, handle)
	}
	no, refused := errors.AsType[*refusedSettlement](err)
	if !refused {
		return nil, s.outcomeUnknown(ctx, row, err)
	}
	switch err := s.store.PaymentFailed(ctx, row, no.reason); {
	case errors.Is(err, store.ErrPaymentMoved):
		return nil, err
	case err != nil:
		return nil, s.outcomeUnknown(ctx, row, &unclearSettlement{Unclear: store.Unclear{Reason: no.reason, Sent: true, Refused: true}, cause: err})
	}
	s.metrics.payment(row, outcomeRefused)
	return nil, s.settlementFailed(paid, no.reason)
}

// refusedSettlement says that the money did not move and will not.
type refusedSettlement struct{ reason string }

func (e *refusedSettlement) Error() string { return "settlement refused: " + e.reason }

// unclearSettlement says that the money may have moved.
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

// attempt settles a payment once and says what came of it: the transaction (empty if an earlier attempt settled it and
// its answer was lost), a *refusedSettlement or an *unclearSettlement. Before it asks again it looks at the chain, if
// it can: that is where the truth is.
func (s *Server) attempt(ctx context.Context, row *store.Payment, paid *payment) (string, error) {
	if row.Transaction != "" {
		return row.Transaction, nil
	}
	if row.Attempts > 1 && s.chain != nil {
		transaction, err := s.lookAtChain(ctx, row)
		if err == nil || !errors.Is(err, errNotClosed) {
			return transaction, err
		}
	}
	settling, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	asked := time.Now()
	settled, err := s.facilitator.Settle(settling, paid.payload, paid.offer)
	s.metrics.settling.WithLabelValues(strconv.FormatBool(err == nil)).Observe(time.Since(asked).Seconds())
	if row.Attempts > 1 || row.State == store.PaymentOwed {
		crash("resettled")
	}
	if err != nil {
		unknown, ok := errors.AsType[*x402.UnknownOutcome](err)
		return "", &unclearSettlement{store.Unclear{Reason: "settlement outcome unknown", Sent: !ok || !unknown.NotSent}, err}
	}
	if settled.Success {
		return settled.Transaction, nil
	}
	reason := settled.ErrorReason
	unclear := &unclearSettlement{Unclear: store.Unclear{Reason: reason, Sent: true, Refused: row.Attempts > 1}}
	switch {
	case x402.Inconclusive(reason):
		unclear.Refused = false
		return "", unclear
	case s.chain != nil && (row.Attempts > 1 || reason == x402.ReasonNonceAlreadyUsed):
		// The chain said a moment ago that the authorization was open, or nobody has asked it yet.
		if reason != x402.ReasonNonceAlreadyUsed {
			return "", unclear
		}
		transaction, err := s.lookAtChain(ctx, row)
		if errors.Is(err, errNotClosed) { // our endpoint is behind the facilitator's
			return "", unclear
		}
		return transaction, err
	case row.Attempts == 1:
		return "", &refusedSettlement{reason}
	case reason == x402.ReasonNonceAlreadyUsed:
		// We sent this authorization to be settled before, and now it is used: it was settled then.
		return "", nil
	case reason == x402.ReasonValidBefore:
		// The window is looked at before the nonce, so this does not say whether an earlier attempt moved the money.
		unclear.Reason = "expired before its outcome was known"
		return "", unclear
	case row.UnclearAt == nil || time.Since(*row.UnclearAt) > underWay:
		return "", &refusedSettlement{reason}
	}
	return "", unclear
}

var errNotClosed = errors.New("the authorization is neither used nor cancelled nor expired")

// lookAtChain says what became of an authorization that is used, cancelled or expired: as attempt does, or
// errNotClosed.
func (s *Server) lookAtChain(ctx context.Context, row *store.Payment) (string, error) {
	state, err := s.chain.Authorization(ctx, row.Asset, row.Payer, row.Nonce, row.CreatedAt)
	switch {
	case err != nil:
		return "", &unclearSettlement{store.Unclear{Reason: "the chain does not say", Sent: true, Refused: true}, err}
	case state.Used && strings.EqualFold(state.To, row.PayTo) && state.Amount == uint64(row.Amount): //nolint:gosec // positive
		return state.Transaction, nil
	case state.Used:
		return "", &refusedSettlement{"the nonce was used for another transfer"}
	case state.Cancelled:
		return "", &refusedSettlement{"the authorization was cancelled"}
	case state.ChainTime.After(row.ValidBefore):
		return "", &refusedSettlement{x402.ReasonValidBefore}
	}
	return "", errNotClosed
}

// deliver makes the effect and closes the payment in one transaction. A read that was rehearsed has its answer already.
func (s *Server) deliver(ctx context.Context, row *store.Payment, paid *payment, transaction string, answer []byte, handle handler) (*receipt, error) {
	crash("settled")
	paid.id = row.ID
	settled := settledAs(row, transaction)
	finish := func(tx *store.Store) (err error) {
		if answer == nil {
			if answer, err = handle(ctx, tx); err != nil {
				return err
			}
		}
		sealed, err := sealAnswer(paid.secret(), paid.request, answer)
		if err != nil {
			return err
		}
		crash("delivering")
		return tx.PaymentDelivered(ctx, row.ID, paid.fingerprint[:], transaction, sealed)
	}
	var err error
	if answer != nil {
		err = finish(s.store)
	} else {
		err = s.store.Transaction(ctx, finish)
	}
	unclear := &unclearSettlement{store.Unclear{Reason: "settled, not delivered", Sent: true, Transaction: transaction}, err}
	refusal, refused := errors.AsType[*store.Refusal](err)
	switch {
	case err == nil:
		crash("delivered")
		s.metrics.payment(row, outcomeDelivered)
		s.wallets.settled(row.Payer)
		return &receipt{body: answer, settled: settled}, nil
	case errors.Is(err, store.ErrPaymentMoved):
		return nil, err
	case !refused:
		return nil, s.outcomeUnknown(ctx, row, unclear)
	}
	switch err := s.store.PaymentUndeliverable(ctx, row.ID, transaction, refusal.Code); {
	case errors.Is(err, store.ErrPaymentMoved): // refused because another copy was faster
		return nil, err
	case err != nil:
		unclear.cause = err
		return nil, s.outcomeUnknown(ctx, row, unclear)
	}
	s.metrics.payment(row, outcomeUndeliverable)
	p := *problemOf(refusal)
	p.charged, p.settled = true, settled
	p.message += "; this came true only after the payment had settled, so it was charged: send the same payment with a mended request of this operation, it is not charged again"
	return nil, &p
}

// outcomeUnknown keeps the payment open. Never a 402: that would make the payer sign a second payment.
func (s *Server) outcomeUnknown(ctx context.Context, row *store.Payment, cause error) error {
	unclear, ok := errors.AsType[*unclearSettlement](cause)
	if !ok {
		unclear = &unclearSettlement{store.Unclear{Reason: "settlement outcome unknown", Sent: true}, cause}
	}
	if row.State != store.PaymentUndeliverable {
		err := s.store.PaymentUnclear(context.WithoutCancel(ctx), row, unclear.Unclear)
		if err != nil && !errors.Is(err, store.ErrPaymentMoved) {
			cause = errors.Join(cause, err)
			s.unwritten.add(unclearPayment{row, unclear.Unclear})
		}
	}
	s.metrics.payment(row, outcomeUnclear)
	return &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodePaymentUnknown, retryAfter: 2, cause: cause,
		message: "the outcome of this payment is not known yet: send the same request with the same payment again, do not sign a new one"}
}

func (s *Server) settlementFailed(paid *payment, reason string) *problem {
	p := s.refused(paid.operation, reason, fmt.Sprintf("the payment was not settled (%s) and nothing was taken: sign a new one", reason))
	p.settled = &x402.SettleResponse{Success: false, ErrorReason: shorten(reason, maxReason), Network: paid.offer.Network, Payer: paid.checked.Payer}
	return p
}
