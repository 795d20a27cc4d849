package store

import "context"

// Statistics are the counts that GET /health shows.
type Statistics struct {
	Agents, Groups, Channels, Messages int64
}

// Statistics counts the agents, group chats, channels and messages. Messages are the sum of the counters of all
// conversations, including deleted ones, because those messages were sent.
func (s *Store) Statistics(ctx context.Context) (_ *Statistics, err error) {
	defer wrapInto(&err, "count")
	return first(query[Statistics](ctx, s, `
		SELECT (SELECT count(*) FROM agents) AS agents, count(*) FILTER (WHERE kind = 'group' AND deleted_at IS NULL) AS groups,
			count(*) FILTER (WHERE kind = 'channel' AND deleted_at IS NULL) AS channels,
			CAST(coalesce(sum(last_number), 0) AS bigint) AS messages FROM conversations`, none))
}
