package x402

import (
	"errors"
	"strings"
	"testing"
)

// goodSignature has a beginning that no message may repeat.
const goodSignature = "0x1918f6a611caa320837182e981da5228c59c3441cb5e40795760bdd8a2eb0d7b3b7" +
	"f257488091e31d2a882ee5c48fc0d875792f1f253cbf532097a49253732661b"

// goodExactPayload is the same in both versions of the protocol.
const goodExactPayload = `"payload": {
    "signature": "` + goodSignature + `",
    "authorization": {"from": "0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1", "to": "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
      "value": "5000", "validAfter": "0", "validBefore": "1893456000",
      "nonce": "0xabababababababababababababababababababababababababababababababab"}}`

const goodPayload = `{
  "x402Version": 2,
  "resource": {"url": "https://host.example/chat/private/send", "description": "Send a private message", "mimeType": "application/json"},
  "accepted": {"scheme": "exact", "network": "eip155:8453", "amount": "5000",
    "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "payTo": "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
    "maxTimeoutSeconds": 60, "extra": {"name": "USD Coin", "version": "2"}},
  ` + goodExactPayload + `,
  "extensions": {}
}`

// parsing is one change to a good payload and what comes of it.
type parsing struct {
	name     string
	old, new string
	reason   string // "" if it is still good
}

// unlimited is a decimal that no 256 bits hold.
var unlimited = strings.Repeat("9", 78)

// exactPayloadParsings must come out the same in both versions.
var exactPayloadParsings = []parsing{
	{"unknown members in the payload", `"signature"`, `"future": 1, "signature"`, ""},
	{"unknown members in the authorization", `"value"`, `"future": 1, "value"`, ""},
	{"lower-case addresses", "0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1", "0x1a642f0e3c3af545e7acbd38b07251b3990914f1", ""},
	{"a smart wallet's signature", goodSignature, goodSignature + strings.Repeat("6492", 100), ""},
	{"a duplicate name", `"value": "5000"`, `"value": "5000", "value": "1"`, ReasonInvalidPayload},
	{"a lookalike in the payload", `"signature"`, `"ſignature": "0x", "signature"`, ReasonInvalidPayload},
	{"a lookalike in the authorization", `"value"`, `"VALUE": "1", "value"`, ReasonInvalidPayload},
	{"an array for the payload", `"payload": {`, `"payload": [], "was": {`, ReasonInvalidPayload},
	{"a null payload", `"payload": {`, `"payload": null, "was": {`, ReasonMissingSignature},
	{"a null authorization", `"authorization": {`, `"authorization": null, "was": {`, ReasonPayload},
	{"permit2", `"signature"`, `"permit2Authorization": {}, "signature"`, ReasonUnsupportedPayload},
	{"permit2 null", `"signature"`, `"permit2Authorization": null, "signature"`, ReasonUnsupportedPayload},
	{"permit2 in another case", `"signature"`, `"Permit2authorization": {}, "signature"`, ReasonUnsupportedPayload},
	{"erc7710", `"signature"`, `"delegationManager": "0x", "permissionContext": "0x", "delegator": "0x", "signature"`,
		ReasonUnsupportedPayload},
	{"no signature", `"signature": "` + goodSignature + `",`, ``, ReasonMissingSignature},
	{"signature null", `"` + goodSignature + `"`, `null`, ReasonMissingSignature},
	{"a number for a signature", `"` + goodSignature + `"`, `7`, ReasonInvalidPayload},
	{"signature without 0x", goodSignature, goodSignature[2:] + "00", ReasonSignatureFormat},
	{"signature with 0X", goodSignature, "0X" + goodSignature[2:], ReasonSignatureFormat},
	{"signature of 64 bytes", goodSignature, goodSignature[:130], ReasonSignatureFormat},
	{"signature of odd length", goodSignature, goodSignature + "0", ReasonSignatureFormat},
	{"signature that is not hex", goodSignature, goodSignature[:130] + "zz", ReasonSignatureFormat},
	{"signature too long", goodSignature, goodSignature + strings.Repeat("00", maxSignatureBytes), ReasonSignatureFormat},
	{"a short payer", "0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1", "0x1a642f0E3c3aF545E7AcBD38b07251B3990914", ReasonPayload},
	{"a payer without 0x", "0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1", "001a642f0E3c3aF545E7AcBD38b07251B3990914F1", ReasonPayload},
	{"a payee that is a name", `"to": "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"`, `"to": "parley.eth"`, ReasonPayload},
	{"a value as number", `"value": "5000"`, `"value": 5000`, ReasonInvalidPayload},
	{"a value in hex", `"value": "5000"`, `"value": "0x1388"`, ReasonPayload},
	{"a value with a zero in front", `"value": "5000"`, `"value": "05000"`, ReasonPayload},
	{"a negative value", `"value": "5000"`, `"value": "-5000"`, ReasonPayload},
	{"a value with a sign", `"value": "5000"`, `"value": "+5000"`, ReasonPayload},
	{"a value with a space", `"value": "5000"`, `"value": " 5000"`, ReasonPayload},
	{"a value with an exponent", `"value": "5000"`, `"value": "5e3"`, ReasonPayload},
	{"a value with a point", `"value": "5000"`, `"value": "5000.0"`, ReasonPayload},
	{"a value in Arabic digits", `"value": "5000"`, `"value": "٥٠٠٠"`, ReasonPayload},
	{"an empty value", `"value": "5000"`, `"value": ""`, ReasonPayload},
	{"a value beyond 256 bits", `"value": "5000"`, `"value": "` + unlimited + `"`, ReasonPayload},
	{"a validAfter with a sign", `"validAfter": "0"`, `"validAfter": "+0"`, ReasonPayload},
	{"no validBefore", `"validBefore"`, `"was"`, ReasonPayload},
	{"a validBefore beyond 256 bits", `"1893456000"`, `"` + unlimited + `"`, ReasonPayload},
	{"a nonce of 31 bytes", "0xabab", "0xab", ReasonPayload},
	{"a nonce of 33 bytes", "0xabab", "0xababab", ReasonPayload},
	{"a nonce with 0X", `"0xabab`, `"0Xabab`, ReasonPayload},
	{"a payer with a line break", `B3990914F1"`, `B3990914F1\n"`, ReasonPayload},
	{"a nonce that is a number", `"0xabababababababababababababababababababababababababababababababab"`, `7`, ReasonInvalidPayload},
}

func testParsing(t *testing.T, good string, parse func([]byte) (*PaymentPayload, error), rows []parsing) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(good, row.old) {
				t.Fatalf("the good payload does not hold %s", row.old)
			}
			raw := strings.Replace(good, row.old, row.new, 1)
			payload, err := parse([]byte(raw))
			if row.reason == "" {
				if err != nil || string(payload.Raw()) != raw {
					t.Errorf("parsing says %v, want the payment with its raw JSON", err)
				}
				return
			}
			form, ok := errors.AsType[*FormError](err)
			if !ok || form.Reason != row.reason || form.Message == "" {
				t.Fatalf("parsing says %#v, want a *FormError with reason %s", err, row.reason)
			}
			if strings.Contains(form.Message, "1918f6a611caa3") || payload != nil {
				t.Errorf("the refusal quotes the payment: %s", form.Message)
			}
		})
	}
}

func TestParsePaymentPayload(t *testing.T) {
	t.Parallel()
	testParsing(t, goodPayload, ParsePaymentPayload, exactPayloadParsings)
	testParsing(t, goodPayload, ParsePaymentPayload, []parsing{
		{"the good payload", "", "", ""},
		{"no resource", `"resource": {"url": "https://host.example/chat/private/send", "description": "Send a private message", "mimeType": ` +
			`"application/json"},`, "", ""},
		{"resource null", `{"url": "https://host.example/chat/private/send", "description": "Send a private message", "mimeType": ` +
			`"application/json"}`, "null", ""},
		{"extensions null", `"extensions": {}`, `"extensions": null`, ""},
		{"no extensions", `,
  "extensions": {}`, "", ""},
		{"unknown members", `"x402Version": 2`, `"x402Version": 2, "future": {"a": [1]}`, ""},
		{"unknown members inside", `"scheme": "exact"`, `"scheme": "exact", "future": 1`, ""},
		{"eip3009 named", `"version": "2"`, `"version": "2", "assetTransferMethod": "eip3009"`, ""},

		{"version 1", `"x402Version": 2`, `"x402Version": 1`, ReasonInvalidVersion},
		{"version 3", `"x402Version": 2`, `"x402Version": 3`, ReasonInvalidVersion},
		{"version as text", `"x402Version": 2`, `"x402Version": "2"`, ReasonInvalidVersion},
		{"version 2.5", `"x402Version": 2`, `"x402Version": 2.5`, ReasonInvalidVersion},
		{"version null", `"x402Version": 2`, `"x402Version": null`, ReasonInvalidVersion},
		{"no version", `"x402Version": 2,`, ``, ReasonInvalidVersion},
		{"a duplicate name of an unknown member", `"extensions": {}`, `"extensions": {}, "a": 1, "a": 2`, ReasonInvalidPayload},
		{"a duplicate name in an extension", `"extensions": {}`, `"extensions": {"a": {"b": 1, "b": 2}}`, ReasonInvalidPayload},
		{"invalid UTF-8", `Send a private`, "Send \xff private", ReasonInvalidPayload},
		{"half a surrogate", `Send a private`, `Send \ud800 private`, ReasonInvalidPayload},
		{"trailing data", `"extensions": {}
}`, `"extensions": {}
} {}`, ReasonInvalidPayload},
		{"a comment", `"extensions": {}`, `"extensions": {} // hi`, ReasonInvalidPayload},
		{"a name in another case", `"scheme"`, `"Scheme"`, ReasonInvalidPayload},
		{"a lookalike on top", `"extensions": {}`, `"extensions": {}, "Payload": {}`, ReasonInvalidPayload},
		{"a lookalike in accepted", `"scheme": "exact"`, `"scheme": "exact", "payto": "0x1"`, ReasonInvalidPayload},
		{"a null accepted", `"accepted": {`, `"accepted": null, "was": {`, ReasonInvalidPayload},
		{"no scheme", `"scheme": "exact", `, ``, ReasonInvalidPayload},
		{"a network of version 1", `"eip155:8453"`, `"base"`, ReasonInvalidPayload},
		{"an amount as number", `"amount": "5000"`, `"amount": 5000`, ReasonInvalidPayload},
		{"an amount with a point", `"amount": "5000"`, `"amount": "0.005"`, ReasonInvalidPayload},
		{"no asset", `"asset"`, `"was"`, ReasonInvalidPayload},
		{"no payee", `"payTo"`, `"was"`, ReasonInvalidPayload},
		{"no timeout", `"maxTimeoutSeconds": 60`, `"maxTimeoutSeconds": 0`, ReasonInvalidPayload},
		{"a timeout as text", `"maxTimeoutSeconds": 60`, `"maxTimeoutSeconds": "60"`, ReasonInvalidPayload},
		{"extra as text", `{"name": "USD Coin", "version": "2"}`, `"USD Coin"`, ReasonInvalidPayload},
		{"a number in extra that nothing holds", `"version": "2"`, `"0x1918f6a611caa3": 1e999`, ReasonInvalidPayload},
		{"permit2 by its name", `"version": "2"`, `"version": "2", "assetTransferMethod": "permit2"`, ReasonUnsupportedPayload},
	})
}

func TestParseJunk(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "null", "true", "7", `"x"`, "[]", "[{}]", "{}", "{", "\x00",
		"{\"payload\":{\"authorization\":{\"from\":{}}}}"} {
		_, err := ParsePaymentPayload([]byte(raw))
		if _, ok := errors.AsType[*FormError](err); !ok {
			t.Errorf("parsing %q says %#v, want a *FormError", raw, err)
		}
	}
}

// TestWrongTypesAreNamed: a value of the wrong JSON type is named with the type that it must have.
func TestWrongTypesAreNamed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ old, new, says string }{
		{`"value": "5000"`, `"value": 5000`, "/payload/authorization/value; it must be a string"},
		{`"amount": "5000"`, `"amount": 5000`, "/accepted/amount; it must be a string"},
		{`"maxTimeoutSeconds": 60`, `"maxTimeoutSeconds": "60"`, "/accepted/maxTimeoutSeconds; it must be a whole number"},
		{`"extra": {"name": "USD Coin", "version": "2"}`, `"extra": "USD Coin"`, "/accepted/extra; it must be an object"},
		{`"payload": {`, `"payload": [], "was": {`, "/payload; it must be an object"},
		{`"extensions": {}`, `"extensions": []`, "/extensions; it must be an object"},
		{`"x402Version": 2`, `"x402Version": "2"`, "/x402Version; it must be a whole number"},
	} {
		_, err := ParsePaymentPayload([]byte(strings.Replace(goodPayload, row.old, row.new, 1)))
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v, want it to say %q", row.new, err, row.says)
		}
	}
}
