package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// settleTimeout bounds a settlement: a facilitator waits for a block, and may be slow.
	settleTimeout = 90 * time.Second
	// lease is how long a payment belongs to the server that settles it; after that another may take it up.
	lease = settleTimeout + 15*time.Second
	// chainTimeout is how long a caller waits for the chain to say what became of its payment.
	chainTimeout = 1500 * time.Millisecond
	// usedBefore is how long before its row an authorization may have been used on the chain and still count as this payment.
	usedBefore = time.Minute
)

// Chain tells what a wallet holds and what became of an authorization: x402.Chain, over JSON-RPC.
type Chain interface {
	Balance(ctx context.Context, asset, holder string) (uint64, error)
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
	if err := s.checkFunds(ctx, paid); err != nil {
		return nil, err
	}
	if err := s.mayTryTAN(ctx, paid); err != nil {
		return nil, err
	}
	read, err := s.dryRun(ctx, paid, handle)
	if err != nil {
		return nil, err
	}
	crash("rehearsed")
	// From here on the caller may hang up: what was begun is finished.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	row := paid.row()
	if caller := callerFrom(ctx); caller != nil {
		row.KeyHash = caller.KeyHash
	}
	if err := s.begin(ctx, row, paid, request); err != nil {
		return nil, err
	}
	paid.begun = true
	crash("begun")
	return s.settle(ctx, row, paid, read, handle)
}

// dryRun finds out whether the operation's rules allow the call, before any money moves: their refusal is free. The response
// of a read is returned; it is the one that will be paid for.
func (s *Server) dryRun(ctx context.Context, paid *payment, handle handler) (read []byte, err error) {
	release, err := s.slots.acquire(ctx, paid, s.wallets.settledLately(paid.checked.Payer))
	if err != nil {
		return nil, err
	}
	defer release()
	switch {
	case paid.operation.readOnly:
		return handle(ctx, s.store)
	case paid.send != nil:
		return nil, s.store.CheckMessage(ctx, paid.send.message)
	case paid.operation.paged:
		_, err := handle(ctx, s.store.ForDryRun())
		return nil, err
	}
	return nil, s.store.DryRun(ctx, func(tx *store.Store) error {
		_, err := handle(ctx, tx)
		return err
	})
}

// begin writes the payment as settling, with what the operation reserves.
func (s *Server) begin(ctx context.Context, row *store.Payment, paid *payment, request any) error {
	if paid.operation.secured {
		return s.store.BeginSettlement(ctx, row, lease)
	}
	return s.store.Transaction(ctx, func(tx *store.Store) error {
		if err := tx.BeginSettlement(ctx, row, lease); err != nil {
			return err
		}
		return s.reserve(ctx, tx, paid, request)
	})
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
	wait := max(2, int(math.Ceil(s.facilitator.backOff().Seconds())))
	return &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodeUnavailable, retryAfter: wait, cause: cause,
		message: "the payment facilitator is unavailable and nothing was taken; send the same request with the same payment again"}
}

// settle moves the money, then delivers.
func (s *Server) settle(ctx context.Context, row *store.Payment, paid *payment, read []byte, handle handler) (*receipt, error) {
	transaction, err := s.attempt(ctx, row, paid)
	if err == nil {
		return s.deliver(ctx, row, paid, transaction, read, handle)
	}
	no, refused := errors.AsType[*refusedSettlement](err)
	if !refused {
		return nil, s.notSettled(ctx, row, err)
	}
	switch err := s.store.PaymentFailed(ctx, row, no.reason); {
	case errors.Is(err, store.ErrPaymentMoved):
		return nil, err
	case err != nil:
		return nil, s.outcomeUnknown(ctx, row, &unclearSettlement{Unclear: store.Unclear{Reason: no.reason, Sent: true}, cause: err})
	}
	s.metrics.payment(row, outcomeRefused)
	s.wallets.refused(row.Payer)
	return nil, s.settlementFailed(paid, no.reason)
}

// notSettled answers an attempt without a clear outcome. A first one that the facilitator certainly never heard of leaves no
// trace: nothing was taken, and nothing is open.
func (s *Server) notSettled(ctx context.Context, row *store.Payment, cause error) error {
	unclear, ok := errors.AsType[*unclearSettlement](cause)
	if !ok || unclear.Sent || row.Attempts > 1 || s.store.AbandonSettlement(ctx, row) != nil {
		return s.outcomeUnknown(ctx, row, cause)
	}
	s.metrics.payment(row, outcomeNotSent)
	return s.away(cause)
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

// attempt settles a payment once and says what came of it: the transaction, a *refusedSettlement or an *unclearSettlement.
// Before it asks again it looks at the chain: that is where the truth is.
func (s *Server) attempt(ctx context.Context, row *store.Payment, paid *payment) (string, error) {
	if row.Transaction != "" {
		return row.Transaction, nil
	}
	if row.Attempts > 1 {
		transaction, err := s.lookAtChain(ctx, row, paid)
		if err == nil || !errors.Is(err, errNotClosed) {
			return transaction, err
		}
	}
	settling, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	asked := time.Now()
	settled, err := s.facilitator.Settle(settling, paid.payload, paid.offer)
	s.metrics.settling.WithLabelValues(strconv.FormatBool(err == nil)).Observe(time.Since(asked).Seconds())
	if row.Attempts > 1 {
		crash("resettled")
	}
	if err != nil {
		unknown, ok := errors.AsType[*x402.UnknownOutcome](err)
		return "", &unclearSettlement{store.Unclear{Reason: "settlement outcome unknown", Sent: !ok || !unknown.NotSent}, err}
	}
	if settled.Success {
		return settled.Transaction, nil
	}
	unclear := &unclearSettlement{Unclear: store.Unclear{Reason: settled.ErrorReason, Sent: true}}
	switch {
	case settled.ErrorReason == x402.ReasonNonceAlreadyUsed: // by whom, and for what?
		transaction, err := s.lookAtChain(ctx, row, paid)
		if errors.Is(err, errNotClosed) { // our endpoint is behind the facilitator's
			if row.Attempts == 1 {
				unclear.Reason = usedByOthers
			}
			return "", unclear
		}
		return transaction, err
	case row.Attempts == 1 && !x402.Inconclusive(settled.ErrorReason):
		return "", &refusedSettlement{settled.ErrorReason}
	}
	// An earlier attempt may still move the money: only the chain will say that it did not.
	return "", unclear
}

// usedByOthers is why a payment is open whose authorization was used already when it was sent for the first time, at a moment
// that the chain has not told yet. The ledger remembers it: that payment was not settled by a later attempt either.
const usedByOthers = "the authorization was used already, and the chain does not say when"

var errNotClosed = errors.New("the authorization is neither used nor cancelled nor expired")

// lookAtChain says what became of an authorization that is used, cancelled or expired: as attempt does, or
// errNotClosed.
func (s *Server) lookAtChain(ctx context.Context, row *store.Payment, paid *payment) (string, error) {
	if paid.recovered == nil { // a caller waits for it; the worker has more patience
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, chainTimeout)
		defer cancel()
	}
	byOthers := row.Attempts == 1 || row.FailureReason == usedByOthers
	state, err := s.chain.Authorization(ctx, row.Asset, row.Payer, row.Nonce, row.CreatedAt)
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
	return "", errNotClosed
}

// deliver makes the effect and closes the payment in one transaction. A read that was rehearsed has its answer already.
func (s *Server) deliver(ctx context.Context, row *store.Payment, paid *payment, transaction string, answer []byte, handle handler) (*receipt, error) {
	crash("settled")
	paid.id = row.ID
	settled := settledAs(row, transaction)
	answer, err := s.takeEffect(ctx, paid, store.Delivery{Payment: row.ID, Fingerprint: paid.fingerprint[:], Transaction: transaction}, answer, handle)
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
	p.charged, p.settled, p.redeeming = true, settled, row.State == store.PaymentUndeliverable
	p.message += "; this came true only after the payment had settled, so it was charged: send the same payment with a mended request of this operation, it is not charged again"
	return nil, &p
}

// takeEffect runs the operation, if it is not a read that has its answer already, and closes the payment: both become visible,
// or neither. What can be done in a batch or without a transaction is tried so first.
func (s *Server) takeEffect(ctx context.Context, paid *payment, delivery store.Delivery, answer []byte, handle handler) ([]byte, error) {
	seal := func() (err error) {
		if !paid.operation.readOnly || len(answer) <= maxStoredRead {
			delivery.Answer, err = sealAnswer(paid.request, answer)
		}
		crash("delivering")
		return err
	}
	err := store.ErrNotBatched
	switch {
	case answer != nil:
		if err = seal(); err == nil {
			err = s.store.PaymentDelivered(ctx, delivery)
		}
	case paid.send != nil:
		var chat uuid.UUID
		if paid.send.message.Kind == store.KindPrivate {
			if chat, err = s.store.PrivateChat(ctx, paid.send.message.Sender, paid.send.message.To); err != nil {
				return nil, err
			}
		}
		if answer, err = json.Marshal(paid.send.response(chat)); err != nil {
			return nil, err
		}
		if err = seal(); err == nil {
			err = s.store.SendDelivered(ctx, paid.send.message, delivery)
		}
	case paid.operation.paged:
		if answer, err = handle(ctx, s.store.WithoutTransaction()); err != nil {
			break
		}
		if err = seal(); err == nil {
			err = s.store.PaymentDelivered(ctx, delivery)
		}
	}
	if !errors.Is(err, store.ErrNotBatched) {
		return answer, err
	}
	err = s.store.Transaction(ctx, func(tx *store.Store) (err error) {
		if answer, err = handle(ctx, tx); err != nil {
			return err
		}
		if err := seal(); err != nil {
			return err
		}
		return tx.PaymentDelivered(ctx, delivery)
	})
	return answer, err
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
			s.unwritten.add(unclearPayment{row, unclear.Unclear, time.Now().Add(lease)})
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
