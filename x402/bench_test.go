package x402

import (
	"testing"
	"time"
)

// benchOffers are two ways to pay; the second is the one that is accepted.
func benchOffers(b *testing.B) []PaymentRequirements {
	return []PaymentRequirements{
		knownNetwork(b, NetworkBase).Requirements(5000, vectorPayee, 60), knownNetwork(b, NetworkBaseSepolia).Requirements(5000, vectorPayee, 60),
	}
}

func BenchmarkEncodePaymentRequired(b *testing.B) {
	required := &PaymentRequired{X402Version: Version, Error: "pay", Resource: ResourceInfo{URL: "https://parley.example/agent/me"},
		Accepts: benchOffers(b)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodePaymentRequired(required); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeSettleResponse(b *testing.B) {
	response := &SettleResponse{Success: true, Transaction: "0x" + vectors[0].digest[2:], Network: NetworkBase, Payer: vectorPayer}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeSettleResponse(response); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	offers := benchOffers(b)
	payload := signed(b, offers[1], time.Now(), func(*Authorization) {})
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Match(offers, payload); !ok {
			b.Fatal("the payment does not match")
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	checker, offer := newChecker(b), benchOffers(b)[1]
	payload := signed(b, offer, time.Now(), func(*Authorization) {})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := checker.Check(offer, payload, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
