package payment

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"
)

// queues let calls with the same id wait for each other in memory. The lock on a row would be enough for most of them, but each call
// would wait with a database connection.
type queues struct {
	mu  sync.Mutex
	all map[string]*queue
}

type queue struct {
	places *semaphore.Weighted
	calls  int // running and waiting
}

func newQueues() *queues { return &queues{all: map[string]*queue{}} }

// Queue waits until no other call with the same id runs: of a payment channel, or of the payer and the nonce of a payment. It returns busy
// after joinTime. The caller releases it.
func (e *Engine) Queue(ctx context.Context, id string, busy *Error) (release func(), err error) {
	if release, err = e.queues.enter(ctx, id, 1, 1); errors.Is(err, context.DeadlineExceeded) {
		err = busy
	}
	return release, err
}

// enter waits for so many places (weight) of the queue with this id, at most joinTime. The caller releases them.
func (q *queues) enter(ctx context.Context, id string, places, weight int64) (release func(), err error) {
	q.mu.Lock()
	one := q.all[id]
	if one == nil {
		one = &queue{places: semaphore.NewWeighted(places)}
		q.all[id] = one
	}
	one.calls++
	q.mu.Unlock()
	leave := func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if one.calls--; one.calls == 0 {
			delete(q.all, id)
		}
	}
	if !one.places.TryAcquire(weight) { // else nothing is allocated for a wait
		ctx, cancel := context.WithTimeout(ctx, joinTime)
		defer cancel()
		if err := one.places.Acquire(ctx, weight); err != nil {
			leave()
			return nil, err
		}
	}
	return func() { one.places.Release(weight); leave() }, nil
}
