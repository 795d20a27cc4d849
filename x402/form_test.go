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

func TestAtomicAmount(t *testing.T) {
	t.Parallel()
	for price, want := range map[string]uint64{
		"0.000000":              0,
		"0.000001":              1,
		"0.001000":              1000,
		"0.005000":              5000,
		"0.990000":              990000,
		"1.000000":              1000000,
		"12345.678901":          12345678901,
		"18446744073709.551615": 18446744073709551615,
	} {
		got, err := AtomicAmount(price)
		if err != nil || got != want {
			t.Errorf("the price %s is %d atomic units (%v), want %d", price, got, err, want)
		}
		if back := FormatUSD(want); back != price {
			t.Errorf("%d atomic units are written %s, want %s", want, back, price)
		}
	}
}

func TestAtomicAmountRefusals(t *testing.T) {
	t.Parallel()
	for _, price := range []string{
		"", ".", "0", "1", "0.005", "0.00500", "0.0050000", ".005000", "00.005000", "01.000000", "-0.005000", "+0.005000",
		"0.+05000", "0.-05000", "0.00 000", " 0.005000", "0,005000", "0.005_00", "1e3.000000", "0.005000.0", "0x1.000000",
		"18446744073709.551616", "18446744073710.000000", "99999999999999999999.000000",
	} {
		if got, err := AtomicAmount(price); err == nil {
			t.Errorf("the price %q is taken as %d atomic units, want an error", price, got)
		}
	}
}
