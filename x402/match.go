package x402

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
)

// Match returns the offer that the payer accepted: scheme, network and amount equal as strings, asset and payee as
// addresses, and every entry of the offer's extra repeated with the same value. More entries in the payer's extra and
// another maxTimeoutSeconds do not matter. A payment of version 1 repeats nothing but scheme and network, so it gets the
// first offer with both; whether it pays that offer's payee and amount is for [Checker.Check] to say, as for every
// payment. From here on use the returned offer, ours, and never the payer's copy.
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

// equalJSON compares as JSON because the offer was built in Go, where 1 may be an int, and the payer's copy was
// decoded, where it is a float64.
func equalJSON(a, b any) bool {
	if text, ok := a.(string); ok {
		return text == b
	}
	first, errFirst := json.Marshal(a, json.Deterministic(true))
	second, errSecond := json.Marshal(b, json.Deterministic(true))
	return errFirst == nil && errSecond == nil && bytes.Equal(first, second)
}
