package agent

import (
	"context"
	"database/sql"
	"time"
)

// Costs are what calls of an operation cost on a day.
type Costs struct {
	Day       string // UTC
	Operation string
	Calls     int
	// Charged is what the server charged, Open what it may have charged, in atomic units.
	Charged, Open uint64
}

// Report sums what calls cost since a time, by day and operation. A call without an outcome may have cost what was signed for it and not
// released. Calls that cost nothing, such as refused ones, are left out.
func (l *Ledger) Report(ctx context.Context, since time.Time) ([]Costs, error) {
	return collect(ctx, l.db, func(row *sql.Rows, c *Costs) error {
		return row.Scan(&c.Day, &c.Operation, &c.Calls, &c.Charged, &c.Open)
	}, `SELECT date(at / 1000000, 'unixepoch'), operation, count(*), sum(cost), sum(open)
		FROM (SELECT *, iif(status IS NULL, (SELECT coalesce(sum(amount), 0) FROM payments
				WHERE call = id AND payments.signed AND NOT released), 0) AS open
			FROM calls WHERE at >= ?1)
		WHERE cost > 0 OR open > 0 GROUP BY 1, 2 ORDER BY 1, 2`, micros(since))
}
