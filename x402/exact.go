package x402

import (
	"crypto/ecdsa"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/parley-chat/parley/x402/evm"
)

// The EIP-712 type hashes of the domain and of the message of EIP-3009.
var (
	domainTypeHash = evm.Keccak256Hash([]byte(
		"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"))
	transferTypeHash = evm.Keccak256Hash([]byte(
		"TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"))
)

// halfOrder is half the order of secp256k1. For every signature (r, s), (r, order-s) is also a signature. Only the one
// with s up to halfOrder is valid (EIP-2), so that nobody but the payer can make a second valid signature.
var halfOrder = evm.HexToHash("0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0")

// errRecover gives no details, because only the payer's own software can find the cause.
var errRecover = errors.New("it does not match any key")

// TransferDigest returns the EIP-712 digest that a payer signs for an EIP-3009 TransferWithAuthorization. It returns an
// error for a malformed address, number or nonce.
func (d Domain) TransferDigest(a Authorization) ([32]byte, error) {
	return d.authorizationDigest(transferTypeHash, a)
}

// authorizationDigest returns the digest of a message of EIP-3009 that has the members of an Authorization.
func (d Domain) authorizationDigest(typeHash evm.Hash, a Authorization) ([32]byte, error) {
	value, okValue := uint256(a.Value)
	validAfter, okAfter := uint256(a.ValidAfter)
	validBefore, okBefore := uint256(a.ValidBefore)
	if !isAddress(a.From) || !isAddress(a.To) || !isHex(a.Nonce, 32, 32) || !okValue || !okAfter || !okBefore {
		return [32]byte{}, errors.New("malformed authorization: want addresses, decimals of at most 256 bits and a 32-byte nonce")
	}
	return d.digest(typeHash, addressWord(a.From), addressWord(a.To), value, validAfter, validBefore, evm.HexToHash(a.Nonce)), nil
}

// digest returns the digest of EIP-712: keccak256("\x19\x01" ‖ separator ‖ hashStruct(message)). words are the type hash and the
// members. Generic encoders of typed data take six times as long and make 96 allocations.
func (d Domain) digest(words ...evm.Hash) [32]byte {
	message := hashWords(words...)
	return evm.Keccak256Hash(slices.Concat([]byte{0x19, 0x01}, d.separator[:], message[:]))
}

// hashWords returns the hash of words one after another, as abi.encode writes them.
func hashWords(words ...evm.Hash) evm.Hash { return evm.Keccak256Hash(evm.Join(words...)) }

// RecoverHex returns the lower-case address whose key made the signature over digest. The signature is 0x and the hex
// digits of 65 bytes: r, s, v with v 27 or 28. RecoverHex rejects what the contracts reject: another v, and a high s (EIP-2).
func RecoverHex(digest [32]byte, signature string) (string, error) {
	raw, problem := parseSignature(signature)
	if problem != "" {
		return "", fmt.Errorf("the signature %s", problem)
	}
	raw[64] -= 27
	signer, err := evm.Ecrecover(digest, [signatureBytes]byte(raw))
	if err != nil {
		return "", errRecover
	}
	return signer.Lower(), nil
}

// SignAuthorization signs an EIP-3009 transfer for the token of domain. It returns the signature as 0x and hex digits,
// or an error if the authorization is malformed. It does not check that key belongs to a.From.
func SignAuthorization(key *ecdsa.PrivateKey, domain Domain, a Authorization) (string, error) {
	digest, err := domain.TransferDigest(a)
	if err != nil {
		return "", err
	}
	return sign(key, digest)
}

func sign(key *ecdsa.PrivateKey, digest [32]byte) (string, error) {
	signature, err := evm.Sign(digest, key)
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	signature[64] += 27 // token contracts expect 27 or 28; the library returns 0 or 1
	return "0x" + hex.EncodeToString(signature[:]), nil
}
