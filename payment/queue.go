package payment

import (
	"context"
	"errors"
	"sync"
	"time"
)

// queues let the calls of one payment channel, and the copies of one payment, wait for each other in memory. The lock on a row would
// be enough, but each call would wait with a database connection.
type queues struct {
	mu  sync.Mutex
	all map[string]*queue // by the id of the payment channel, or by the payer and the nonce of a payment
}

type queue struct {
	turn  chan struct{}
	calls int // running and waiting
}

func newQueues() *queues { return &queues{all: map[string]*queue{}} }

// join waits for its turn, and returns busy after joinTime. The caller releases it.
func (q *queues) join(ctx context.Context, id string, busy *Error) (release func(), err error) {
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
	timer := time.NewTimer(joinTime)
	defer timer.Stop()
	select {
	case one.turn <- struct{}{}:
		return func() { <-one.turn; leave() }, nil
	case <-ctx.Done():
		if err = ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			err = busy
		}
	case <-timer.C:
		err = busy
	}
	leave()
	return nil, err
}
