// Package secp256k1 signs and recovers public keys on the curve secp256k1. With cgo it uses libsecp256k1 through
// go-ethereum's wrapper, which is BSD-licensed and imports nothing else of go-ethereum up to v1.16.2. Later versions import
// an LGPL package, so go.mod stays at that version, and make licenses fails if it does not. Without cgo it uses decred's
// pure Go implementation, which gives the same results and takes about four times as long to recover a key.
//
// A signature has 65 bytes: r and s, big-endian, 32 bytes each, then the recovery id v: bit 0 is the parity of the
// nonce point's y, bit 1 is set if its x is not below the order (SEC 1, section 4.1.6).
package secp256k1

import "errors"

// Length is the length of a signature in bytes.
const Length = 65

var (
	errKey     = errors.New("the private key is not between 1 and the curve's order")
	errRecover = errors.New("no public key can have made the signature")
)
