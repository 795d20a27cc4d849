package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// sharedRead is a statement that reads for one call, in one round trip with those of others.
type sharedRead struct {
	text    string
	values  pgx.QueryRewriter
	collect func(pgx.Rows) error
	done    bool
}

// read is query for a short statement that only reads. Outside of a transaction concurrent calls share a round trip.
func read[T any](ctx context.Context, on session, text string, values pgx.QueryRewriter) ([]T, error) {
	r := on.reader()
	if r.tx != nil {
		return query[T](ctx, on, text, values)
	}
	var found []T
	err := r.reads.ask(ctx, &sharedRead{text: text, values: values, collect: func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, scan[T])
		return err
	}})
	switch {
	case errors.Is(err, errNotBatched):
		return query[T](ctx, on, text, values)
	case err != nil: // the batch may still run
		return nil, err
	}
	return found, nil
}

// list is read for a short page, and query for a long one: others would wait for it.
func list[T any](ctx context.Context, on session, most int64, text string, values pgx.QueryRewriter) ([]T, error) {
	if most > ShortPage {
		return query[T](ctx, on, text, values)
	}
	return read[T](ctx, on, text, values)
}

// readBatch runs the statements of a batch. They share an implicit transaction, which the first error ends.
func (r *Reader) readBatch(ctx context.Context, batch []batchItem[*sharedRead]) {
	statements := &pgx.Batch{}
	for _, item := range batch {
		statements.Queue(item.value.text, item.value.values).Query(func(rows pgx.Rows) error {
			err := item.value.collect(rows)
			item.value.done = err == nil
			return err
		})
	}
	err := r.send(ctx, statements)
	finish(batch, func(_ int, one *sharedRead) error {
		switch {
		case one.done:
			return nil
		case rolledBack(err) && len(batch) > 1:
			return errNotBatched
		}
		return err
	})
}
