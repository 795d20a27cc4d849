// Package secp256k1 signs and recovers public keys on the curve secp256k1, in pure Go. Signing uses decred's scalars and
// points. Recovery has its own arithmetic for points, because each paid call needs one: decred's takes 3.5 times as long
// as libsecp256k1, this one as long. Its time depends on its operands, so it must not see secrets.
//
// A signature has 65 bytes: r and s, big-endian, 32 bytes each, then the recovery id v. Bit 0 of v is the parity of the
// nonce point's y. Bit 1 is set if the nonce point's x is not below the order (SEC 1, section 4.1.6).
package secp256k1

import (
	"bytes"
	"errors"
	"math/big"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
)

// Length is the length of a signature in bytes.
const Length = 65

var (
	errKey     = errors.New("the private key is not between 1 and the curve's order")
	errRecover = errors.New("no public key can have made the signature")
)

var (
	curve = secp256k1.Params()
	order = fieldOf(curve.N)
	// primeMinusOrder is the first r to which the order cannot be added: the sum would not be below the prime.
	primeMinusOrder = new(big.Int).Sub(curve.P, curve.N).FillBytes(make([]byte, 32))
)

// Recover returns the public key that made the signature over digest, uncompressed and without the prefix 0x04: X and
// Y, big-endian, 32 bytes each. It returns an error if there is no such key, or if v is not 0, 1, 2 or 3.
func Recover(digest *[32]byte, signature *[Length]byte) (public [64]byte, err error) {
	v := signature[64]
	var r, s, z secp256k1.ModNScalar
	if v > 3 || r.SetByteSlice(signature[:32]) || s.SetByteSlice(signature[32:64]) || r.IsZero() || s.IsZero() {
		return public, errRecover
	}
	z.SetBytes(digest)
	var nonce affine
	nonce.x.setBytes((*[32]byte)(signature[:32]))
	if v&2 != 0 {
		if bytes.Compare(signature[:32], primeMinusOrder) >= 0 {
			return public, errRecover
		}
		nonce.x.add(&nonce.x, &order)
	}
	if !nonce.findY(v&1 != 0) {
		return public, errRecover
	}
	r.InverseNonConst()
	z.Mul(&r).Negate()
	s.Mul(&r)
	point := multiply(&z, &s, &nonce)
	key, ok := point.affine()
	if !ok {
		return public, errRecover
	}
	key.x.putBytes((*[32]byte)(public[:32]))
	key.y.putBytes((*[32]byte)(public[32:]))
	return public, nil
}
