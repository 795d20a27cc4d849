package agent

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

type walletReport struct {
	By    []string `default:"day,operation" enum:"day,operation,peer" help:"Sum by these: day, operation, peer (${default})."`
	Since string   `placeholder:"DATE" help:"From this day on (UTC), such as 2026-12-01. By default 30 days."`
	CSV   bool     `name:"csv" help:"Write comma-separated values, with the transactions of transfers."`
}

// reportDays is how far a report goes back by default.
const reportDays = 30

func (c *walletReport) Run(ctx context.Context, s *session) error {
	since := time.Now().UTC().AddDate(0, 0, -reportDays).Truncate(24 * time.Hour)
	if c.Since != "" {
		var err error
		if since, err = time.Parse(time.DateOnly, c.Since); err != nil {
			return console.Usagef("--since: %q is no date such as 2026-12-01", c.Since)
		}
	}
	report, err := s.agent.Ledger().Report(ctx, since, c.By...)
	if err != nil {
		return err
	}
	if err := named(s.agent, report); err != nil {
		return err
	}
	if c.CSV {
		return agent.WriteCSV(s.Out, report)
	}
	rows, total := []object{}, uint64(0)
	for _, row := range report {
		total += row.Charged
		rows = append(rows, object{
			"day": row.Day, "operation": row.Operation, "peer": agent.Visible(row.Peer), "calls": row.Calls,
			"charged_usd": agent.USD(row.Charged), "open_usd": agent.USD(row.Open), "transactions": nonNil(row.Transactions),
		})
	}
	value := object{"since": since.Format(time.DateOnly), "costs": rows, "charged_usd": agent.USD(total)}
	return s.print(ctx, value, func(w io.Writer) { writeReport(w, report, total) })
}

// named replaces ids of contacts by their names.
func named(a *agent.Agent, report []agent.Costs) error {
	contacts, err := a.Contacts()
	if err != nil {
		return err
	}
	for i := range report {
		if known := contacts.ByID(report[i].Peer); known != nil {
			report[i].Peer = known.String()
		}
	}
	return nil
}

func writeReport(w io.Writer, report []agent.Costs, total uint64) {
	table := console.Table(w)
	for _, row := range report {
		var fields []string
		for _, field := range []string{row.Day, row.Operation, row.Peer} {
			if field != "" {
				fields = append(fields, agent.VisibleName(field))
			}
		}
		open := ""
		if row.Open > 0 {
			open = "open " + agent.USD(row.Open)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", strings.Join(fields, "\t"), row.Calls, agent.USD(row.Charged), open)
	}
	_ = table.Flush()
	fmt.Fprintf(w, "charged %s USD\n", agent.USD(total))
}
