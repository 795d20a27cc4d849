package store

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// session is what a statement runs on: a Store, a Reader or a Tx.
type session interface{ reader() *Reader }

func (r *Reader) reader() *Reader { return r }

// named are the values of a statement, which has their names: @name.
type named map[string]any

// none are the values of a statement without names.
var none = named{}

// query runs a statement and returns its rows. The result type needs a field for each column of the result, with the same name.
func query[T any](ctx context.Context, on session, text string, values pgx.QueryRewriter) (found []T, err error) {
	err = on.reader().connected(ctx, func(connection *pgx.Conn) error {
		rows, _ := connection.Query(ctx, text, values) // CollectRows returns the error
		found, err = pgx.CollectRows(rows, scan[T])
		return err
	})
	return found, err
}

// exec runs a statement and returns the number of rows that it changed.
func exec(ctx context.Context, on session, text string, values pgx.QueryRewriter) (int64, error) {
	var tag pgconn.CommandTag
	err := on.reader().connected(ctx, func(connection *pgx.Conn) (err error) {
		tag, err = connection.Exec(ctx, text, values)
		return err
	})
	return tag.RowsAffected(), err
}

// send runs the statements of a batch, one after the other, in one round trip: in the transaction, or outside in one of its own.
func (r *Reader) send(ctx context.Context, batch *pgx.Batch) error {
	return r.connected(ctx, func(connection *pgx.Conn) error { return connection.SendBatch(ctx, batch).Close() })
}

// connected runs a function with the connection of the transaction, or outside with one of the pool.
func (r *Reader) connected(ctx context.Context, run func(connection *pgx.Conn) error) error {
	if r.tx != nil {
		return r.tx.Raw(func(driver any) error { return run(driver.(*stdlib.Conn).Conn()) }) //nolint:forcetypeassert // see Open
	}
	connection, err := r.pool.Acquire(ctx)
	if err != nil {
		return notSent(err)
	}
	defer connection.Release()
	return run(connection.Conn())
}

// queue adds a statement to a batch, and collects its rows.
func queue[T any](batch *pgx.Batch, rows *[]T, text string, values pgx.QueryRewriter) {
	batch.Queue(text, values).Query(func(result pgx.Rows) (err error) {
		*rows, err = pgx.CollectRows(result, scan[T])
		return err
	})
}

// first returns the first row, or nil if there is none.
func first[T any](rows []T, err error) (*T, error) {
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// single returns the row of a statement that always returns one.
func single[T any](rows []T, err error) (one T, _ error) {
	if err == nil {
		one = rows[0]
	}
	return one, err
}

// wrap adds to an error what was attempted. It returns nil if err is nil.
func wrap(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", action, err)
}

// wrapInto is wrap for the result of a function that defers it.
func wrapInto(err *error, action string) { *err = wrap(action, *err) }

func scan[T any](row pgx.CollectableRow) (T, error) {
	if kind := reflect.TypeFor[T](); kind.Kind() == reflect.Struct && kind != reflect.TypeFor[time.Time]() {
		return pgx.RowToStructByNameLax[T](row)
	}
	return pgx.RowTo[T](row)
}

// pairs are like named, for the statements of batches: with many values a map takes several allocations more.
type pairs []pair

type pair struct {
	name  string
	value any
}

// positional is a statement with parameters by position, and their names.
type positional struct {
	text  string
	names []string
}

// statements are the last texts, because parsing one takes longer than sending it. Few texts depend on what a caller wants.
var statements, _ = lru.New[string, positional](512) // fails for sizes below 1

// parse makes parameters by position of the names in a text.
func parse(ctx context.Context, connection *pgx.Conn, text string, names iter.Seq[string]) (positional, error) {
	if statement, ok := statements.Get(text); ok {
		return statement, nil
	}
	known := pgx.NamedArgs{}
	for name := range names {
		known[name] = name
	}
	parsed, found, err := known.RewriteQuery(ctx, connection, text, nil)
	if err != nil {
		return positional{}, err
	}
	statement := positional{text: parsed}
	for _, name := range found {
		one, ok := name.(string)
		if !ok {
			return positional{}, fmt.Errorf("a statement has a name without a value: %s", strings.TrimSpace(text))
		}
		statement.names = append(statement.names, one)
	}
	statements.Add(text, statement)
	return statement, nil
}

// RewriteQuery gives pgx the values by position.
func (n named) RewriteQuery(ctx context.Context, connection *pgx.Conn, text string, _ []any) (string, []any, error) {
	return rewrite(ctx, connection, text, maps.Keys(n), func(_ int, name string) (any, bool) {
		value, ok := n[name]
		return value, ok
	})
}

// RewriteQuery gives pgx the values by position.
func (p pairs) RewriteQuery(ctx context.Context, connection *pgx.Conn, text string, _ []any) (string, []any, error) {
	return rewrite(ctx, connection, text, p.names, func(i int, name string) (any, bool) {
		if i < len(p) && p[i].name == name { // mostly they are in the order of the text
			return p[i].value, true
		}
		for _, one := range p {
			if one.name == name {
				return one.value, true
			}
		}
		return nil, false
	})
}

func (p pairs) names(yield func(string) bool) {
	for _, one := range p {
		if !yield(one.name) {
			return
		}
	}
}

// rewrite returns a statement with parameters by position, and their values. Value gets the position of a name, too.
func rewrite(
	ctx context.Context, connection *pgx.Conn, text string, names iter.Seq[string], value func(i int, name string) (any, bool),
) (string, []any, error) {
	statement, err := parse(ctx, connection, text, names)
	if err != nil {
		return "", nil, err
	}
	values := make([]any, len(statement.names))
	for i, name := range statement.names {
		var ok bool
		if values[i], ok = value(i, name); !ok {
			return "", nil, fmt.Errorf("a statement needs a value for @%s: %s", name, strings.TrimSpace(text))
		}
	}
	return statement.text, values, nil
}
