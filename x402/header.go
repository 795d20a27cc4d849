package x402

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
)

// The protocol's headers. Each carries base64 (standard alphabet, padded) of UTF-8 JSON (x402 v2, HTTP transport).
const (
	// HeaderPaymentRequired is on every 402 response and holds a [PaymentRequired].
	HeaderPaymentRequired = "PAYMENT-REQUIRED"
	// HeaderPaymentSignature is on a paying request and holds a [PaymentPayload]. Never log it.
	HeaderPaymentSignature = "PAYMENT-SIGNATURE"
	// HeaderPaymentResponse is on a response after settlement, good or bad, and holds a [SettleResponse].
	HeaderPaymentResponse = "PAYMENT-RESPONSE"
)

// MaxHeaderBytes bounds a header's value before anything is decoded: 16 KiB, eight times what a payment that echoes
// a full catalogue entry takes.
const MaxHeaderBytes = 16 << 10

// EncodePaymentRequired returns the value of a PAYMENT-REQUIRED header. It fails only on strings or extensions that
// are not valid UTF-8 or JSON.
func EncodePaymentRequired(required *PaymentRequired) (string, error) {
	return encodeHeader(HeaderPaymentRequired, required)
}

// DecodePaymentRequired reads the value of a PAYMENT-REQUIRED header and checks that it has version 2, a resource and
// at least one complete offer. The error is always a [*FormError].
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

// EncodePaymentPayload returns the value of a PAYMENT-SIGNATURE header, written from the payload's fields. It fails
// only on strings or extensions that are not valid UTF-8 or JSON.
func EncodePaymentPayload(payload *PaymentPayload) (string, error) {
	return encodeHeader(HeaderPaymentSignature, payload)
}

// DecodePaymentPayload reads the value of a PAYMENT-SIGNATURE header as strictly as [ParsePaymentPayload] reads its
// JSON. The error is always a [*FormError].
func DecodePaymentPayload(header string) (*PaymentPayload, error) {
	raw, err := decodeBase64(HeaderPaymentSignature, header)
	if err != nil {
		return nil, err
	}
	return ParsePaymentPayload(raw)
}

// EncodeSettleResponse returns the value of a PAYMENT-RESPONSE header. It fails only on strings or extensions that are
// not valid UTF-8 or JSON.
func EncodeSettleResponse(response *SettleResponse) (string, error) {
	return encodeHeader(HeaderPaymentResponse, response)
}

// DecodeSettleResponse reads the value of a PAYMENT-RESPONSE header. The error is always a [*FormError].
func DecodeSettleResponse(header string) (*SettleResponse, error) {
	response := new(SettleResponse)
	if err := decodeHeader(HeaderPaymentResponse, header, response); err != nil {
		return nil, err
	}
	return response, nil
}

func encodeHeader(name string, value any) (string, error) {
	// Deterministic keeps the order of map members, so that one offer is always the same header.
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
	if len(header) > MaxHeaderBytes {
		return nil, &FormError{ReasonInvalidPayload, fmt.Sprintf("the %s header has %d bytes; at most %d are read",
			name, len(header), MaxHeaderBytes)}
	}
	// The decoder skips line breaks; other decoders do not.
	raw, err := base64.StdEncoding.Strict().DecodeString(header)
	if err != nil || header == "" || strings.ContainsAny(header, "\r\n") {
		return nil, &FormError{ReasonInvalidPayload, fmt.Sprintf("the %s header is not base64: use the standard alphabet "+
			"(with + and /, not - and _), padded with =, over UTF-8 JSON", name)}
	}
	return raw, nil
}
