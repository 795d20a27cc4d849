package secp256k1

import (
	"crypto/rand"
	"encoding/hex"
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

const order = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"

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
			want, _, wantErr := ecdsa.RecoverCompact(append([]byte{27 + v}, signature[:64]...), digest[:])
			got, err := Recover(&digest, &signature)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("recover %x with v %d: %v, decred says %v", signature, v, err, wantErr)
			}
			if err == nil && string(got[:]) != string(want.SerializeUncompressed()[1:]) {
				t.Fatalf("recover %x with v %d gives %x, decred %x", signature, v, got, want.SerializeUncompressed()[1:])
			}
		}
	}
}

func TestSignRejectsKeysOutOfRange(t *testing.T) {
	t.Parallel()
	var digest, zero [32]byte
	n := word(t, order)
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

// TestRecoverRejects has the edges of r, s and v (SEC 1, section 4.1.6).
func TestRecoverRejects(t *testing.T) {
	t.Parallel()
	digest := word(t, "c9726046d0a373b52abbdc496aa10bb5a31ea5c561ba5cb9c3d04412fe908137")
	one := "0000000000000000000000000000000000000000000000000000000000000001"
	zero := "0000000000000000000000000000000000000000000000000000000000000000"
	five := "0000000000000000000000000000000000000000000000000000000000000005"
	for name, test := range map[string]struct {
		r, s string
		v    byte
	}{
		"r zero":                    {zero, one, 0},
		"s zero":                    {one, zero, 0},
		"r the order":               {order, one, 0},
		"s the order":               {one, order, 0},
		"no point has this x":       {five, one, 0},
		"r and the order above p":   {order[:63] + "0", one, 2},
		"v 4":                       {one, one, 4},
		"v 27":                      {one, one, 27},
		"v 255":                     {one, one, 255},
		"r and s beyond the curve":  {"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", one, 1},
		"no point, and the other y": {five, one, 1},
	} {
		r, s := word(t, test.r), word(t, test.s)
		signature := [Length]byte(append(append(r[:], s[:]...), test.v))
		if key, err := Recover(&digest, &signature); err == nil {
			t.Errorf("%s: the key is %x, want an error", name, key)
		}
	}
}

func BenchmarkRecover(b *testing.B) {
	private, digest := word(b, "0101010101010101010101010101010101010101010101010101010101010101"), word(b, order)
	signature, err := Sign(&private, &digest)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Recover(&digest, &signature); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	private, digest := word(b, "0101010101010101010101010101010101010101010101010101010101010101"), word(b, order)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Sign(&private, &digest); err != nil {
			b.Fatal(err)
		}
	}
}
