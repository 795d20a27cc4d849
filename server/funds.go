package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/x402"
)

// balanceTimeout is how long the chain's endpoint is waited for before the facilitator is asked instead: a caller is to know
// within two seconds that neither of them answers.
const balanceTimeout = 300 * time.Millisecond

// checkFunds makes sure, before any work is done for it, that a wallet can pay: wallets cost nothing, so a signature alone
// proves no money. A wallet that has paid lately is believed.
func (s *Server) checkFunds(ctx context.Context, paid *payment) error {
	switch {
	case !paid.checked.Conclusive: // only the chain can judge the signature
		return s.verify(ctx, paid)
	case s.wallets.settledLately(paid.checked.Payer):
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, balanceTimeout)
	balance, err := s.chain.Balance(asking, strings.ToLower(paid.offer.Asset), paid.checked.Payer)
	cancel()
	if err != nil { // the facilitator has an endpoint of its own
		return s.verify(ctx, paid)
	}
	if balance < paid.operation.price {
		return s.refused(paid.operation, x402.ReasonInsufficientBalance, "the wallet does not hold the price; nothing was taken. Fund it and sign a new payment")
	}
	return nil
}

// slots bound the dry runs that are under way at a time, weighted by what they may cost. Wallets that have not paid lately
// share a small part, so that they cannot keep the others waiting.
type slots struct {
	payers, strangers *semaphore.Weighted
}

const (
	payerSlots    = 64
	strangerSlots = 16
	// slotBytes is how much request or response one unit of weight stands for.
	slotBytes = 16 << 10
	// pageWeight is the weight of a page of messages, which may hold a mebibyte.
	pageWeight = 8
)

func newSlots() *slots {
	return &slots{semaphore.NewWeighted(payerSlots), semaphore.NewWeighted(strangerSlots)}
}

// acquire waits for a slot; the caller releases it.
func (s *slots) acquire(ctx context.Context, paid *payment, payer bool) (release func(), err error) {
	weight := min(1+int64(len(paid.request))/slotBytes, pageWeight)
	if paid.operation.paged {
		weight = pageWeight
	}
	pool := s.strangers
	if payer {
		pool = s.payers
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	if err := pool.Acquire(ctx, weight); err != nil {
		return nil, &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodeUnavailable, retryAfter: 2, cause: err,
			message: "the server is busy and nothing was taken; send the same request with the same payment again"}
	}
	return func() { pool.Release(weight) }, nil
}
