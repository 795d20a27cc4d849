package x402test_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
	"github.com/parley-chat/parley/x402/x402test"
)

func baseSepolia(t *testing.T) x402.Network {
	t.Helper()
	network, ok := x402.LookupNetwork(x402.NetworkBaseSepolia)
	if !ok {
		t.Fatal("Base Sepolia is not known")
	}
	return network
}

func TestSignCancellation(t *testing.T) {
	t.Parallel()
	key, err := evm.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	network, payer := baseSepolia(t), evm.PubkeyToAddress(key.PublicKey).Hex()
	domain, err := x402.NewDomain(network.AssetName, network.AssetVersion, network.ChainID, network.Asset)
	if err != nil {
		t.Fatal(err)
	}
	const nonce = "0x1111111111111111111111111111111111111111111111111111111111111111"
	signature, err := x402test.SignCancellation(key, domain, payer, nonce)
	if err != nil {
		t.Fatalf("sign a cancellation: %v", err)
	}
	digest, err := domain.CancelDigest(payer, nonce)
	if err != nil {
		t.Fatalf("digest a cancellation: %v", err)
	}
	if signer, err := x402.RecoverHex(digest, signature); err != nil || evm.HexToAddress(signer).Hex() != payer {
		t.Errorf("the cancellation recovers to %q (%v), want its signer %s", signer, err, payer)
	}
	if _, err := x402test.SignCancellation(key, domain, "0x12", nonce); err == nil {
		t.Error("a cancellation by a malformed address can be signed")
	}
}

func TestEncodePaymentPayloadV1(t *testing.T) {
	t.Parallel()
	key, err := evm.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	offer := baseSepolia(t).Requirements(5000, "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", 60)
	signed, err := x402.Sign(t.Context(), x402.NewKeySigner(key), offer, &x402.ResourceInfo{URL: "https://host.example/x"}, nil, time.Now())
	if err != nil {
		t.Fatalf("sign: %v", err)
	}
	header, err := x402test.EncodePaymentPayloadV1(signed, "base-sepolia")
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	a := signed.Payload.Authorization
	want := `{"x402Version":1,"scheme":"exact","network":"base-sepolia","payload":{"signature":"` + signed.Payload.Signature +
		`","authorization":{"from":"` + a.From + `","to":"` + a.To + `","value":"` + a.Value + `","validAfter":"` + a.ValidAfter +
		`","validBefore":"` + a.ValidBefore + `","nonce":"` + a.Nonce + `"}}}`
	got, err := base64.StdEncoding.DecodeString(header)
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("the header differs from an official client's (%v, -want +got):\n%s", err, diff)
	}
	again, err := x402.DecodePaymentPayloadV1(header, baseSepolia(t))
	if err != nil || again.Payload != signed.Payload {
		t.Errorf("after a round trip the payment is %+v (%v), want %+v", again, err, signed.Payload)
	}
}
