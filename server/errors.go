package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// problem is a response that is not a 200: the contract's ParleyError. Every error becomes one.
type problem struct {
	status     int
	code       gen.ErrorCode
	message    string // the problem and the remedy
	details    []gen.ErrorDetail
	charged    bool
	unknown    bool                  // the outcome is unknown, so the call may have been charged
	unread     bool                  // the ledger could not be read: a payment of the call may have been charged before
	redeeming  bool                  // an earlier call was charged, not this one
	retryAfter int                   // seconds; 0: no header
	limit      *edge.Exceeded        // the limit that was exceeded
	required   *x402.PaymentRequired // the payment requirements
	settled    *x402.SettleResponse  // the outcome of the payment
	encoded    string                // required, encoded for the header; "" if not encoded yet
	accepts    json.RawMessage       // required.Accepts, encoded for the body; nil if not encoded yet
	cause      error                 // for the log only
}

func (p *problem) Error() string { return p.message }
func (p *problem) Unwrap() error { return p.cause }

var statusOf = map[store.Kind]int{
	store.Invalid: http.StatusBadRequest, store.Forbidden: http.StatusForbidden, store.NotFound: http.StatusNotFound,
	store.Conflict: http.StatusConflict, store.Gone: http.StatusGone, store.Unauthorized: http.StatusUnauthorized,
}

// problemOf turns an error into the response for the caller. An unknown error is an internal error: 500, and its text goes to the log only.
func problemOf(err error) *problem {
	var known *problem
	var paying *payment.Error
	var refusal *store.Refusal
	var routing *echo.HTTPError
	var exceeded *edge.Exceeded
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &paying):
		return problemOfPayment(paying)
	case errors.As(err, &refusal):
		return &problem{status: statusOf[refusal.Kind], code: gen.ErrorCode(refusal.Code), message: messageOf(refusal),
			details: detailsOf(refusal)}
	case errors.As(err, &exceeded):
		return &problem{status: http.StatusTooManyRequests, code: gen.ErrorCodeRateLimited, message: exceeded.Error(), limit: exceeded,
			retryAfter: exceeded.After}
	case errors.Is(err, edge.ErrDisplaced), errors.Is(err, edge.ErrCrowded):
		return unavailable(err.Error(), 1)
	case errors.As(err, &routing):
		switch routing.Code {
		case http.StatusNotFound:
			return &problem{status: routing.Code, code: gen.ErrorCodePathNotFound,
				message: "this path does not exist; GET /llms.txt lists all paths, GET /skill.md tells how to start, GET /openapi.json is the " +
					"whole contract"}
		case http.StatusMethodNotAllowed:
			return &problem{status: routing.Code, code: gen.ErrorCodeMethodNotAllowed,
				message: "this path does not support the method; use one of the methods in the Allow header"}
		case http.StatusBadRequest:
			return &problem{status: routing.Code, code: gen.ErrorCodeInvalidRequest, cause: err,
				message: "the request cannot be parsed; GET /openapi.json describes all requests",
				details: []gen.ErrorDetail{{Message: "cannot be parsed"}}}
		}
	case store.Unavailable(err):
		return errUnavailable.because(err)
	case errors.Is(err, context.Canceled): // see hungUp
		return unavailable("the request was cancelled", 1).because(err)
	}
	return &problem{status: http.StatusInternalServerError, code: gen.ErrorCodeInternalError, cause: err,
		message: "internal error; " + payment.Again + ". If it stays, report the request_id to the operator"}
}

// unavailable returns a 503 for a call whose payment was not read.
func unavailable(message string, after int) *problem {
	return &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodeUnavailable, retryAfter: after, unread: true, message: message}
}

// because returns the problem with its cause.
func (p problem) because(err error) *problem {
	p.cause = err
	return &p
}

var errUnavailable = unavailable("the database is unavailable; "+payment.Again, 2)

// detailsOf returns the details of a 400, which every 400 has.
func detailsOf(refusal *store.Refusal) []gen.ErrorDetail {
	if refusal.Kind != store.Invalid {
		return nil
	}
	return []gen.ErrorDetail{{Field: refusal.Field, Message: messageOf(refusal)}}
}

// messageOf returns the message of a refusal, with the agents that it concerns. The caller sent their ids.
func messageOf(refusal *store.Refusal) string {
	const most = 20
	ids := each(refusal.Agents, AgentID)
	switch {
	case len(ids) == 0:
		return refusal.Message
	case len(ids) > most:
		return fmt.Sprintf("%s: %s and %d more", refusal.Message, strings.Join(ids[:most], ", "), len(ids)-most)
	}
	return refusal.Message + ": " + strings.Join(ids, ", ")
}

// errorBody is gen.ParleyError with typed x402 fields. Clients of x402 version 2 read the header, clients of version 1 read
// the body. If version 1 has no name for the network, the body repeats the header.
type errorBody struct {
	Success   bool              `json:"success"`
	Message   string            `json:"message"`
	Code      gen.ErrorCode     `json:"code"`
	Charged   *bool             `json:"charged,omitempty"` // nil while the outcome is unknown
	RequestID string            `json:"request_id"`
	Details   []gen.ErrorDetail `json:"details,omitempty"`

	X402Version int                `json:"x402Version,omitempty"`
	Error       string             `json:"error,omitempty"`
	Resource    *x402.ResourceInfo `json:"resource,omitempty"`
	Accepts     any                `json:"accepts,omitempty"`
}

func (p *problem) body(requestID string) errorBody {
	body := errorBody{Success: false, Message: p.message, Code: p.code, RequestID: requestID, Details: p.details}
	if !p.unknown {
		body.Charged = &p.charged
	}
	return body
}

func (b *errorBody) require(p *problem, nameV1 string) {
	b.X402Version, b.Error, b.Accepts = p.required.X402Version, p.required.Error, p.required.Accepts
	if nameV1 == "" {
		b.Resource = &p.required.Resource
		return
	}
	b.X402Version = x402.VersionV1
	if b.Accepts = p.accepts; p.accepts != nil {
		return
	}
	accepts := []x402.PaymentRequirementsV1{}
	for _, requirements := range p.required.Accepts {
		if requirements.Scheme == x402.SchemeExact { // version 1 has no payment channels
			accepts = append(accepts, requirements.V1(nameV1, p.required.Resource))
		}
	}
	b.Accepts = accepts
}

// statusHungUp stands in the log and the metrics for a failed call whose caller did not wait for the response. It is nginx's status for
// that. Nobody receives it.
const statusHungUp = 499

// hungUp reports whether the caller has closed the connection or the stream.
func hungUp(c echo.Context) bool { return c.Request().Context().Err() != nil }

// writeError writes the response for an error. No other function does.
func (s *Server) writeError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	p := problemOf(err)
	status := p.status
	if status >= http.StatusInternalServerError && hungUp(c) {
		status = statusHungUp
	}
	record := recordFrom(c)
	record.code, record.cause = p.code, p.cause
	header := c.Response().Header()
	if p.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	if p.limit != nil {
		s.metrics.limited.WithLabelValues(p.limit.Policy.Name).Inc()
		p.limit.WriteHeader(header)
	}
	body := p.body(record.requestID)
	lacksKey := status == http.StatusPaymentRequired && record.operation.Account && c.Request().Header.Get("X-API-KEY") == ""
	if status == http.StatusUnauthorized || lacksKey {
		header.Set("WWW-Authenticate", needsKey)
	}
	if lacksKey && p.code == gen.ErrorCodePaymentRequired {
		body.Message += " and the X-API-KEY that POST /register/create_account returned"
	}
	if allowed := header.Get(echo.HeaderAllow); p.code == gen.ErrorCodeMethodNotAllowed && allowed != "" {
		body.Message += ": " + allowed
	}
	if (p.unread || p.status == http.StatusInternalServerError) && hasPayment(c) { // 500: the fault may have come after the charge
		body.Charged = nil
	}
	if p.required != nil {
		encoded := p.encoded
		if encoded == "" {
			encoded, _ = x402.EncodePaymentRequired(p.required) // cannot fail: the same requirements were encoded at start
		}
		header.Set(x402.HeaderPaymentRequired, encoded)
		if p.status == http.StatusPaymentRequired {
			body.require(p, s.config.Network.V1Name)
		}
	}
	if p.settled != nil {
		s.setPaymentResponse(c, p.settled)
	}
	_ = c.JSONBlob(status, body.encode())
}

// encode returns the body as JSON of at most maxErrorBody bytes. It shortens the message, then drops details from the
// end, because both may quote callers or the facilitator.
func (b *errorBody) encode() []byte {
	b.Message = payment.Shorten(b.Message, maxMessage)
	for {
		raw, err := json.Marshal(b)
		switch {
		case err == nil && len(raw) <= maxErrorBody:
			return raw
		case err != nil || len(b.Details) == 0:
			return fmt.Appendf(nil, `{"success":false,"message":"internal error","code":"internal_error","request_id":%q}`, b.RequestID)
		}
		b.Details = b.Details[:len(b.Details)/2]
	}
}

// Refusal returns the response to a request that is refused before it has an id (edge.Refusal).
func Refusal(status int, message string) (http.Header, []byte) {
	body := errorBody{Message: message, Code: gen.ErrorCodeUnavailable, RequestID: newRequestID()}
	header := http.Header{"Content-Type": {echo.MIMEApplicationJSON}}
	setHeaders(header, body.RequestID)
	if status == http.StatusServiceUnavailable {
		header.Set("Retry-After", "1")
	} else {
		body.Code = gen.ErrorCodeInvalidRequest
	}
	return header, body.encode()
}

// newChallenges prepares the 402s for a request without payment. Each must fit the size limit of an error.
func (s *Server) newChallenges(operation *operation) (map[*payment.Error]*problem, error) {
	prepared := map[*payment.Error]*problem{}
	for _, challenge := range operation.Challenges() {
		if prepared[challenge] != nil { // several standings make the same order
			continue
		}
		p := problemOf(challenge)
		body := p.body(newRequestID())
		body.require(p, s.config.Network.V1Name)
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		if len(raw) > maxErrorBody || len(p.encoded) > maxErrorBody {
			return nil, fmt.Errorf("the payment requirements of %s have %d bytes and their header %d, more than %d",
				operation.ID, len(raw), len(p.encoded), maxErrorBody)
		}
		if p.accepts, err = json.Marshal(body.Accepts); err != nil {
			return nil, err
		}
		prepared[challenge] = p
	}
	return prepared, nil
}
