package payment

import (
	"context"
	"sync"
	"time"

	"github.com/parley-chat/parley/store"
)

// queues let the calls on one payment channel wait for each other in memory. The lock on its row would do, but each call
// would wait with a database connection.
type queues struct {
	mu  sync.Mutex
	all map[string]*queue // by the id of the payment channel
}

type queue struct {
	turn  chan struct{}
	calls int // running and waiting
}

func newQueues() *queues { return &queues{all: map[string]*queue{}} }

// join waits for its turn, for joinTime at most; the caller releases it.
func (q *queues) join(ctx context.Context, id string) (release func(), err error) {
	q.mu.Lock()
	one := q.all[id]
	if one == nil {
		one = &queue{turn: make(chan struct{}, 1)}
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
	limit, done := store.Wait(ctx, joinTime)
	defer done()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case one.turn <- struct{}{}:
		return func() { <-one.turn; leave() }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = unavailable("other calls on this payment channel are running", 2, nil)
	}
	leave()
	return nil, err
}
