package x402

import (
	"math/big"
	"strings"
	"testing"
)

func TestUint256(t *testing.T) {
	t.Parallel()
	limit := new(big.Int).Lsh(big.NewInt(1), 256)
	for decimal, good := range map[string]bool{
		"0":                    true,
		"5000":                 true,
		"18446744073709551615": true,
		"18446744073709551616": true,
		new(big.Int).Sub(limit, big.NewInt(1)).String(): true,
		limit.String():           false,
		strings.Repeat("9", 78):  false,
		strings.Repeat("9", 500): false,
		"":                       false,
		"00":                     false,
		"05":                     false,
		"-1":                     false,
		"+1":                     false,
		"1_000":                  false,
		"0x10":                   false,
		"1.0":                    false,
		" 1":                     false, //nolint:gocritic // the space is the point
		"１":                      false,
	} {
		word, ok := uint256(decimal)
		if ok != good {
			t.Errorf("uint256(%q) is taken: %t, want %t", decimal, ok, good)
		}
		if got := new(big.Int).SetBytes(word[:]).String(); ok && got != decimal {
			t.Errorf("uint256(%q) is %s", decimal, got)
		}
	}
}
