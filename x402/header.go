package x402

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// The headers of the protocol. Each value is base64 (standard alphabet, padded) of UTF-8 JSON (x402 v2, HTTP
// transport).
const (
	// HeaderPaymentRequired is in every 402 response and contains a [PaymentRequired].
	HeaderPaymentRequired = "PAYMENT-REQUIRED"
	// HeaderPaymentSignature is in a paid request and contains a [PaymentPayload]. Never log it.
	HeaderPaymentSignature = "PAYMENT-SIGNATURE"
	// HeaderPaymentResponse is in a response after a settlement, successful or not, and contains a [SettleResponse].
	HeaderPaymentResponse = "PAYMENT-RESPONSE"
)

// maxHeaderBytes limits the length of a header's value before it is decoded: 16 KiB. A payment that echoes a full
// catalogue entry takes an eighth of this.
const maxHeaderBytes = 16 << 10

// maxRetryAfter limits how long a server can make its callers wait.
const maxRetryAfter = time.Hour

// RetryAfter returns how long to wait by the value of a Retry-After header; otherwise if it has no number of seconds.
func RetryAfter(header string, otherwise time.Duration) time.Duration {
	seconds, err := strconv.ParseUint(header, 10, 64)
	if err != nil {
		return otherwise
	}
	return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second //nolint:gosec // an hour at most
}

// EncodePaymentRequired returns the value of a PAYMENT-REQUIRED header. It returns an error only if a string is not
// valid UTF-8 or an extension is not valid JSON.
func EncodePaymentRequired(required *PaymentRequired) (string, error) {
	return encodeHeader(HeaderPaymentRequired, required)
}

// DecodePaymentRequired decodes the value of a PAYMENT-REQUIRED header. It checks that the value has version 2, a
// resource URL and at least one entry in accepts, and that all entries are complete. The error is always a
// [*FormError].
func DecodePaymentRequired(header string) (*PaymentRequired, error) {
	required := new(PaymentRequired)
	if err := decodeHeader(HeaderPaymentRequired, header, required); err != nil {
		return nil, err
	}
	switch {
	case required.X402Version != Version:
		return nil, &FormError{ReasonInvalidVersion, fmt.Sprintf("the PAYMENT-REQUIRED header has x402Version %d, "+
			"want 2", required.X402Version)}
	case required.Resource.URL == "":
		return nil, &FormError{ReasonInvalidRequirements, "the PAYMENT-REQUIRED header lacks resource.url"}
	case len(required.Accepts) == 0:
		return nil, &FormError{ReasonInvalidRequirements, "the PAYMENT-REQUIRED header offers no way to pay: accepts is empty"}
	}
	for i, offer := range required.Accepts {
		if err := checkRequirements(fmt.Sprintf("accepts[%d]", i), offer); err != nil {
			return nil, err
		}
	}
	return required, nil
}

// EncodePaymentPayload returns the value of a PAYMENT-SIGNATURE header, encoded from the payload's fields. It returns
// an error only if a string is not valid UTF-8 or an extension is not valid JSON.
func EncodePaymentPayload(payload *PaymentPayload) (string, error) {
	return encodeHeader(HeaderPaymentSignature, payload)
}

// DecodePaymentPayload decodes the value of a PAYMENT-SIGNATURE header. It is as strict as [ParsePaymentPayload]. The
// error is always a [*FormError].
func DecodePaymentPayload(header string) (*PaymentPayload, error) {
	raw, err := decodeBase64(HeaderPaymentSignature, header)
	if err != nil {
		return nil, err
	}
	return ParsePaymentPayload(raw)
}

// EncodeSettleResponse returns the value of a PAYMENT-RESPONSE header. It returns an error only if a string is not
// valid UTF-8 or an extension is not valid JSON.
func EncodeSettleResponse(response *SettleResponse) (string, error) {
	return encodeHeader(HeaderPaymentResponse, response)
}

// DecodeSettleResponse decodes the value of a PAYMENT-RESPONSE header. The error is always a [*FormError].
func DecodeSettleResponse(header string) (*SettleResponse, error) {
	response := new(SettleResponse)
	if err := decodeHeader(HeaderPaymentResponse, header, response); err != nil {
		return nil, err
	}
	return response, nil
}

func encodeHeader(name string, value any) (string, error) {
	// Deterministic sorts the members of maps, so that equal values always have equal headers.
	raw, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", name, err)
	}
	return base64.StdEncoding.EncodeToString(raw), nil
}

func decodeHeader(name, header string, value any) error {
	raw, err := decodeBase64(name, header)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, value); err != nil {
		return jsonFormError(name+" header", err)
	}
	return nil
}

func decodeBase64(name, header string) ([]byte, error) {
	if len(header) > maxHeaderBytes {
		return nil, &FormError{ReasonInvalidPayload, fmt.Sprintf("the %s header has %d bytes; at most %d are read",
			name, len(header), maxHeaderBytes)}
	}
	// The decoder ignores line breaks, but other decoders do not.
	raw, err := base64.StdEncoding.Strict().DecodeString(header)
	if err != nil || header == "" || strings.ContainsAny(header, "\r\n") {
		return nil, &FormError{ReasonInvalidPayload, fmt.Sprintf("the %s header is not base64: use the standard alphabet "+
			"(with + and /, not - and _), padded with =, over UTF-8 JSON", name)}
	}
	return raw, nil
}
