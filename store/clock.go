package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// clock shows the time of the database, so that all servers on one database have the same time, whatever the clocks of their
// machines show. It adds the time that has passed since the last reading of the database's clock. Go measures that without the
// wall clock, so a step of the machine's clock changes nothing. Before the first reading it shows the machine's clock.
type clock struct{ last atomic.Pointer[reading] }

// reading is the time of the database at a local time.
type reading struct{ database, local time.Time }

// at returns the time of the database at a local time, as time.Now returned it.
func (c *clock) at(local time.Time) time.Time {
	last := c.last.Load()
	if last == nil {
		return local.Round(0) // without the monotonic part, which the time of the database does not have
	}
	return last.database.Add(local.Sub(last.local))
}

func (c *clock) now() time.Time { return c.at(time.Now()) }

// set takes the time that the database returned to a question, and the local times of question and response. The clock stays as it
// is if it agrees with them: then a slow response does not make it worse. It keeps up with the drift of the machine's clock, and
// with the clock of another host after a failover.
func (c *clock) set(database, asked, answered time.Time) {
	took := answered.Sub(asked)
	now := c.at(answered)
	if now.Before(database) || now.After(database.Add(took)) {
		now = database.Add(took / 2)
	}
	c.last.Store(&reading{now.Round(0), answered})
}

// read asks the database for its time.
func (c *clock) read(ctx context.Context, from interface {
	QueryRow(ctx context.Context, statement string, values ...any) pgx.Row
}) error {
	asked := time.Now()
	var database time.Time
	if err := from.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&database); err != nil {
		return err
	}
	c.set(database, asked, time.Now())
	return nil
}
