package secp256k1

import (
	"crypto/rand"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
)

// Sign signs digest with a private key, big-endian. The signature is deterministic (RFC 6979) and has a low s (EIP-2).
// Sign returns an error if the key is not between 1 and the curve's order.
func Sign(private, digest *[32]byte) (signature [Length]byte, err error) {
	var key, z secp256k1.ModNScalar
	if key.SetBytes(private) != 0 || key.IsZero() {
		return signature, errKey
	}
	defer key.Zero()
	z.SetBytes(digest)
	for iteration := uint32(0); ; iteration++ {
		nonce := secp256k1.NonceRFC6979(private[:], digest[:], nil, nil, iteration)
		point, inverse := blinded(nonce)
		nonce.Zero()
		var x [32]byte
		point.X.PutBytes(&x)
		var r, s secp256k1.ModNScalar
		v := byte(r.SetBytes(&x) << 1)
		if point.Y.IsOdd() {
			v |= 1
		}
		s.Mul2(&r, &key).Add(&z).Mul(inverse)
		if r.IsZero() || s.IsZero() {
			continue
		}
		if s.IsOverHalfOrder() {
			s.Negate()
			v ^= 1
		}
		r.PutBytesUnchecked(signature[:32])
		s.PutBytesUnchecked(signature[32:64])
		signature[64] = v
		return signature, nil
	}
}

// blinded returns nonce·G and 1/nonce. Who knows a few bits of many nonces can compute the key, and the time of decred's
// multiplication and inversion depends on their operands. So they get random ones: nonce·G is the sum of two random
// multiples, and what is inverted is a random multiple of the nonce. decred's other operations take constant time.
func blinded(nonce *secp256k1.ModNScalar) (point secp256k1.JacobianPoint, inverse *secp256k1.ModNScalar) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never returns an error
	var first, second secp256k1.ModNScalar
	first.SetBytes(&random)
	second.NegateVal(&first).Add(nonce)
	var p, q secp256k1.JacobianPoint
	secp256k1.ScalarBaseMultNonConst(&first, &p)
	secp256k1.ScalarBaseMultNonConst(&second, &q)
	secp256k1.AddNonConst(&p, &q, &point)
	point.ToAffine()

	_, _ = rand.Read(random[:])
	first.SetBytes(&random)
	inverse = new(secp256k1.ModNScalar).Mul2(nonce, &first).InverseNonConst().Mul(&first)
	return point, inverse
}
