package operator

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// settlement is what brought the revenue of a period to the payee, and what that cost. Deposits and refunds are not revenue.
type settlement struct {
	Exact      sum   `json:"exact"` // settled payments of scheme exact
	Vouchers   sum   `json:"vouchers"`
	Deposits   sum   `json:"deposits"`
	Claims     sum   `json:"claims"`
	Payouts    sum   `json:"payouts"`
	Refunds    sum   `json:"refunds"`
	Unclaimed  sum   `json:"unclaimed"` // payment channels with vouchers that are not claimed now
	Total      sum   `json:"transactions"`
	CostPermil int64 `json:"cost_permil"` // of the revenue

	Schemes []schemeSum `json:"schemes"` // exact, batch-settlement, and both

	// Gas is what the endpoint reports for claims, payouts and refunds; of Unread transactions it reports nothing.
	Gas *gas `json:"gas,omitempty"`
}

// schemeSum is what a scheme earned and what its settlement cost. Share is the part of the revenue of all schemes.
type schemeSum struct {
	Scheme       string `json:"scheme"`
	Revenue      sum    `json:"revenue"`
	SharePermil  int64  `json:"share_permil"`
	Transactions sum    `json:"transactions"`
	CostPermil   int64  `json:"cost_permil"`
}

// permil is a part in thousandths, rounded; 0 of nothing.
func permil(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return (1000*part + whole/2) / whole
}

// addSchemes splits revenue and transactions by scheme. Refunds of payment channels cost a transaction, too.
func (s *settlement) addSchemes(found *store.SettlementSums, cost int64) {
	inChannels := found.Deposits.Calls + found.Claims.Calls + found.Payouts.Calls + found.Refunds.Calls
	all := store.PaymentSum{Calls: found.Exact.Calls + found.Vouchers.Calls, Amount: found.Exact.Amount + found.Vouchers.Amount}
	for _, one := range []struct {
		name         string
		revenue      store.PaymentSum
		transactions int64
	}{
		{x402.SchemeExact, found.Exact, found.Exact.Calls}, {x402.SchemeBatch, found.Vouchers, inChannels},
		{"total", all, found.Exact.Calls + inChannels},
	} {
		s.Schemes = append(s.Schemes, schemeSum{Scheme: one.name, Revenue: sumOf(one.revenue),
			SharePermil:  permil(one.revenue.Amount, all.Amount),
			Transactions: sumOf(store.PaymentSum{Calls: one.transactions, Amount: one.transactions * cost}),
			CostPermil:   permil(one.transactions*cost, one.revenue.Amount)})
	}
	total := s.Schemes[len(s.Schemes)-1]
	s.Total, s.CostPermil = total.Transactions, total.CostPermil
}

type gas struct {
	Used   uint64 `json:"used"`
	Wei    uint64 `json:"wei"`
	Unread int    `json:"unread"`
}

// settlement sums the period up. It returns nil if other filters than the period are given.
func (p *paymentsSummary) settlement(ctx context.Context, database *store.Store) (*settlement, error) {
	f := p.Filters
	if len(f.State) > 0 || f.Operation != "" || f.Payer != "" || f.Agent != nil {
		return nil, nil //nolint:nilnil // it is not known by operation, payer or agent
	}
	cost, err := agent.ParseUSD(p.Cost)
	if err != nil || cost > x402.MaxChannelAmount {
		return nil, errors.New("--transaction-cost must be in USD, such as 0.0024")
	}
	found, err := database.SettlementSums(ctx, f.Since.Time, f.Until.Time)
	if err != nil {
		return nil, err
	}
	s := &settlement{
		Exact: sumOf(found.Exact), Vouchers: sumOf(found.Vouchers), Deposits: sumOf(found.Deposits),
		Claims: sumOf(found.Claims), Payouts: sumOf(found.Payouts), Refunds: sumOf(found.Refunds), Unclaimed: sumOf(found.Unclaimed),
	}
	s.addSchemes(found, int64(cost)) //nolint:gosec // checked
	if !p.Gas {
		return s, nil
	}
	var wrong settings.Wrong
	wrong.RPCURL(p.RPCURL)
	if wrong != nil {
		return nil, console.Usage(wrong)
	}
	s.Gas, err = p.gas(ctx, database)
	return s, err
}

// gas reads from the chain what the claims, payouts and refunds of the period used.
func (p *paymentsSummary) gas(ctx context.Context, database *store.Store) (*gas, error) {
	done, err := database.ChannelTransactions(ctx, store.TransactionFilter{Since: p.Filters.Since.Time, Until: p.Filters.Until.Time})
	total, chain := &gas{}, &x402.Chain{URL: p.RPCURL.Value}
	for _, one := range done {
		did, readErr := chain.ChannelTransaction(ctx, one.Asset, one.Transaction)
		if readErr != nil || did.GasUsed == 0 {
			total.Unread++
			continue
		}
		total.Used += did.GasUsed
		total.Wei += did.Fee
	}
	return total, errors.Join(err, ctx.Err())
}

// print writes the table. A nil settlement writes nothing.
func (s *settlement) print(to io.Writer) error {
	if s == nil {
		return nil
	}
	percent := func(permil int64) string { return fmt.Sprintf("%d.%d %%", permil/10, permil%10) }
	out := console.Table(to)
	fmt.Fprintln(out, "\nSCHEME\tCALLS\tREVENUE USD\tSHARE\tTRANSACTIONS\tCOST USD\tOF REVENUE")
	for _, one := range s.Schemes {
		fmt.Fprintf(out, "%s\t%d\t%s\t%s\t%d\t%s\t%s\n", one.Scheme, one.Revenue.Calls, one.Revenue.AmountUSD, percent(one.SharePermil),
			one.Transactions.Calls, one.Transactions.AmountUSD, percent(one.CostPermil))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	out = console.Table(to)
	fmt.Fprintln(out, "\nSETTLEMENT\tCOUNT\tUSD")
	for _, line := range []struct {
		name string
		of   sum
	}{{"payment channels that are not claimed now", s.Unclaimed},
		{"deposits (not revenue)", s.Deposits}, {"claims", s.Claims}, {"payouts", s.Payouts}, {"refunds (not revenue)", s.Refunds},
	} {
		fmt.Fprintf(out, "%s\t%d\t%s\n", line.name, line.of.Calls, line.of.AmountUSD)
	}
	if s.Gas != nil {
		fmt.Fprintf(out, "gas of claims, payouts and refunds\t%d\t%d wei\t%d transactions not reported\n", s.Gas.Used, s.Gas.Wei, s.Gas.Unread)
	}
	return out.Flush()
}
