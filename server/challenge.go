package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/x402"
)

// maxTimeoutSeconds tells clients how long an authorization should live; 60 is x402's usual value.
const maxTimeoutSeconds = 60

// challenge is the answer to a paid operation's request without payment, made once per operation.
type challenge struct {
	header   string // PAYMENT-REQUIRED
	required *x402.PaymentRequired
	problem  *problem
}

func (s *Server) newChallenge(operation *operation) (*challenge, error) {
	required := s.required(operation, "PAYMENT-SIGNATURE header is required")
	header, err := x402.EncodePaymentRequired(required)
	if err != nil {
		return nil, err
	}
	prepared := &challenge{header: header, required: required}
	prepared.problem = &problem{status: http.StatusPaymentRequired, code: gen.ErrorCodePaymentRequired, prepared: prepared,
		message: fmt.Sprintf("this call costs %s USD: pay what the PAYMENT-REQUIRED header offers and send the same request again with PAYMENT-SIGNATURE",
			x402.FormatUSD(operation.price))}
	return prepared, nil
}

// required is what a 402 asks for, with the reason in x402's words.
func (s *Server) required(operation *operation, reason string) *x402.PaymentRequired {
	return &x402.PaymentRequired{
		X402Version: x402.Version,
		Error:       reason,
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

func hasPayment(c echo.Context) bool {
	return c.Request().Header.Get(x402.HeaderPaymentSignature) != ""
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
		if len(c.Request().Header.Values(x402.HeaderPaymentSignature)) > 1 {
			return s.malformed(operation, "send one PAYMENT-SIGNATURE header, not several")
		}
		payload, err := x402.DecodePaymentPayload(c.Request().Header.Get(x402.HeaderPaymentSignature))
		if err != nil {
			return s.malformed(operation, err.Error())
		}
		offer, ok := x402.Match(operation.offers, payload)
		if !ok {
			return s.refused(operation, "No matching payment requirements",
				"the payment accepts other terms than this operation offers: sign one of the accepts in the PAYMENT-REQUIRED header")
		}
		checked, err := s.checker.Check(offer, payload, time.Now())
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
		paid.replaced, _ = ctx.Value(replacedKey).(bool)
		paid.fingerprint = sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", operation.id, account, request))
		recordFrom(c).payer = checked.Payer
		c.SetRequest(c.Request().WithContext(context.WithValue(ctx, paymentKey, paid)))
		return next(c)
	}
}

func (s *Server) malformed(operation *operation, message string) *problem {
	return &problem{status: http.StatusBadRequest, code: gen.ErrorCodeInvalidPayment, message: message,
		details:  []gen.ErrorDetail{{Field: x402.HeaderPaymentSignature, Message: message}},
		required: s.required(operation, message)}
}
