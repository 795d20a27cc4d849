package testkit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// queryTime is how long one statement of a test may take.
const queryTime = time.Minute

// NumberGaps counts the conversations whose messages are not numbered from first_number to last_number.
const NumberGaps = `SELECT count(*) FROM (
	SELECT c.id FROM conversations c LEFT JOIN messages m ON m.conversation_id = c.id GROUP BY c.id
	HAVING c.last_number - c.first_number + 1 <> count(m.number) OR c.last_number <> coalesce(max(m.number), c.last_number)
		OR min(m.number) <> c.first_number) gaps`

// Connect uses a new connection to the database. It works also while the test ends.
func (w *World) Connect(use func(context.Context, *pgx.Conn) error) {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), queryTime)
	defer cancel()
	connection, err := pgx.Connect(ctx, w.DatabaseURL)
	if err != nil {
		w.T.Fatal(err)
	}
	defer connection.Close(ctx)
	if err := use(ctx, connection); err != nil {
		w.T.Fatal(err)
	}
}

// Exec executes a statement, without the servers' knowledge.
func (w *World) Exec(statement string, arguments ...any) {
	w.T.Helper()
	w.Connect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, statement, arguments...)
		return err
	})
}

// Scan reads the one row that a query returns.
func (w *World) Scan(query string, arguments []any, into ...any) {
	w.T.Helper()
	w.Connect(func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, query, arguments...).Scan(into...)
	})
}

// EachRow runs a query and passes each of its rows on.
func (w *World) EachRow(each func(pgx.Rows) error, query string, arguments ...any) {
	w.T.Helper()
	w.Connect(func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, query, arguments...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// Count returns the one number that a query returns.
func (w *World) Count(query string, arguments ...any) (n int) {
	w.T.Helper()
	w.Scan(query, arguments, &n)
	return n
}
