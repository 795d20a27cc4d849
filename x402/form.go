package x402

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

const (
	// signatureBytes is the length of a signature by a private key: r, s, v.
	signatureBytes = 65
	// maxSignatureBytes limits smart-wallet signatures. Wrapped signatures in practice are shorter than 2 KiB.
	maxSignatureBytes = 4096
)

// isHex reports whether s is 0x followed by two hex digits per byte, for at least least and at most most bytes.
func isHex(s string, least, most int) bool {
	if len(s) < 2+2*least || len(s) > 2+2*most || len(s)%2 != 0 || s[0] != '0' || s[1] != 'x' {
		return false
	}
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f', 'A' <= c && c <= 'F':
		default:
			return false
		}
	}
	return true
}

// isAddress reports whether s is an address, in any case: clients send checksummed and lower-case addresses.
func isAddress(s string) bool { return isHex(s, 20, 20) }

// isDecimal reports whether s is an unsigned decimal in canonical form, so that equal strings mean equal numbers.
func isDecimal(s string) bool {
	if s == "" || s[0] == '0' && len(s) > 1 {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// uint256 converts a canonical decimal to a 32-byte big-endian word. It returns false if the string is not canonical or
// the number needs more than 256 bits.
func uint256(decimal string) (word [32]byte, ok bool) {
	const maxDigits = 78 // of 2^256-1; also limits the work below
	if !isDecimal(decimal) || len(decimal) > maxDigits {
		return word, false
	}
	if small, err := strconv.ParseUint(decimal, 10, 64); err == nil {
		binary.BigEndian.PutUint64(word[24:], small)
		return word, true
	}
	large, _ := new(big.Int).SetString(decimal, 10)
	if large.BitLen() > 256 {
		return word, false
	}
	large.FillBytes(word[:])
	return word, true
}

func isUint256(decimal string) bool {
	_, ok := uint256(decimal)
	return ok
}

// formCheck says whether a member, named by its JSON pointer, has its form.
type formCheck struct {
	pointer string
	ok      bool
}

// checkForm returns an error for the first member that is missing or malformed. wants says what members are, by pointer.
func checkForm(reason string, wants map[string]string, checks []formCheck) error {
	for _, check := range checks {
		if !check.ok {
			return &FormError{reason, fmt.Sprintf("%s is missing or malformed; it must be %s", dotted(check.pointer), wants[check.pointer])}
		}
	}
	return nil
}

// dotted writes a JSON pointer as it is usual in prose: payload.voucher.channelId.
func dotted(pointer string) string {
	return strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
}
