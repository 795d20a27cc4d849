package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// AccountStorage is what an account has stored: its messages and the bytes of their content. An index of a message can take several
// times as much.
type AccountStorage struct {
	ID              uuid.UUID
	Username        string
	Messages, Bytes int64
}

// sampledMessages is about how many messages LargestAccounts reads.
const sampledMessages = 100_000

// LargestAccounts returns the n accounts whose messages have most content, the largest first, estimated from a share of the messages (above
// 0, at most 1). It reads a random sample of the pages of the table, so its cost does not grow with the table: an account with a percent of
// all content is found with an error of a few percent. The size of a long content is known without reading it.
func (s *Store) LargestAccounts(ctx context.Context, n int) (accounts []AccountStorage, share float64, err error) {
	// An estimate of rows that is too low, or none, makes the sample larger, up to the whole table.
	rows, err := single(query[float64](ctx, s, `SELECT greatest(reltuples, 1)::float8 FROM pg_class WHERE oid = 'messages'::regclass`, none))
	if err != nil {
		return nil, 0, fmt.Errorf("estimate the number of messages: %w", err)
	}
	share = min(1, sampledMessages/rows)
	accounts, err = query[AccountStorage](ctx, s, `
		SELECT a.id, a.username, m.messages, m.bytes FROM (
			SELECT sender_id, CAST(count(*) / @share AS bigint) AS messages, CAST(sum(octet_length(content)) / @share AS bigint) AS bytes
			FROM messages TABLESAMPLE SYSTEM (100 * @share) GROUP BY sender_id ORDER BY bytes DESC LIMIT @limit
		) m JOIN agents a ON a.id = m.sender_id ORDER BY m.bytes DESC, a.id`, named{"share": share, "limit": n})
	return accounts, share, wrap("look for the largest accounts", err)
}

// DiskOfMessages estimates how much disk space a number of messages takes, with indexes, in bytes.
func (s *Store) DiskOfMessages(ctx context.Context, messages int64) (_ int64, err error) {
	defer wrapInto(&err, "measure the messages")
	return single(query[int64](ctx, s, `
		SELECT CAST(pg_total_relation_size(oid) * least(1, @messages / greatest(reltuples, @messages, 1)) AS bigint)
		FROM pg_class WHERE oid = 'messages'::regclass`, named{"messages": float64(messages)}))
}
