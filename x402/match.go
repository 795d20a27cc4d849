package x402

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
)

// Match returns the payment requirements among offers that the payer accepted, or false if there are none. It compares
// scheme, network and amount as strings, asset and payee as addresses. The payer's extra must contain every entry of
// the server's extra with the same value. Match ignores further entries in the payer's extra and a different
// maxTimeoutSeconds.
//
// A payment of version 1 repeats only scheme and network, so Match returns the first payment requirements with both.
// [Checker.Check] then checks payee and amount, as for every payment. After Match use the returned payment
// requirements, never the payer's copy.
func Match(offers []PaymentRequirements, payload *PaymentPayload) (PaymentRequirements, bool) {
	for _, offer := range offers {
		if accepts(offer, payload.Accepted, payload.X402Version) {
			return offer, true
		}
	}
	return PaymentRequirements{}, false
}

func accepts(offer, accepted PaymentRequirements, version int) bool {
	if offer.Scheme != accepted.Scheme || offer.Network != accepted.Network {
		return false
	}
	if version == VersionV1 {
		return true
	}
	if offer.Amount != accepted.Amount ||
		!strings.EqualFold(offer.Asset, accepted.Asset) || !strings.EqualFold(offer.PayTo, accepted.PayTo) {
		return false
	}
	for name, offered := range offer.Extra {
		value, ok := accepted.Extra[name]
		if !ok || !equalJSON(offered, value) {
			return false
		}
	}
	return true
}

// equalJSON compares two values as JSON. The server's value was created in Go, where 1 may be an int. The payer's copy
// was decoded from JSON, where 1 is a float64.
func equalJSON(a, b any) bool {
	if text, ok := a.(string); ok {
		return text == b
	}
	first, errFirst := json.Marshal(a, json.Deterministic(true))
	second, errSecond := json.Marshal(b, json.Deterministic(true))
	return errFirst == nil && errSecond == nil && bytes.Equal(first, second)
}
