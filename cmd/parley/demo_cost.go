package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/parley-chat/parley/devnet"
	"github.com/parley-chat/parley/x402"
)

// What a transaction costs, in millionths of a dollar: gas on Base, where a transfer costs 0.0014 USD, and a facilitator's fee of
// 0.001 USD.
const (
	transferCost     = 2400
	depositCost      = 3500
	claimCost        = 2500 // of one payment channel
	claimFurtherCost = 500  // of each further payment channel
	settleCost       = 2000
)

// printSettlementCost compares what settling the calls cost with what it would have cost with one transfer per call.
func printSettlementCost(out io.Writer, made devnet.Transactions, calls int) error {
	cost := made.Transfers*transferCost + made.Deposits*depositCost + made.Claims*claimCost + max(0, made.Claimed-made.Claims)*claimFurtherCost +
		made.Settlements*settleCost
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nSETTLEMENT OF %d CALLS\tTRANSACTIONS\tCOST USD\t\n", calls)
	row := func(scheme string, transactions, cost int, parts string) {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", scheme, transactions, x402.FormatUSD(uint64(cost)), parts) //nolint:gosec // not negative
	}
	row("payment channels (batch-settlement)", made.Transfers+made.Deposits+made.Claims+made.Settlements, cost, fmt.Sprintf(
		"deposits: %d, claims: %d (payment channels: %d), payouts: %d, transfers: %d", made.Deposits, made.Claims, made.Claimed, made.Settlements, made.Transfers))
	row("one transfer per call (exact)", calls, calls*transferCost, fmt.Sprintf("transfers: %d", calls))
	fmt.Fprintln(table, "\nA transfer costs 0.0014 USD of gas on Base and a facilitator's fee of 0.001 USD; docs/payments.md has the other costs.")
	return table.Flush()
}
