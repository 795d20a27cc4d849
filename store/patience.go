package store

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Patience is how long one call of a server waits in all: for the database, and for other calls. The limits of single statements
// add up otherwise, because a call has several. Waiting for the facilitator and the blockchain does not count.
const Patience = 4200 * time.Millisecond

// patience is what is left of it.
type patience struct {
	mu   sync.Mutex
	left time.Duration
}

type patienceKey struct{}

// WithPatience returns a context for one call, which waits no longer than Patience. Contexts made from it share what is left.
func WithPatience(ctx context.Context) context.Context {
	return context.WithValue(ctx, patienceKey{}, &patience{left: Patience})
}

// Wait returns how long a wait may take, most at most, and a function that ends the wait. A context without patience sets no limit.
func Wait(ctx context.Context, most time.Duration) (limit time.Duration, done func()) {
	p, ok := ctx.Value(patienceKey{}).(*patience)
	if !ok {
		return most, func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	began := time.Now()
	return max(0, min(most, p.left)), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.left -= time.Since(began)
	}
}

// batchWait is how long a call without patience waits for its batch.
const batchWait = time.Hour

// errTooSlow means that a call gave up a batch that it is in. Whether the batch did its work is unknown.
var errTooSlow = fmt.Errorf("the database is too slow: %w", context.DeadlineExceeded)

// await waits for the result of a batch item.
func await(ctx context.Context, begin func() <-chan error) error {
	limit, done := Wait(ctx, batchWait)
	defer done()
	if limit == 0 {
		return errNotSent
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-begin():
		return err
	case <-timer.C:
		return errTooSlow
	}
}
