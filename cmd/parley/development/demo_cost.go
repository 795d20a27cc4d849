package development

import (
	"fmt"
	"io"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/x402"
)

// What a transaction costs, in millionths of a dollar: gas on Base and a facilitator's fee. See docs/money.md, "What settlement
// costs".
const (
	transferCost     = 2420
	depositCost      = 3340
	claimCost        = 2100 // of one payment channel
	claimFurtherCost = 426  // of each further payment channel
	settleCost       = 2020
)

// printSettlementCost compares what settling the calls cost with what it would have cost with one transfer per call.
func printSettlementCost(out io.Writer, made devnet.Transactions, calls int) error {
	cost := made.Transfers*transferCost + made.Deposits*depositCost + made.Claims*claimCost +
		max(0, made.Claimed-made.Claims)*claimFurtherCost + made.Settlements*settleCost
	table := console.Table(out)
	fmt.Fprintf(table, "\nSETTLEMENT OF %d CALLS\tTRANSACTIONS\tCOST USD\t\n", calls)
	row := func(scheme string, transactions, cost int, parts string) {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", scheme, transactions, x402.FormatUSD(uint64(cost)), parts) //nolint:gosec // not negative
	}
	row("payment channels (batch-settlement)", made.Transfers+made.Deposits+made.Claims+made.Settlements, cost, fmt.Sprintf(
		"deposits: %d, claims: %d (payment channels: %d), payouts: %d, transfers: %d", made.Deposits, made.Claims, made.Claimed, made.Settlements,
		made.Transfers))
	row("one transfer per call (exact)", calls, calls*transferCost, fmt.Sprintf("transfers: %d", calls))
	fmt.Fprintln(table, "\nThe costs are gas on Base and a facilitator's fee of 0.001 USD per transaction: docs/money.md.")
	return table.Flush()
}
