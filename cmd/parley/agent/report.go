package agent

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

type walletReport struct {
	By    []string `default:"day,operation" enum:"day,operation,peer" help:"Sum by these: day, operation, peer (${default})."`
	Since string   `placeholder:"DATE" help:"From this day on (UTC), such as 2026-12-01. By default 30 days."`
	CSV   bool     `name:"csv" xor:"form" help:"Write comma-separated values, with the transactions of transfers."`
	HTML  string   `name:"html" xor:"form" placeholder:"FILE" predictor:"file"`
}

// reportDays is how far a report goes back by default.
const reportDays = 30

func (c *walletReport) Run(ctx context.Context, s *session) error {
	now := time.Now().UTC()
	since := now.AddDate(0, 0, -reportDays).Truncate(24 * time.Hour)
	if c.Since != "" {
		var err error
		if since, err = time.Parse(time.DateOnly, c.Since); err != nil {
			return console.Usagef("--since: %q is no date such as 2026-12-01", c.Since)
		}
	}
	if c.CSV && (s.flags.JSON || s.query != nil) {
		return console.Usagef("--csv takes neither --json nor --jq")
	}
	if c.HTML != "" {
		page, err := newReportPage(ctx, s, since, now)
		if err == nil && c.HTML == "-" {
			return reportTemplate.Execute(s.Out, page)
		}
		if err == nil {
			err = writePage(page, c.HTML)
		}
		if err != nil {
			return err
		}
		return s.print(ctx, object{"file": c.HTML, "since": page.Since, "charged_usd": agent.USD(page.Charged)}, func(w io.Writer) {
			fmt.Fprintf(w, "wrote %s; open it in a browser\n", c.HTML)
		})
	}
	report, err := s.agent.Ledger().Report(ctx, since, c.By...)
	if err != nil {
		return err
	}
	contacts, err := s.agent.Contacts()
	if err != nil {
		return err
	}
	for i := range report {
		report[i].Peer = nameOfPeer(contacts, report[i].Peer)
	}
	if c.CSV {
		return agent.WriteCSV(s.Out, report)
	}
	rows, total := []object{}, uint64(0)
	for _, row := range report {
		total += row.Charged
		rows = append(rows, object{
			"day": row.Day, "operation": row.Operation, "peer": agent.Visible(row.Peer), "calls": row.Calls,
			"charged_usd": agent.USD(row.Charged), "open_usd": agent.USD(row.Open), "transactions": append([]string{}, row.Transactions...),
		})
	}
	value := object{"since": since.Format(time.DateOnly), "costs": rows, "charged_usd": agent.USD(total)}
	return s.print(ctx, value, func(w io.Writer) { c.write(w, report, total) })
}

func (c *walletReport) write(w io.Writer, report []agent.Costs, total uint64) {
	table := console.Table(w)
	slices.Sort(c.By) // the order of the rows
	c.By = slices.Compact(c.By)
	if len(report) > 0 {
		fmt.Fprintf(table, "%s\tCALLS\tUSD\t\n", strings.ToUpper(strings.Join(c.By, "\t")))
	}
	for _, row := range report {
		var fields []string
		for _, column := range c.By {
			field := map[string]string{"day": row.Day, "operation": row.Operation, "peer": row.Peer}[column]
			if field != "" {
				field = agent.VisibleName(field)
			}
			fields = append(fields, field)
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
