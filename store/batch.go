package store

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Group commit: calls that come at the same time share one statement and so one commit. While a batch is under way the
// next calls gather for the one after it, so that nobody waits for company. There are four kinds of batch: messages that
// are checked (CheckMessage), payments that begin (BeginSettlement), payments that are delivered (PaymentDelivered), and
// messages that are sent together with the delivery of their payments (SendDelivered).

// ErrNotBatched means that a call cannot be part of a batch and changed nothing: it needs a transaction of its own.
var ErrNotBatched = errors.New("this call needs a transaction of its own")

const (
	// batchTimeout bounds the statement of a batch.
	batchTimeout = 30 * time.Second
	// maxBatch is how many calls share a statement at most.
	maxBatch = 64
)

// batchItem is one call's part of a batch. done has room for the result, so that the batch waits for nobody.
type batchItem[T any] struct {
	value T
	done  chan error
}

// batcher gathers the items of one kind while a batch of them is under way.
type batcher[T any] struct {
	run func([]batchItem[T])
	// key, if not nil, is what a statement can change once, however many of its items say so: a batch has no two items of
	// one key. The later one waits for the next batch, which finds it changed.
	key func(T) uuid.UUID

	mu      sync.Mutex
	waiting []batchItem[T]
	busy    bool
}

func newBatcher[T any](run func([]batchItem[T]), key func(T) uuid.UUID) *batcher[T] {
	return &batcher[T]{run: run, key: key}
}

// do makes the value part of the next batch and returns what came of it. It waits for that, however impatient the caller is:
// what a batch writes cannot be taken back.
func (b *batcher[T]) do(value T) error { return <-b.add(value) }

// ask is do for a batch that changes nothing: a caller that leaves need not wait for it.
func (b *batcher[T]) ask(ctx context.Context, value T) error {
	select {
	case err := <-b.add(value):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *batcher[T]) add(value T) <-chan error {
	item := batchItem[T]{value, make(chan error, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, item)
	if !b.busy {
		b.busy = true
		go b.work()
	}
	return item.done
}

func (b *batcher[T]) work() {
	for batch := b.next(); batch != nil; batch = b.next() {
		b.run(batch)
	}
}

// next takes the next batch; nil if nothing waits.
func (b *batcher[T]) next() []batchItem[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), maxBatch)
	if n == 0 {
		b.busy = false
		return nil
	}
	if b.key != nil {
		taken := map[uuid.UUID]bool{}
		for i, item := range b.waiting[:n] {
			if key := b.key(item.value); !taken[key] {
				taken[key] = true
				continue
			}
			n = i
			break
		}
	}
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return batch
}

// finish tells each item what came of it.
func finish[T any](batch []batchItem[T], result func(i int, value T) error) {
	for i, item := range batch {
		item.done <- result(i, item.value)
	}
}

// column is one array of a batch's values.
func column[T, V any](batch []batchItem[T], of func(T) V) []V {
	values := make([]V, len(batch))
	for i, item := range batch {
		values[i] = of(item.value)
	}
	return values
}

// rolledBack tells whether PostgreSQL itself says that a statement was undone. Any other error leaves open whether it was
// committed.
func rolledBack(err error) bool {
	said, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !strings.HasPrefix(said.Code, "57P") && !strings.HasPrefix(said.Code, "08")
}

// query runs a statement on pgx's pool, never in a transaction. Each column needs a field of its name.
func query[T any](ctx context.Context, s *Store, text string, arguments ...any) ([]T, error) {
	rows, _ := s.pool.Query(ctx, text, arguments...) // CollectRows returns the error
	return pgx.CollectRows(rows, scan[T])
}

func scan[T any](row pgx.CollectableRow) (T, error) {
	if kind := reflect.TypeFor[T](); kind.Kind() == reflect.Struct && kind != reflect.TypeFor[time.Time]() {
		return pgx.RowToStructByNameLax[T](row)
	}
	return pgx.RowTo[T](row)
}
