package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// joinTime is how long a copy of a running payment waits for its answer before it is told to come again.
const joinTime = 5 * time.Second

// handler runs the operation in tx and returns the JSON of its answer.
type handler func(ctx context.Context, tx *store.Store) ([]byte, error)

// receipt is a paid answer.
type receipt struct {
	body     []byte
	settled  *x402.SettleResponse
	repeated bool // out of the ledger
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
		handle := func(ctx context.Context, tx *store.Store) ([]byte, error) {
			c.SetRequest(original.WithContext(context.WithValue(ctx, transactionKey, tx)))
			response, err := next(c, request)
			c.SetRequest(original) // with the payment that came, which payAgain may have exchanged for the stored one
			if err != nil {
				return nil, err
			}
			return json.Marshal(response)
		}
		if paid.recovered != nil { // what was begun is finished; nobody waits for the answer
			_, err := s.settle(original.Context(), paid.recovered, paid, nil, handle)
			return nil, err
		}
		receipt, err := s.pay(original.Context(), paid, request, handle)
		if err != nil {
			return nil, err
		}
		recordFrom(c).transaction, recordFrom(c).paid = receipt.settled.Transaction, !receipt.repeated
		s.setPaymentResponse(c, receipt.settled)
		c.Response().Header().Set("Cache-Control", "private, no-store")
		return nil, c.JSONBlob(http.StatusOK, receipt.body) // nil: already answered
	}
}

// setPaymentResponse tells what became of the payment, in the version in which it came.
func (s *Server) setPaymentResponse(c echo.Context, settled *x402.SettleResponse) {
	name := x402.HeaderPaymentResponse
	if paid := paymentFrom(c.Request().Context()); paid != nil && paid.payload.X402Version == x402.VersionV1 {
		name = x402.HeaderPaymentResponseV1
		spelled := *settled
		spelled.Network = s.config.Network.V1Name
		settled = &spelled
	}
	if encoded, err := x402.EncodeSettleResponse(settled); err == nil {
		c.Response().Header().Set(name, encoded)
	}
}

// pay brings the payment from wherever it stands in the ledger to its answer.
func (s *Server) pay(ctx context.Context, paid *payment, request any, handle handler) (*receipt, error) {
	crash("matched")
	paid.isNew = s.presumedNew(paid)
	for joined := time.Now(); ; paid.isNew = false {
		var row *store.Payment
		var err error
		if !paid.isNew {
			row, err = s.lookUp(ctx, paid)
		}
		if err != nil {
			return nil, err
		}
		var receipt *receipt
		switch {
		case paid.replaced && (row == nil || row.Answer == nil):
			return nil, errInvalidKey
		case row == nil:
			receipt, err = s.payFirst(ctx, paid, request, handle)
			if s.overtaken(ctx, paid, err) {
				continue
			}
		case !paid.owns(row):
			return nil, errPaymentReused
		case row.State == store.PaymentDelivered, row.State == store.PaymentOwed, row.State == store.PaymentDefaulted:
			return s.repeat(row, paid)
		case row.State == store.PaymentFailed:
			return nil, s.settlementFailed(paid, row.FailureReason)
		case row.State == store.PaymentUndeliverable:
			receipt, err = s.deliver(ctx, row, paid, row.Transaction, nil, handle)
		case row.State == store.PaymentUnknown, row.LeaseUntil.Before(time.Now()):
			receipt, err = s.payAgain(ctx, row, handle)
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

// overtaken tells whether a payment that was new a moment ago may have been refused for the effect of another copy of it,
// as a key is no longer good that this very payment has replaced. Then what the other copy was told counts.
func (s *Server) overtaken(ctx context.Context, paid *payment, err error) bool {
	if err == nil {
		return false
	}
	if p := problemOf(err); p.charged || p.status >= http.StatusInternalServerError {
		return false
	}
	row, err := s.lookUp(ctx, paid)
	return err == nil && row != nil
}

// lookUp finds the payment in the ledger, by its authorization or by the identifier that its payer gave it.
func (s *Server) lookUp(ctx context.Context, paid *payment) (*store.Payment, error) {
	row, err := s.store.Payment(ctx, paid.offer.Network, strings.ToLower(paid.offer.Asset), paid.checked.Payer, paid.checked.Nonce)
	if err != nil || row != nil || paid.identifier == "" {
		return row, err
	}
	return s.store.PaymentByIdentifier(ctx, paid.caller, paid.checked.Payer, paid.operation.id, *paid.identifierHash())
}

// owns tells whether the payment was made for this request. What settled but could not be delivered may be redeemed
// with another request of the same operation and account.
func (p *payment) owns(row *store.Payment) bool {
	sameRequest := bytes.Equal(row.Fingerprint, p.fingerprint[:])
	if row.Payer != p.checked.Payer || row.Nonce != p.checked.Nonce { // found by its identifier: signed anew
		return sameRequest
	}
	hash := p.identifierHash()
	if (row.PaymentIdentifier == nil) != (hash == nil) || (hash != nil && *row.PaymentIdentifier != *hash) {
		return row.State == store.PaymentFailed && sameRequest // where the ledger has let go of the identifier
	}
	// A signature that we cannot check ourselves proves nothing: payer and nonce of a settled payment can be read on
	// the chain and sent with any junk. Only the signature that was verified then will do.
	if hash := p.signatureHash(); !p.checked.Conclusive && !bytes.Equal(row.SignatureHash, hash[:]) {
		return false
	}
	if row.State == store.PaymentUndeliverable {
		sameAccount := row.AgentID == p.caller || (row.AgentID != nil && p.caller != nil && *row.AgentID == *p.caller)
		return row.Operation == p.operation.id && sameAccount
	}
	return sameRequest
}

// repeat answers a payment that was delivered with what it was answered then.
func (s *Server) repeat(row *store.Payment, paid *payment) (*receipt, error) {
	if row.Answer == nil {
		return nil, errAnswerErased
	}
	answer, err := openAnswer(paid.secret(), paid.request, row.Answer)
	if err != nil {
		return nil, errPaymentReused
	}
	s.metrics.payment(row, outcomeRepeated)
	return &receipt{body: answer, settled: settledAs(row, row.Transaction), repeated: true}, nil
}

func settledAs(row *store.Payment, transaction string) *x402.SettleResponse {
	return &x402.SettleResponse{Success: true, Transaction: transaction, Network: row.Network, Payer: row.Payer}
}

var (
	errPaymentReused = &problem{status: http.StatusConflict, code: gen.ErrorCodePaymentReused,
		message: "this payment, or its payment identifier, was used for another request: sign a new payment, with a new identifier if it has one"}
	errAnswerErased = &problem{status: http.StatusConflict, code: gen.ErrorCodePaymentReused,
		message: "this payment was used for this very request long ago: what it did is done, but its answer is kept no longer; sign a new payment to ask again"}
	errPaymentInProgress = &problem{status: http.StatusConflict, code: gen.ErrorCodePaymentInProgress, retryAfter: 2,
		message: "this payment is being settled: send the same request with the same payment again"}
)

// signature is the payment's signature in one spelling.
func (p *payment) signature() string { return strings.ToLower(p.payload.Payload.Signature) }

func (p *payment) signatureHash() [sha256.Size]byte { return sha256.Sum256([]byte(p.signature())) }

// secret is what only the payer has: the stored answer is sealed with it. A payment with an identifier may be signed
// anew, so that the identifier takes the signature's place.
func (p *payment) secret() string {
	if p.identifier != "" {
		return p.identifier
	}
	return p.signature()
}

// identifierHash is how the ledger knows the payment's identifier, which opens the stored answer; nil without one.
func (p *payment) identifierHash() *string {
	if p.identifier == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(p.identifier))
	text := hex.EncodeToString(sum[:])
	return &text
}

func (p *payment) row() *store.Payment {
	signatureHash := p.signatureHash()
	return &store.Payment{
		ID: p.id, X402Version: int16(p.payload.X402Version), Scheme: p.offer.Scheme, Network: p.offer.Network,
		Asset: strings.ToLower(p.offer.Asset), Payer: p.checked.Payer, Nonce: p.checked.Nonce, PayTo: strings.ToLower(p.offer.PayTo),
		Amount: int64(p.operation.price), ValidBefore: p.checked.ValidBefore, Operation: p.operation.id, AgentID: p.caller,
		Fingerprint: p.fingerprint[:], SignatureHash: signatureHash[:], PaymentIdentifier: p.identifierHash(), Payload: p.payload.Raw(),
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
