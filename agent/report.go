package agent

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/x402"
)

// Costs are what calls cost, summed by the fields of a Grouping. A field by which they are not summed is "".
type Costs struct {
	Grouped
	Calls int `json:"calls"`
	// Charged is what the server charged, Open what it may have charged, in atomic units.
	Charged uint64 `json:"charged"`
	Open    uint64 `json:"open,omitempty"`
	// Transactions are those of the transfers. A voucher has none: the server claims many vouchers in one.
	Transactions []string `json:"transactions,omitempty"`
}

// Grouped are the fields by which costs are summed.
type Grouped struct {
	Day       string `json:"day,omitempty"` // UTC
	Operation string `json:"operation,omitempty"`
	Peer      string `json:"peer,omitempty"`
}

// Grouping says by what a report sums.
type Grouping struct{ Day, Operation, Peer bool }

// Report sums what calls cost since a time. The rows are ordered by their fields.
func (l *Ledger) Report(ctx context.Context, since time.Time, by Grouping) ([]Costs, error) {
	calls := map[string][]entry{}
	if err := l.each(ctx, func(e entry) {
		if !e.Time.Before(since) && e.Step != stepBalance {
			calls[e.ID] = append(calls[e.ID], e)
		}
	}); err != nil {
		return nil, err
	}
	sums := map[Grouped]*Costs{}
	for _, steps := range calls {
		of := groupOf(steps[0], by)
		if sums[of] == nil {
			sums[of] = &Costs{Grouped: of}
		}
		sums[of].add(steps)
	}
	report := make([]Costs, 0, len(sums))
	for _, sum := range sums {
		slices.Sort(sum.Transactions)
		report = append(report, *sum)
	}
	slices.SortFunc(report, func(a, b Costs) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Peer, b.Peer))
	})
	return report, nil
}

// groupOf returns the row of a call.
func groupOf(e entry, by Grouping) (of Grouped) {
	if by.Day {
		of.Day = e.Time.UTC().Format(time.DateOnly)
	}
	if by.Operation {
		of.Operation = e.Operation
	}
	if by.Peer {
		of.Peer = e.Peer
	}
	return of
}

// add adds a call. Its last answer says what it cost; without one, what was reserved and not released may have been charged.
func (c *Costs) add(steps []entry) {
	var reserved, released, charged uint64
	known, transaction := false, ""
	for _, e := range steps {
		switch e.Step {
		case stepReserved:
			reserved += e.Amount
		case stepReleased:
			released += e.Amount
		case stepAnswered, stepRefused:
			known, charged, transaction = true, e.Charged, e.Transaction
		}
	}
	c.Calls++
	c.Charged += charged
	if !known {
		c.Open += reserved - min(reserved, released)
	}
	if transaction != "" {
		c.Transactions = append(c.Transactions, transaction)
	}
}

// each passes every entry of the ledger to a function, from the first on.
func (l *Ledger) each(ctx context.Context, use func(entry)) error {
	all := lines{path: l.lines.path}
	return all.locked(ctx, func(file *os.File) error {
		return all.next(file, func(line []byte) error {
			var e entry
			if err := json.Unmarshal(line, &e); err != nil {
				return err
			}
			use(e)
			return nil
		})
	})
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
