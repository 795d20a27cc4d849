package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// problem is a response that is not a 200. Every error becomes one, here, and the contract's ApiError on the wire.
type problem struct {
	status     int
	code       gen.ErrorCode
	message    string // a sentence that says what to do
	details    []gen.ErrorDetail
	charged    bool
	redeeming  bool                  // charged by an earlier call, not by this one
	retryAfter int                   // seconds; 0: no header
	limit      *policy               // the limit that is reached
	required   *x402.PaymentRequired // the payment that is asked for
	settled    *x402.SettleResponse  // what became of the payment
	encoded    string                // required, as a header; "" where that is still to be done
	accepts    json.RawMessage       // required.Accepts as the body has them; nil where that is still to be done
	cause      error                 // for the log; the caller never sees it
}

func (p *problem) Error() string { return p.message }
func (p *problem) Unwrap() error { return p.cause }

var statusOf = map[store.Kind]int{
	store.Invalid: http.StatusBadRequest, store.Forbidden: http.StatusForbidden, store.NotFound: http.StatusNotFound,
	store.Conflict: http.StatusConflict, store.Gone: http.StatusGone, store.Unauthorized: http.StatusUnauthorized,
}

// problemOf says what an error is to the caller. What is not a refusal is our fault: 500, and its text stays here.
func problemOf(err error) *problem {
	var known *problem
	var paying *payment.Error
	var refusal *store.Refusal
	var routing *echo.HTTPError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &paying):
		return problemOfPayment(paying)
	case errors.As(err, &refusal):
		return &problem{status: statusOf[refusal.Kind], code: gen.ErrorCode(refusal.Code), message: refusal.Message}
	case errors.As(err, &routing):
		switch routing.Code {
		case http.StatusNotFound:
			return &problem{status: routing.Code, code: gen.ErrorCodePathNotFound, message: "there is no such path; GET /openapi.json lists them all"}
		case http.StatusMethodNotAllowed:
			return &problem{status: routing.Code, code: gen.ErrorCodeMethodNotAllowed, message: "this path takes another method; the Allow header names it"}
		case http.StatusBadRequest:
			return &problem{status: routing.Code, code: gen.ErrorCodeInvalidRequest, message: "the request cannot be read as the contract describes it", cause: err}
		}
	case store.Unavailable(err):
		return &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodeUnavailable, retryAfter: 2, cause: err,
			message: "the database is away; send the same request with the same payment again"}
	case errors.Is(err, context.Canceled):
		// The caller hung up; nobody reads this.
		return &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodeUnavailable, retryAfter: 1, message: "the request was given up", cause: err}
	}
	return &problem{status: http.StatusInternalServerError, code: gen.ErrorCodeInternalError, cause: err,
		message: "internal error; quote the request_id to the operator"}
}

// errorBody is gen.ApiError with the x402 fields of a 402 in their own types. Clients of version 2 read the header and
// those of version 1 the body, so that one response serves both. Where the network has no name in version 1, the body
// repeats the header for those who read bodies.
type errorBody struct {
	Success   bool              `json:"success"`
	Message   string            `json:"message"`
	Code      gen.ErrorCode     `json:"code"`
	Charged   bool              `json:"charged"`
	RequestID string            `json:"request_id"`
	Details   []gen.ErrorDetail `json:"details,omitempty"`

	X402Version int                `json:"x402Version,omitempty"`
	Error       string             `json:"error,omitempty"`
	Resource    *x402.ResourceInfo `json:"resource,omitempty"`
	Accepts     any                `json:"accepts,omitempty"`
}

func (p *problem) body(requestID string) errorBody {
	return errorBody{Success: false, Message: p.message, Code: p.code, Charged: p.charged, RequestID: requestID, Details: p.details}
}

func (b *errorBody) require(p *problem, nameV1 string) {
	b.X402Version, b.Error, b.Accepts = p.required.X402Version, p.required.Error, p.required.Accepts
	if nameV1 == "" {
		b.Resource = &p.required.Resource
		return
	}
	b.X402Version = x402.VersionV1
	if p.accepts != nil {
		b.Accepts = p.accepts
		return
	}
	accepts := make([]x402.PaymentRequirementsV1, len(p.required.Accepts))
	for i, requirements := range p.required.Accepts {
		accepts[i] = requirements.V1(nameV1, p.required.Resource)
	}
	b.Accepts = accepts
}

// writeError writes an error; the one place that does.
func (s *Server) writeError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	p := problemOf(err)
	record := recordFrom(c)
	record.code, record.cause = p.code, p.cause
	header := c.Response().Header()
	if p.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	if p.limit != nil {
		p.limit.tell(header, p.retryAfter)
	}
	body := p.body(record.requestID)
	if p.required != nil {
		encoded := p.encoded
		if encoded == "" {
			encoded, _ = x402.EncodePaymentRequired(p.required) // it was encoded once, when the server started
		}
		header.Set(x402.HeaderPaymentRequired, encoded)
		if p.status == http.StatusPaymentRequired {
			body.require(p, s.config.Network.V1Name)
		}
	}
	if p.settled != nil {
		s.setPaymentResponse(c, p.settled)
	}
	if c.Request().Method == http.MethodHead {
		_ = c.NoContent(p.status)
		return
	}
	_ = c.JSONBlob(p.status, body.encode())
}

// encode returns the body as JSON of at most maxErrorBody bytes: the message is cut, then details are left out from the
// end. Names and reasons in them come from callers and from the facilitator.
func (b *errorBody) encode() []byte {
	b.Message = payment.Shorten(b.Message, maxMessage)
	for {
		raw, err := json.Marshal(b)
		switch {
		case err == nil && len(raw) <= maxErrorBody:
			return raw
		case err == nil && len(b.Details) > 1:
			b.Details = b.Details[:len(b.Details)/2]
		case err == nil && len(b.Details) == 1:
			b.Details = nil
		default:
			return fmt.Appendf(nil, `{"success":false,"message":"internal error","code":"internal_error","charged":%t,"request_id":%q}`, b.Charged, b.RequestID)
		}
	}
}

// newChallenge is the 402 for a request without payment, made once per operation. It must fit the bounds of an error.
func (s *Server) newChallenge(operation *operation) (*problem, error) {
	p := problemOf(operation.Challenge())
	body := p.body(newRequestID())
	body.require(p, s.config.Network.V1Name)
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxErrorBody || len(p.encoded) > maxErrorBody {
		return nil, fmt.Errorf("the payment requirements of %s have %d bytes and their header %d, more than %d", operation.ID, len(raw), len(p.encoded), maxErrorBody)
	}
	p.accepts, err = json.Marshal(body.Accepts)
	return p, err
}
