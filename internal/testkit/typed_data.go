package testkit

import (
	"crypto/ecdsa"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strings"

	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// SignTypedData signs typed data as wallets do that know nothing but its JSON: it hashes it as EIP-712 says, for types without
// nested types. It returns 0x and hex digits.
func SignTypedData(key *ecdsa.PrivateKey, text []byte) (string, error) {
	var data struct {
		Types           map[string][]x402.TypedField
		PrimaryType     string
		Domain, Message map[string]any
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&data); err != nil {
		return "", err
	}
	digest := evm.Keccak256Hash([]byte{0x19, 0x01}, hashStruct("EIP712Domain", data.Types["EIP712Domain"], data.Domain),
		hashStruct(data.PrimaryType, data.Types[data.PrimaryType], data.Message))
	signature, err := evm.Sign(digest, key)
	if err != nil {
		return "", err
	}
	signature[64] += 27
	return "0x" + hex.EncodeToString(signature[:]), nil
}

// hashStruct is hashStruct of EIP-712.
func hashStruct(name string, fields []x402.TypedField, values map[string]any) []byte {
	var declared []string
	var encoded []byte
	for _, field := range fields {
		declared = append(declared, field.Type+" "+field.Name)
		word := wordOf(field.Type, values[field.Name])
		encoded = append(encoded, word[:]...)
	}
	return evm.Keccak256(evm.Keccak256([]byte(name+"("+strings.Join(declared, ",")+")")), encoded)
}

// wordOf encodes a value of a type without members.
func wordOf(kind string, value any) (word [32]byte) {
	text, _ := value.(string)
	if number, ok := value.(json.Number); ok {
		text = number.String()
	}
	switch {
	case kind == "string":
		return evm.Keccak256Hash([]byte(text))
	case strings.HasPrefix(kind, "uint"):
		if number, ok := new(big.Int).SetString(text, 10); ok {
			number.FillBytes(word[:])
		}
	case kind == "address":
		address := evm.HexToAddress(text)
		copy(word[12:], address[:])
	case kind == "bytes32":
		return evm.HexToHash(text)
	}
	return word
}
