package payment

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/parley-chat/parley/x402"
)

const (
	// MaxTimeoutSeconds is how long clients should make an authorization valid. It is the usual value of x402.
	MaxTimeoutSeconds = 60
	// maxReason bounds the reason in PAYMENT-REQUIRED and PAYMENT-RESPONSE, in bytes.
	maxReason = 256
)

// ExactOnly is a client that signs the first entry of accepts, and can only sign for exact.
const ExactOnly = "exact only"

// Challenge returns the 402 for a request without payment. Client identifies who asks: the hash of its API key, its
// address, or ExactOnly. The schemes are in the order of their ranks for the client; clients take the first entry of
// accepts that they know.
func (e *Engine) Challenge(operation *Operation, client string) *Error {
	index := 0
	for _, scheme := range slices.Backward(e.schemes) {
		index = index*ranks + int(scheme.Rank(operation.Price, client))
	}
	challenge := operation.challenges[index]
	for _, scheme := range e.schemes {
		own, ok := scheme.Renewed(operation, client)
		if !ok {
			continue
		}
		accepts := slices.Clone(challenge.Required.Accepts)
		for i := range accepts {
			if accepts[i].Scheme == own.Scheme {
				accepts[i] = own
			}
		}
		if renewed, err := e.newChallenge(operation, accepts); err == nil {
			challenge = renewed
		}
	}
	return challenge
}

// KnownAs records that the client of a call is known by the hash of an API key, too, that the call brought it.
func (e *Engine) KnownAs(a *Attempt, keyHash string) {
	for _, scheme := range e.schemes {
		scheme.KnownAs(a.Operation, a.Client, keyHash)
	}
}

// prepareChallenges makes the challenges of an operation: one for each order of schemes, for each combination of ranks.
func (e *Engine) prepareChallenges(operation *Operation) error {
	byOrder := map[string]*Error{}
	combinations := 1
	for range e.schemes {
		combinations *= ranks
	}
	for combination := range combinations {
		orders := [ranks][]byte{}
		for i, left := 0, combination; i < len(e.schemes); i, left = i+1, left/ranks {
			orders[left%ranks] = append(orders[left%ranks], byte(i))
		}
		order := slices.Concat(orders[Preferred], orders[Fallback])
		challenge := byOrder[string(order)]
		if challenge == nil {
			var accepts []x402.PaymentRequirements
			for _, i := range order {
				accepts = append(accepts, e.schemes[i].Requirements(operation))
			}
			var err error
			if challenge, err = e.newChallenge(operation, accepts); err != nil {
				return err
			}
			byOrder[string(order)] = challenge
		}
		operation.challenges = append(operation.challenges, challenge)
	}
	return nil
}

func (e *Engine) newChallenge(operation *Operation, accepts []x402.PaymentRequirements) (*Error, error) {
	required := e.required(operation, "PAYMENT-SIGNATURE header is required")
	required.Accepts, required.Extensions = accepts, operation.Extensions
	header, err := x402.EncodePaymentRequired(required)
	if err != nil {
		return nil, err
	}
	return &Error{Code: CodeRequired, Required: required, Header: header,
		Message: fmt.Sprintf("this call costs %s USD; sign one of the payment requirements in the PAYMENT-REQUIRED header and send the "+
			"same request with PAYMENT-SIGNATURE", x402.FormatUSD(operation.Price))}, nil
}

// required returns the content of PAYMENT-REQUIRED. Reason is x402's field error.
func (e *Engine) required(operation *Operation, reason string) *x402.PaymentRequired {
	return &x402.PaymentRequired{
		X402Version: x402.Version, Error: Shorten(reason, maxReason),
		Resource: e.resource(operation), Accepts: operation.Requirements(), Extensions: refusedExtensions,
	}
}

func (e *Engine) resource(operation *Operation) x402.ResourceInfo {
	return x402.ResourceInfo{URL: e.BaseURL + operation.Path, Description: operation.Description, MimeType: "application/json"}
}

// Refused returns the 402 for a payment that was not charged. The caller may sign another one.
func (e *Engine) Refused(operation *Operation, reason, message string) *Error {
	return &Error{Code: CodeRefused, Message: message, Required: e.required(operation, reason)}
}

func (e *Engine) malformed(operation *Operation, header, message string) *Error {
	return &Error{Code: CodeInvalid, Message: message, Field: header, Required: e.required(operation, message)}
}

// headers are the payment headers in the canonical form of net/http.
var headers = []string{http.CanonicalHeaderKey(x402.HeaderPaymentSignature), http.CanonicalHeaderKey(x402.HeaderPaymentV1)}

// InHeader reports whether a request has a payment.
func InHeader(header http.Header) bool {
	for _, name := range headers {
		if values := header[name]; len(values) > 0 && values[0] != "" {
			return true
		}
	}
	return false
}

// Forget removes the payment from the headers of a request. The values of all headers share an array, so it is emptied there too.
func Forget(header http.Header) {
	for _, name := range headers {
		clear(header[name])
		delete(header, name)
	}
}

// ResponseHeader returns the header with the outcome of a payment, for its x402 version.
func (e *Engine) ResponseHeader(version int, settled *x402.SettleResponse) (name, value string, err error) {
	name = x402.HeaderPaymentResponse
	if version == x402.VersionV1 {
		name = x402.HeaderPaymentResponseV1
		renamed := *settled
		renamed.Network = e.Network.V1Name
		settled = &renamed
	}
	value, err = x402.EncodeSettleResponse(settled)
	return name, value, err
}

const ellipsis = "…"

// Shorten cuts a text to at most so many bytes.
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
