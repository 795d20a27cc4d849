package x402

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

const (
	// usdDecimals is the number of decimals of USDC and of every price.
	usdDecimals = 6
	// usd is one dollar in atomic units.
	usd = 1_000_000
)

// AtomicAmount converts a price in dollars with exactly six decimals to atomic units of USDC: "0.005000" becomes 5000.
// It returns an error for any other format and for a price above 2^64-1 units.
func AtomicAmount(price string) (uint64, error) {
	malformed := fmt.Errorf("price %q is not a decimal number of dollars with six decimals, such as \"0.005000\"", price)
	dollars, fraction, _ := strings.Cut(price, ".")
	if !isDecimal(dollars) || len(fraction) != usdDecimals {
		return 0, malformed
	}
	// ParseUint accepts digits only, so it rejects signs and underscores.
	units, err := strconv.ParseUint(fraction, 10, 64)
	if err != nil {
		return 0, malformed
	}
	whole, err := strconv.ParseUint(dollars, 10, 64)
	overflow, product := bits.Mul64(whole, usd)
	sum, carry := bits.Add64(product, units, 0)
	if err != nil || overflow != 0 || carry != 0 {
		return 0, fmt.Errorf("price %q is too large", price)
	}
	return sum, nil
}

// FormatUSD formats atomic units of USDC as a price in dollars with exactly six decimals: 5000 becomes "0.005000".
func FormatUSD(amount uint64) string {
	return fmt.Sprintf("%d.%06d", amount/usd, amount%usd)
}
