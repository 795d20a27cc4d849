// Package reconcile compares the ledger of payments with the chain in both directions: each settled payment must have a
// transfer, and each transfer to the payee must have a payment.
package reconcile

import (
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// The weights of a finding.
const (
	contradiction = "contradiction" // the ledger and the chain contradict each other
	behind        = "behind"        // the chain knows what the ledger lacks: a restored backup, or a change that no server has read yet
	unchecked     = "unchecked"     // the endpoint did not return the state
	notice        = "notice"        // information, not an error
)

// Finding is a result that an operator should see. Payment is empty for a transfer without a payment and for
// a payment channel.
type Finding struct {
	Weight      string `json:"weight"`
	Payment     string `json:"payment,omitempty"`
	Channel     string `json:"payment_channel,omitempty"`
	State       string `json:"state,omitempty"`
	Payer       string `json:"payer"`
	Amount      int64  `json:"amount"`
	AmountUSD   string `json:"amount_usd"`
	Transaction string `json:"transaction,omitempty"`
	Text        string `json:"text"`
}

// Report is the result of a comparison. Amounts are in atomic units. Balance - Ledger = Before + Other + PaidOut + Open
// + Unpaid + Beyond - Refunded - Left - Missing. If the endpoint does not return the balance before the first block, Before is calculated
// from this equation.
type Report struct {
	Network   string    `json:"network"`
	Asset     string    `json:"asset"`
	Payee     string    `json:"payee"`
	FromBlock uint64    `json:"from_block"` // first block that was read
	Block     uint64    `json:"block"`      // last block that was read
	At        time.Time `json:"at"`

	Balance    int64 `json:"balance"`
	Ledger     int64 `json:"ledger"` // delivered and undeliverable payments
	Payments   int64 `json:"payments"`
	Difference int64 `json:"difference"`

	Before      int64 `json:"before"`
	BeforeKnown bool  `json:"before_known"`
	Other       int64 `json:"other"`    // transfers without a payment
	PaidOut     int64 `json:"paid_out"` // payouts of payment channels
	Open        int64 `json:"open"`     // transfers for payments that are still open
	Unpaid      int64 `json:"unpaid"`   // transfers for payments that count as failed
	Beyond      int64 `json:"beyond"`   // transfers for payments that were not compared
	Refunded    int64 `json:"refunded"` // transfers from the payee that are recorded as refunds
	Left        int64 `json:"left"`     // other transfers from the payee
	Missing     int64 `json:"missing"`  // payments in Ledger without a transfer up to the last block

	Channels *Channels `json:"payment_channels,omitempty"`

	// What the ledger lacks, and [Report.Enter] can enter.
	LostPayments []LostPayment `json:"lost_payments,omitempty"`
	LostPayouts  []LostPayout  `json:"lost_payouts,omitempty"`
	LostChannels []LostChannel `json:"lost_payment_channels,omitempty"`
	// ChangedChannels are those of the ledger whose state on the chain is another one.
	ChangedChannels []ChangedChannel `json:"-"`

	Findings       []Finding `json:"findings"`
	Contradictions int       `json:"contradictions"`
	Behind         int       `json:"behind"`
	Unchecked      int       `json:"unchecked"`
}

func (r *Report) add(weight string, found Finding) {
	found.Weight, found.AmountUSD = weight, formatUSD(found.Amount)
	switch weight {
	case contradiction:
		r.Contradictions++
	case behind:
		r.Behind++
	case unchecked:
		r.Unchecked++
	}
	r.Findings = append(r.Findings, found)
}

func (r *Report) addPayment(weight string, record store.PaymentRecord, transaction, text string) {
	r.add(weight, Finding{Payment: record.ID.String(), State: record.State, Payer: record.Payer, Amount: record.Amount,
		Transaction: transaction, Text: text})
}

// formatUSD formats an amount in dollars. The amount can be negative.
func formatUSD(amount int64) string {
	if amount < 0 {
		return "-" + x402.FormatUSD(uint64(-amount))
	}
	return x402.FormatUSD(uint64(amount))
}
