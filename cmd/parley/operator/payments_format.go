package operator

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// columnOf is one value of a record. It is a string, a number, or nil.
type columnOf[T any] struct {
	name string
	of   func(r T) any
}

// column is one value of a payment.
type column = columnOf[store.PaymentRecord]

// columns are the displayed values of a payment, in this order.
var columns = []column{
	{"id", func(r store.PaymentRecord) any { return r.ID.String() }},
	{"created_at", func(r store.PaymentRecord) any { return timestamp(r.CreatedAt) }},
	{"updated_at", func(r store.PaymentRecord) any { return timestamp(r.UpdatedAt) }},
	{"state", func(r store.PaymentRecord) any { return r.State }},
	{"operation", func(r store.PaymentRecord) any { return r.Operation }},
	{"agent_id", func(r store.PaymentRecord) any {
		if r.AgentID == nil {
			return nil
		}
		return r.AgentID.String()
	}},
	{"payer", func(r store.PaymentRecord) any { return r.Payer }},
	{"pay_to", func(r store.PaymentRecord) any { return r.PayTo }},
	{"network", func(r store.PaymentRecord) any { return r.Network }},
	{"asset", func(r store.PaymentRecord) any { return r.Asset }},
	{"amount", func(r store.PaymentRecord) any { return r.Amount }},
	{"amount_usd", func(r store.PaymentRecord) any { return usd(r.Amount) }},
	{"transaction", func(r store.PaymentRecord) any { return r.Transaction }},
	{"failure_reason", func(r store.PaymentRecord) any { return r.FailureReason }},
	{"attempts", func(r store.PaymentRecord) any { return r.Attempts }},
	{"nonce", func(r store.PaymentRecord) any { return r.Nonce }},
	{"valid_before", func(r store.PaymentRecord) any { return timestamp(r.ValidBefore) }},
	{"lease_until", func(r store.PaymentRecord) any { return timestamp(r.LeaseUntil) }},
	{"x402_version", func(r store.PaymentRecord) any { return r.X402Version }},
	{"scheme", func(r store.PaymentRecord) any { return r.Scheme }},
	{"payment_identifier", func(r store.PaymentRecord) any {
		if r.PaymentIdentifier == nil {
			return nil
		}
		return *r.PaymentIdentifier
	}},
	{"payment_channel_id", func(r store.PaymentRecord) any { return optional(r.PaymentChannelID) }},
	{"cumulative_amount", func(r store.PaymentRecord) any { return optional(r.CumulativeAmount) }},
	{"deposit_amount", func(r store.PaymentRecord) any { return r.DepositAmount }},
	{"refund_amount", func(r store.PaymentRecord) any {
		if r.Refund == nil {
			return nil
		}
		return r.Refund.Amount
	}},
	{"refund_transaction", func(r store.PaymentRecord) any {
		if r.Refund == nil {
			return nil
		}
		return r.Refund.Transaction
	}},
}

// optional is what a pointer points to, or nil.
func optional[T any](value *T) any {
	if value == nil {
		return nil
	}
	return *value
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// usd formats atomic units of USDC in dollars with six decimals.
func usd(amount int64) string {
	if amount < 0 {
		return "-" + x402.FormatUSD(uint64(-amount))
	}
	return x402.FormatUSD(uint64(amount))
}

// text formats a column's value for output other than JSON.
func text(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case map[string]any:
		raw, err := json.Marshal(value)
		if err != nil {
			return err.Error()
		}
		return agent.EscapeJSON(string(raw))
	}
	return fmt.Sprint(value)
}

// writeJSON writes a record as one line of JSON.
func writeJSON[T any](to io.Writer, columns []columnOf[T], record T) error {
	line := []byte{'{'}
	for i, column := range columns {
		if i > 0 {
			line = append(line, ',')
		}
		value, err := json.Marshal(column.of(record))
		if err != nil {
			return err
		}
		line = append(fmt.Appendf(line, "%q:", column.name), value...)
	}
	return console.EncodeJSON(to, json.RawMessage(append(line, '}')))
}

// table returns a writer that aligns tab-separated cells when it is flushed.
func table(to io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(to, 0, 0, 2, ' ', 0) }
