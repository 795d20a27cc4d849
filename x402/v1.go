package x402

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
)

// VersionV1 is the protocol version of the objects whose names end in V1.
const VersionV1 = 1

// The headers of version 1, encoded like those of version 2. A 402 response has none: its offers are in the body.
const (
	// HeaderPaymentV1 is on a paying request. Never log it.
	HeaderPaymentV1 = "X-PAYMENT"
	// HeaderPaymentResponseV1 is on a response after settlement, good or bad, and holds a [SettleResponse] whose Network
	// is the short name; [EncodeSettleResponse] and [DecodeSettleResponse] serve it, too.
	HeaderPaymentResponseV1 = "X-PAYMENT-RESPONSE"
)

// PaymentRequirementsV1 is one offer in version 1. Every member but extra is always on the wire: clients and hosted
// facilitators refuse an offer that lacks one, an empty description included.
type PaymentRequirementsV1 struct {
	// Scheme is "exact".
	Scheme string `json:"scheme"`
	// Network is the network's short name, such as "base".
	Network string `json:"network"`
	// MaxAmountRequired is in atomic units, a decimal without leading zeros. Under the scheme exact it is the price.
	MaxAmountRequired string `json:"maxAmountRequired"`
	// Resource is the absolute address of the priced operation.
	Resource string `json:"resource"`
	// Description is for humans and catalogues.
	Description string `json:"description"`
	// MimeType is the media type of the response that is paid for.
	MimeType string `json:"mimeType"`
	// PayTo is the payee's address.
	PayTo string `json:"payTo"`
	// MaxTimeoutSeconds tells the payer how long the authorization should live. It is greater than zero.
	MaxTimeoutSeconds int `json:"maxTimeoutSeconds"`
	// Asset is the token contract's address.
	Asset string `json:"asset"`
	// Extra holds the token's EIP-712 domain, "name" and "version": clients refuse to sign without them.
	Extra map[string]any `json:"extra,omitzero"`
}

// V1 returns the same offer as version 1 spells it. network is the short name of the offer's network, "base" for
// instance ([Network.V1Name]); of resource, the address, the description and the media type are taken.
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

// wirePayloadV1 is a payment of version 1. It says which network and nothing else about the offer it accepts.
type wirePayloadV1 struct {
	X402Version int              `json:"x402Version"`
	Scheme      string           `json:"scheme"`
	Network     string           `json:"network"`
	Payload     wireExactPayload `json:"payload"`
	Unknown     unknownMembers   `json:",embed"`
}

// EncodePaymentPayloadV1 returns the value of an X-PAYMENT header that carries a signed payment of either version.
// network is the short name of the network it is signed for. It fails only on strings that are not valid UTF-8.
func EncodePaymentPayloadV1(payload *PaymentPayload, network string) (string, error) {
	return encodeHeader(HeaderPaymentV1, struct {
		X402Version int          `json:"x402Version"`
		Scheme      string       `json:"scheme"`
		Network     string       `json:"network"`
		Payload     ExactPayload `json:"payload"`
	}{VersionV1, payload.Accepted.Scheme, network, payload.Payload})
}

// DecodePaymentPayloadV1 reads the value of an X-PAYMENT header as strictly as [ParsePaymentPayloadV1] reads its JSON.
// The error is always a [*FormError].
func DecodePaymentPayloadV1(header string, networks ...Network) (*PaymentPayload, error) {
	raw, err := decodeBase64(HeaderPaymentV1, header)
	if err != nil {
		return nil, err
	}
	return ParsePaymentPayloadV1(raw, networks...)
}

// ParsePaymentPayloadV1 reads the JSON of a payment of version 1, scheme exact, and checks its form as strictly as
// [ParsePaymentPayload] does. The result has X402Version 1 and of Accepted only Scheme and Network, the CAIP-2 id of the
// one among networks that version 1 calls so; a name that none of them has stays as it was sent and matches no offer.
// The result keeps raw for [PaymentPayload.Raw], so the caller must not change raw afterwards. The error is always a
// [*FormError].
func ParsePaymentPayloadV1(raw []byte, networks ...Network) (*PaymentPayload, error) {
	var wire wirePayloadV1
	if err := json.Unmarshal(raw, &wire); err != nil {
		return nil, jsonFormError("payment payload", err)
	}
	if wire.X402Version != VersionV1 {
		return nil, &FormError{ReasonInvalidVersion, fmt.Sprintf("the payment payload has x402Version %d, but the X-PAYMENT "+
			"header takes version 1: send a payment of version 2 in the PAYMENT-SIGNATURE header", wire.X402Version)}
	}
	if err := refuseLookalikes(append(wire.Payload.members(),
		members{[]string{"x402Version", "scheme", "network", "payload"}, wire.Unknown},
	)); err != nil {
		return nil, err
	}
	if err := refuseOtherMethods(&wire.Payload); err != nil {
		return nil, err
	}
	if wire.Scheme == "" {
		return nil, &FormError{ReasonInvalidPayload, `scheme is missing or malformed; it is a string such as "exact"`}
	}
	// A chain id here would match an offer as it stands, and the facilitator would be asked about a network that
	// version 1 does not know.
	if wire.Network == "" || strings.Contains(wire.Network, ":") {
		return nil, &FormError{ReasonInvalidPayload, "network is missing or malformed; in version 1 it is a short name such " +
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
