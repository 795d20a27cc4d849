package x402

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
)

// VersionV1 is the protocol version of the types whose names end in V1.
const VersionV1 = 1

// The headers of version 1, encoded like those of version 2. A 402 response has no header: its payment requirements are
// in the body.
const (
	// HeaderPaymentV1 is in a paid request. Never log it.
	HeaderPaymentV1 = "X-PAYMENT"
	// HeaderPaymentResponseV1 is in a response after a settlement, successful or not. It contains a [SettleResponse]
	// whose Network is the short name. [EncodeSettleResponse] and [DecodeSettleResponse] encode and decode it.
	HeaderPaymentResponseV1 = "X-PAYMENT-RESPONSE"
)

// PaymentRequirementsV1 is PaymentRequirements in version 1. Every member except extra is always on the wire. Clients
// and hosted facilitators reject payment requirements that lack one, including an empty description.
type PaymentRequirementsV1 struct {
	// Scheme is "exact".
	Scheme string `json:"scheme"`
	// Network is the network's short name, such as "base".
	Network string `json:"network"`
	// MaxAmountRequired is in atomic units, a decimal without leading zeros. For the scheme exact it is the price.
	MaxAmountRequired string `json:"maxAmountRequired"`
	// Resource is the absolute URL of the paid operation.
	Resource string `json:"resource"`
	// Description is for people and catalogues.
	Description string `json:"description"`
	// MimeType is the media type of the response that is paid for.
	MimeType string `json:"mimeType"`
	// PayTo is the payee's address.
	PayTo string `json:"payTo"`
	// MaxTimeoutSeconds is how long the authorization should be valid, in seconds. It is greater than zero.
	MaxTimeoutSeconds int `json:"maxTimeoutSeconds"`
	// Asset is the token contract's address.
	Asset string `json:"asset"`
	// Extra contains "name" and "version" of the token's EIP-712 domain. Clients do not sign without them.
	Extra map[string]any `json:"extra,omitzero"`
}

// V1 returns the payment requirements in the form of version 1. network is the short name of their network, such as
// "base" ([Network.V1Name]). V1 uses the URL, the description and the media type of resource.
func (r PaymentRequirements) V1(network string, resource ResourceInfo) PaymentRequirementsV1 {
	return PaymentRequirementsV1{
		Scheme:            r.Scheme,
		Network:           network,
		MaxAmountRequired: r.Amount,
		Resource:          resource.URL,
		Description:       resource.Description,
		MimeType:          resource.MimeType,
		PayTo:             r.PayTo,
		MaxTimeoutSeconds: r.MaxTimeoutSeconds,
		Asset:             r.Asset,
		Extra:             r.Extra,
	}
}

// wirePayloadV1 is a payment of version 1. It names only the scheme and the network of the accepted payment
// requirements.
type wirePayloadV1 struct {
	X402Version int              `json:"x402Version"`
	Scheme      string           `json:"scheme"`
	Network     string           `json:"network"`
	Payload     wireExactPayload `json:"payload"`
	Unknown     unknownMembers   `json:",embed"`
}

// DecodePaymentPayloadV1 decodes the value of an X-PAYMENT header. It is as strict as [ParsePaymentPayloadV1]. The
// error is always a [*FormError].
func DecodePaymentPayloadV1(header string, networks ...Network) (*PaymentPayload, error) {
	raw, err := decodeBase64(HeaderPaymentV1, header)
	if err != nil {
		return nil, err
	}
	return ParsePaymentPayloadV1(raw, networks...)
}

// ParsePaymentPayloadV1 decodes the JSON of a payment of version 1, scheme exact, and checks its form as strictly as
// [ParsePaymentPayload].
//
// The result has X402Version 1. Its Accepted has only Scheme and Network. Network is the CAIP-2 id of the entry of
// networks whose V1Name is the payment's network. If there is no such entry, Network is the name as received, which
// matches no payment requirements. The result keeps raw for [PaymentPayload.Raw], so the caller must not change raw
// afterwards. The error is always a [*FormError].
func ParsePaymentPayloadV1(raw []byte, networks ...Network) (*PaymentPayload, error) {
	var wire wirePayloadV1
	if err := json.Unmarshal(raw, &wire); err != nil {
		return nil, jsonFormError("payment payload", err)
	}
	if wire.X402Version != VersionV1 {
		return nil, &FormError{ReasonInvalidVersion, fmt.Sprintf("the payment payload has x402Version %d, but the X-PAYMENT "+
			"header takes version 1: send a payment of version 2 in the PAYMENT-SIGNATURE header", wire.X402Version)}
	}
	if err := rejectLookalikes(append(wire.Payload.members(),
		members{[]string{"x402Version", "scheme", "network", "payload"}, wire.Unknown},
	)); err != nil {
		return nil, err
	}
	if err := rejectOtherMethods(&wire.Payload); err != nil {
		return nil, err
	}
	if wire.Scheme == "" {
		return nil, &FormError{ReasonInvalidPayload, `scheme is missing or malformed; it must be a string such as "exact"`}
	}
	// A chain id would match the payment requirements without conversion. The facilitator would then receive a network
	// name that version 1 does not define.
	if wire.Network == "" || strings.Contains(wire.Network, ":") {
		return nil, &FormError{ReasonInvalidPayload, "network is missing or malformed; in version 1 it must be a short name such " +
			`as "base"`}
	}
	payload := &PaymentPayload{
		X402Version: wire.X402Version,
		Accepted:    PaymentRequirements{Scheme: wire.Scheme, Network: wire.Network},
		Payload:     wire.Payload.exactPayload(),
		raw:         raw,
		networkV1:   wire.Network,
	}
	for _, network := range networks {
		if network.V1Name == wire.Network {
			payload.Accepted.Network = network.ID
			break
		}
	}
	if err := checkExactPayload(payload.Payload); err != nil {
		return nil, err
	}
	return payload, nil
}
