package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// maxTimeoutSeconds tells clients how long an authorization should live: x402's usual value.
const maxTimeoutSeconds = 60

// challenge is the answer to a paid operation's request without payment, made once per operation.
type challenge struct {
	header  string    // PAYMENT-REQUIRED
	body    [2][]byte // before and after the request's id
	problem *problem
}

func (s *Server) newChallenge(operation *operation) (*challenge, error) {
	required := s.required(operation, "PAYMENT-SIGNATURE header is required")
	header, err := x402.EncodePaymentRequired(required)
	if err != nil {
		return nil, err
	}
	prepared := &challenge{header: header}
	prepared.problem = &problem{status: http.StatusPaymentRequired, code: gen.ErrorCodePaymentRequired, prepared: prepared,
		message: fmt.Sprintf("this call costs %s USD: pay what the PAYMENT-REQUIRED header offers and send the same request again with PAYMENT-SIGNATURE",
			x402.FormatUSD(operation.price))}
	body := prepared.problem.body("")
	body.require(required, s.config.Network.V1Name)
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	const id = `"request_id":"`
	before, after, ok := bytes.Cut(raw, []byte(id+`"`))
	if !ok {
		return nil, errors.New("an error's body names no request")
	}
	if len(raw) > maxErrorBody-len(newRequestID()) || len(header) > maxErrorBody {
		return nil, fmt.Errorf("the offer has %d bytes and its header %d, more than %d", len(raw), len(header), maxErrorBody)
	}
	prepared.body = [2][]byte{slices.Concat(before, []byte(id)), slices.Concat([]byte(`"`), after)}
	return prepared, nil
}

// required is what a 402 asks for, with the reason in x402's words.
func (s *Server) required(operation *operation, reason string) *x402.PaymentRequired {
	return &x402.PaymentRequired{
		X402Version: x402.Version,
		Error:       shorten(reason, maxReason),
		Resource: x402.ResourceInfo{
			URL:         s.config.BaseURL + operation.route.Path,
			Description: operation.route.Operation.Summary,
			MimeType:    "application/json",
		},
		Accepts:    operation.offers,
		Extensions: operation.extensions,
	}
}

// refused is the 402 for a payment that was not taken; the caller may sign another one.
func (s *Server) refused(operation *operation, reason, message string) *problem {
	return &problem{status: http.StatusPaymentRequired, code: gen.ErrorCodePaymentRefused, message: message, required: s.required(operation, reason)}
}

// paymentHeaders are the headers of a payment as net/http keeps them: every request is asked for them, several times.
var paymentHeaders = []string{http.CanonicalHeaderKey(x402.HeaderPaymentSignature), http.CanonicalHeaderKey(x402.HeaderPaymentV1)}

func hasPayment(c echo.Context) bool {
	for _, name := range paymentHeaders {
		if values := c.Request().Header[name]; len(values) > 0 && values[0] != "" {
			return true
		}
	}
	return false
}

// read decodes the payment of a request, in whichever version it came. The newer one counts if both did.
func (s *Server) read(c echo.Context, operation *operation) (*x402.PaymentPayload, error) {
	header := c.Request().Header
	name, decode := x402.HeaderPaymentSignature, x402.DecodePaymentPayload
	if header.Get(name) == "" {
		name, decode = x402.HeaderPaymentV1, func(text string) (*x402.PaymentPayload, error) {
			return x402.DecodePaymentPayloadV1(text, s.config.Network)
		}
	}
	if len(header.Values(name)) > 1 {
		return nil, s.malformed(operation, name, "send one "+name+" header, not several")
	}
	payload, err := decode(header.Get(name))
	if err != nil {
		return nil, s.malformed(operation, name, err.Error())
	}
	s.completeV1(payload, operation)
	return payload, nil
}

// completeV1 adds what a payment of version 1 does not say and the facilitator must hear from us.
func (s *Server) completeV1(payload *x402.PaymentPayload, operation *operation) {
	if payload.X402Version == x402.VersionV1 {
		payload.Resource = &s.required(operation, "").Resource
	}
}

// inquire answers the question for the price: neither payment nor body.
func (s *Server) inquire(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		operation := operationFrom(c)
		if operation != nil && operation.price > 0 && !hasPayment(c) && len(bodyFrom(c)) == 0 {
			return operation.challenge.problem
		}
		return next(c)
	}
}

// demand asks for the payment of a request that is in order but brings none.
func (s *Server) demand(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		operation := operationFrom(c)
		if operation != nil && operation.price > 0 && !hasPayment(c) {
			return operation.challenge.problem
		}
		return next(c)
	}
}

// payment is what a paid request brings: decoded, matched with our offer, and checked without asking anybody.
type payment struct {
	id          uuid.UUID // of its row, should it become one
	operation   *operation
	payload     *x402.PaymentPayload
	offer       x402.PaymentRequirements // ours; the payer's copy of the terms is never used
	checked     x402.Checked
	caller      *uuid.UUID
	request     []byte // canonical
	fingerprint [sha256.Size]byte
	replaced    bool     // the caller came with a replaced key: only a repetition may be answered
	outOfTime   *problem // why it cannot begin any more; a payment that the ledger knows may still be repeated
	begun       bool     // its row was written by this call
	identifier  string   // the payer's own name for it (x402's payment-identifier); "" without one

	send      *send          // nil unless the call sends a message and does nothing else
	recovered *store.Payment // set where the recovery worker, not a caller, goes on with it
	proven    bool           // its wallet, or its identifier, is; see Server.proven
}

func paymentFrom(ctx context.Context) *payment {
	payment, _ := ctx.Value(paymentKey).(*payment)
	return payment
}

// match reads the payment and holds it against our offer.
func (s *Server) match(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		operation := operationFrom(c)
		if operation == nil || operation.price == 0 {
			return next(c)
		}
		payload, err := s.read(c, operation)
		if err != nil {
			return err
		}
		offer, ok := x402.Match(operation.offers, payload)
		if !ok {
			return s.refused(operation, "No matching payment requirements",
				"the payment accepts other terms than this operation offers: sign one of the accepts in the PAYMENT-REQUIRED header")
		}
		identifier, ok := identifierOf(payload)
		if !ok {
			return s.malformed(operation, x402.HeaderPaymentSignature, "extensions.payment-identifier.info.id must have 16 to 128 characters out of a-z, A-Z, 0-9, _ and -")
		}
		checked, err := s.check(c.Request().Context(), offer, payload)
		bad, isBad := errors.AsType[*x402.Invalid](err)
		if isBad && !bad.OutOfTime {
			return s.refused(operation, bad.Reason, bad.Message)
		}
		if err != nil && !isBad {
			return err
		}
		request, err := canonical(c)
		if err != nil {
			return err
		}
		ctx := c.Request().Context()
		paid := &payment{id: newID(), operation: operation, payload: payload, offer: offer, checked: checked, request: request}
		if isBad {
			paid.outOfTime = s.refused(operation, bad.Reason, bad.Message)
		}
		account := ""
		if caller := callerFrom(ctx); caller != nil {
			paid.caller = &caller.ID
			account = caller.ID.String()
		}
		// Without an account the identifier is the payer's, so the payer must be proved.
		if paid.caller != nil || checked.Conclusive {
			paid.identifier = identifier
		}
		paid.replaced, _ = ctx.Value(replacedKey).(bool)
		paid.fingerprint = sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", operation.id, account, request))
		recordFrom(c).payer = checked.Payer
		c.SetRequest(c.Request().WithContext(context.WithValue(ctx, paymentKey, paid)))
		return next(c)
	}
}

// check makes the checks that need no facilitator. A signature of 65 bytes that is not the payer's own is junk, unless
// the payer is a contract, which may judge signatures as it likes; only the chain knows whether it is one. It is asked
// last, and not for a payment that is out of time: that one cannot begin, and is repeated only with the signature that
// was verified then.
func (s *Server) check(ctx context.Context, offer x402.PaymentRequirements, payload *x402.PaymentPayload) (x402.Checked, error) {
	now := time.Now()
	checked, err := s.checker.Check(offer, payload, now)
	bad, isBad := errors.AsType[*x402.Invalid](err)
	if !isBad || bad.Reason != x402.ReasonSignature {
		return checked, err
	}
	unsigned, termsErr := s.checker.CheckTerms(offer, payload, now)
	if termsErr != nil {
		return unsigned, termsErr
	}
	switch isContract, lookupErr := s.contracts.isContract(ctx, payload.Payload.Authorization.From); {
	case lookupErr != nil:
		return x402.Checked{}, lookupErr
	case !isContract:
		return checked, err
	}
	return unsigned, nil
}

func (s *Server) malformed(operation *operation, header, message string) *problem {
	return &problem{status: http.StatusBadRequest, code: gen.ErrorCodeInvalidPayment, message: message,
		details:  []gen.ErrorDetail{{Field: header, Message: message}},
		required: s.required(operation, message)}
}
