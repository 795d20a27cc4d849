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

// transaction is a database transaction that costs no round trips of its own where that can be: BEGIN travels with the
// first of our statements, COMMIT with the last. GORM's statements run on the same connection.
type transaction struct {
	conn   *sql.Conn
	driver *pgx.Conn
	begun  bool
	last   []lastStatement
	// changed are the agents that this server must forget.
	changed []uuid.UUID
}

// lastStatement is sent together with COMMIT. Where one fails, all is rolled back.
type lastStatement struct {
	text    string
	values  pgx.NamedArgs
	failure func(error) error
}

// Transaction runs fn in one database transaction and commits it, unless fn returns an error.
func (s *Store) Transaction(ctx context.Context, fn func(tx *Store) error) error {
	return s.transact(ctx, func(tx *Store) error {
		if err := fn(tx); err != nil {
			return err
		}
		return tx.tx.commit(ctx)
	})
}

// Rehearse runs fn in a transaction that is always rolled back, and returns fn's error: what would happen, without it happening.
func (s *Store) Rehearse(ctx context.Context, fn func(tx *Store) error) error {
	return s.transact(ctx, fn)
}

// transact runs fn in a transaction, which is rolled back if fn has not committed it.
func (s *Store) transact(ctx context.Context, fn func(tx *Store) error) error {
	database, err := s.db.DB()
	if err != nil {
		return err
	}
	conn, err := database.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // back into the pool
	tx := &transaction{conn: conn}
	err = conn.Raw(func(driver any) error {
		tx.driver = driver.(*stdlib.Conn).Conn() //nolint:forcetypeassert // the pool's; see Open
		return nil
	})
	if err != nil {
		return err
	}
	defer tx.rollback(ctx)
	db := s.db.Session(&gorm.Session{Context: ctx, NewDB: true})
	db.Statement.ConnPool = tx
	defer func() { // also when it is not known whether COMMIT came through
		for _, id := range tx.changed {
			s.agents.forget(id)
		}
	}()
	return fn(&Store{pool: s.pool, db: db, owner: s.owner, agents: s.agents, tx: tx})
}

// commit sends what is to be sent with COMMIT, and COMMIT.
func (t *transaction) commit(ctx context.Context) error {
	if !t.begun && len(t.last) == 0 {
		return nil
	}
	batch := t.batch()
	for _, last := range t.last {
		batch.Queue(last.text, last.values).Fn = func(results pgx.BatchResults) error {
			if _, err := results.Exec(); err != nil {
				return last.failure(err)
			}
			return nil
		}
	}
	batch.Queue("COMMIT")
	return t.driver.SendBatch(ctx, batch).Close()
}

// batch begins with BEGIN, if that is still to be said.
func (t *transaction) batch() *pgx.Batch {
	batch := &pgx.Batch{}
	if !t.begun {
		batch.Queue("BEGIN")
		t.begun = true
	}
	return batch
}

// rollback ends what was not committed. A connection on which that fails is not used again.
func (t *transaction) rollback(ctx context.Context) {
	if t.driver.IsClosed() || t.driver.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := t.driver.Exec(ctx, "ROLLBACK"); err != nil {
		_ = t.driver.Close(ctx)
	}
}

// begin comes before GORM's statements.
func (t *transaction) begin(ctx context.Context) error {
	if t.begun {
		return nil
	}
	t.begun = true
	_, err := t.driver.Exec(ctx, "BEGIN")
	return err
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
	_ = t.begin(ctx) // where that fails the statement does, too
	return t.conn.QueryRowContext(ctx, query, arguments...)
}

// plannedAnew finds rows by a statement whose best plan depends on its values. PostgreSQL would keep to one plan for all
// values from the sixth execution of a prepared statement on.
func plannedAnew[T any](ctx context.Context, s *Store, text string, values pgx.NamedArgs) ([]T, error) {
	if s.tx == nil {
		rows, _ := s.pool.Query(ctx, text, pgx.QueryExecModeCacheDescribe, values)
		return pgx.CollectRows(rows, scan[T])
	}
	if err := s.tx.begin(ctx); err != nil {
		return nil, err
	}
	rows, _ := s.tx.driver.Query(ctx, text, pgx.QueryExecModeCacheDescribe, values)
	return pgx.CollectRows(rows, scan[T])
}

// find runs a statement of ours without GORM, in one round trip: on the transaction if s is one. The columns of a struct
// are matched by name.
func find[T any](ctx context.Context, s *Store, text string, values pgx.NamedArgs) ([]T, error) {
	switch {
	case s.tx == nil:
		rows, _ := s.pool.Query(ctx, text, values) // CollectRows returns the error
		return pgx.CollectRows(rows, scan[T])
	case s.tx.begun:
		rows, _ := s.tx.driver.Query(ctx, text, values)
		return pgx.CollectRows(rows, scan[T])
	}
	var found []T
	batch := s.tx.batch()
	batch.Queue(text, values).Fn = func(results pgx.BatchResults) error {
		rows, _ := results.Query()
		var err error
		found, err = pgx.CollectRows(rows, scan[T])
		return err
	}
	if err := s.tx.driver.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	return found, nil
}

// findOne is find for at most one row; nil if there is none.
func findOne[T any](ctx context.Context, s *Store, text string, values pgx.NamedArgs) (*T, error) {
	found, err := find[T](ctx, s, text, values)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func scan[T any](row pgx.CollectableRow) (T, error) {
	if kind := reflect.TypeFor[T](); kind.Kind() == reflect.Struct && kind != reflect.TypeFor[time.Time]() {
		return pgx.RowToStructByName[T](row)
	}
	return pgx.RowTo[T](row)
}

// last runs a statement that is the transaction's last together with its COMMIT, so that failure speaks when the
// transaction ends; it says what a database error means. Without a transaction the statement runs at once.
func (s *Store) last(ctx context.Context, text string, values pgx.NamedArgs, failure func(error) error) error {
	if s.tx != nil {
		s.tx.last = append(s.tx.last, lastStatement{text, values, failure})
		return nil
	}
	if _, err := s.pool.Exec(ctx, text, values); err != nil {
		return failure(err)
	}
	return nil
}

// hasCode tells whether err is PostgreSQL's error with this code.
func hasCode(err error, code string) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && answer.Code == code
}

// The codes of errors that mean something here.
const (
	uniqueViolation = "23505"
	// divisionByZero is what a last statement raises by 1 / count(*) where it has changed nothing: nobody could look at its
	// result before COMMIT.
	divisionByZero = "22012"
)
