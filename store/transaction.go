package store

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/gorm"
)

// errRolledBack is PostgreSQL's answer to the COMMIT of a transaction in which a statement has failed.
var errRolledBack = errors.New("the transaction was rolled back, because one of its statements had failed")

// transaction is a database transaction that costs no round trips of its own where that can be: BEGIN travels with the
// first of our statements, COMMIT with the last. GORM's statements run on the same connection.
type transaction struct {
	store *Store
	conn  *sql.Conn // nil until it has begun
	begun bool
	// delivery is the payment that is closed when the transaction commits.
	delivery *Delivery
	// batched tells that all this transaction writes may become part of a batch (batch.go).
	batched bool
	out     *outgoing // the message that is sent with the batch
	// dryRun tells that nothing is to be written in the end, so that rules may be checked without locks.
	dryRun bool
	// changed are the agents that this server must forget.
	changed []uuid.UUID
}

// Transaction runs fn in one database transaction and commits it, unless fn returns an error.
func (s *Store) Transaction(ctx context.Context, fn func(tx *Store) error) error {
	return s.transact(ctx, &transaction{store: s}, fn, (*transaction).commit)
}

// BatchedTransaction is Transaction, as part of a batch if all that fn writes is one message, or nothing, and the delivery of
// a payment. Where that comes to nothing fn runs again.
func (s *Store) BatchedTransaction(ctx context.Context, fn func(tx *Store) error) error {
	err := s.transact(ctx, &transaction{store: s, batched: true}, fn, (*transaction).commit)
	if errors.Is(err, errAlone) {
		return s.Transaction(ctx, fn)
	}
	return err
}

// DryRun runs fn in a transaction that is always rolled back, and returns fn's error: what would happen, without it happening.
func (s *Store) DryRun(ctx context.Context, fn func(tx *Store) error) error {
	return s.transact(ctx, &transaction{store: s, dryRun: true}, fn, func(*transaction, context.Context) error { return nil })
}

func (s *Store) isDryRun() bool { return s.tx != nil && s.tx.dryRun }

// transact runs fn in a transaction and ends it; unless that commits, it is rolled back.
func (s *Store) transact(ctx context.Context, tx *transaction, fn func(tx *Store) error, end func(*transaction, context.Context) error) error {
	db := s.db.Session(&gorm.Session{Context: ctx, NewDB: true})
	db.Statement.ConnPool = tx
	inside := *s
	inside.db, inside.tx = db, tx
	defer func() { // also when it is not known whether COMMIT came through
		for _, id := range tx.changed {
			s.agents.forget(id)
		}
	}()
	defer tx.close(ctx)
	if err := fn(&inside); err != nil {
		return err
	}
	return end(tx, ctx)
}

// open takes a connection.
func (t *transaction) open(ctx context.Context) error {
	if t.out != nil { // this comes after the message, which is not sent yet
		return errAlone
	}
	if t.conn != nil {
		return nil
	}
	database, err := t.store.db.DB()
	if err != nil {
		return err
	}
	t.conn, err = database.Conn(ctx)
	return err
}

// with runs fn with pgx's connection, which is nobody's to keep: database/sql gives it back to the pool as soon as a
// statement of GORM's fails before it was sent, for a caller that has left for instance. It is an error from then on.
func (t *transaction) with(fn func(driver *pgx.Conn) error) error {
	return t.conn.Raw(func(driver any) error {
		return fn(driver.(*stdlib.Conn).Conn()) //nolint:forcetypeassert // the pool's; see Open
	})
}

// send sends a batch on the transaction's connection.
func (t *transaction) send(ctx context.Context, batch *pgx.Batch) error {
	return t.with(func(driver *pgx.Conn) error {
		err := driver.SendBatch(ctx, batch).Close()
		t.begun = driver.PgConn().TxStatus() != 'I' // BEGIN itself can fail
		return err
	})
}

// commit sends what is to be sent with COMMIT, and COMMIT.
func (t *transaction) commit(ctx context.Context) error {
	if t.batched && !t.begun && t.delivery != nil {
		item := &batchItem{delivery: t.delivery, out: t.out}
		if t.out == nil {
			return t.store.deliveries.do(item)
		}
		return t.store.sends.do(item)
	}
	if t.out != nil { // a message without a payment: only tests send one
		return errAlone
	}
	if !t.begun && t.delivery == nil {
		return nil
	}
	if err := t.open(ctx); err != nil {
		return err
	}
	batch := t.batch()
	if t.delivery != nil {
		t.delivery.queue(batch)
	}
	batch.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return errRolledBack
		}
		return nil
	})
	return t.send(ctx, batch)
}

// batch begins with BEGIN, if that is still to be said.
func (t *transaction) batch() *pgx.Batch {
	batch := &pgx.Batch{}
	if !t.begun {
		batch.Queue("BEGIN")
	}
	return batch
}

// close rolls back what was not committed, and gives the connection back.
func (t *transaction) close(ctx context.Context) {
	if t.conn != nil {
		_ = t.with(func(driver *pgx.Conn) error {
			rollback(ctx, driver)
			return nil
		})
		_ = t.conn.Close()
	}
}

// rollback ends what was not committed. A connection on which that fails is not used again.
func rollback(ctx context.Context, driver *pgx.Conn) {
	if driver.IsClosed() || driver.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := driver.Exec(ctx, "ROLLBACK"); err != nil {
		_ = driver.Close(ctx)
	}
}

// begin comes before GORM's statements.
func (t *transaction) begin(ctx context.Context) error {
	if t.begun {
		return nil
	}
	if err := t.open(ctx); err != nil {
		return err
	}
	return t.send(ctx, t.batch())
}

// PrepareContext, ExecContext, QueryContext and QueryRowContext are GORM's way to the database.
func (t *transaction) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.conn.PrepareContext(ctx, query)
}

// ExecContext see PrepareContext.
func (t *transaction) ExecContext(ctx context.Context, query string, arguments ...any) (sql.Result, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.conn.ExecContext(ctx, query, arguments...)
}

// QueryContext see PrepareContext.
func (t *transaction) QueryContext(ctx context.Context, query string, arguments ...any) (*sql.Rows, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.conn.QueryContext(ctx, query, arguments...)
}

// QueryRowContext see PrepareContext.
func (t *transaction) QueryRowContext(ctx context.Context, query string, arguments ...any) *sql.Row {
	if err := t.begin(ctx); err != nil {
		ended, cancel := context.WithCancel(ctx) // only so can a *sql.Row hold an error
		cancel()
		database, _ := t.store.db.DB()
		return database.QueryRowContext(ended, query)
	}
	return t.conn.QueryRowContext(ctx, query, arguments...)
}

// plannedAnew finds rows by a statement whose best plan depends on its values. PostgreSQL would keep to one plan for all
// values from the sixth execution of a prepared statement on.
func plannedAnew[T any](ctx context.Context, s *Store, text string, values pgx.NamedArgs) ([]T, error) {
	return collect[T](ctx, s, text, pgx.QueryExecModeCacheDescribe, values)
}

// look finds rows by a statement that changes and locks nothing: it needs no transaction, and begins none.
func look[T any](ctx context.Context, s *Store, text string, values pgx.NamedArgs) ([]T, error) {
	return collect[T](ctx, s, text, values)
}

// lookOne is look for at most one row; nil if there is none.
func lookOne[T any](ctx context.Context, s *Store, text string, values pgx.NamedArgs) (*T, error) {
	found, err := look[T](ctx, s, text, values)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// collect runs a statement where s is: on the transaction, if that has begun.
func collect[T any](ctx context.Context, s *Store, text string, arguments ...any) (found []T, err error) {
	switch {
	case s.tx != nil && s.tx.out != nil: // this comes after the message, which is not sent yet
		return nil, errAlone
	case s.tx == nil || !s.tx.begun:
		rows, _ := s.pool.Query(ctx, text, arguments...) // CollectRows returns the error
		return pgx.CollectRows(rows, scan[T])
	default:
		err = s.tx.with(func(driver *pgx.Conn) error {
			rows, _ := driver.Query(ctx, text, arguments...)
			found, err = pgx.CollectRows(rows, scan[T])
			return err
		})
		return found, err
	}
}

// find runs a statement of ours without GORM, in one round trip: on the transaction if s is one. The columns of a struct
// are matched by name.
func find[T any](ctx context.Context, s *Store, text string, values ...any) ([]T, error) {
	if s.tx == nil || s.tx.begun {
		return collect[T](ctx, s, text, values...)
	}
	if err := s.tx.open(ctx); err != nil {
		return nil, err
	}
	var found []T
	batch := s.tx.batch()
	batch.Queue(text, values...).Fn = func(results pgx.BatchResults) error {
		rows, _ := results.Query()
		var err error
		found, err = pgx.CollectRows(rows, scan[T])
		return err
	}
	if err := s.tx.send(ctx, batch); err != nil {
		return nil, err
	}
	return found, nil
}

func scan[T any](row pgx.CollectableRow) (T, error) {
	if kind := reflect.TypeFor[T](); kind.Kind() == reflect.Struct && kind != reflect.TypeFor[time.Time]() {
		return pgx.RowToStructByName[T](row)
	}
	return pgx.RowTo[T](row)
}

// hasCode tells whether err is PostgreSQL's error with this code.
func hasCode(err error, code string) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && answer.Code == code
}

// divisionByZero is the code of the error that a statement raises by 1 / count(*) where it has changed nothing: nobody could
// look at its result before COMMIT.
const divisionByZero = "22012"
