package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/payment/channel"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

func (o *operation) paid() bool { return o != nil && o.Price > 0 }

func hasPayment(c echo.Context) bool {
	return payment.InHeader(c.Request().Header) || recordFrom(c).attempt != nil // a call that waits keeps no header
}

// priceInquiry returns 402 for a request with neither payment nor body nor query. A query is validated first, so that a mistake
// in it does not cost a signature.
func (s *Server) priceInquiry(c echo.Context) error {
	if len(bodyFrom(c)) > 0 || c.Request().URL.RawQuery != "" {
		return nil
	}
	return s.requirePayment(c)
}

// requirePayment returns 402 for a valid request without payment.
func (s *Server) requirePayment(c echo.Context) error {
	if operation := operationFrom(c); operation.paid() && !hasPayment(c) {
		return s.challenge(c, operation)
	}
	return nil
}

// challenge returns the 402 for a request without payment.
func (s *Server) challenge(c echo.Context, operation *operation) error {
	client := clientOf(c, operation)
	if strings.HasPrefix(c.Request().Header.Get("X-Client-ID"), agentCash) {
		client = payment.ExactOnly
	}
	challenge := s.payments.Challenge(&operation.Operation, client)
	if prepared := operation.challenges[challenge]; prepared != nil {
		return prepared
	}
	return problemOfPayment(challenge)
}

// agentCash begins the X-Client-ID of AgentCash. Up to 0.14 it gives up if the first entry of accepts is not for exact.
const agentCash = "agentcash@"

// clientOf identifies the client for the payment requirements: by its API key, else by its address.
func clientOf(c echo.Context, operation *operation) string {
	if key := c.Request().Header.Get("X-API-KEY"); operation.Account && key != "" {
		return string(store.HashKey(key))
	}
	return recordFrom(c).buckets.address.String()
}

// schemes are the ways to pay, in the order in which they are offered.
func (s *Server) schemes() ([]payment.Scheme, error) {
	exact, err := payment.NewExact(s.payments)
	if err != nil || s.config.Channels.Authorizer == nil {
		return []payment.Scheme{exact}, err
	}
	if s.channels, err = channel.New(s.payments, s.config.Channels); err != nil {
		return nil, err
	}
	if s.config.Channels.ExactFirst {
		return []payment.Scheme{exact, s.channels}, nil
	}
	return []payment.Scheme{s.channels, exact}, nil
}

// refund refunds the payer of a payment channel. Official clients ask for it with a GET request that has no API key.
func (s *Server) refund(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !operationFrom(c).paid() || c.Request().Method != http.MethodGet || !channel.MayBeRefund(c.Request().Header) {
			return next(c)
		}
		refunded := false
		err := s.limitTime(func(c echo.Context) (err error) { refunded, err = s.refundOf(c); return err })(c)
		if err != nil || refunded {
			return err
		}
		return next(c)
	}
}

// refundOf refunds if the payment asks for it.
func (s *Server) refundOf(c echo.Context) (bool, error) {
	operation, request := operationFrom(c), c.Request()
	var account *uuid.UUID // official clients send no API key
	if key := request.Header.Get("X-API-KEY"); key != "" {
		agent, err := s.agentByKey(request.Context(), key)
		switch {
		case errors.Is(err, store.ErrAgentNotFound):
			return false, errInvalidKey
		case err != nil:
			return false, err
		}
		account = &agent.ID
	}
	settled, err := s.channels.Refund(request.Context(), &operation.Operation, request.Header, account, clientOf(c, operation),
		recordFrom(c).buckets.address)
	if settled == nil || err != nil {
		return false, err
	}
	record := recordFrom(c)
	record.payer, record.transaction = settled.Payer, settled.Transaction
	name, value, err := s.payments.ResponseHeader(x402.Version, settled)
	if err != nil {
		return false, err
	}
	c.Response().Header().Set(name, value)
	return true, c.NoContent(http.StatusNoContent)
}

// parsePayment parses the payment and checks it against the payment requirements.
func (s *Server) parsePayment(c echo.Context) error {
	operation := operationFrom(c)
	if !operation.paid() {
		return nil
	}
	record, request := recordFrom(c), c.Request()
	if record.attempt != nil { // a voucher that has waited; its caller may be suspended since, or have another key
		record.attempt.Caller = record.payingCaller()
		return nil
	}
	content, err := canonical(c)
	if err != nil {
		return err
	}
	record.attempt, err = s.payments.Parse(request.Context(), &operation.Operation, request.Header, record.payingCaller(),
		clientOf(c, operation), record.buckets.address, content)
	if err == nil {
		record.payer = record.attempt.Payer()
	}
	return err
}

// payingCaller is the caller for the payment engine, or nil.
func (r *record) payingCaller() *payment.Caller {
	agent := r.caller
	if agent == nil {
		return nil
	}
	caller := &payment.Caller{Account: agent.ID, KeyHash: agent.KeyHash}
	if r.keyReplaced {
		caller.RepeatOnly = errReplacedKey
	}
	if agent.Suspended != nil {
		caller.Suspended = suspended(agent)
	}
	return caller
}

// paymentMiddleware wraps every handler. A free operation runs directly. The payment engine runs a paid one in its own transactions,
// perhaps twice, and returns the bytes that the ledger stores, so that a repeated call gets the same response.
func (s *Server) paymentMiddleware(gen.StrictHandlerFunc, string) gen.StrictHandlerFunc {
	return func(c echo.Context, request any) (any, error) {
		operation, record := operationFrom(c), recordFrom(c)
		if record.attempt == nil {
			return operation.handler.batched(c.Request().Context(), &call{server: s, read: &s.store.Reader, caller: record.caller}, request)
		}
		edge.RequestOf(c).Release()
		var done handled
		var admit func() error
		switch {
		case operation.Reads():
			done = record.buckets.measure
		case operation.ID == createAccount:
			try := &tanTry{server: s, keys: []string{"wallet " + record.attempt.Identity, "address " + record.buckets.address.String()}}
			admit, done = func() error { return try.take(c.Request().Context()) }, try.handled
			defer try.end()
		}
		made := s.newCall(operation, record.attempt, record.caller, request, done)
		made.Admit = admit
		receipt, err := s.payments.Pay(c.Request().Context(), made)
		if err != nil {
			return nil, err
		}
		if channel := record.attempt.Channel(); channel != "" && !receipt.Repeated {
			s.room.overtake(channel)
		}
		record.transaction, record.paid = receipt.Settled.Transaction, !receipt.Repeated
		edge.RequestOf(c).Deliver(len(receipt.Response), record.paid)
		s.setPaymentResponse(c, receipt.Settled)
		var account gen.CreateAccountResult // or gen.RotateKeyResult
		if operation.Secret && !receipt.Repeated && json.Unmarshal(receipt.Response, &account) == nil && account.APIKey != "" {
			s.payments.KnownAs(record.attempt, string(store.HashKey(account.APIKey)))
		}
		if receipt.Repeated {
			record.buckets.repeated = len(receipt.Response)
			c.Response().Header().Set("Idempotent-Replayed", "true")
		}
		c.Response().Header().Set("Cache-Control", "private, no-store")
		return nil, c.JSONBlob(http.StatusOK, receipt.Response) // nil: already written
	}
}

// newCall makes the call that the payment engine runs. Done, if not nil, is called after each run of its handler.
func (s *Server) newCall(operation *operation, attempt *payment.Attempt, caller *store.Agent, request any, done handled) *payment.Call {
	made := &payment.Call{Attempt: attempt, Repeat: s.repeat, Locks: lockedBy, Work: func(paid payment.Paid) store.Work {
		return operation.work(call{server: s, caller: caller, paid: paid}, request, done)
	}}
	if operation.ID == createAccount {
		made.Reserve = func(ctx context.Context, tx *store.Tx, paid payment.Paid) error {
			return s.reserveRegistration(ctx, tx, paid, request)
		}
	}
	return made
}

// restore makes the call of a payment in the ledger.
func (s *Server) restore(ctx context.Context, row *store.Payment, attempt *payment.Attempt) (*payment.Call, error) {
	operation := s.byID[row.Operation]
	request, err := operation.handler.decode(attempt.Request())
	if err != nil {
		return nil, err
	}
	var caller *store.Agent
	if row.AgentID != nil {
		if caller, err = s.store.AgentByID(ctx, *row.AgentID); err != nil {
			return nil, fmt.Errorf("read the caller: %w", err)
		}
		caller.KeyHash = row.KeyHash // rotateKey replaces only the key that the caller used
	}
	return s.newCall(operation, attempt, caller, request, nil), nil
}

// setPaymentResponse writes the outcome of the payment.
func (s *Server) setPaymentResponse(c echo.Context, settled *x402.SettleResponse) {
	attempt := recordFrom(c).attempt
	if name, value, err := s.payments.ResponseHeader(attempt.Version(), settled); err == nil {
		c.Response().Header().Set(name, value)
	}
}

// paymentStatus maps the payment engine's codes to HTTP statuses.
var paymentStatus = map[payment.Code]int{
	payment.CodeRequired: http.StatusPaymentRequired, payment.CodeRefused: http.StatusPaymentRequired,
	payment.CodeInvalid: http.StatusBadRequest,
	payment.CodeReused:  http.StatusConflict, payment.CodeProof: http.StatusConflict, payment.CodeInProgress: http.StatusConflict,
	payment.CodeUnknown: http.StatusServiceUnavailable, payment.CodeBusy: http.StatusServiceUnavailable,
	payment.CodeLimited: http.StatusTooManyRequests,
}

// problemOfPayment turns an error of the payment engine into the response for the caller.
func problemOfPayment(e *payment.Error) *problem {
	p := &problem{
		status: paymentStatus[e.Code], code: gen.ErrorCode(e.Code), message: e.Message, charged: e.Charged, unknown: e.Undecided,
		redeeming:  e.Earlier,
		retryAfter: e.RetryAfter, required: e.Required, encoded: e.Header, settled: e.Settled, cause: e.Cause,
	}
	if e.Refusal != nil {
		p.status, p.code, p.details = statusOf[e.Refusal.Kind], gen.ErrorCode(e.Refusal.Code), detailsOf(e.Refusal)
		p.message = messageOf(e.Refusal) + strings.TrimPrefix(e.Message, e.Refusal.Message) // what follows says what was charged
	}
	if e.Field != "" {
		p.details = []gen.ErrorDetail{{Field: e.Field, Message: e.Message}}
	}
	return p
}
