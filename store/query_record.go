package store

import (
	"context"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// forNoKeyUpdate locks rows like an update. Other transactions can still insert rows that refer to them.
var forNoKeyUpdate = clause.Locking{Strength: "NO KEY UPDATE"}

// skipLocked is forNoKeyUpdate without rows that another transaction has locked.
var skipLocked = clause.Locking{Strength: forNoKeyUpdate.Strength, Options: clause.LockingOptionsSkipLocked}

// firstOr returns the first row that the action found, or missing if it found none.
func firstOr[T any](found []T, err error, action string, missing error) (*T, error) {
	switch {
	case err != nil:
		return nil, wrap(action, err)
	case len(found) == 0:
		return nil, missing
	}
	return &found[0], nil
}

// changedOr returns missing if the action changed no row.
func changedOr[N int | int64](rows N, err error, action string, missing error) error {
	if err == nil && rows == 0 {
		return missing
	}
	return wrap(action, err)
}

// refuseIf returns the refusal if there are rows.
func refuseIf[T any](ctx context.Context, refusal error, action string, rows gorm.ChainInterface[T]) error {
	found, err := rows.Count(ctx, "*")
	if err == nil && found > 0 {
		return refusal
	}
	return wrap(action, err)
}

// refuseAgents returns the refusal because of the agents that the statement finds, if there are any.
func refuseAgents(ctx context.Context, on session, refusal *Refusal, text string, values named) error {
	agents, err := query[uuid.UUID](ctx, on, text, values)
	if err == nil && len(agents) > 0 {
		return refusal.Because(agents...)
	}
	return wrap("check agents", err)
}
