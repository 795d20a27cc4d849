// Package secp256k1 signs and recovers public keys on the curve secp256k1. With cgo it uses libsecp256k1 through
// go-ethereum's wrapper, which is BSD-licensed. Up to v1.16.2 the wrapper imports nothing else of go-ethereum. Later
// versions import an LGPL package, so go.mod stays at v1.16.2, and make licenses fails for a later version. Without cgo
// it uses decred's pure Go implementation, which gives the same results and takes about four times as long to recover a
// key.
//
// A signature has 65 bytes: r and s, big-endian, 32 bytes each, then the recovery id v. Bit 0 of v is the parity of the
// nonce point's y. Bit 1 is set if the nonce point's x is not below the order (SEC 1, section 4.1.6).
package secp256k1

import "errors"

// Length is the length of a signature in bytes.
const Length = 65

var (
	errKey     = errors.New("the private key is not between 1 and the curve's order")
	errRecover = errors.New("no public key can have made the signature")
)
