package x402

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// unknownMembers collects the members of a JSON object that are not in the protocol. They are allowed, except for names
// that differ from a name of the protocol only in letter case. A decoder that ignores case, such as Go's encoding/json,
// would let such a member replace the real one. The facilitator would then settle something that the server did not
// check.
type unknownMembers map[string]jsontext.Value

// wirePayload is PaymentPayload with the unknown members of those objects that determine the payment.
type wirePayload struct {
	X402Version int                       `json:"x402Version"`
	Resource    *ResourceInfo             `json:"resource"`
	Accepted    wireRequirements          `json:"accepted"`
	Payload     wireExactPayload          `json:"payload"`
	Extensions  map[string]jsontext.Value `json:"extensions"`
	Unknown     unknownMembers            `json:",embed"`
}

// wireRequirements is the payer's copy of the payment requirements with its unknown members.
type wireRequirements struct {
	PaymentRequirements
	Unknown unknownMembers `json:",embed"`
}

// wireExactPayload is ExactPayload with its unknown members. Both versions of the protocol use it.
type wireExactPayload struct {
	Signature     string `json:"signature"`
	Authorization struct {
		Authorization
		Unknown unknownMembers `json:",embed"`
	} `json:"authorization"`
	Unknown unknownMembers `json:",embed"`
}

// members lists the names that the protocol defines for one JSON object, and the object's unknown members.
type members struct {
	known   []string
	unknown unknownMembers
}

// membersV2 are the members of a payment of version 2.
func membersV2(unknown unknownMembers) members {
	return members{[]string{"x402Version", "resource", "accepted", "payload", "extensions"}, unknown}
}

func (w *wireRequirements) members() members {
	return members{[]string{"scheme", "network", "amount", "asset", "payTo", "maxTimeoutSeconds", "extra"}, w.Unknown}
}

// check checks the form of the payer's copy, and that it names no transfer method other than EIP-3009.
func (w *wireRequirements) check() error {
	if method, ok := w.Extra["assetTransferMethod"]; ok && method != "eip3009" {
		return &FormError{ReasonUnsupportedPayload, "accepted.extra.assetTransferMethod is another transfer method; " +
			"this server accepts EIP-3009 only and does not offer any other"}
	}
	return checkRequirements("accepted", w.PaymentRequirements)
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

// ParsePaymentPayload decodes the JSON of a payment of version 2, scheme exact, and checks its form: required members,
// types, and the format of addresses, decimals, nonce and signature. It does not check that the payment is valid: see
// [Match] and [Checker].
//
// Names are case-sensitive. ParsePaymentPayload rejects duplicate names, invalid UTF-8 and trailing data. It allows
// unknown members, except for names that differ from a name of the protocol only in letter case. The result keeps raw
// for [PaymentPayload.Raw], so the caller must not change raw afterwards. The error is always a [*FormError].
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
	if err := rejectLookalikes(append(wire.Payload.members(), wire.Accepted.members(), membersV2(wire.Unknown))); err != nil {
		return nil, err
	}
	if err := rejectOtherMethods(&wire.Payload); err != nil {
		return nil, err
	}
	if err := wire.Accepted.check(); err != nil {
		return nil, err
	}
	payload := &PaymentPayload{
		X402Version: wire.X402Version,
		Resource:    wire.Resource,
		Accepted:    wire.Accepted.PaymentRequirements,
		Payload:     wire.Payload.exactPayload(),
		Extensions:  wire.Extensions,
		raw:         raw,
	}
	if err := checkExactPayload(payload.Payload); err != nil {
		return nil, err
	}
	return payload, nil
}

// rejectLookalikes rejects unknown members that a case-insensitive decoder would treat as known members.
func rejectLookalikes(objects []members) error {
	for _, object := range objects {
		for name := range object.unknown {
			// EqualFold ignores case in the same way as encoding/json, including the Kelvin sign and the long s.
			if i := slices.IndexFunc(object.known, func(known string) bool { return strings.EqualFold(known, name) }); i >= 0 {
				return &FormError{ReasonInvalidPayload, fmt.Sprintf("the payment payload has a member whose name differs "+
					"from %q in letter case only; remove it", object.known[i])}
			}
		}
	}
	return nil
}

// rejectOtherMethods rejects payments with a transfer method other than EIP-3009. Such a payment may also contain an
// EIP-3009 authorization, and a facilitator could use either.
func rejectOtherMethods(wire *wireExactPayload) error {
	for _, other := range []string{"permit2Authorization", "delegationManager", "permissionContext", "delegator"} {
		for name := range wire.Unknown {
			if strings.EqualFold(name, other) {
				return &FormError{ReasonUnsupportedPayload, fmt.Sprintf("the payment payload has the member %q of another "+
					"transfer method; this server accepts EIP-3009 only: payload is {signature, authorization}", other)}
			}
		}
	}
	return nil
}

// checkRequirements checks the form of payment requirements. where is the object's name for error messages.
func checkRequirements(where string, r PaymentRequirements) error {
	malformed := func(member, want string) error {
		return &FormError{ReasonInvalidPayload, fmt.Sprintf("%s.%s is missing or malformed; it must be %s", where, member, want)}
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

// exactWants lists the members of an authorization, by JSON pointer.
var exactWants = map[string]string{
	"/payload/authorization/from":        "the payer's address: 0x and 40 hex digits",
	"/payload/authorization/to":          "the payee's address: 0x and 40 hex digits",
	"/payload/authorization/value":       wantUint256,
	"/payload/authorization/validAfter":  wantUint256,
	"/payload/authorization/validBefore": wantUint256,
	"/payload/authorization/nonce":       "0x and 64 hex digits",
}

const wantUint256 = "a string of decimal digits without leading zeros that fits in 256 bits"

// checkExactPayload checks the form of the signature and the authorization.
func checkExactPayload(p ExactPayload) error {
	if p.Signature == "" {
		return &FormError{ReasonMissingSignature, "payload.signature is missing; sign payload.authorization with EIP-712 " +
			"and send the signature as 0x and hex digits"}
	}
	if !isHex(p.Signature, signatureBytes, maxSignatureBytes) {
		return &FormError{ReasonSignatureFormat, fmt.Sprintf("payload.signature is not 0x and an even number of hex digits "+
			"for at least %d and at most %d bytes", signatureBytes, maxSignatureBytes)}
	}
	a := p.Authorization
	return checkForm(ReasonPayload, exactWants, []formCheck{
		{"/payload/authorization/from", isAddress(a.From)},
		{"/payload/authorization/to", isAddress(a.To)},
		{"/payload/authorization/value", isUint256(a.Value)},
		{"/payload/authorization/validAfter", isUint256(a.ValidAfter)},
		{"/payload/authorization/validBefore", isUint256(a.ValidBefore)},
		{"/payload/authorization/nonce", isHex(a.Nonce, 32, 32)},
	})
}

// jsonFormError describes an error in JSON without quoting the JSON. The messages of the JSON library quote values.
func jsonFormError(what string, err error) error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		// Below extra the payer chooses the names, so the message omits them.
		pointer, _, _ := strings.Cut(string(semantic.JSONPointer), "/extra/")
		if pointer == "" {
			return &FormError{ReasonInvalidPayload, "the " + what + " is not a JSON object"}
		}
		reason := ReasonInvalidPayload
		if pointer == "/x402Version" {
			reason = ReasonInvalidVersion
		}
		return &FormError{reason, fmt.Sprintf("the %s has a value of the wrong JSON type at %s; it must be %s", what, pointer,
			jsonType(semantic.GoType))}
	}
	return &FormError{ReasonInvalidPayload, "the " + what + " is not one valid JSON object: it must be UTF-8, without " +
		"duplicate names and without anything after the object"}
}

// jsonType returns the JSON type of a Go type of this package.
func jsonType(of reflect.Type) string {
	if of == nil {
		return "as in the x402 specification"
	}
	switch of.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "an object"
	}
	return "a whole number"
}
