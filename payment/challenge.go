package payment

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/parley-chat/parley/x402"
)

const (
	// maxTimeoutSeconds tells clients how long an authorization should be valid: x402's usual value.
	maxTimeoutSeconds = 60
	// maxReason is how many bytes a reason in PAYMENT-REQUIRED and PAYMENT-RESPONSE may have.
	maxReason = 256
)

func (e *Engine) newChallenge(operation *Operation) (*Error, error) {
	required := e.required(operation, "PAYMENT-SIGNATURE header is required")
	header, err := x402.EncodePaymentRequired(required)
	if err != nil {
		return nil, err
	}
	return &Error{Code: CodeRequired, Required: required, Header: header,
		Message: fmt.Sprintf("this call costs %s USD: pay what the PAYMENT-REQUIRED header offers and send the same request again with PAYMENT-SIGNATURE",
			x402.FormatUSD(operation.Price))}, nil
}

// required are the payment requirements of an operation, with the reason in x402's words.
func (e *Engine) required(operation *Operation, reason string) *x402.PaymentRequired {
	return &x402.PaymentRequired{
		X402Version: x402.Version, Error: Shorten(reason, maxReason),
		Resource: e.resource(operation), Accepts: operation.requirements, Extensions: operation.Extensions,
	}
}

func (e *Engine) resource(operation *Operation) x402.ResourceInfo {
	return x402.ResourceInfo{URL: e.config.BaseURL + operation.Path, Description: operation.Description, MimeType: "application/json"}
}

// refused is the 402 for a payment that was not taken; the caller may sign another one.
func (e *Engine) refused(operation *Operation, reason, message string) *Error {
	return &Error{Code: CodeRefused, Message: message, Required: e.required(operation, reason)}
}

func (e *Engine) malformed(operation *Operation, header, message string) *Error {
	return &Error{Code: CodeInvalid, Message: message, Field: header, Required: e.required(operation, message)}
}

// headers are the headers of a payment as net/http keeps them: each request is asked for them, several times.
var headers = []string{http.CanonicalHeaderKey(x402.HeaderPaymentSignature), http.CanonicalHeaderKey(x402.HeaderPaymentV1)}

// InHeader tells whether a request brings a payment.
func InHeader(header http.Header) bool {
	for _, name := range headers {
		if values := header[name]; len(values) > 0 && values[0] != "" {
			return true
		}
	}
	return false
}

// ResponseHeader is the header that tells what became of a payment, in the version of x402 in which it came.
func (e *Engine) ResponseHeader(version int, settled *x402.SettleResponse) (name, value string, err error) {
	name = x402.HeaderPaymentResponse
	if version == x402.VersionV1 {
		name = x402.HeaderPaymentResponseV1
		renamed := *settled
		renamed.Network = e.config.Network.V1Name
		settled = &renamed
	}
	value, err = x402.EncodeSettleResponse(settled)
	return name, value, err
}

const ellipsis = "…"

// Shorten cuts a text that a caller may have sent to at most so many bytes.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end]) + ellipsis
}
