package store

import (
	"context"
	"fmt"

	"gorm.io/gorm"
)

// Statistics are the counts that GET /health shows.
type Statistics struct {
	Agents, Groups, Channels, Messages int64
}

// Statistics counts. Messages are summed from the conversations' counters, deleted ones included: they were sent.
func (s *Store) Statistics(ctx context.Context) (*Statistics, error) {
	counts, err := gorm.G[Statistics](s.db).Raw(`
		SELECT (SELECT count(*) FROM agents) AS agents,
			count(*) FILTER (WHERE kind = 'group' AND deleted_at IS NULL) AS groups,
			count(*) FILTER (WHERE kind = 'channel' AND deleted_at IS NULL) AS channels,
			coalesce(sum(last_number), 0)::bigint AS messages
		FROM conversations`).Take(ctx)
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	return &counts, nil
}
