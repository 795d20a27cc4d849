package x402

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const goodPayloadV1 = `{
  "x402Version": 1,
  "scheme": "exact",
  "network": "base",
  ` + goodExactPayload + `
}`

// sentV1 is what an official client of version 1 puts into X-PAYMENT before the base64.
func sentV1(network string, payload ExactPayload) string {
	a := payload.Authorization
	return `{"x402Version":1,"scheme":"exact","network":"` + network + `","payload":{"signature":"` + payload.Signature +
		`","authorization":{"from":"` + a.From + `","to":"` + a.To + `","value":"` + a.Value + `","validAfter":"` + a.ValidAfter +
		`","validBefore":"` + a.ValidBefore + `","nonce":"` + a.Nonce + `"}}}`
}

func TestParsePaymentPayloadV1(t *testing.T) {
	t.Parallel()
	parse := func(raw []byte) (*PaymentPayload, error) {
		return ParsePaymentPayloadV1(raw, knownNetwork(t, NetworkBase))
	}
	testParsing(t, goodPayloadV1, parse, exactPayloadParsings)
	testParsing(t, goodPayloadV1, parse, []parsing{
		{"the good payload", "", "", ""},
		{"unknown members", `"scheme"`, `"future": {"a": [1]}, "scheme"`, ""},
		{"another scheme", `"exact"`, `"upto"`, ""}, // it matches no offer
		{"another network", `"base"`, `"solana"`, ""},
		{"version 2", `"x402Version": 1`, `"x402Version": 2`, ReasonInvalidVersion},
		{"version as text", `"x402Version": 1`, `"x402Version": "1"`, ReasonInvalidVersion},
		{"version null", `"x402Version": 1`, `"x402Version": null`, ReasonInvalidVersion},
		{"no version", `"x402Version": 1,`, ``, ReasonInvalidVersion},
		{"a duplicate network", `"network": "base"`, `"network": "base", "network": "base"`, ReasonInvalidPayload},
		{"trailing data", "}\n}", "}\n} {}", ReasonInvalidPayload},
		{"a lookalike on top", `"scheme"`, `"Network": "base-sepolia", "scheme"`, ReasonInvalidPayload},
		{"no scheme", `"scheme": "exact",`, ``, ReasonInvalidPayload},
		{"a number for a scheme", `"exact"`, `7`, ReasonInvalidPayload},
		{"no network", `"network": "base",`, ``, ReasonInvalidPayload},
		{"a chain id for a network", `"base"`, `"eip155:8453"`, ReasonInvalidPayload},
	})
}

func TestDecodePaymentPayloadV1(t *testing.T) {
	t.Parallel()
	networks := []Network{knownNetwork(t, NetworkBaseSepolia), knownNetwork(t, NetworkBase)}
	offers := []PaymentRequirements{networks[0].Requirements(5000, vectorPayee, 60), networks[1].Requirements(5000, vectorPayee, 60)}
	now := time.Unix(1893456000-60, 0)
	for _, vector := range vectors {
		network := knownNetwork(t, vector.network)
		raw := sentV1(network.V1Name, ExactPayload{vector.signature, vectorAuthorization})
		got, err := DecodePaymentPayloadV1(encoded(raw), networks...)
		if err != nil {
			t.Fatalf("decode a payment on %s: %v", vector.network, err)
		}
		want := &PaymentPayload{
			X402Version: 1,
			Accepted:    PaymentRequirements{Scheme: "exact", Network: vector.network},
			Payload:     ExactPayload{vector.signature, vectorAuthorization},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(PaymentPayload{})); diff != "" || string(got.Raw()) != raw {
			t.Errorf("the payment on %s, with the raw JSON %s (-want +got):\n%s", vector.network, got.Raw(), diff)
		}
		offer, ok := Match(offers, got)
		if !ok || offer.Network != vector.network {
			t.Fatalf("the payment on %s matches the offer %v (%t)", vector.network, offer, ok)
		}
		if checked, err := newChecker(t).Check(offer, got, now); err != nil || !checked.Conclusive ||
			checked.Payer != strings.ToLower(vectorPayer) {
			t.Errorf("the payment on %s is checked as %+v (%v), want it good", vector.network, checked, err)
		}
	}
}

func TestMatchV1(t *testing.T) {
	t.Parallel()
	base := knownNetwork(t, NetworkBase)
	offers := []PaymentRequirements{base.Requirements(5000, vectorPayee, 60)}
	private := Network{ID: "eip155:1337", ChainID: 1337, Asset: vectorPayee, AssetName: "Token", AssetVersion: "1"}
	for _, row := range []struct {
		name            string
		scheme, network string
		networks        []Network
		want            bool
	}{
		{"the offer's network", "exact", "base", []Network{base}, true},
		{"one network of several", "exact", "base", []Network{private, base}, true},
		{"another scheme", "upto", "base", []Network{base}, false},
		{"a network that is not offered", "exact", "base-sepolia", []Network{base}, false},
		{"a known network that is not offered", "exact", "base-sepolia", []Network{base, knownNetwork(t, NetworkBaseSepolia)}, false},
		{"no networks", "exact", "base", nil, false},
		{"a network in another case", "exact", "Base", []Network{base}, false},
	} {
		payload, err := ParsePaymentPayloadV1([]byte(strings.Replace(sentV1(row.network, ExactPayload{goodSignature, vectorAuthorization}),
			`"exact"`, `"`+row.scheme+`"`, 1)), row.networks...)
		if err != nil {
			t.Fatalf("%s: parse: %v", row.name, err)
		}
		if _, ok := Match(offers, payload); ok != row.want {
			t.Errorf("%s: the payment matches: %t, want %t", row.name, ok, row.want)
		}
	}

	// A payment of version 1 does not repeat the terms, so that only the check finds another price or payee.
	for name, change := range map[string]func(r *PaymentRequirements){
		ReasonValueMismatch:     func(r *PaymentRequirements) { r.Amount = "990000" },
		ReasonRecipientMismatch: func(r *PaymentRequirements) { r.PayTo = vectorPayer },
	} {
		payload, err := ParsePaymentPayloadV1([]byte(goodPayloadV1), base)
		noError(t, "parse", err)
		dear := []PaymentRequirements{base.Requirements(5000, vectorPayee, 60)}
		change(&dear[0])
		offer, ok := Match(dear, payload)
		if !ok {
			t.Fatalf("the payment matches no offer with other terms, want that the check decides about them")
		}
		_, err = newChecker(t).Check(offer, payload, time.Unix(1893456000-60, 0))
		if invalid, ok := errors.AsType[*Invalid](err); !ok || invalid.Reason != name {
			t.Errorf("a payment for other terms is checked as %v, want %s", err, name)
		}
	}

	// The relief is for version 1 only.
	bare := &PaymentPayload{X402Version: 2, Accepted: PaymentRequirements{Scheme: "exact", Network: NetworkBase}}
	if _, ok := Match(offers, bare); ok {
		t.Error("a payment of version 2 matches by scheme and network alone")
	}
}

func TestVersionsInTheWrongHeader(t *testing.T) {
	t.Parallel()
	_, err := DecodePaymentPayloadV1(encoded(goodPayload), knownNetwork(t, NetworkBase))
	form, ok := errors.AsType[*FormError](err)
	if !ok || form.Reason != ReasonInvalidVersion || !strings.Contains(form.Message, HeaderPaymentSignature) {
		t.Errorf("a payment of version 2 in X-PAYMENT says %v, want a *FormError that names PAYMENT-SIGNATURE", err)
	}
	_, err = DecodePaymentPayload(encoded(goodPayloadV1))
	if form, ok := errors.AsType[*FormError](err); !ok || form.Reason != ReasonInvalidVersion {
		t.Errorf("a payment of version 1 in PAYMENT-SIGNATURE says %v, want a *FormError about the version", err)
	}
	for name, header := range map[string]string{
		"nothing": "", "base64url": "-_-_", "not JSON": encoded("hello"), "too long": strings.Repeat("A", maxHeaderBytes+4),
		"null": encoded("null"),
	} {
		_, err := DecodePaymentPayloadV1(header)
		if form, ok := errors.AsType[*FormError](err); !ok || form.Message == "" ||
			strings.Contains(form.Message, "the PAYMENT-SIGNATURE header is") {
			t.Errorf("%s in X-PAYMENT says %#v, want a *FormError about X-PAYMENT", name, err)
		}
	}
}
