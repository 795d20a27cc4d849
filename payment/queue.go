package payment

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
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

// Queue waits until no other call with the same id runs, and returns busy after joinTime. The caller releases it.
func (e *Engine) Queue(ctx context.Context, id string, busy *Error) (release func(), err error) {
	q := e.queues
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

// slots bound the concurrent dry runs, weighted by their cost. Wallets without a recent payment share a small part, so that
// they cannot delay the others.
type slots struct {
	payers, strangers *semaphore.Weighted
	responses         *semaphore.Weighted // bytes of reads that wait for their settlement
}

const (
	payerSlots    = 64
	strangerSlots = 16
	// slotBytes is the request size that counts as one unit of weight.
	slotBytes = 16 << 10
	// maxWeight is the maximum weight of a call.
	maxWeight = 8
	// maxWaiting is how many bytes of responses wait for their settlement.
	maxWaiting = 64 << 20
)

func newSlots() *slots {
	return &slots{semaphore.NewWeighted(payerSlots), semaphore.NewWeighted(strangerSlots), semaphore.NewWeighted(maxWaiting)}
}

// acquire waits for a slot; the caller releases it.
func (s *slots) acquire(ctx context.Context, a *Attempt, payer bool) (release func(), err error) {
	weight := min(1+int64(len(a.request))/slotBytes, maxWeight)
	if a.Operation.Paged { // a page may hold 1 MiB
		weight = maxWeight
	}
	pool := s.strangers
	if payer {
		pool = s.payers
	}
	release = func() { pool.Release(weight) }
	if pool.TryAcquire(weight) {
		return release, nil
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	if err := pool.Acquire(ctx, weight); err != nil {
		return nil, Unavailable("the server is busy", 2, err)
	}
	return release, nil
}

// keep reports whether the response of a read can be kept until it is settled: too many may wait already. The caller forgets it.
func (s *slots) keep(response []byte) bool { return s.responses.TryAcquire(int64(len(response))) }

func (s *slots) forget(response []byte) { s.responses.Release(int64(len(response))) }
