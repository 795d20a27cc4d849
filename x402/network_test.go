package x402

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
