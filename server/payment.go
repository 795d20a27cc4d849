package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// settleTimeout bounds a settlement: a facilitator waits for a block, and may be slow.
	settleTimeout = 90 * time.Second
	// lease is how long a payment belongs to the server that settles it; after that another may take it up.
	lease = settleTimeout + 15*time.Second
	// joinTime is how long a copy of a running payment waits for its answer before it is told to come again.
	joinTime = 5 * time.Second
)

// handler runs the operation in tx and returns the JSON of its answer.
type handler func(ctx context.Context, tx *store.Store) ([]byte, error)

// receipt is a paid answer.
type receipt struct {
	body    []byte
	settled *x402.SettleResponse
}

// transaction returns what a handler works on: the gate's transaction, or for free operations the database.
func (s *Server) transaction(ctx context.Context) *store.Store {
	if tx, ok := ctx.Value(transactionKey).(*store.Store); ok {
		return tx
	}
	return s.store
}

// gate stands around every typed handler and makes the promise: an effect happens exactly once, or the money does not
// move. It rehearses the handler, settles, and then lets the effect and the record of the payment become visible in
// one transaction. No transaction is open during a call to the facilitator.
func (s *Server) gate(next gen.StrictHandlerFunc, _ string) gen.StrictHandlerFunc {
	return func(c echo.Context, request any) (any, error) {
		original := c.Request()
		paid := paymentFrom(original.Context())
		if paid == nil {
			return next(c, request)
		}
		receipt, err := s.pay(original.Context(), paid, request, func(ctx context.Context, tx *store.Store) ([]byte, error) {
			c.SetRequest(original.WithContext(context.WithValue(ctx, transactionKey, tx)))
			response, err := next(c, request)
			if err != nil {
				return nil, err
			}
			return json.Marshal(response)
		})
		if err != nil {
			return nil, err
		}
		recordFrom(c).transaction = receipt.settled.Transaction
		s.setPaymentResponse(c.Response().Header(), receipt.settled)
		c.Response().Header().Set("Cache-Control", "private")
		return nil, c.JSONBlob(http.StatusOK, receipt.body) // nil: already answered
	}
}

func (s *Server) setPaymentResponse(header http.Header, settled *x402.SettleResponse) {
	if encoded, err := x402.EncodeSettleResponse(settled); err == nil {
		header.Set(x402.HeaderPaymentResponse, encoded)
	}
}

// pay brings the payment from wherever it stands in the ledger to its answer.
func (s *Server) pay(ctx context.Context, paid *payment, request any, handle handler) (*receipt, error) {
	crash("matched")
	for joined := time.Now(); ; {
		row, err := s.store.Payment(ctx, paid.offer.Network, strings.ToLower(paid.offer.Asset), paid.checked.Payer, paid.checked.Nonce)
		if err != nil {
			return nil, err
		}
		var receipt *receipt
		switch {
		case paid.replaced && (row == nil || row.State != store.PaymentDelivered):
			return nil, errInvalidKey
		case row == nil:
			receipt, err = s.payFirst(ctx, paid, request, handle)
		case !paid.owns(row):
			return nil, errPaymentReused
		case row.State == store.PaymentDelivered, row.State == store.PaymentOwed, row.State == store.PaymentDefaulted:
			return s.repeat(row, paid)
		case row.State == store.PaymentFailed:
			return nil, s.settlementFailed(paid, row.FailureReason)
		case row.State == store.PaymentUndeliverable:
			receipt, err = s.deliver(ctx, row, paid, settledAs(row, row.Transaction), nil, handle)
		case row.State == store.PaymentUnknown, row.LeaseUntil.Before(time.Now()):
			receipt, err = s.payAgain(ctx, row, paid, handle)
		default:
			if time.Since(joined) > joinTime {
				return nil, errPaymentInProgress
			}
			if err := sleep(ctx, 50*time.Millisecond); err != nil {
				return nil, err
			}
			continue
		}
		if errors.Is(err, store.ErrPaymentMoved) { // another copy was faster: see what it made of it
			continue
		}
		return receipt, err
	}
}

// owns tells whether the payment was made for this request. What settled but could not be delivered may be redeemed
// with another request of the same operation and account.
func (p *payment) owns(row *store.Payment) bool {
	// A signature that we cannot check ourselves proves nothing: payer and nonce of a settled payment can be read on
	// the chain and sent with any junk. Only the signature that was verified then will do.
	if hash := p.signatureHash(); !p.checked.Conclusive && !bytes.Equal(row.SignatureHash, hash[:]) {
		return false
	}
	if row.State == store.PaymentUndeliverable {
		sameAccount := row.AgentID == p.caller || (row.AgentID != nil && p.caller != nil && *row.AgentID == *p.caller)
		return row.Operation == p.operation.id && sameAccount
	}
	return bytes.Equal(row.Fingerprint, p.fingerprint[:])
}

// payFirst takes a payment that the ledger does not know.
func (s *Server) payFirst(ctx context.Context, paid *payment, request any, handle handler) (*receipt, error) {
	if paid.outOfTime != nil {
		return nil, paid.outOfTime
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

// payAgain takes up a payment whose outcome nobody knows yet.
func (s *Server) payAgain(ctx context.Context, row *store.Payment, paid *payment, handle handler) (*receipt, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	row, err := s.store.ResumeSettlement(ctx, row.ID, lease)
	if err != nil {
		return nil, err
	}
	paid.id = row.ID
	return s.settle(ctx, row, paid, nil, handle)
}

// verify asks the facilitator about a signature that only the chain can judge (smart wallets).
func (s *Server) verify(ctx context.Context, paid *payment) error {
	verdict, err := s.facilitator.Verify(ctx, paid.payload, paid.offer)
	if err != nil {
		return &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodeUnavailable, retryAfter: 2, cause: err,
			message: "the payment facilitator is away; send the same request with the same payment again"}
	}
	if !verdict.IsValid {
		return s.refused(paid.operation, verdict.InvalidReason, "the payment was refused: "+verdict.InvalidReason+"; sign a new one")
	}
	return nil
}

// settle moves the money, then delivers.
func (s *Server) settle(ctx context.Context, row *store.Payment, paid *payment, rehearsed []byte, handle handler) (*receipt, error) {
	settling, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	settled, err := s.facilitator.Settle(settling, paid.payload, paid.offer)
	if err != nil {
		var unknown *x402.UnknownOutcome
		sent := !errors.As(err, &unknown) || !unknown.NotSent
		return nil, s.outcomeUnknown(ctx, row, sent, err)
	}
	switch {
	case settled.Success:
		settled = settledAs(row, settled.Transaction) // the same words that a repetition will get
	case settled.ErrorReason == x402.ReasonNonceAlreadyUsed && row.Attempts > 1:
		// We sent this authorization to be settled before, and now it is used: it was settled then.
		settled = settledAs(row, "")
	case settled.ErrorReason == x402.ReasonValidBefore && row.Attempts > 1:
		// The window is looked at before the nonce, so this does not say whether our earlier attempt moved the money.
		return nil, s.outcomeUnknown(ctx, row, true, errors.New("expired before its outcome was known"))
	default:
		if err := s.store.PaymentFailed(ctx, row.ID, settled.ErrorReason); err != nil {
			return nil, s.outcomeUnknown(ctx, row, true, err)
		}
		return nil, s.settlementFailed(paid, settled.ErrorReason)
	}
	return s.deliver(ctx, row, paid, settled, rehearsed, handle)
}

// deliver makes the effect and closes the payment in one transaction. A read that was rehearsed has its answer already.
func (s *Server) deliver(ctx context.Context, row *store.Payment, paid *payment, settled *x402.SettleResponse, answer []byte, handle handler) (*receipt, error) {
	crash("settled")
	paid.id = row.ID
	finish := func(tx *store.Store) (err error) {
		if answer == nil {
			if answer, err = handle(ctx, tx); err != nil {
				return err
			}
		}
		sealed, err := sealAnswer(paid.signature(), paid.request, answer)
		if err != nil {
			return err
		}
		if err := tx.PaymentDelivered(ctx, row.ID, paid.fingerprint[:], settled.Transaction, sealed); err != nil {
			return err
		}
		crash("delivering")
		return nil
	}
	var err error
	if answer != nil {
		err = finish(s.store)
	} else {
		err = s.store.Transaction(ctx, finish)
	}
	var refusal *store.Refusal
	switch {
	case err == nil:
		crash("delivered")
		return &receipt{body: answer, settled: settled}, nil
	case errors.Is(err, store.ErrPaymentMoved):
		return nil, err
	case errors.As(err, &refusal):
		switch err := s.store.PaymentUndeliverable(ctx, row.ID, settled.Transaction, refusal.Code); {
		case errors.Is(err, store.ErrPaymentMoved): // refused because another copy was faster
			return nil, err
		case err != nil:
			return nil, s.outcomeUnknown(ctx, row, true, err)
		}
		p := *problemOf(refusal)
		p.charged, p.settled = true, settled
		p.message += "; this came true only after the payment had settled, so it was charged: send the same payment with a mended request of this operation, it is not charged again"
		return nil, &p
	default:
		return nil, s.outcomeUnknown(ctx, row, true, err)
	}
}

// outcomeUnknown keeps the payment open. Never a 402: that would make the payer sign a second payment.
func (s *Server) outcomeUnknown(ctx context.Context, row *store.Payment, sent bool, cause error) error {
	if row.State != store.PaymentUndeliverable {
		// If this fails too, the lease runs out and the payment is taken up as well.
		err := s.store.PaymentUnknown(context.WithoutCancel(ctx), row.ID, "settlement outcome unknown", sent)
		if err != nil && !errors.Is(err, store.ErrPaymentMoved) {
			cause = errors.Join(cause, err)
		}
	}
	return &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodePaymentUnknown, retryAfter: 2, cause: cause,
		message: "the outcome of this payment is not known yet: send the same request with the same payment again, do not sign a new one"}
}

func (s *Server) settlementFailed(paid *payment, reason string) *problem {
	p := s.refused(paid.operation, reason, fmt.Sprintf("the payment was not settled (%s) and nothing was taken: sign a new one", reason))
	p.settled = &x402.SettleResponse{Success: false, ErrorReason: reason, Network: paid.offer.Network, Payer: paid.checked.Payer}
	return p
}

// repeat answers a payment that was delivered with what it was answered then.
func (s *Server) repeat(row *store.Payment, paid *payment) (*receipt, error) {
	answer, err := openAnswer(paid.signature(), paid.request, row.Answer)
	if err != nil {
		return nil, errPaymentReused
	}
	return &receipt{body: answer, settled: settledAs(row, row.Transaction)}, nil
}

func settledAs(row *store.Payment, transaction string) *x402.SettleResponse {
	return &x402.SettleResponse{Success: true, Transaction: transaction, Network: row.Network, Payer: row.Payer}
}

var (
	errPaymentReused = &problem{status: http.StatusConflict, code: gen.ErrorCodePaymentReused,
		message: "this payment was made for another request: sign a new one"}
	errPaymentInProgress = &problem{status: http.StatusConflict, code: gen.ErrorCodePaymentInProgress, retryAfter: 2,
		message: "this payment is being settled: send the same request with the same payment again"}
)

// signature is the payment's signature in one spelling.
func (p *payment) signature() string { return strings.ToLower(p.payload.Payload.Signature) }

func (p *payment) signatureHash() [sha256.Size]byte { return sha256.Sum256([]byte(p.signature())) }

func (p *payment) row() *store.Payment {
	signatureHash := p.signatureHash()
	return &store.Payment{
		ID: p.id, X402Version: int16(p.payload.X402Version), Scheme: p.offer.Scheme, Network: p.offer.Network,
		Asset: strings.ToLower(p.offer.Asset), Payer: p.checked.Payer, Nonce: p.checked.Nonce, PayTo: strings.ToLower(p.offer.PayTo),
		Amount: int64(p.operation.price), ValidBefore: p.checked.ValidBefore, Operation: p.operation.id, AgentID: p.caller,
		Fingerprint: p.fingerprint[:], SignatureHash: signatureHash[:], Request: p.request, Payload: p.payload.Raw(),
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
