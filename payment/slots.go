package payment

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// slots bound the dry runs that are under way at a time, weighted by what they may cost. Wallets that have not paid lately
// share a small part, so that they cannot keep the others waiting.
type slots struct {
	payers, strangers *semaphore.Weighted
}

const (
	payerSlots    = 64
	strangerSlots = 16
	// slotBytes is how much of a request one unit of weight stands for.
	slotBytes = 16 << 10
	// maxWeight is the most that one call weighs.
	maxWeight = 8
)

func newSlots() *slots {
	return &slots{semaphore.NewWeighted(payerSlots), semaphore.NewWeighted(strangerSlots)}
}

// acquire waits for a slot; the caller releases it.
func (s *slots) acquire(ctx context.Context, a *Attempt, payer bool) (release func(), err error) {
	weight := min(max(1+int64(len(a.request))/slotBytes, a.operation.Weight), maxWeight)
	pool := s.strangers
	if payer {
		pool = s.payers
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	if err := pool.Acquire(ctx, weight); err != nil {
		return nil, unavailable("the server is busy", 2, err)
	}
	return func() { pool.Release(weight) }, nil
}
