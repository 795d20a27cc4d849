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
		if Difference(offer, payload.Accepted, payload.X402Version) == "" {
			return offer, true
		}
	}
	return PaymentRequirements{}, false
}

// Difference returns the first member, such as "network" or "extra.name", in which the payer's copy differs from an offer, as [Match] and
// [MatchBatch] compare them. It returns "" if they match.
func Difference(offer, accepted PaymentRequirements, version int) string {
	switch {
	case offer.Scheme != accepted.Scheme:
		return "scheme"
	case offer.Network != accepted.Network:
		return "network"
	case version == VersionV1:
		return ""
	case offer.Amount != accepted.Amount:
		return "amount"
	case !strings.EqualFold(offer.Asset, accepted.Asset):
		return "asset"
	case !strings.EqualFold(offer.PayTo, accepted.PayTo):
		return "payTo"
	case offer.Scheme == SchemeBatch:
		return termsDifference(offer, accepted)
	}
	first := ""
	for name, offered := range offer.Extra {
		value, ok := accepted.Extra[name]
		if (!ok || !equalJSON(offered, value)) && (first == "" || name < first) {
			first = name
		}
	}
	if first == "" {
		return ""
	}
	return "extra." + first
}

// Member returns a member that [Difference] names as JSON, or "missing".
func (r PaymentRequirements) Member(name string) string {
	var value any
	switch name {
	case "scheme":
		value = r.Scheme
	case "network":
		value = r.Network
	case "amount":
		value = r.Amount
	case "asset":
		value = r.Asset
	case "payTo":
		value = r.PayTo
	default:
		value = r.Extra[strings.TrimPrefix(name, "extra.")]
	}
	if raw, err := json.Marshal(value, json.Deterministic(true)); err == nil && value != nil {
		return string(raw)
	}
	return "missing"
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
