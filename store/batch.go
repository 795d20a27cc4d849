package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Group commit: concurrent calls share one statement, and so one commit. While a batch runs, new calls are queued for the next batch, so a
// call never waits for other calls to arrive. Short statements that read (batch_read.go) and polls (unread_waiting.go) share round trips in
// the same way. There are six kinds of batch that write or check what is written: messages to check (checkMessage), payments to begin
// (BeginSettlement), and the four kinds of Commit: payments to deliver, and vouchers to charge, some with a page to mark as read
// (batch_mark.go), and messages to send together with the one or the other. A contended conversation has its own queues of messages
// (batch_contended.go), which the metrics count as a seventh kind.

// errNotBatched means that a call cannot be part of a batch. The call changed nothing and needs a transaction of its
// own.
var errNotBatched = errors.New("this call needs a transaction of its own")

const (
	// batchTimeout bounds a batch on a store without limits.
	batchTimeout = 30 * time.Second
	// maxBatch is the maximum number of calls in one statement, and maxBatchBytes how many bytes they write; one item may have more.
	maxBatch      = 64
	maxBatchBytes = 256 << 10
)

// batchItem is the part of one call in a batch. The channel done is buffered, so the batch does not wait for receivers.
type batchItem[T any] struct {
	value  T
	done   chan error
	since  time.Time
	caller trace.Span // of a traced call
}

// batcher queues items of one kind while a batch of them runs.
type batcher[T any] struct {
	// begin prepares a batch and returns the function that runs it. The items are taken after begin, so a batch has all those
	// that came while begin waited.
	begin func() (run func(context.Context, []batchItem[T]), err error)
	// keys, if not nil, identify what a statement can change only once. A batch ends before the second item with one of the same
	// keys. That item goes into the next batch, which sees the change of the first.
	keys func(T) []any
	// bytes, if not nil, is the size of an item. A batch has at most maxBatchBytes, so that nobody waits for the long items of others.
	bytes func(T) int
	batchKind

	lanes int // how many batches run at the same time; 0 means one

	mu      sync.Mutex
	waiting []batchItem[T]
	running int
}

// batchKind is what is the same for all batches of one kind.
type batchKind struct {
	// limit is how long an item waits for its batch. Zero means no limit.
	limit time.Duration
	// sizes observes the numbers of items.
	sizes prometheus.Observer
}

func newBatcher[T any](kind batchKind, run func(context.Context, []batchItem[T]), keys func(T) []any) *batcher[T] {
	limited := func(ctx context.Context, batch []batchItem[T]) {
		ctx, cancel := context.WithTimeout(ctx, batchTimeout)
		defer cancel()
		run(ctx, batch)
	}
	return &batcher[T]{begin: func() (func(context.Context, []batchItem[T]), error) { return limited, nil }, keys: keys, batchKind: kind}
}

// errTooSlow means that a call gave up a batch that it is in. Whether the batch did its work is unknown.
var errTooSlow = fmt.Errorf("the database is too slow: %w", context.DeadlineExceeded)

// do puts the value into the next batch and returns its result. Cancelling ctx does not stop the write; only its deadline applies.
// After errTooSlow the batch may still use the value.
func (b *batcher[T]) do(ctx context.Context, value T) error {
	var over <-chan time.Time
	if deadline, limited := ctx.Deadline(); limited {
		left := time.Until(deadline)
		if left <= 0 {
			return errNotSent
		}
		timer := time.NewTimer(left)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case err := <-b.add(ctx, value):
		return err
	case <-over:
		return errTooSlow
	}
}

// ask is do for a batch that changes nothing: it returns early if ctx ends.
func (b *batcher[T]) ask(ctx context.Context, value T) error {
	select {
	case err := <-b.add(ctx, value):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *batcher[T]) add(ctx context.Context, value T) <-chan error {
	item := batchItem[T]{value, make(chan error, 1), time.Now(), trace.SpanFromContext(ctx)}
	b.push(item)
	return item.done
}

// push puts an item after those that wait.
func (b *batcher[T]) push(item batchItem[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, item)
	b.start()
}

// retry puts items of a batch before those that wait.
func (b *batcher[T]) retry(items []batchItem[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(items, b.waiting...)
	b.start()
}

// start starts the work, unless it runs in all lanes.
func (b *batcher[T]) start() {
	if b.running < max(b.lanes, 1) && len(b.waiting) > 0 {
		b.running++
		go b.work()
	}
}

func (b *batcher[T]) work() {
	for b.shed() {
		if run, err := b.begin(); err == nil {
			runtime.Gosched() // calls that are ready to run join the batch
			batch := b.next()
			if len(batch) == 0 { // another lane took them
				continue
			}
			b.sizes.Observe(float64(len(batch)))
			ctx := context.Background()
			// The statements of a batch are in the trace of its first traced call.
			if i := slices.IndexFunc(batch, func(item batchItem[T]) bool { return item.caller.IsRecording() }); i >= 0 {
				ctx = trace.ContextWithSpan(ctx, batch[i].caller)
			}
			run(ctx, batch)
		} else {
			finish(b.all(), func(int, T) error { return err })
		}
	}
}

// shed refuses the items that have waited too long. It returns false, and the work ends, if no other item waits.
func (b *batcher[T]) shed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) > 0 && b.waiting[0].late(b.limit) {
		b.waiting[0].done <- errNotSent
		b.waiting = b.waiting[1:]
	}
	if len(b.waiting) == 0 {
		b.running--
		return false
	}
	return true
}

// late reports whether the item has waited too long for its batch.
func (i batchItem[T]) late(limit time.Duration) bool { return limit > 0 && time.Since(i.since) > limit }

// all takes all items that wait.
func (b *batcher[T]) all() []batchItem[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.waiting
	b.waiting = nil
	return all
}

// next takes the items of the next batch.
func (b *batcher[T]) next() []batchItem[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), maxBatch)
	if b.bytes != nil {
		n = b.fitting(b.waiting[:n])
	}
	if b.keys != nil {
		taken := map[any]bool{}
		for i, item := range b.waiting[:n] {
			keys := b.keys(item.value)
			if slices.ContainsFunc(keys, func(key any) bool { return taken[key] }) {
				n = i
				break
			}
			for _, key := range keys {
				taken[key] = true
			}
		}
	}
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return batch
}

// fitting returns how many of the items, from the first one, have maxBatchBytes.
func (b *batcher[T]) fitting(items []batchItem[T]) int {
	sum := 0
	for i, item := range items {
		if sum += b.bytes(item.value); sum > maxBatchBytes && i > 0 {
			return i
		}
	}
	return len(items)
}

// finish sends each item its result.
func finish[T any](batch []batchItem[T], result func(i int, value T) error) {
	for i, item := range batch {
		item.done <- result(i, item.value)
	}
}

// batchOf is a batch of one item, for a statement that does not share its commit.
func batchOf[T any](value T) []batchItem[T] { return []batchItem[T]{{value: value}} }

// column collects one value of each item.
func column[T, V any](batch []batchItem[T], of func(T) V) []V {
	values := make([]V, len(batch))
	for i, item := range batch {
		values[i] = of(item.value)
	}
	return values
}

// optionalColumn is column for values that most batches do not have: nil if there are none. unnest makes them NULL.
func optionalColumn[T, V any](batch []batchItem[T], of func(T) *V) any {
	if !slices.ContainsFunc(batch, func(item batchItem[T]) bool { return of(item.value) != nil }) {
		return nil
	}
	return column(batch, of)
}
