package x402

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestSign(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	offer := knownNetwork(t, NetworkBaseSepolia).Requirements(5000, vectorPayee, 60)
	resource := &ResourceInfo{URL: "https://host.example/chat/private/send"}
	extensions := map[string]jsontext.Value{"bazaar": jsontext.Value(`{"info":{}}`)}
	payload, err := Sign(t.Context(), NewKeySigner(vectorKey(t)), offer, resource, extensions, now)
	noError(t, "sign", err)
	want := &PaymentPayload{
		X402Version: 2,
		Resource:    resource,
		Accepted:    offer,
		Payload: ExactPayload{Authorization: Authorization{
			From: vectorPayer, To: vectorPayee, Value: "5000", ValidAfter: "0", ValidBefore: "1800000060",
		}},
		Extensions: extensions,
	}
	if diff := cmp.Diff(want, payload, cmpopts.IgnoreUnexported(PaymentPayload{}),
		cmpopts.IgnoreFields(ExactPayload{}, "Signature"), cmpopts.IgnoreFields(Authorization{}, "Nonce")); diff != "" {
		t.Errorf("the payment (-want +got):\n%s", diff)
	}
	if err := checkExactPayload(payload.Payload); err != nil {
		t.Errorf("our own payment is malformed: %v", err)
	}
	again, err := Sign(t.Context(), NewKeySigner(vectorKey(t)), offer, resource, extensions, now)
	noError(t, "sign again", err)
	if again.Payload.Authorization.Nonce == payload.Payload.Authorization.Nonce {
		t.Error("two payments have one nonce, so the second would never settle")
	}
}

func TestSignRefusals(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *PaymentRequirements){
		"another scheme":     func(r *PaymentRequirements) { r.Scheme = "upto" },
		"another method":     func(r *PaymentRequirements) { r.Extra["assetTransferMethod"] = "permit2" },
		"no token name":      func(r *PaymentRequirements) { delete(r.Extra, "name") },
		"a malformed payee":  func(r *PaymentRequirements) { r.PayTo = "somebody" },
		"a malformed amount": func(r *PaymentRequirements) { r.Amount = "0.005" },
	} {
		offer := knownNetwork(t, NetworkBase).Requirements(5000, vectorPayee, 60)
		change(&offer)
		if _, err := Sign(t.Context(), NewKeySigner(vectorKey(t)), offer, nil, nil, time.Unix(0, 0)); err == nil {
			t.Errorf("an offer with %s is signed, want an error", name)
		}
	}
}
