// Package evm implements the parts of Ethereum that x402 needs: addresses (EIP-55), Keccak-256, keys on secp256k1, and
// the encodings of Ethereum's JSON-RPC (EIP-1474). Names are the same as in go-ethereum if both packages have the item.
// The package links no code under the LGPL or the GPL.
package evm

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/sha3"
)

// Lengths in bytes.
const (
	AddressLength = 20
	HashLength    = 32
)

// Address is the address of an account or a contract.
type Address [AddressLength]byte

// Hash is a 32-byte word: a Keccak-256 hash, an event topic, or an argument or result of a contract.
type Hash [HashLength]byte

// HexToAddress decodes 0x and 40 hex digits in any case. It ignores the checksum. It returns the zero address for any
// other format, so check untrusted strings first.
func HexToAddress(s string) (a Address) {
	if decodeFixed(a[:], s) != nil {
		return Address{}
	}
	return a
}

// HexToHash decodes 0x and 64 hex digits in any case. It returns the zero hash for any other format.
func HexToHash(s string) (h Hash) {
	if decodeFixed(h[:], s) != nil {
		return Hash{}
	}
	return h
}

// decodeFixed fills into completely, or returns an error.
func decodeFixed(into []byte, s string) error {
	if len(s) != 2+2*len(into) || s[:2] != "0x" {
		return fmt.Errorf("want 0x and %d hex digits", 2*len(into))
	}
	_, err := hex.Decode(into, []byte(s[2:]))
	return err
}

func decode(s string) ([]byte, error) {
	digits, ok := strings.CutPrefix(s, "0x")
	if !ok {
		return nil, errors.New("hex data without 0x")
	}
	decoded, err := hex.DecodeString(digits)
	if err != nil {
		return nil, errors.New("hex data with an odd number of digits, or with something else than digits")
	}
	return decoded, nil
}

// Hex returns 0x and 40 hex digits with the checksum of EIP-55: a letter is upper case if the corresponding hex digit
// of the hash of the lower-case digits is 8 or more.
func (a Address) Hex() string {
	text := []byte(encode(a[:]))
	hash := Keccak256Hash(text[2:])
	for i := range text[2:] {
		nibble := hash[i/2] >> 4
		if i%2 == 1 {
			nibble = hash[i/2] & 15
		}
		if c := &text[2+i]; *c >= 'a' && nibble >= 8 {
			*c -= 'a' - 'A'
		}
	}
	return string(text)
}

// Lower returns 0x and 40 lower-case hex digits.
func (a Address) Lower() string { return encode(a[:]) }

// String returns the same as [Address.Hex].
func (a Address) String() string { return a.Hex() }

// Word returns the address as a word, as in contract arguments and topics: 12 zero bytes, then the address.
func (a Address) Word() (word Hash) {
	copy(word[HashLength-AddressLength:], a[:])
	return word
}

// Word returns a number as a word.
func Word(n uint64) (word Hash) {
	binary.BigEndian.PutUint64(word[HashLength-8:], n)
	return word
}

// Uint64 returns the number in a word. It returns false if it needs more than 64 bits.
func (h Hash) Uint64() (n uint64, ok bool) {
	return binary.BigEndian.Uint64(h[HashLength-8:]), [HashLength - 8]byte(h[:]) == [HashLength - 8]byte{}
}

// Hex returns 0x and 64 lower-case hex digits.
func (h Hash) Hex() string { return encode(h[:]) }

// String returns the same as [Hash.Hex].
func (h Hash) String() string { return h.Hex() }

// Address returns the last 20 bytes, which are the address in a word.
func (h Hash) Address() Address { return Address(h[HashLength-AddressLength:]) }

func encode(b []byte) string { return "0x" + hex.EncodeToString(b) }

// MarshalText returns 0x and lower-case hex digits.
func (a Address) MarshalText() ([]byte, error) { return []byte(encode(a[:])), nil }

// MarshalText returns 0x and lower-case hex digits.
func (h Hash) MarshalText() ([]byte, error) { return []byte(encode(h[:])), nil }

// UnmarshalJSON accepts a string of 0x and 40 hex digits in any case. Any other value, including null, is an error.
func (a *Address) UnmarshalJSON(data []byte) error { return unmarshalFixed(a[:], data) }

// UnmarshalJSON accepts a string of 0x and 64 hex digits in any case. Any other value, including null, is an error.
func (h *Hash) UnmarshalJSON(data []byte) error { return unmarshalFixed(h[:], data) }

func unmarshalFixed(into, data []byte) error {
	text, err := unquote(data)
	if err != nil {
		return err
	}
	return decodeFixed(into, text)
}

// unquote returns the content of a JSON string. It does not decode escapes: hex data contains none, and the hex decoder
// rejects them.
func unquote(data []byte) (string, error) {
	if len(data) < 2 || data[0] != '"' || data[len(data)-1] != '"' {
		return "", errors.New("hex data is not a JSON string")
	}
	return string(data[1 : len(data)-1]), nil
}

// Bytes is data of any length. In JSON it is 0x and two hex digits per byte.
type Bytes []byte

// Join returns words one after another, as arguments and results of contracts.
func Join(words ...Hash) Bytes {
	joined := make(Bytes, 0, HashLength*len(words))
	for _, word := range words {
		joined = append(joined, word[:]...)
	}
	return joined
}

// Words splits data into words, or returns nil if its length is not that of whole words.
func (b Bytes) Words() (words []Hash) {
	if len(b)%HashLength != 0 {
		return nil
	}
	for rest := b; len(rest) > 0; rest = rest[HashLength:] {
		words = append(words, Hash(rest[:HashLength]))
	}
	return words
}

// MarshalText returns 0x and lower-case hex digits.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(encode(b)), nil }

// UnmarshalJSON accepts a string of 0x and an even number of hex digits.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	text, err := unquote(data)
	if err != nil {
		return err
	}
	*b, err = decode(text)
	return err
}

// Uint64 is a number. In JSON it is a quantity (EIP-1474): 0x and hex digits without leading zeros.
type Uint64 uint64

// MarshalText returns 0x and lower-case hex digits.
func (n Uint64) MarshalText() ([]byte, error) {
	return strconv.AppendUint([]byte("0x"), uint64(n), 16), nil
}

// UnmarshalJSON accepts a string of 0x and hex digits without leading zeros, of at most 64 bits. Zero is "0x0".
func (n *Uint64) UnmarshalJSON(data []byte) error {
	text, err := unquote(data)
	if err != nil {
		return err
	}
	number, err := parseQuantity(text)
	*n = Uint64(number)
	return err
}

func parseQuantity(text string) (uint64, error) {
	digits, ok := strings.CutPrefix(text, "0x")
	number, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil || digits[0] == '0' && len(digits) > 1 {
		return 0, errors.New("a quantity is not 0x and hex digits of at most 64 bits without leading zeros")
	}
	return number, nil
}

// BlockNumber is the number of a block, or one of the named blocks below, which are negative.
type BlockNumber int64

// Named blocks (EIP-1474, EIP-1898, and the additions of Ethereum's proof of stake).
const (
	LatestBlock    BlockNumber = -1
	PendingBlock   BlockNumber = -2
	SafeBlock      BlockNumber = -3
	FinalizedBlock BlockNumber = -4
	EarliestBlock  BlockNumber = -5
)

var blockNames = map[BlockNumber]string{
	LatestBlock: "latest", PendingBlock: "pending", SafeBlock: "safe", FinalizedBlock: "finalized", EarliestBlock: "earliest",
}

// String returns the name, or the number as a quantity.
func (n BlockNumber) String() string {
	if name, ok := blockNames[n]; ok {
		return name
	}
	return "0x" + strconv.FormatUint(uint64(n), 16)
}

// MarshalText returns the same as [BlockNumber.String].
func (n BlockNumber) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalJSON accepts a string with a name or with a quantity below 2^63.
func (n *BlockNumber) UnmarshalJSON(data []byte) error {
	text, err := unquote(data)
	if err != nil {
		return err
	}
	for number, name := range blockNames {
		if text == name {
			*n = number
			return nil
		}
	}
	number, err := parseQuantity(text)
	if err == nil && number > 1<<63-1 {
		err = errors.New("the block number is above 2^63-1")
	}
	*n = BlockNumber(number)
	return err
}

// Log is an event that a contract emitted, as eth_getLogs and eth_getTransactionReceipt return it.
type Log struct {
	Address         Address `json:"address"`
	Topics          []Hash  `json:"topics"`
	Data            Bytes   `json:"data"`
	BlockNumber     Uint64  `json:"blockNumber"`
	TransactionHash Hash    `json:"transactionHash"`
	LogIndex        Uint64  `json:"logIndex"`
	Removed         bool    `json:"removed"`
}

// keccakState is a hash of x/crypto with its method Read. Read finishes the hash without the copy that Sum makes.
type keccakState interface {
	hash.Hash
	Read([]byte) (int, error)
}

var keccakStates = sync.Pool{New: func() any { return sha3.NewLegacyKeccak256().(keccakState) }}

// Keccak256Hash returns the Keccak-256 hash of the concatenated data. Keccak-256 is not SHA3-256: the padding differs.
func Keccak256Hash(data ...[]byte) (h Hash) {
	state := keccakStates.Get().(keccakState)
	state.Reset()
	for _, part := range data {
		_, _ = state.Write(part) // Write of a hash never returns an error
	}
	_, _ = state.Read(h[:])
	keccakStates.Put(state)
	return h
}

// Keccak256 returns the same as [Keccak256Hash], as a slice.
func Keccak256(data ...[]byte) []byte {
	h := Keccak256Hash(data...)
	return h[:]
}
