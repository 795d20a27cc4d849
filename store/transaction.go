package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// transaction is what a Store remembers until its transaction is over.
type transaction struct {
	// changed are the agents that this server's cache must forget.
	changed []uuid.UUID
}

// errDryRun rolls a dry run back.
var errDryRun = errors.New("this transaction is a dry run")

// Transaction runs fn in one database transaction and commits it, unless fn returns an error. In a transaction, fn joins it.
func (s *Store) Transaction(ctx context.Context, fn func(tx *Store) error) error {
	if s.tx != nil {
		return fn(s)
	}
	return s.transact(ctx, normal, fn)
}

// DryRun runs fn in a transaction that is always rolled back, and returns fn's error: what would happen, without it happening.
func (s *Store) DryRun(ctx context.Context, fn func(tx *Store) error) error {
	err := s.transact(ctx, dryRun, func(tx *Store) error {
		if err := fn(tx); err != nil {
			return err
		}
		return errDryRun
	})
	if errors.Is(err, errDryRun) {
		return nil
	}
	return err
}

func (s *Store) transact(ctx context.Context, mode mode, fn func(tx *Store) error) error {
	tx := &transaction{}
	defer func() { // also when it is not known whether COMMIT came through
		for _, id := range tx.changed {
			s.agents.forget(id)
		}
	}()
	return s.db.WithContext(ctx).Transaction(func(db *gorm.DB) error {
		inside := *s
		inside.db, inside.tx, inside.mode = db, tx, mode
		return fn(&inside)
	})
}

// ForDryRun returns the store for the dry run of an operation that reads messages and marks them as read: its rules are
// checked without a transaction, and pages stay empty.
func (s *Store) ForDryRun() *Store {
	other := *s
	other.mode = dryRun
	return &other
}

// WithoutTransaction returns the store for one call that reads messages, marks them as read and closes its payment with
// PaymentDelivered on the same store: the marker and the payment then change in one transaction. If the call needs more than
// that, the method changes nothing and returns ErrNotBatched.
func (s *Store) WithoutTransaction() *Store {
	other := *s
	other.mode, other.pending = batched, &pending{}
	return &other
}

// pending is what a store WithoutTransaction writes when the payment is closed.
type pending struct{ mark *readMark }

// forgetAgent removes an agent that has changed from this server's cache: when the transaction is over.
func (s *Store) forgetAgent(id uuid.UUID) {
	if s.tx != nil {
		s.tx.changed = append(s.tx.changed, id)
		return
	}
	s.agents.forget(id)
}

// gorm is GORM's chain for statements that its generic API cannot say: joins, and changes of several columns.
func (s *Store) gorm(ctx context.Context, model any) *gorm.DB {
	return s.db.WithContext(ctx).Model(model)
}
