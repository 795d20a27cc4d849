//go:build !cgo

package secp256k1

import (
	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
)

// compactMark is the value that decred's compact signatures add to v. They start with v, as Bitcoin's message
// signatures.
const compactMark = 27

// Recover returns the public key that made the signature over digest, uncompressed and without the prefix 0x04: X and
// Y, big-endian, 32 bytes each. It returns an error if there is no such key, or if v is not 0, 1, 2 or 3.
func Recover(digest *[32]byte, signature *[Length]byte) (public [64]byte, err error) {
	if signature[64] > 3 {
		return public, errRecover
	}
	var compact [Length]byte
	compact[0] = signature[64] + compactMark
	copy(compact[1:], signature[:64])
	key, _, err := ecdsa.RecoverCompact(compact[:], digest[:])
	if err != nil {
		return public, errRecover
	}
	var point secp256k1.JacobianPoint
	key.AsJacobian(&point)
	point.X.PutBytesUnchecked(public[:32])
	point.Y.PutBytesUnchecked(public[32:])
	return public, nil
}

// Sign signs digest with a private key, big-endian. The signature is deterministic (RFC 6979) and has a low s (EIP-2).
// Sign returns an error if the key is not between 1 and the curve's order.
func Sign(private, digest *[32]byte) (signature [Length]byte, err error) {
	var scalar secp256k1.ModNScalar
	if overflow := scalar.SetBytes(private); overflow != 0 || scalar.IsZero() {
		return signature, errKey
	}
	key := secp256k1.NewPrivateKey(&scalar)
	defer key.Zero()
	compact := ecdsa.SignCompact(key, digest[:], false)
	copy(signature[:], compact[1:])
	signature[64] = compact[0] - compactMark
	return signature, nil
}
