// Package x402 implements version 2 of the x402 payment protocol on EVM chains. In the scheme "exact" the payer signs an
// EIP-3009 TransferWithAuthorization of USDC, and a facilitator verifies and settles it. The package also accepts
// payments of version 1. [ParsePaymentPayloadV1] converts them to version 2, and [Facilitator] converts them back. In
// the scheme "batch-settlement" the payer deposits into a payment channel once and signs a voucher for each request:
// see [BatchPayment] and [BatchChecker].
//
// The package contains what clients and resource servers need, and nothing specific to Parley: the JSON objects and
// their headers, the EIP-712 signatures, the matching of a payment with payment requirements, the checks of a resource
// server before it calls a facilitator, and an HTTP client for the facilitator. Addresses, amounts and nonces are
// strings, as on the wire and in the official SDKs.
//
// Anybody who has a signed payment can settle it until it is settled or expires. No error of this package contains a
// signature or a raw payload. Callers must not log [PaymentPayload] values or the headers PAYMENT-SIGNATURE and
// X-PAYMENT.
package x402

import "github.com/go-json-experiment/json/jsontext"

const (
	// Version is the protocol version of every type whose name does not end in V1.
	Version = 2
	// SchemeExact is the scheme in which the payer authorizes exactly the required amount.
	SchemeExact = "exact"
)

// PaymentRequired is the content of a 402 response: the resource and the ways to pay for it (x402 v2 specification).
type PaymentRequired struct {
	// X402Version is 2.
	X402Version int `json:"x402Version"`
	// Error is free text or an error code of the protocol.
	Error string `json:"error,omitzero"`
	// Resource describes the resource that is paid for.
	Resource ResourceInfo `json:"resource"`
	// Accepts contains at least one entry. The payer chooses one.
	Accepts []PaymentRequirements `json:"accepts"`
	// Extensions contains {"info": ..., "schema": ...} by the extension's key. The payer echoes it.
	Extensions map[string]jsontext.Value `json:"extensions,omitzero"`
}

// ResourceInfo describes the resource that is paid for. Only URL is required.
type ResourceInfo struct {
	// URL is the absolute URL of the paid operation.
	URL string `json:"url"`
	// Description is for people and catalogues. Hosted catalogues allow at most 500 characters.
	Description string `json:"description,omitzero"`
	// MimeType is the media type of the response that is paid for.
	MimeType string `json:"mimeType,omitzero"`
	// ServiceName has 1 to 32 printable ASCII characters.
	ServiceName string `json:"serviceName,omitzero"`
	// Tags has at most 5 entries of 1 to 32 ASCII characters each.
	Tags []string `json:"tags,omitempty"`
	// IconURL has at most 2048 characters.
	IconURL string `json:"iconUrl,omitzero"`
}

// PaymentRequirements is one way to pay: exactly this amount of this asset to this payee.
type PaymentRequirements struct {
	// Scheme is "exact".
	Scheme string `json:"scheme"`
	// Network is a CAIP-2 chain id, such as "eip155:8453".
	Network string `json:"network"`
	// Amount is in atomic units, a decimal without leading zeros: "5000" is 0.005 USDC.
	Amount string `json:"amount"`
	// Asset is the token contract's address.
	Asset string `json:"asset"`
	// PayTo is the payee's address.
	PayTo string `json:"payTo"`
	// MaxTimeoutSeconds is how long the authorization should be valid, in seconds. It is greater than zero.
	MaxTimeoutSeconds int `json:"maxTimeoutSeconds"`
	// Extra contains "name" and "version" of the token's EIP-712 domain. Clients do not sign without them.
	Extra map[string]any `json:"extra,omitzero"`
}

// PaymentPayload is a signed payment. Decode received payments only with [ParsePaymentPayload], [DecodePaymentPayload]
// or the corresponding functions for version 1. Do not unmarshal JSON into this type: that skips their checks.
type PaymentPayload struct {
	// X402Version is 2, or 1 for a payment from [ParsePaymentPayloadV1].
	X402Version int `json:"x402Version"`
	// Resource echoes [PaymentRequired.Resource]. It may be missing. Payments of version 1 do not contain it: the
	// server must set its own resource before it calls a [Facilitator], because requests of version 1 describe the
	// resource.
	Resource *ResourceInfo `json:"resource,omitzero"`
	// Accepted is the payer's copy of the payment requirements. Use it only to select one of the server's own payment
	// requirements. In version 1 it has only Scheme and Network.
	Accepted PaymentRequirements `json:"accepted"`
	// Payload is the signed authorization.
	Payload ExactPayload `json:"payload"`
	// Extensions echoes [PaymentRequired.Extensions] with the payer's additions. It may be missing.
	Extensions map[string]jsontext.Value `json:"extensions,omitzero"`

	raw       []byte
	networkV1 string // the payer's name of the network; "" unless X402Version is 1
}

// Raw returns the payload's JSON exactly as it was received, which is what the facilitator must receive. It is nil for
// a payload that was created in this process. The bytes are shared: do not change them and do not log them.
func (p *PaymentPayload) Raw() []byte { return p.raw }

// Version implements [Payment].
func (p *PaymentPayload) Version() int { return p.X402Version }

// Offer implements [Payment].
func (p *PaymentPayload) Offer() PaymentRequirements { return p.Accepted }

// Extension implements [Payment].
func (p *PaymentPayload) Extension(name string) jsontext.Value { return p.Extensions[name] }

// PayerAddress implements [Payment].
func (p *PaymentPayload) PayerAddress() string { return p.Payload.Authorization.From }

// SignatureHex implements [Payment].
func (p *PaymentPayload) SignatureHex() string { return p.Payload.Signature }

// ExactPayload is the part of a payment that the scheme defines (scheme exact on EVM chains, EIP-3009).
type ExactPayload struct {
	// Signature is 0x and hex digits: 65 bytes r, s, v from a private key, or more from a smart wallet (ERC-1271,
	// ERC-6492).
	Signature string `json:"signature"`
	// Authorization is the signed message.
	Authorization Authorization `json:"authorization"`
}

// Authorization is the message TransferWithAuthorization of EIP-3009.
type Authorization struct {
	// From is the payer's address.
	From string `json:"from"`
	// To is the payee's address.
	To string `json:"to"`
	// Value is in atomic units, an unsigned decimal.
	Value string `json:"value"`
	// ValidAfter is in Unix seconds, an unsigned decimal. "0" means valid immediately.
	ValidAfter string `json:"validAfter"`
	// ValidBefore is in Unix seconds, an unsigned decimal.
	ValidBefore string `json:"validBefore"`
	// Nonce is 0x and 64 hex digits. The payer chooses it at random. Each (From, Nonce) can move money once.
	Nonce string `json:"nonce"`
}

// VerifyResponse is the facilitator's verdict on a payment that it has not settled.
type VerifyResponse struct {
	// IsValid is true only if the facilitator's response contains true.
	IsValid bool `json:"isValid"`
	// InvalidReason is an error code. Treat it as opaque.
	InvalidReason string `json:"invalidReason,omitzero"`
	// InvalidMessage is free text from the facilitator.
	InvalidMessage string `json:"invalidMessage,omitzero"`
	// Payer is the payer's address.
	Payer string `json:"payer,omitzero"`
	// Extra contains data that the scheme adds, a JSON object. [ReportedChannel] decodes that of batch-settlement.
	Extra jsontext.Value `json:"extra,omitzero"`
}

// SettleResponse is the outcome of a settlement. Transaction and Network are always present on the wire.
type SettleResponse struct {
	// Success is true only if the facilitator's response contains true.
	Success bool `json:"success"`
	// ErrorReason is an error code. Treat it as opaque.
	ErrorReason string `json:"errorReason,omitzero"`
	// ErrorMessage is free text.
	ErrorMessage string `json:"errorMessage,omitzero"`
	// Transaction is the transaction hash, 0x and 64 hex digits. After a failure it may be "". Several payments may
	// share one transaction.
	Transaction string `json:"transaction"`
	// Network is a CAIP-2 chain id. For a payment of version 1 it is the network's short name.
	Network string `json:"network"`
	// Payer is the payer's address.
	Payer string `json:"payer,omitzero"`
	// Amount is in atomic units. It is "" if the facilitator does not report it.
	Amount string `json:"amount,omitzero"`
	// Extra contains data that the scheme adds, a JSON object. [DecodeBatchExtra] decodes that of batch-settlement.
	Extra jsontext.Value `json:"extra,omitzero"`
	// Extensions contains data that extensions add to a settlement, by the extension's key.
	Extensions map[string]jsontext.Value `json:"extensions,omitzero"`
}

// SupportedResponse lists what a facilitator supports.
type SupportedResponse struct {
	// Kinds are the kinds of payments that the facilitator verifies and settles.
	Kinds []SupportedKind `json:"kinds"`
	// Extensions are the keys of the supported extensions. It may be missing.
	Extensions []string `json:"extensions"`
	// Signers are the addresses that submit transactions, by chain pattern such as "eip155:*". It may be missing.
	Signers map[string][]string `json:"signers"`
}

// SupportedKind is a combination of version, scheme and network that a facilitator supports.
type SupportedKind struct {
	// X402Version is 1 or 2.
	X402Version int `json:"x402Version"`
	// Scheme is "exact" or a scheme that this package does not support.
	Scheme string `json:"scheme"`
	// Network is a CAIP-2 chain id in version 2 and a short name in version 1.
	Network string `json:"network"`
	// Extra contains data that the scheme adds. It may be missing.
	Extra map[string]any `json:"extra,omitzero"`
}
