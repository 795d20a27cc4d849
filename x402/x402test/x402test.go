// Package x402test contains what only tests do with the payment protocol: send payments of x402 version 1 (clients of today send
// version 2).
package x402test

import (
	"encoding/base64"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/parley-chat/parley/x402"
)

// EncodePaymentPayloadV1 returns the value of an X-PAYMENT header with a signed payment of either version. network is
// the short name of the network that the payment is signed for.
func EncodePaymentPayloadV1(payload *x402.PaymentPayload, network string) (string, error) {
	raw, err := json.Marshal(struct {
		X402Version int               `json:"x402Version"`
		Scheme      string            `json:"scheme"`
		Network     string            `json:"network"`
		Payload     x402.ExactPayload `json:"payload"`
	}{x402.VersionV1, payload.Accepted.Scheme, network, payload.Payload}, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", x402.HeaderPaymentV1, err)
	}
	return base64.StdEncoding.EncodeToString(raw), nil
}
