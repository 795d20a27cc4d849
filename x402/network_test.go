package x402

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestLookupNetwork(t *testing.T) {
	t.Parallel()
	want := Network{"eip155:84532", 84532, "base-sepolia", "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "USDC", "2"}
	got, ok := LookupNetwork("eip155:84532")
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("Base Sepolia is known: %t (-want +got):\n%s", ok, diff)
	}
	if _, ok := LookupNetwork("eip155:1"); ok {
		t.Error("a network without known USDC is found")
	}
}

func TestRequirements(t *testing.T) {
	t.Parallel()
	want := PaymentRequirements{
		Scheme: "exact", Network: "eip155:8453", Amount: "5000",
		Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", PayTo: vectorPayee, MaxTimeoutSeconds: 60,
		Extra: map[string]any{"name": "USD Coin", "version": "2"},
	}
	if diff := cmp.Diff(want, knownNetwork(t, NetworkBase).Requirements(5000, vectorPayee, 60)); diff != "" {
		t.Errorf("the offer on Base (-want +got):\n%s", diff)
	}
}

func TestParseChainID(t *testing.T) {
	t.Parallel()
	if got, err := ParseChainID("eip155:84532"); err != nil || got != 84532 {
		t.Errorf("the chain id of Base Sepolia is %d (%v), want 84532", got, err)
	}
	for _, id := range []string{"", "8453", "eip155:", "eip155:base", "eip155:-1", "eip155:+1", "EIP155:1", "solana:1",
		"eip155:18446744073709551616"} {
		if got, err := ParseChainID(id); err == nil {
			t.Errorf("the network %q is taken for chain %d, want an error", id, got)
		}
	}
}

func TestDomainOfRefusals(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *PaymentRequirements){
		"another chain family": func(r *PaymentRequirements) { r.Network = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp" },
		"a chain id in words":  func(r *PaymentRequirements) { r.Network = "eip155:base" },
		"no extra":             func(r *PaymentRequirements) { r.Extra = nil },
		"no name":              func(r *PaymentRequirements) { r.Extra = map[string]any{"version": "2"} },
		"a number as version":  func(r *PaymentRequirements) { r.Extra = map[string]any{"name": "USDC", "version": 2} },
		"a malformed asset":    func(r *PaymentRequirements) { r.Asset = "USDC" },
	} {
		requirements := knownNetwork(t, NetworkBase).Requirements(5000, vectorPayee, 60)
		change(&requirements)
		if _, err := DomainOf(requirements); err == nil {
			t.Errorf("an offer with %s has a domain, want an error", name)
		}
	}
}

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
