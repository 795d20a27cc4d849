package operator

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestEarnings: the guide has each price below a cent, and what exact earns after the default --transaction-cost.
func TestEarnings(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../docs/money.md")
	testkit.NoError(t, err)
	var prices []uint64
	for name := range testkit.Operations {
		if price := testkit.Price(name); price > 0 {
			prices = append(prices, price)
		}
	}
	slices.Sort(prices)
	cost, err := agent.ParseUSD("0.0024")
	testkit.NoError(t, err)
	for _, price := range slices.Compact(prices) {
		text, left := x402.FormatUSD(price), usd(int64(price)-int64(cost)) //nolint:gosec // small
		row := fmt.Sprintf(`(?m)^\| %s \| .* \| %s \| %s \|$`, text[:5], left[:len(left)-2], text[:6])
		if price < 10_000 && !regexp.MustCompile(row).Match(guide) {
			t.Errorf("docs/money.md has no row %s", row)
		}
	}
}
