package evm

import (
	"crypto/ecdsa"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	recoverable "github.com/parley-chat/parley/internal/secp256k1"
)

// SignatureLength is the length of a signature in bytes: r, s, v.
const SignatureLength = recoverable.Length

// errKey never contains the key.
var errKey = errors.New("the private key is not 32 bytes between 1 and the order of secp256k1")

// GenerateKey creates a random private key.
func GenerateKey() (*ecdsa.PrivateKey, error) {
	key, err := secp256k1.GeneratePrivateKey()
	if err != nil {
		return nil, fmt.Errorf("generate a private key: %w", err)
	}
	return key.ToECDSA(), nil
}

// ToECDSA creates a private key from its 32 bytes, big-endian.
func ToECDSA(private []byte) (*ecdsa.PrivateKey, error) {
	var scalar secp256k1.ModNScalar
	if len(private) != 32 || scalar.SetByteSlice(private) || scalar.IsZero() {
		return nil, errKey
	}
	return secp256k1.NewPrivateKey(&scalar).ToECDSA(), nil
}

// HexToECDSA creates a private key from its 64 hex digits, without 0x.
func HexToECDSA(digits string) (*ecdsa.PrivateKey, error) {
	private, err := hex.DecodeString(digits)
	if err != nil {
		return nil, errKey
	}
	return ToECDSA(private)
}

// FromECDSA returns the 32 bytes of a private key, big-endian.
func FromECDSA(key *ecdsa.PrivateKey) []byte {
	// The encoding of the standard library returns an error for curves that it does not implement.
	return key.D.FillBytes(make([]byte, 32)) //nolint:staticcheck // there is no other way, see above
}

// PubkeyToAddress returns the address of a public key: the last 20 bytes of the hash of its coordinates.
func PubkeyToAddress(key ecdsa.PublicKey) Address {
	var public [64]byte
	key.X.FillBytes(public[:32]) //nolint:staticcheck // as in FromECDSA
	key.Y.FillBytes(public[32:]) //nolint:staticcheck // as in FromECDSA
	return addressOf(&public)
}

func addressOf(public *[64]byte) Address { return Keccak256Hash(public[:]).Address() }

// Sign signs a digest. The signature is r, s, v with v 0 or 1 and a low s (EIP-2), and is deterministic (RFC 6979). The
// key may also come from go-ethereum.
func Sign(digest [32]byte, key *ecdsa.PrivateKey) ([SignatureLength]byte, error) {
	var private [32]byte
	if key == nil || key.D == nil || key.D.Sign() < 0 || key.D.BitLen() > 256 { //nolint:staticcheck // as in FromECDSA
		return [SignatureLength]byte{}, errKey
	}
	copy(private[:], FromECDSA(key))
	return recoverable.Sign(&private, &digest)
}

// Ecrecover returns the address whose key made a signature r, s, v with v 0 or 1. It accepts both a high and a low s.
func Ecrecover(digest [32]byte, signature [SignatureLength]byte) (Address, error) {
	if signature[SignatureLength-1] > 1 {
		return Address{}, errors.New("the signature's last byte v is not 0 or 1")
	}
	public, err := recoverable.Recover(&digest, &signature)
	if err != nil {
		return Address{}, err
	}
	return addressOf(&public), nil
}
