package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// longResponse reports whether a stored response is long. The index payments_long_responses has the same condition.
var longResponse = fmt.Sprintf("octet_length(response) > %d", ShortResponse)

// CleanUp erases expired responses, failed payments and tries of TANs, at most limit of each kind, and returns the largest count of a
// kind. It skips rows that another transaction has locked; the next run erases them.
func (s *Store) CleanUp(ctx context.Context, limit int) (most int, err error) {
	old := func(condition string, values ...any) *gorm.DB {
		return s.gorm(ctx, &Payment{}).Select("id").Where(condition, values...).Order("updated_at").Limit(limit).
			Clauses(skipLocked)
	}
	// With an array the planner uses the index, even if the table was small when the statement was planned.
	chosen := func(old *gorm.DB) *gorm.DB { return s.gorm(ctx, &Payment{}).Where("id = ANY (ARRAY(?))", old) }
	for _, erased := range []*gorm.DB{
		chosen(old("secret AND response IS NOT NULL AND updated_at < now() - CAST(? AS interval)", SecretLifetime)).UpdateColumn("response", nil),
		chosen(old(longResponse+" AND updated_at < now() - CAST(? AS interval)", ResponseLifetime)).UpdateColumn("response", nil),
		s.gorm(ctx, &TANTries{}).Where("key_hash = ANY (ARRAY(?))",
			s.gorm(ctx, &TANTries{}).Select("key_hash").Where("expires_at < now()").Order("expires_at").Limit(limit).
				Clauses(skipLocked)).Delete(&TANTries{}),
		chosen(old("state = 'failed' AND updated_at < now() - CAST(? AS interval) AND valid_before < now()", failureLifetime)).Delete(&Payment{}),
	} {
		if erased.Error != nil {
			return 0, fmt.Errorf("clean the ledger up: %w", erased.Error)
		}
		most = max(most, int(erased.RowsAffected))
	}
	return most, nil
}

// eraseResponse erases a stored response whose secret has been used.
func (r *Reader) eraseResponse(ctx context.Context, payment *uuid.UUID) error {
	if payment == nil {
		return nil
	}
	err := r.gorm(ctx, &Payment{}).Where("id = ? AND response IS NOT NULL", *payment).UpdateColumn("response", nil).Error
	return wrap("erase response", err)
}
