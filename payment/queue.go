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
	room  *semaphore.Weighted
	calls int // running and waiting
}

func newQueues() *queues { return &queues{all: map[string]*queue{}} }

// Queue waits until no other call with the same id runs: of a payment channel, or of the payer and the nonce of a payment. It returns busy
// after joinTime. The caller releases it.
func (e *Engine) Queue(ctx context.Context, id string, busy *Error) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	if release, err = e.queues.enter(ctx, id, 1, 1); errors.Is(err, context.DeadlineExceeded) {
		err = busy
	}
	return release, err
}

// enter waits for room in the queue with this id, which has room for so much. The caller releases it.
func (q *queues) enter(ctx context.Context, id string, room, weight int64) (release func(), err error) {
	q.mu.Lock()
	one := q.all[id]
	if one == nil {
		one = &queue{room: semaphore.NewWeighted(room)}
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
	if err := one.room.Acquire(ctx, weight); err != nil {
		leave()
		return nil, err
	}
	return func() { one.room.Release(weight); leave() }, nil
}

// slots bound the concurrent dry runs, weighted by their cost. Wallets without a recent payment share a small part, so that they cannot
// delay the others. Whoever makes many calls at the same time waits for its own, in own, before it waits among the others.
type slots struct {
	payers, strangers *semaphore.Weighted
	own               *queues
	responses         *semaphore.Weighted // bytes of reads that wait for their settlement
}

const (
	payerSlots    = 64
	strangerSlots = 16
	ownSlots      = 8 // of an account or, without one, of a wallet
	// slotBytes is the request size that counts as one unit of weight.
	slotBytes = 16 << 10
	// maxWeight is the maximum weight of a call.
	maxWeight = ownSlots
	// maxWaiting is how many bytes of responses wait for their settlement.
	maxWaiting = 64 << 20
)

func newSlots() *slots {
	return &slots{semaphore.NewWeighted(payerSlots), semaphore.NewWeighted(strangerSlots), newQueues(), semaphore.NewWeighted(maxWaiting)}
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
	who := a.Payer()
	if a.Caller != nil {
		who = a.Caller.Account.String()
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	leave, err := s.own.enter(ctx, who, ownSlots, weight)
	if err != nil {
		return nil, Unavailable("the server is busy with other calls of yours", 2, err)
	}
	if err := pool.Acquire(ctx, weight); err != nil {
		leave()
		return nil, Unavailable("the server is busy", 2, err)
	}
	return func() { pool.Release(weight); leave() }, nil
}

// keep reports whether the response of a read can be kept until it is settled: too many may wait already. The caller forgets it.
func (s *slots) keep(response []byte) bool { return s.responses.TryAcquire(int64(len(response))) }

func (s *slots) forget(response []byte) { s.responses.Release(int64(len(response))) }
