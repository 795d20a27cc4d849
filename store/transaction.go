package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// transaction is what a Store collects until its transaction ends.
type transaction struct {
	// changed lists the agents that this server's cache must forget.
	changed []uuid.UUID
}

// transactionNames are the names of their spans.
var transactionNames = map[mode]string{normal: "transaction", dryRun: "dry run transaction"}

// errDryRun rolls back a dry run.
var errDryRun = errors.New("this transaction is a dry run")

// Transaction runs fn in one database transaction and commits it, unless fn returns an error. If the store is already
// in a transaction, fn runs in that one.
func (s *Store) Transaction(ctx context.Context, fn func(tx *Store) error) error {
	if s.tx != nil {
		return fn(s)
	}
	return s.transact(ctx, normal, fn)
}

func (s *Store) transact(ctx context.Context, mode mode, fn func(tx *Store) error) error {
	tx := &transaction{}
	defer func() { // also if it is unknown whether COMMIT succeeded
		for _, id := range tx.changed {
			s.agents.forget(id)
		}
	}()
	if s.limits.Transaction > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.limits.Transaction)
		defer cancel()
	}
	ctx, span := s.tracer.Start(ctx, transactionNames[mode])
	begun := false
	err := s.db.WithContext(ctx).Transaction(func(db *gorm.DB) error {
		begun = true
		inside := *s
		inside.db, inside.tx, inside.mode = db, tx, mode
		return fn(&inside)
	})
	_, refused := errors.AsType[*Refusal](err)
	span.End(err != nil && !refused && !errors.Is(err, errDryRun))
	if err != nil && !begun {
		return notSent(err)
	}
	return err
}

// forgetAgent removes a changed agent from this server's cache. In a transaction it does so when the transaction ends.
func (s *Store) forgetAgent(id uuid.UUID) {
	if s.tx != nil {
		s.tx.changed = append(s.tx.changed, id)
		return
	}
	s.agents.forget(id)
}

// gorm returns GORM's chain for statements that its generic API cannot express: joins, and changes of several columns.
func (s *Store) gorm(ctx context.Context, model any) *gorm.DB {
	return s.db.WithContext(ctx).Model(model)
}
