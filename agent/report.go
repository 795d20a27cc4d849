package agent

import (
	"context"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/x402"
)

// Costs are what calls cost, summed by day, operation and peer. A field by which they are not summed is "".
type Costs struct {
	Day       string `json:"day,omitempty"` // UTC
	Operation string `json:"operation,omitempty"`
	Peer      string `json:"peer,omitempty"`
	Calls     int    `json:"calls"`
	// Charged is what the server charged, Open what it may have charged, in atomic units.
	Charged uint64 `json:"charged"`
	Open    uint64 `json:"open,omitempty"`
	// Transactions are the transactions of transfers. A voucher has none: the server claims many vouchers in one.
	Transactions []string `json:"transactions,omitempty"`
}

// Report sums what calls cost since a time, by some of "day", "operation" and "peer". The rows are ordered by these. A call without an
// outcome may have cost what was signed for it and not released. Calls that cost nothing, such as refused ones, are left out.
func (l *Ledger) Report(ctx context.Context, since time.Time, by ...string) ([]Costs, error) {
	return collect(ctx, l.db, func(row *sql.Rows, c *Costs) error {
		var settlements []byte
		if err := row.Scan(&c.Day, &c.Operation, &c.Peer, &c.Calls, &c.Charged, &c.Open, &settlements); err != nil {
			return err
		}
		err := json.Unmarshal(settlements, &c.Transactions)
		if len(c.Transactions) == 0 {
			c.Transactions = nil
		}
		return err
	}, `SELECT iif(?2, date(at / 1000000, 'unixepoch'), ''), iif(?3, operation, ''), iif(?4, peer, ''), count(*), sum(cost), sum(open),
			json_group_array(settlement ORDER BY settlement) FILTER (WHERE settlement <> '')
		FROM (SELECT *, iif(status IS NULL, (SELECT coalesce(sum(amount), 0) FROM payments
				WHERE call = id AND payments.signed AND NOT released), 0) AS open
			FROM calls WHERE at >= ?1)
		WHERE cost > 0 OR open > 0 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`, micros(since),
		slices.Contains(by, "day"), slices.Contains(by, "operation"), slices.Contains(by, "peer"))
}

// ApprovedPayment is a payment above the limits, which a person approved or was asked to approve.
type ApprovedPayment struct {
	At              time.Time
	ID              string // of the approval
	Operation, Peer string
	Amount          uint64 // atomic units
	Paid            bool
}

// Approvals returns the payments above the limits since a time, and the approvals that can still be given. The latest come first.
func (l *Ledger) Approvals(ctx context.Context, since time.Time) ([]ApprovedPayment, error) {
	scan := func(row *sql.Rows, p *ApprovedPayment) error {
		var at int64
		err := row.Scan(&at, &p.ID, &p.Operation, &p.Peer, &p.Amount)
		p.At, p.Paid = time.UnixMicro(at), true
		return err
	}
	all, err := collect(ctx, l.db, scan, `
		SELECT max(payments.at), payments.approval, calls.operation, peer, iif(status IS NULL, sum(amount), cost)
		FROM payments JOIN calls ON calls.id = payments.call
		WHERE payments.approval <> '' AND NOT released AND payments.at >= ? GROUP BY calls.id`, micros(since))
	if err != nil {
		return nil, err
	}
	asked, err := collect(ctx, l.db, scanJSON[Approval], "SELECT content FROM approvals WHERE asked_at >= ?", micros(since))
	for _, one := range asked {
		used := slices.ContainsFunc(all, func(p ApprovedPayment) bool { return p.ID == one.ID })
		if !used && one.GivenAt.IsZero() && l.alive(&one) {
			all = append(all, ApprovedPayment{At: one.AskedAt, ID: one.ID, Operation: one.Operation, Peer: one.Peer, Amount: one.Price})
		}
	}
	all = slices.DeleteFunc(all, func(p ApprovedPayment) bool { return p.Amount == 0 }) // refused, and not charged
	slices.SortFunc(all, func(a, b ApprovedPayment) int { return b.At.Compare(a.At) })
	return all, err
}

// WriteCSV writes a report as comma-separated values, with amounts in USD. Names that others chose begin with an apostrophe where a
// spreadsheet would take them for a formula.
func WriteCSV(to io.Writer, report []Costs) error {
	table := csv.NewWriter(to)
	if err := table.Write([]string{"day", "operation", "peer", "calls", "charged_usd", "open_usd", "transactions"}); err != nil {
		return err
	}
	for _, row := range report {
		if err := table.Write([]string{
			row.Day, row.Operation, Cell(row.Peer), strconv.Itoa(row.Calls), x402.FormatUSD(row.Charged), x402.FormatUSD(row.Open),
			strings.Join(row.Transactions, " "),
		}); err != nil {
			return err
		}
	}
	table.Flush()
	return table.Error()
}
