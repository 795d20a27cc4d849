//go:build cgo

package secp256k1

import "github.com/ethereum/go-ethereum/crypto/secp256k1"

// Recover returns the public key that made the signature over digest, uncompressed and without the prefix 0x04: X and
// Y, big-endian, 32 bytes each. It returns an error if there is no such key, or if v is not 0, 1, 2 or 3.
func Recover(digest *[32]byte, signature *[Length]byte) (public [64]byte, err error) {
	key, err := secp256k1.RecoverPubkey(digest[:], signature[:])
	if err != nil {
		return public, errRecover
	}
	return [64]byte(key[1:]), nil
}

// Sign signs digest with a private key, big-endian. The signature is deterministic (RFC 6979) and has a low s (EIP-2).
// Sign returns an error if the key is not between 1 and the curve's order.
func Sign(private, digest *[32]byte) (signature [Length]byte, err error) {
	made, err := secp256k1.Sign(digest[:], private[:])
	if err != nil {
		return signature, errKey
	}
	return [Length]byte(made), nil
}
