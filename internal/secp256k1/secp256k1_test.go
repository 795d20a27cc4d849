package secp256k1

import (
	"crypto/rand"
	"encoding/hex"
	"math/big"
	"slices"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
)

func word(t testing.TB, digits string) (w [32]byte) {
	t.Helper()
	if n, err := hex.Decode(w[:], []byte(digits)); err != nil || n != len(w) {
		t.Fatalf("%q is not 64 hex digits", digits)
	}
	return w
}

const orderHex = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"

// checkRecover compares the recovered key with decred's. It reports whether there is one.
func checkRecover(t *testing.T, digest *[32]byte, signature *[Length]byte) bool {
	t.Helper()
	got, err := Recover(digest, signature)
	if signature[64] > 3 { // decred's recovery ids go on
		if err == nil {
			t.Fatalf("recover %x of %x: the key is %x, want an error", digest, signature, got)
		}
		return false
	}
	want, _, wantErr := ecdsa.RecoverCompact(append([]byte{27 + signature[64]}, signature[:64]...), digest[:])
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("recover %x of %x: %v, decred says %v", digest, signature, err, wantErr)
	}
	if err == nil && string(got[:]) != string(want.SerializeUncompressed()[1:]) {
		t.Fatalf("recover %x of %x: the key is %x, decred's %x", digest, signature, got, want.SerializeUncompressed()[1:])
	}
	return err == nil
}

// TestAgainstDecred compares signatures and recovered keys with decred's on random keys and digests.
func TestAgainstDecred(t *testing.T) {
	t.Parallel()
	for range 500 {
		var private, digest [32]byte
		_, _ = rand.Read(private[:])
		_, _ = rand.Read(digest[:])
		key := secp256k1.PrivKeyFromBytes(private[:])
		signature, err := Sign(&private, &digest)
		if err != nil {
			t.Fatalf("sign with %x: %v", private, err)
		}
		compact := ecdsa.SignCompact(key, digest[:], false)
		if want := [Length]byte(slices.Concat(compact[1:], []byte{compact[0] - 27})); signature != want {
			t.Fatalf("the signature is %x, want decred's %x", signature, want)
		}
		for v := range byte(4) {
			signature[64] = v
			checkRecover(t, &digest, &signature)
		}
	}
}

// TestRecoverEqualPoints has nonce points and factors that are related, so that points are added to themselves and to
// their opposites on the way to the key, or the key is the point at infinity.
func TestRecoverEqualPoints(t *testing.T) {
	t.Parallel()
	lambda := word(t, "5363ad4cc05c30e0a5261c028812645a122e22ea20816678df02967c1b23bd72")
	var factors []secp256k1.ModNScalar
	for _, small := range []uint32{1, 2, 3, 31, 1023} {
		var n, inverse, image secp256k1.ModNScalar
		n.SetInt(small)
		inverse.InverseValNonConst(&n)
		image.SetBytes(&lambda)
		image.Mul(&n)
		for _, factor := range []secp256k1.ModNScalar{n, inverse, image} {
			factors = append(factors, factor, *new(secp256k1.ModNScalar).NegateVal(&factor))
		}
	}
	keys, want := 0, 0
	for _, nonce := range factors[:12] {
		var point secp256k1.JacobianPoint
		secp256k1.ScalarBaseMultNonConst(&nonce, &point)
		point.ToAffine()
		var r secp256k1.ModNScalar
		r.SetBytes(point.X.Bytes())
		v := byte(0)
		if point.Y.IsOdd() {
			v = 1
		}
		for _, generatorFactor := range append(factors, secp256k1.ModNScalar{}) {
			for _, nonceFactor := range factors {
				var z, s, sum secp256k1.ModNScalar
				digest := z.NegateVal(&generatorFactor).Mul(&r).Bytes()
				rb, sb := r.Bytes(), s.Mul2(&nonceFactor, &r).Bytes()
				if checkRecover(t, &digest, (*[Length]byte)(slices.Concat(rb[:], sb[:], []byte{v}))) {
					keys++
				}
				if !sum.Mul2(&nonce, &nonceFactor).Add(&generatorFactor).IsZero() {
					want++
				}
			}
		}
	}
	if keys != want {
		t.Errorf("%d signatures have a key, want %d", keys, want)
	}
}

// TestRecoverLargeNonce has nonce points whose x is not below the order.
func TestRecoverLargeNonce(t *testing.T) {
	t.Parallel()
	last := new(big.Int).SetBytes(primeMinusOrder)
	keys := 0
	for i := range int64(100) {
		for _, r := range []*big.Int{big.NewInt(i), new(big.Int).Add(last, big.NewInt(i-50))} {
			var digest [32]byte
			_, _ = rand.Read(digest[:])
			signature := [Length]byte{63: 1}
			r.FillBytes(signature[:32])
			for v := range byte(4) {
				signature[64] = v
				if checkRecover(t, &digest, &signature) && v > 1 {
					keys++
				}
			}
		}
	}
	if keys < 50 {
		t.Errorf("%d signatures with such a point have a key, want about 150", keys)
	}
}

func FuzzRecover(f *testing.F) {
	private, digest := word(f, "0101010101010101010101010101010101010101010101010101010101010101"), word(f, orderHex)
	signature, err := Sign(&private, &digest)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(digest[:], signature[:])
	f.Add(make([]byte, 32), append(make([]byte, 63), 1, 2))
	// The edges of r, s and v (SEC 1, section 4.1.6).
	digest = word(f, "c9726046d0a373b52abbdc496aa10bb5a31ea5c561ba5cb9c3d04412fe908137")
	one, order := [32]byte{31: 1}, word(f, orderHex)
	f.Add(digest[:], slices.Concat(one[:], make([]byte, 33)))
	f.Add(digest[:], slices.Concat(one[:], one[:], []byte{4}))
	for range 8 { // half of these numbers have a point
		order[31]++
		f.Add(digest[:], slices.Concat(one[:], order[:], []byte{0}))
		f.Add(digest[:], slices.Concat(order[:], one[:], []byte{0}))
	}
	f.Fuzz(func(t *testing.T, digest, signature []byte) {
		if len(digest) == 32 && len(signature) == Length {
			checkRecover(t, (*[32]byte)(digest), (*[Length]byte)(signature))
		}
	})
}

func TestSignRejectsKeysOutOfRange(t *testing.T) {
	t.Parallel()
	var digest, zero [32]byte
	n := word(t, orderHex)
	for _, private := range [][32]byte{zero, n, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff}} {
		if _, err := Sign(&private, &digest); err == nil {
			t.Errorf("the key %x signs", private)
		}
	}
	n[31]--
	if _, err := Sign(&n, &digest); err != nil {
		t.Errorf("the largest key does not sign: %v", err)
	}
}

func BenchmarkSign(b *testing.B) {
	private, digest := word(b, "0101010101010101010101010101010101010101010101010101010101010101"), word(b, orderHex)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Sign(&private, &digest); err != nil {
			b.Fatal(err)
		}
	}
}
