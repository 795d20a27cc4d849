package x402

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-chat/parley/x402/evm"
)

// Signer signs payments for one address. It may hold the key itself ([KeySigner]), or ask a program or a device that holds it.
type Signer interface {
	// Address returns the address that pays: 0x and 40 hex digits.
	Address() string
	// SignTypedData returns the signature over typed data: 0x and the hex digits of 65 bytes. The error must not quote the key.
	SignTypedData(ctx context.Context, data TypedData) (string, error)
}

// TypedData is a message of EIP-712 with its domain and types. Its JSON is what eth_signTypedData_v4 and wallet programs take.
type TypedData struct {
	Types       map[string][]TypedField `json:"types"`
	PrimaryType string                  `json:"primaryType"`
	Domain      TypedDomain             `json:"domain"`
	Message     map[string]string       `json:"message"`
	// Digest is the hash that is signed. It follows from the other fields.
	Digest [32]byte `json:"-"`
}

// TypedField is a field of a type of EIP-712.
type TypedField struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// TypedDomain is a domain of EIP-712.
type TypedDomain struct {
	Name              string `json:"name"`
	Version           string `json:"version"`
	ChainID           uint64 `json:"chainId"`
	VerifyingContract string `json:"verifyingContract"`
}

var (
	domainFields = []TypedField{{"name", "string"}, {"version", "string"}, {"chainId", "uint256"}, {"verifyingContract", "address"}}
	// authorizationFields are those of TransferWithAuthorization and of ReceiveWithAuthorization.
	authorizationFields = []TypedField{
		{"from", "address"}, {"to", "address"}, {"value", "uint256"}, {"validAfter", "uint256"}, {"validBefore", "uint256"}, {"nonce", "bytes32"},
	}
	voucherFields = []TypedField{{"channelId", "bytes32"}, {"maxClaimableAmount", "uint128"}}
)

// typedData returns a message with its digest.
func (d Domain) typedData(primaryType string, fields []TypedField, digest [32]byte, values ...string) TypedData {
	message := make(map[string]string, len(fields))
	for i, field := range fields {
		message[field.Name] = values[i]
	}
	return TypedData{
		Types:       map[string][]TypedField{"EIP712Domain": domainFields, primaryType: fields},
		PrimaryType: primaryType, Domain: TypedDomain{d.Name, d.Version, d.ChainID, d.VerifyingContract}, Message: message, Digest: digest,
	}
}

// signTypedData asks the signer for a signature and checks it, so that a wrong key, or a form that contracts reject, is not found only by
// the server.
func signTypedData(ctx context.Context, signer Signer, data TypedData) (string, error) {
	signature, err := signer.SignTypedData(ctx, data)
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	if _, holdsKey := signer.(KeySigner); holdsKey {
		return signature, nil
	}
	address, err := RecoverHex(data.Digest, signature)
	if err != nil {
		return "", fmt.Errorf("the signer's signature is malformed: %w", err)
	}
	if !strings.EqualFold(address, signer.Address()) {
		return "", errors.New("the signer signed with another key than that of its address")
	}
	return signature, nil
}

// KeySigner is a Signer that holds the key.
type KeySigner struct{ key *ecdsa.PrivateKey }

// NewKeySigner returns a Signer for a private key.
func NewKeySigner(key *ecdsa.PrivateKey) KeySigner { return KeySigner{key} }

// ParseKeySigner returns a Signer for a private key of 64 hex digits, with or without 0x. It returns an error for any other format.
func ParseKeySigner(digits string) (KeySigner, error) {
	key, err := evm.HexToECDSA(strings.TrimPrefix(digits, "0x"))
	if err != nil {
		return KeySigner{}, errors.New("the private key is not 64 hex digits") // the library's message may quote the key
	}
	return KeySigner{key}, nil
}

// Address implements [Signer].
func (s KeySigner) Address() string { return evm.PubkeyToAddress(s.key.PublicKey).Hex() }

// SignTypedData implements [Signer].
func (s KeySigner) SignTypedData(_ context.Context, data TypedData) (string, error) {
	return sign(s.key, data.Digest)
}
