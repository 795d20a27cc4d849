package x402

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// unknownMembers collects what a JSON object holds beyond the protocol. It is allowed, with one exception: a name that
// differs from one of the protocol's in letter case only. Decoders that ignore case (Go's encoding/json for one) would
// let such a member overrule the real one, and the facilitator would settle something that we did not check.
type unknownMembers map[string]jsontext.Value

// wirePayload is PaymentPayload with the unknown members of the objects that decide about money.
type wirePayload struct {
	X402Version int           `json:"x402Version"`
	Resource    *ResourceInfo `json:"resource"`
	Accepted    struct {
		PaymentRequirements
		Unknown unknownMembers `json:",embed"`
	} `json:"accepted"`
	Payload    wireExactPayload          `json:"payload"`
	Extensions map[string]jsontext.Value `json:"extensions"`
	Unknown    unknownMembers            `json:",embed"`
}

// wireExactPayload is ExactPayload in the same way. Both versions of the protocol have it.
type wireExactPayload struct {
	Signature     string `json:"signature"`
	Authorization struct {
		Authorization
		Unknown unknownMembers `json:",embed"`
	} `json:"authorization"`
	Unknown unknownMembers `json:",embed"`
}

// members tells of one JSON object which names the protocol knows in it and what else it holds.
type members struct {
	known   []string
	unknown unknownMembers
}

func (w *wireExactPayload) members() []members {
	return []members{
		{[]string{"signature", "authorization"}, w.Unknown},
		{[]string{"from", "to", "value", "validAfter", "validBefore", "nonce"}, w.Authorization.Unknown},
	}
}

func (w *wireExactPayload) exactPayload() ExactPayload {
	return ExactPayload{w.Signature, w.Authorization.Authorization}
}

// ParsePaymentPayload reads the JSON of a payment of version 2, scheme exact, and checks its form: required members,
// types, the spelling of addresses, decimals, nonce and signature. It says nothing about whether the payment is good;
// that is [Match] and [Checker]. Names are case-sensitive; duplicate names, invalid UTF-8 and trailing data are
// refused; unknown members are allowed. The result keeps raw for [PaymentPayload.Raw], so the caller must not change
// raw afterwards. The error is always a [*FormError].
func ParsePaymentPayload(raw []byte) (*PaymentPayload, error) {
	var wire wirePayload
	if err := json.Unmarshal(raw, &wire); err != nil {
		return nil, jsonFormError("payment payload", err)
	}
	if wire.X402Version != Version {
		return nil, &FormError{ReasonInvalidVersion, fmt.Sprintf("the payment payload has x402Version %d, but the "+
			"PAYMENT-SIGNATURE header takes version 2: sign one of the entries of accepts in the PAYMENT-REQUIRED header with a "+
			"client that speaks x402 version 2", wire.X402Version)}
	}
	if err := refuseLookalikes(append(wire.Payload.members(),
		members{[]string{"x402Version", "resource", "accepted", "payload", "extensions"}, wire.Unknown},
		members{[]string{"scheme", "network", "amount", "asset", "payTo", "maxTimeoutSeconds", "extra"}, wire.Accepted.Unknown},
	)); err != nil {
		return nil, err
	}
	if err := refuseOtherMethods(&wire.Payload); err != nil {
		return nil, err
	}
	if method, ok := wire.Accepted.Extra["assetTransferMethod"]; ok && method != "eip3009" {
		return nil, &FormError{ReasonUnsupportedPayload, "accepted.extra.assetTransferMethod names another transfer method; " +
			"this server takes EIP-3009 only and does not offer any other"}
	}
	payload := &PaymentPayload{
		X402Version: wire.X402Version,
		Resource:    wire.Resource,
		Accepted:    wire.Accepted.PaymentRequirements,
		Payload:     wire.Payload.exactPayload(),
		Extensions:  wire.Extensions,
		raw:         raw,
	}
	if err := checkRequirements("accepted", payload.Accepted); err != nil {
		return nil, err
	}
	if err := checkExactPayload(payload.Payload); err != nil {
		return nil, err
	}
	return payload, nil
}

// refuseLookalikes refuses unknown members that a case-insensitive decoder would take for known ones.
func refuseLookalikes(objects []members) error {
	for _, object := range objects {
		for name := range object.unknown {
			// EqualFold folds as encoding/json does, the Kelvin sign and the long s included.
			if i := slices.IndexFunc(object.known, func(known string) bool { return strings.EqualFold(known, name) }); i >= 0 {
				return &FormError{ReasonInvalidPayload, fmt.Sprintf("the payment payload has a member whose name differs "+
					"from %q in letter case only; remove it", object.known[i])}
			}
		}
	}
	return nil
}

// refuseOtherMethods refuses payments by another transfer method than EIP-3009. They may carry an EIP-3009
// authorization as well, and a facilitator would be free to look at either.
func refuseOtherMethods(wire *wireExactPayload) error {
	for _, other := range []string{"permit2Authorization", "delegationManager", "permissionContext", "delegator"} {
		for name := range wire.Unknown {
			if strings.EqualFold(name, other) {
				return &FormError{ReasonUnsupportedPayload, fmt.Sprintf("the payment payload has the member %q of another "+
					"transfer method; this server takes EIP-3009 only: payload is {signature, authorization}", other)}
			}
		}
	}
	return nil
}

// checkRequirements checks the form of one offer. where names the object in messages.
func checkRequirements(where string, r PaymentRequirements) error {
	malformed := func(member, want string) error {
		return &FormError{ReasonInvalidPayload, fmt.Sprintf("%s.%s is missing or malformed; it is %s", where, member, want)}
	}
	switch {
	case r.Scheme == "":
		return malformed("scheme", `a string such as "exact"`)
	case !strings.Contains(r.Network, ":"):
		return malformed("network", `a CAIP-2 chain id such as "eip155:8453"`)
	case !isDecimal(r.Amount):
		return malformed("amount", "a string of decimal digits in atomic units, without leading zeros")
	case r.Asset == "":
		return malformed("asset", "the token contract's address")
	case r.PayTo == "":
		return malformed("payTo", "the payee's address")
	case r.MaxTimeoutSeconds <= 0:
		return malformed("maxTimeoutSeconds", "a whole number of seconds greater than 0")
	}
	return nil
}

// checkExactPayload checks the form of the signed part.
func checkExactPayload(p ExactPayload) error {
	if p.Signature == "" {
		return &FormError{ReasonMissingSignature, "payload.signature is missing; sign payload.authorization with EIP-712 " +
			"and send the signature as 0x and hex digits"}
	}
	if !isHex(p.Signature, signatureBytes, maxSignatureBytes) {
		return &FormError{ReasonSignatureFormat, fmt.Sprintf("payload.signature is not 0x and an even number of hex digits "+
			"for at least %d and at most %d bytes", signatureBytes, maxSignatureBytes)}
	}
	malformed := func(member, want string) error {
		return &FormError{ReasonPayload, fmt.Sprintf("payload.authorization.%s is missing or malformed; it is %s", member, want)}
	}
	a := p.Authorization
	if !isAddress(a.From) {
		return malformed("from", "the payer's address: 0x and 40 hex digits")
	}
	if !isAddress(a.To) {
		return malformed("to", "the payee's address: 0x and 40 hex digits")
	}
	for _, number := range []struct{ member, decimal string }{
		{"value", a.Value}, {"validAfter", a.ValidAfter}, {"validBefore", a.ValidBefore},
	} {
		if _, ok := uint256(number.decimal); !ok {
			return malformed(number.member, "a string of decimal digits without leading zeros that fits 256 bits")
		}
	}
	if !isHex(a.Nonce, 32, 32) {
		return malformed("nonce", "0x and 64 hex digits")
	}
	return nil
}

// jsonFormError tells what is wrong with JSON without repeating any of it: the library's own messages quote values.
func jsonFormError(what string, err error) error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		// Below extra the names are the payer's own, so the message stops there.
		pointer, _, _ := strings.Cut(string(semantic.JSONPointer), "/extra/")
		if pointer == "" {
			return &FormError{ReasonInvalidPayload, "the " + what + " is not a JSON object"}
		}
		reason := ReasonInvalidPayload
		if pointer == "/x402Version" {
			reason = ReasonInvalidVersion
		}
		return &FormError{reason, fmt.Sprintf("the %s has a value of the wrong JSON type at %s", what, pointer)}
	}
	return &FormError{ReasonInvalidPayload, "the " + what + " is not one valid JSON object: it must be UTF-8, without " +
		"duplicate names and without anything after the object"}
}
