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

// Statistics counts the agents, group chats, channels and messages. Messages are the sum of the counters of all
// conversations, including deleted ones, because those messages were sent.
func (s *Store) Statistics(ctx context.Context) (*Statistics, error) {
	var counts Statistics
	err := s.gorm(ctx, &Conversation{}).Select(`count(*) FILTER (WHERE kind = 'group' AND deleted_at IS NULL) AS groups,
		count(*) FILTER (WHERE kind = 'channel' AND deleted_at IS NULL) AS channels, CAST(coalesce(sum(last_number), 0) AS bigint) AS messages`).
		Take(&counts).Error
	if err == nil {
		counts.Agents, err = gorm.G[Agent](s.db).Count(ctx, "*")
	}
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	return &counts, nil
}
