package x402

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/hex"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"github.com/parley-chat/parley/x402/evm"
)

// The reference's test vector: the key 0x01 repeated 32 times pays 0.005 USDC.
const (
	vectorPayer = "0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1"
	vectorPayee = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
)

var vectorAuthorization = Authorization{
	From:        vectorPayer,
	To:          vectorPayee,
	Value:       "5000",
	ValidAfter:  "0",
	ValidBefore: "1893456000",
	Nonce:       "0x" + strings.Repeat("ab", 32),
}

var vectors = []struct{ network, separator, digest, signature string }{
	{
		network:   NetworkBase,
		separator: "0x02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f",
		digest:    "0xc9726046d0a373b52abbdc496aa10bb5a31ea5c561ba5cb9c3d04412fe908137",
		signature: "0x1918f6a611caa320837182e981da5228c59c3441cb5e40795760bdd8a2eb0d7b3b7" +
			"f257488091e31d2a882ee5c48fc0d875792f1f253cbf532097a49253732661b",
	},
	{
		network:   NetworkBaseSepolia,
		separator: "0x71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818",
		digest:    "0x6d736a7e42a10b2ecfe7fdbd73b48c2c76eeed72748420ef6ab979ae04125717",
		signature: "0x1fb43532945958b1a052273dc23ce61a51907c420b221710986939e2ccedca88511" +
			"34b4b2cde444a0cc349b72bf87865164e028dd7fc459a2444c05ffef67b371b",
	},
}

func vectorKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := evm.ToECDSA(bytes.Repeat([]byte{1}, 32))
	noError(t, "make the vector's key", err)
	return key
}

func knownNetwork(t testing.TB, id string) Network {
	t.Helper()
	network, ok := LookupNetwork(id)
	if !ok {
		t.Fatalf("network %s is not known", id)
	}
	return network
}

func knownDomain(t testing.TB, id string) Domain {
	t.Helper()
	domain, err := DomainOf(knownNetwork(t, id).Requirements(1, vectorPayee, 60))
	if err != nil {
		t.Fatalf("the domain of %s: %v", id, err)
	}
	return domain
}

func fromHex(digits string) []byte {
	raw, err := hex.DecodeString(strings.TrimPrefix(digits, "0x"))
	if err != nil {
		panic(err)
	}
	return raw
}

func hexString(b []byte) string { return "0x" + hex.EncodeToString(b) }

func TestTypeHashes(t *testing.T) {
	t.Parallel()
	if got, want := transferTypeHash.Hex(), "0x7c7c6cdb67a18743f49ec6fa9b35f50d52ed05cbed4cc592e13b44501c1a2267"; got != want {
		t.Errorf("the type hash of TransferWithAuthorization is %s, want %s", got, want)
	}
	for topic, event := range map[evm.Hash]string{
		topicAuthorizationUsed:     "AuthorizationUsed(address,bytes32)",
		topicAuthorizationCanceled: "AuthorizationCanceled(address,bytes32)",
	} {
		if got := evm.Keccak256Hash([]byte(event)); got != topic {
			t.Errorf("the topic of %s is %s, want %s", event, topic, got)
		}
	}
}

func TestVectors(t *testing.T) {
	t.Parallel()
	key := vectorKey(t)
	if got := evm.PubkeyToAddress(key.PublicKey).Hex(); got != vectorPayer {
		t.Fatalf("the vector's key has the address %s, want %s", got, vectorPayer)
	}
	for _, vector := range vectors {
		t.Run(vector.network, func(t *testing.T) {
			t.Parallel()
			domain := knownDomain(t, vector.network)
			if got := hexString(domain.separator[:]); got != vector.separator {
				t.Errorf("the domain separator is %s, want %s", got, vector.separator)
			}
			digest, err := domain.TransferDigest(vectorAuthorization)
			noError(t, "digest the vector's authorization", err)
			if got := hexString(digest[:]); got != vector.digest {
				t.Errorf("the digest is %s, want %s", got, vector.digest)
			}
			signature, err := SignAuthorization(key, domain, vectorAuthorization)
			noError(t, "sign the vector's authorization", err)
			if signature != vector.signature {
				t.Errorf("the signature is %s, want %s", signature, vector.signature)
			}
			signer, err := RecoverHex(digest, vector.signature)
			if err != nil || signer != strings.ToLower(vectorPayer) {
				t.Errorf("the vector's signature recovers to %q (%v), want the lower-case payer", signer, err)
			}
		})
	}
}

func TestRecover(t *testing.T) {
	t.Parallel()
	digest := [32]byte(fromHex(vectors[0].digest))
	genuine := fromHex(vectors[0].signature)
	with := func(change func(s []byte) []byte) []byte { return change(slices.Clone(genuine)) }
	order := secp256k1.Params().N
	for _, test := range []struct {
		name      string
		signature []byte
		good      bool
	}{
		{"v 27", genuine, true},
		{"v 0, which contracts reject", with(func(s []byte) []byte { s[64] -= 27; return s }), false},
		{"v 28 is another key's", with(func(s []byte) []byte { s[64] = 28; return s }), false},
		{"v 1 is another key's", with(func(s []byte) []byte { s[64] = 1; return s }), false},
		{"v 2", with(func(s []byte) []byte { s[64] = 2; return s }), false},
		{"v 29", with(func(s []byte) []byte { s[64] = 29; return s }), false},
		{"v 255", with(func(s []byte) []byte { s[64] = 255; return s }), false},
		{"high s with the v that fits it", with(func(s []byte) []byte {
			new(big.Int).Sub(order, new(big.Int).SetBytes(s[32:64])).FillBytes(s[32:64])
			s[64] ^= 27 ^ 28
			return s
		}), false},
		{"r zero", with(func(s []byte) []byte { clear(s[:32]); return s }), false},
		{"s zero", with(func(s []byte) []byte { clear(s[32:64]); return s }), false},
		{"r beyond the order", with(func(s []byte) []byte { copy(s, bytes.Repeat([]byte{0xff}, 32)); return s }), false},
		{"one bit flipped", with(func(s []byte) []byte { s[7] ^= 1; return s }), false},
		{"64 bytes", genuine[:64], false},
		{"66 bytes", append(slices.Clone(genuine), 0), false},
		{"nothing", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			signer, err := RecoverHex(digest, "0x"+hex.EncodeToString(test.signature))
			if good := err == nil && signer == strings.ToLower(vectorPayer); good != test.good {
				t.Errorf("recover gives %q (%v), want the payer: %t", signer, err, test.good)
			}
		})
	}
	if _, err := RecoverHex(digest, "0xzz"); err == nil {
		t.Error("a signature that is not hex recovers to somebody")
	}
}

func TestHalfOrder(t *testing.T) {
	t.Parallel()
	want := new(big.Int).Rsh(secp256k1.Params().N, 1)
	if got := new(big.Int).SetBytes(halfOrder[:]); got.Cmp(want) != 0 {
		t.Errorf("half the curve's order is %x, want %x", got, want)
	}
}

func TestTransferDigestRejectsMalformedAuthorizations(t *testing.T) {
	t.Parallel()
	domain := knownDomain(t, NetworkBase)
	for name, change := range map[string]func(a *Authorization){
		"from":        func(a *Authorization) { a.From = "0x12" },
		"to":          func(a *Authorization) { a.To = "" },
		"value":       func(a *Authorization) { a.Value = "-1" },
		"validAfter":  func(a *Authorization) { a.ValidAfter = "00" },
		"validBefore": func(a *Authorization) { a.ValidBefore = "1e9" },
		"nonce":       func(a *Authorization) { a.Nonce = "0xab" },
	} {
		authorization := vectorAuthorization
		change(&authorization)
		if _, err := domain.TransferDigest(authorization); err == nil {
			t.Errorf("an authorization with a malformed %s has a digest", name)
		}
		if _, err := SignAuthorization(vectorKey(t), domain, authorization); err == nil {
			t.Errorf("an authorization with a malformed %s can be signed", name)
		}
	}
}

func BenchmarkTransferDigest(b *testing.B) {
	domain := knownDomain(b, NetworkBase)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := domain.TransferDigest(vectorAuthorization); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecover(b *testing.B) {
	digest := [32]byte(fromHex(vectors[0].digest))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := RecoverHex(digest, vectors[0].signature); err != nil {
			b.Fatal(err)
		}
	}
}
