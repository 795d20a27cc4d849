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

	"github.com/google/uuid"
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
	repeated bool // it was delivered before
}

// transaction returns what a handler works on: the gate's transaction, or for free operations the database.
func (s *Server) transaction(ctx context.Context) *store.Store {
	if tx, ok := ctx.Value(transactionKey).(*store.Store); ok {
		return tx
	}
	return s.store
}

// gate stands around every typed handler and makes the promise: an effect happens exactly once, or the money does not
// move. It runs the handler dry, settles, and then lets the effect and the record of the payment become visible in
// one transaction. No transaction is open during a call to the facilitator.
func (s *Server) gate(next gen.StrictHandlerFunc, _ string) gen.StrictHandlerFunc {
	return func(c echo.Context, request any) (any, error) {
		original := c.Request()
		paid := paymentFrom(original.Context())
		if paid == nil {
			return next(c, request)
		}
		paid.send = sendOf(original.Context(), request)
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
		if paid.operation.id == createAccount {
			handle = s.countTANs(paid, handle)
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

// send is a call that sends a message and does nothing else.
type send struct {
	message  store.OutgoingMessage
	response func(chat uuid.UUID) any
}

// sendOf returns what the request sends; nil if that is not all it does.
func sendOf(ctx context.Context, request any) *send {
	switch req := request.(type) {
	case gen.SendPrivateMessageRequestObject:
		message := privateMessage(ctx, req)
		return &send{message, func(chat uuid.UUID) any { return sentPrivately(message, chat) }}
	case gen.SendGroupMessageRequestObject:
		message := groupMessage(ctx, req)
		return &send{message, func(uuid.UUID) any { return sentToGroup(message) }}
	case gen.SendChannelMessageRequestObject:
		message := channelMessage(ctx, req)
		return &send{message, func(uuid.UUID) any { return sentToChannel(message) }}
	}
	return nil
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
	// Most payments are new: the ledger says so when they are written. It is looked up before only where something depends on it.
	look := paid.operation.secret || paid.replaced || paid.outOfTime != nil || !s.facilitator.ready()
	for joined := time.Now(); ; look = true {
		var row *store.Payment
		var err error
		if look {
			if row, err = s.lookUp(ctx, paid); err != nil {
				return nil, err
			}
		}
		var receipt *receipt
		switch {
		case row == nil && paid.replaced:
			return nil, errInvalidKey
		case row == nil:
			receipt, err = s.payFirst(ctx, paid, request, handle)
			// A payment that was refused before it began may be in the ledger: as one that has done already what the refusal is about.
			if err != nil && !paid.begun && !errors.Is(err, store.ErrPaymentMoved) {
				if known, lookErr := s.lookUp(ctx, paid); lookErr == nil && known != nil {
					continue
				}
			}
		case !paid.owns(row):
			return nil, errPaymentReused
		default:
			receipt, err = s.payKnown(ctx, paid, row, handle)
		}
		if !errors.Is(err, store.ErrPaymentMoved) {
			return receipt, err
		}
		// Another copy was faster, or is at it: what becomes of that counts.
		if !look { // most copies come long after the first, which has been delivered
			continue
		}
		if time.Since(joined) > joinTime {
			return nil, errPaymentInProgress
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// payKnown goes on with a payment that is in the ledger. store.ErrPaymentMoved if somebody else is at it.
func (s *Server) payKnown(ctx context.Context, paid *payment, row *store.Payment, handle handler) (*receipt, error) {
	proven := !paid.operation.secret || paid.proven
	if !proven {
		var err error
		if proven, err = s.proven(ctx, paid, row); err != nil {
			return nil, err
		}
		paid.proven = proven // a call that waits for another copy is proven once
	}
	switch {
	case row.State == store.PaymentDelivered && !proven, row.State == store.PaymentUndeliverable && row.AgentID == nil && !proven:
		return nil, errProofRequired
	case row.State == store.PaymentDelivered:
		return s.repeat(ctx, row, paid, handle)
	case paid.replaced: // a key that was replaced opens a stored response and nothing else
		return nil, errInvalidKey
	case row.State == store.PaymentFailed:
		return nil, s.settlementFailed(paid, row.FailureReason)
	case row.State == store.PaymentUndeliverable:
		if err := s.mayTryTAN(ctx, paid); err != nil {
			return nil, err
		}
		return s.deliver(ctx, row, paid, row.Transaction, nil, handle)
	case row.State == store.PaymentUnknown, row.LeaseOver():
		receipt, err := s.payAgain(ctx, row, handle)
		if err == nil && !proven { // finished, but not for whoever only has what stands on the chain
			return nil, errProofRequired
		}
		return receipt, err
	}
	return nil, store.ErrPaymentMoved
}

// lookUp finds the payment in the ledger: by its authorization, by the identifier that its payer gave it, or, where the
// response holds a secret, as one that the same wallet has made before.
func (s *Server) lookUp(ctx context.Context, paid *payment) (*store.Payment, error) {
	network, asset, payer := paid.offer.Network, strings.ToLower(paid.offer.Asset), paid.checked.Payer
	row, err := s.store.Payment(ctx, network, asset, payer, paid.checked.Nonce)
	if err != nil || row != nil {
		return row, err
	}
	if paid.identifier != "" {
		row, err = s.store.PaymentByIdentifier(ctx, paid.caller, payer, paid.operation.id, *paid.identifierHash())
		if err != nil || row != nil {
			return row, err
		}
	}
	if paid.operation.secret && paid.outOfTime == nil {
		return s.store.PaymentOfWallet(ctx, network, asset, payer, paid.operation.id, paid.caller, paid.fingerprint[:])
	}
	return nil, nil //nolint:nilnil // it is not in the ledger
}

// same tells whether the row is the authorization itself, and not another payment that it stands for.
func (p *payment) same(row *store.Payment) bool {
	return row.Payer == p.checked.Payer && row.Nonce == p.checked.Nonce
}

// owns tells whether the payment was made for this request. What settled but could not be delivered may be redeemed
// with another request of the same operation and account.
func (p *payment) owns(row *store.Payment) bool {
	sameRequest := bytes.Equal(row.Fingerprint, p.fingerprint[:])
	if row.State == store.PaymentUndeliverable {
		sameAccount := row.AgentID == p.caller || (row.AgentID != nil && p.caller != nil && *row.AgentID == *p.caller)
		sameRequest = row.Operation == p.operation.id && sameAccount
	}
	if !p.same(row) {
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
	return sameRequest
}

// proven tells whether the caller has shown more than what stands on the chain: the payment's identifier, which only its
// payer knows, or another authorization by the same wallet, which was never sent to be settled.
func (s *Server) proven(ctx context.Context, paid *payment, row *store.Payment) (bool, error) {
	if row.PaymentIdentifier != nil && paid.identifier != "" && *row.PaymentIdentifier == *paid.identifierHash() {
		return true, nil
	}
	if paid.same(row) || row.Payer != paid.checked.Payer {
		return false, nil
	}
	if !paid.checked.Conclusive {
		return true, s.verify(ctx, paid) // a smart wallet's signature
	}
	// What was used elsewhere, for another service of the same payee, is as public as what is in the ledger.
	asking, cancel := context.WithTimeout(ctx, chainTimeout)
	defer cancel()
	state, err := s.chain.Authorization(asking, strings.ToLower(paid.offer.Asset), paid.checked.Payer, paid.checked.Nonce, time.Now())
	if err != nil { // the facilitator has an endpoint of its own
		return true, s.verify(ctx, paid)
	}
	return !state.Used && !state.Cancelled, nil
}

// repeat answers a payment that was delivered with what it was answered then. A read whose response was too long to be kept is
// made again while the payment is valid.
func (s *Server) repeat(ctx context.Context, row *store.Payment, paid *payment, handle handler) (*receipt, error) {
	var answer []byte
	var err error
	switch {
	case row.Answer != nil && paid.operation.secret && row.Now.Sub(row.UpdatedAt) > store.SecretLifetime:
		return nil, errResponseGone
	case row.Answer != nil:
		if answer, err = openAnswer(paid.request, row.Answer); err != nil {
			return nil, err
		}
	case !paid.operation.readOnly || row.Now.After(row.ValidBefore):
		return nil, errResponseGone
	default:
		if answer, err = s.dryRun(ctx, paid, handle); err != nil {
			return nil, err
		}
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
	errResponseGone = &problem{status: http.StatusConflict, code: gen.ErrorCodePaymentReused,
		message: "this payment was used for this very request before: what it did is done, but its response is no longer stored; sign a new payment to ask again"}
	errProofRequired = &problem{status: http.StatusConflict, code: gen.ErrorCodeProofRequired,
		message: "this payment was delivered, and its response holds a secret that a settled payment alone does not open, because it is public: send the same request with a newly signed payment by the same wallet (it is only verified, nothing is charged), or with the payment identifier of the first one"}
	errPaymentInProgress = &problem{status: http.StatusConflict, code: gen.ErrorCodePaymentInProgress, retryAfter: 2,
		message: "this payment is being settled: send the same request with the same payment again"}
)

// signature is the payment's signature in one spelling.
func (p *payment) signature() string { return strings.ToLower(p.payload.Payload.Signature) }

func (p *payment) signatureHash() [sha256.Size]byte { return sha256.Sum256([]byte(p.signature())) }

// identifierHash is how the ledger knows the payment's identifier; nil without one.
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
		Fingerprint: p.fingerprint[:], SignatureHash: signatureHash[:], PaymentIdentifier: p.identifierHash(),
		Secret: p.operation.secret, Request: p.request, Payload: p.payload.Raw(),
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
