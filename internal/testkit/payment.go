package testkit

import (
	"crypto/ecdsa"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/x402"
)

// Offer is what a server that takes the price returns for a price inquiry, without resource and extensions.
func Offer(price uint64) *x402.PaymentRequired {
	return &x402.PaymentRequired{X402Version: x402.Version,
		Accepts: []x402.PaymentRequirements{PlayMoney.Requirements(price, devnet.Payee, 60)}}
}

// Payment returns a signed payment of scheme exact, changed before it is signed.
func Payment(
	t testing.TB, key *ecdsa.PrivateKey, required *x402.PaymentRequired, changes ...func(*x402.PaymentPayload),
) *x402.PaymentPayload {
	t.Helper()
	i := slices.IndexFunc(required.Accepts, func(offer x402.PaymentRequirements) bool { return offer.Scheme != x402.SchemeBatch })
	if i < 0 {
		t.Fatal("the 402 offers payment channels only")
	}
	offer := required.Accepts[i]
	var resource *x402.ResourceInfo
	if required.Resource.URL != "" {
		resource = &required.Resource
	}
	payload, err := x402.Sign(t.Context(), x402.NewKeySigner(key), offer, resource, required.Extensions, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) == 0 {
		return payload
	}
	for _, change := range changes {
		change(payload)
	}
	domain, err := x402.DomainOf(offer)
	if err != nil {
		t.Fatal(err)
	}
	if payload.Payload.Signature, err = x402.SignAuthorization(key, domain, payload.Payload.Authorization); err != nil {
		t.Fatal(err)
	}
	return payload
}

// Header returns the PAYMENT-SIGNATURE header of a payment.
func Header(t testing.TB, payload *x402.PaymentPayload) string {
	t.Helper()
	header, err := x402.EncodePaymentPayload(payload)
	if err != nil {
		t.Fatal(err)
	}
	return header
}

// Encode returns the PAYMENT-SIGNATURE header of a payment. Header and signature become secrets of the world.
func (w *World) Encode(payload *x402.PaymentPayload) string {
	w.T.Helper()
	header := Header(w.T, payload)
	w.Secret(header)
	if signature := payload.Payload.Signature; len(signature) > 40 { // some tests send less, which other texts may contain
		w.Secret(signature)
	}
	return header
}

// Identified gives a payment a payment identifier.
func Identified(id string) func(*x402.PaymentPayload) {
	return func(p *x402.PaymentPayload) { p.Extensions = Identifier(id) }
}

// Identifier returns the extensions of a payment with a payment identifier.
func Identifier(id string) map[string]jsontext.Value {
	return map[string]jsontext.Value{"payment-identifier": jsontext.Value(`{"info":{"required":false,"id":` + strconv.Quote(id) + `}}`)}
}
