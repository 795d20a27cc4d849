package server

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/parley-chat/parley/store"
)

// mayDefer tells whether a payment may be settled after its call is answered: where the operator allows it, for cheap
// calls of an account whose payment we could check ourselves. Whether the caps have room is seen when it is written.
func (s *Server) mayDefer(paid *payment) bool {
	return paid.operation.price <= s.config.Deferred.Call && paid.caller != nil && paid.checked.Conclusive
}

// recent remembers for a while what was there: at least as long as it takes for maxRecent others to come.
type recent struct {
	seed     maphash.Seed
	mu       sync.Mutex
	new, old map[uint64]struct{}
}

// maxRecent bounds each half of it, some megabytes.
const maxRecent = 1 << 16

func newRecent() *recent {
	return &recent{seed: maphash.MakeSeed(), new: map[uint64]struct{}{}}
}

// add tells whether something was there before. Rarely it says so of what was not.
func (r *recent) add(something string) (before bool) {
	key := maphash.String(r.seed, something)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, before = r.new[key]; before {
		return true
	}
	_, before = r.old[key]
	if len(r.new) >= maxRecent {
		r.new, r.old = map[uint64]struct{}{}, r.new
	}
	r.new[key] = struct{}{}
	return before
}

func (r *recent) has(something string) bool {
	key := maphash.String(r.seed, something)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, now := r.new[key]
	_, before := r.old[key]
	return now || before
}

// presumedNew tells whether a payment is most probably not in the ledger: it can still begin, and neither it nor another of
// its name was seen here. Only those are written without a look, and together with others: whoever sends one payment over
// and over would spoil that for the others.
func (s *Server) presumedNew(paid *payment) bool {
	if !s.mayDefer(paid) || paid.replaced || paid.outOfTime != nil {
		return false
	}
	seen := s.recent.add(paid.checked.Payer + paid.checked.Nonce)
	if paid.identifier != "" {
		seen = s.recent.add(paid.caller.String()+paid.identifier) || seen
	}
	return !seen
}

// deliverFirst makes the effect and writes the payment as owed in one transaction; the recovery worker settles it soon
// after. store.ErrOverCap if it must settle first.
func (s *Server) deliverFirst(ctx context.Context, paid *payment, handle handler) (delivered *receipt, err error) {
	// What was begun is finished, as with a settlement: a caller that hangs up must not leave it open what happened.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	row := paid.row()
	var answer []byte
	// This server collects it itself, unless there is too much to do: then whoever has time does.
	var ours time.Duration
	if s.claims.reserve(1) {
		ours = lease
		defer func() {
			if delivered == nil { // also after a panic
				s.claims.reserved.Add(-1)
			}
		}()
	}
	transaction := s.store.Transaction
	if paid.isNew && !s.recent.has(paid.checked.Payer) {
		transaction = s.store.Together
	}
	err = transaction(ctx, func(tx *store.Store) (err error) {
		within := tx
		if paid.operation.readOnly { // a read needs no transaction
			within = s.store
		}
		if answer, err = handle(ctx, within); err != nil {
			return err
		}
		if row.Answer, err = sealAnswer(paid.secret(), paid.request, answer); err != nil {
			return err
		}
		if err := tx.Owe(row, s.config.Deferred, ours); err != nil {
			return err
		}
		crash("owing")
		return nil
	})
	if errors.Is(err, store.ErrOverCap) {
		s.recent.add(paid.checked.Payer)
	}
	if err != nil {
		return nil, err
	}
	crash("owed")
	s.metrics.payment(row, outcomeOwed)
	if ours > 0 {
		s.claims.queue <- claimed{row, paid}
	}
	return &receipt{body: answer, settled: settledAs(row, "")}, nil
}
