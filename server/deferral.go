package server

import (
	"context"
	"time"

	"github.com/parley-chat/parley/store"
)

// mayDefer tells whether a payment may be settled after its call is answered: where the operator allows it, for cheap
// calls of an account whose payment we could check ourselves. Whether the caps have room is seen when it is written.
func (s *Server) mayDefer(paid *payment) bool {
	return paid.operation.price <= s.config.Deferred.Call && paid.caller != nil && paid.checked.Conclusive
}

// deliverFirst makes the effect and writes the payment as owed in one transaction; the recovery worker settles it soon
// after. store.ErrOverCap if it must settle first.
func (s *Server) deliverFirst(ctx context.Context, paid *payment, handle handler) (*receipt, error) {
	// What was begun is finished, as with a settlement: a caller that hangs up must not leave it open what happened.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	row := paid.row()
	var answer []byte
	// This server collects it itself, unless there is too much to do: then whoever has time does.
	var ours time.Duration
	if s.claims.reserve(1) {
		ours = lease
	}
	err := s.store.Together(ctx, func(tx *store.Store) (err error) {
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
	if err != nil {
		if ours > 0 {
			s.claims.reserved.Add(-1)
		}
		return nil, err
	}
	crash("owed")
	s.metrics.payment(row, outcomeOwed)
	if ours > 0 {
		s.claims.queue <- claimed{row, paid}
	}
	return &receipt{body: answer, settled: settledAs(row, "")}, nil
}
