// Package x402 speaks version 2 of the x402 payment protocol for the scheme "exact" on EVM chains: USDC moved by a
// signed EIP-3009 TransferWithAuthorization, which a facilitator verifies and settles. Payments of version 1 are turned
// into those of version 2 where they come in ([ParsePaymentPayloadV1]) and back where they go out ([Facilitator]).
//
// It holds what both sides need and nothing of Parley: the JSON objects and their headers, the EIP-712 signatures, the
// matching of a payment with an offer, the checks a resource server makes before it calls out, and the facilitator's
// HTTP client. Addresses, amounts and nonces are strings, as they are on the wire and in the official SDKs.
//
// A signed payment is spendable until it is settled. Nothing in this package puts a signature or a raw payload into an
// error, and callers must not log [PaymentPayload] values or the headers PAYMENT-SIGNATURE and X-PAYMENT.
package x402

import "github.com/go-json-experiment/json/jsontext"

const (
	// Version is the protocol version of every object here whose name does not end in V1.
	Version = 2
	// SchemeExact is the only scheme spoken here: the payer authorizes exactly the offered amount.
	SchemeExact = "exact"
)

// PaymentRequired is what a 402 response says: what is sold, and every way to pay for it (x402 v2 specification).
type PaymentRequired struct {
	// X402Version is 2.
	X402Version int `json:"x402Version"`
	// Error is free text or one of the protocol's error codes.
	Error string `json:"error,omitzero"`
	// Resource is what is sold.
	Resource ResourceInfo `json:"resource"`
	// Accepts holds at least one offer; the payer picks one.
	Accepts []PaymentRequirements `json:"accepts"`
	// Extensions holds {"info": ..., "schema": ...} by the extension's key; the payer echoes it.
	Extensions map[string]jsontext.Value `json:"extensions,omitzero"`
}

// ResourceInfo describes what is sold. Only URL is required.
type ResourceInfo struct {
	// URL is the absolute address of the priced operation.
	URL string `json:"url"`
	// Description is for humans and catalogues; hosted catalogues want at most 500 characters.
	Description string `json:"description,omitzero"`
	// MimeType is the media type of the response that is paid for.
	MimeType string `json:"mimeType,omitzero"`
	// ServiceName is 1 to 32 printable ASCII characters.
	ServiceName string `json:"serviceName,omitzero"`
	// Tags are at most 5, each of 1 to 32 ASCII characters.
	Tags []string `json:"tags,omitempty"`
	// IconURL has at most 2048 characters.
	IconURL string `json:"iconUrl,omitzero"`
}

// PaymentRequirements is one offer: pay exactly this amount of this asset to this payee.
type PaymentRequirements struct {
	// Scheme is "exact".
	Scheme string `json:"scheme"`
	// Network is a CAIP-2 chain id such as "eip155:8453".
	Network string `json:"network"`
	// Amount is in atomic units, a decimal without leading zeros: "5000" is 0.005 USDC.
	Amount string `json:"amount"`
	// Asset is the token contract's address.
	Asset string `json:"asset"`
	// PayTo is the payee's address.
	PayTo string `json:"payTo"`
	// MaxTimeoutSeconds tells the payer how long the authorization should live. It is greater than zero.
	MaxTimeoutSeconds int `json:"maxTimeoutSeconds"`
	// Extra holds the token's EIP-712 domain, "name" and "version": clients refuse to sign without them.
	Extra map[string]any `json:"extra,omitzero"`
}

// PaymentPayload is a signed payment. One that came from the wire is made by [ParsePaymentPayload],
// [DecodePaymentPayload] or their twins for version 1 only, never by unmarshalling into this type, which would skip
// their checks.
type PaymentPayload struct {
	// X402Version is 2, or 1 for a payment that [ParsePaymentPayloadV1] read.
	X402Version int `json:"x402Version"`
	// Resource echoes [PaymentRequired]; it may be missing. Payments of version 1 carry none: the server must fill in
	// its own before it calls a [Facilitator], whose version 1 requests describe the resource.
	Resource *ResourceInfo `json:"resource,omitzero"`
	// Accepted is the payer's copy of the offer. It selects one of ours and is never trusted beyond that. In version 1
	// it has Scheme and Network only.
	Accepted PaymentRequirements `json:"accepted"`
	// Payload is the signed authorization.
	Payload ExactPayload `json:"payload"`
	// Extensions echoes [PaymentRequired] with the payer's additions; it may be missing.
	Extensions map[string]jsontext.Value `json:"extensions,omitzero"`

	raw       []byte
	networkV1 string // what the payer called the network; "" unless X402Version is 1
}

// Raw returns the payload's JSON exactly as it was received, which is what the facilitator must get. It is nil for a
// payload that was built here. The bytes are shared: do not change them, do not log them.
func (p *PaymentPayload) Raw() []byte { return p.raw }

// ExactPayload is the scheme's part of a payment on EVM chains (scheme exact, EIP-3009).
type ExactPayload struct {
	// Signature is 0x and hex: 65 bytes r, s, v from a key, or longer from a smart wallet (ERC-1271, ERC-6492).
	Signature string `json:"signature"`
	// Authorization is what was signed.
	Authorization Authorization `json:"authorization"`
}

// Authorization is the message of EIP-3009's TransferWithAuthorization.
type Authorization struct {
	// From is the payer's address.
	From string `json:"from"`
	// To is the payee's address.
	To string `json:"to"`
	// Value is in atomic units, an unsigned decimal.
	Value string `json:"value"`
	// ValidAfter is in Unix seconds, an unsigned decimal; "0" means at once.
	ValidAfter string `json:"validAfter"`
	// ValidBefore is in Unix seconds, an unsigned decimal.
	ValidBefore string `json:"validBefore"`
	// Nonce is 0x and 64 hex digits, chosen at random by the payer; each (From, Nonce) moves money once.
	Nonce string `json:"nonce"`
}

// VerifyResponse is the facilitator's opinion of a payment that it has not moved.
type VerifyResponse struct {
	// IsValid is true only if the facilitator said so explicitly.
	IsValid bool `json:"isValid"`
	// InvalidReason is an error code; treat it as opaque.
	InvalidReason string `json:"invalidReason,omitzero"`
	// InvalidMessage is the facilitator's free text.
	InvalidMessage string `json:"invalidMessage,omitzero"`
	// Payer is the payer's address.
	Payer string `json:"payer,omitzero"`
}

// SettleResponse says whether the money moved. Transaction and Network are always present on the wire.
type SettleResponse struct {
	// Success is true only if the facilitator said so explicitly.
	Success bool `json:"success"`
	// ErrorReason is an error code; treat it as opaque.
	ErrorReason string `json:"errorReason,omitzero"`
	// ErrorMessage is free text.
	ErrorMessage string `json:"errorMessage,omitzero"`
	// Transaction is the hash, 0x and 64 hex digits, or "" on failure. Several payments may share one.
	Transaction string `json:"transaction"`
	// Network is a CAIP-2 chain id; for a payment of version 1 it is the network's short name.
	Network string `json:"network"`
	// Payer is the payer's address.
	Payer string `json:"payer,omitzero"`
	// Amount is in atomic units, where the facilitator reports it.
	Amount string `json:"amount,omitzero"`
	// Extensions holds what extensions add to a settlement, by the extension's key.
	Extensions map[string]jsontext.Value `json:"extensions,omitzero"`
}

// SupportedResponse is what a facilitator can do.
type SupportedResponse struct {
	// Kinds are the payments it verifies and settles.
	Kinds []SupportedKind `json:"kinds"`
	// Extensions are the keys of the extensions it knows; it may be missing.
	Extensions []string `json:"extensions"`
	// Signers are the addresses that submit transactions, by chain pattern such as "eip155:*"; it may be missing.
	Signers map[string][]string `json:"signers"`
}

// SupportedKind is one combination that a facilitator serves.
type SupportedKind struct {
	// X402Version is 1 or 2.
	X402Version int `json:"x402Version"`
	// Scheme is "exact" or a scheme unknown here.
	Scheme string `json:"scheme"`
	// Network is a CAIP-2 chain id in version 2 and a short name in version 1.
	Network string `json:"network"`
	// Extra holds what the scheme adds; it may be missing.
	Extra map[string]any `json:"extra,omitzero"`
}
