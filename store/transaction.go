package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
	"gorm.io/gorm"
)

// Tx is one transaction.
type Tx struct {
	Reader
	changed bool        // an agent: the cache is emptied when the transaction ends
	news    []uuid.UUID // announced when the transaction is committed
}

// errDryRun rolls back a dry run.
var errDryRun = errors.New("this transaction is a dry run")

// Transaction runs fn in one transaction and commits it, unless fn returns an error.
func (s *Store) Transaction(ctx context.Context, fn func(tx *Tx) error) error {
	tx := &Tx{Reader: s.Reader}
	defer func() { // also if it is unknown whether COMMIT succeeded
		if tx.changed {
			s.agents.clear()
		}
	}()
	if s.limits.Transaction > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.limits.Transaction)
		defer cancel()
	}
	begun := false
	err := s.acquire(ctx, s.transactions)
	if err != nil {
		s.crowded.Add(1)
	} else {
		defer s.transactions.Release(1)
		err = s.db.WithContext(ctx).Connection(func(db *gorm.DB) error {
			connection, ok := db.Statement.ConnPool.(*sql.Conn)
			if !ok {
				return fmt.Errorf("GORM gives a transaction a %T, which query cannot use", db.Statement.ConnPool)
			}
			return db.Transaction(func(db *gorm.DB) error {
				begun, tx.db, tx.tx = true, db, connection
				return fn(tx)
			})
		})
	}
	if err != nil && !begun {
		return notSent(err)
	}
	if err == nil {
		s.announce(tx.news...) //nolint:contextcheck // announcements of many calls go together
	}
	return err
}

// rollBack is Transaction without effect: it returns the error of fn.
func (s *Store) rollBack(ctx context.Context, fn func(tx *Tx) error) error {
	err := s.Transaction(ctx, func(tx *Tx) error {
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

// acquire waits for one of the places, as long as for a connection.
func (d *database) acquire(ctx context.Context, places *semaphore.Weighted) error {
	if places.TryAcquire(1) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.limits.Acquire, batchTimeout))
	defer cancel()
	return places.Acquire(ctx, 1)
}

// gorm returns GORM's chain for statements that its generic API cannot express: joins, and changes of several columns.
func (r *Reader) gorm(ctx context.Context, model any) *gorm.DB {
	return r.db.WithContext(ctx).Model(model)
}
