package store

import (
	"context"
	"fmt"
	"time"
)

// The queries of this file are for the operator's page, which is read every few seconds on databases of any size. Each uses an index
// and has a limit, or reads PostgreSQL's own catalog: none scans a table that grows.

// NewAgent is an agent as the operator's page lists it.
type NewAgent struct {
	Username  string
	CreatedAt time.Time
}

// NewestAgents returns the agents that were created last, the newest first. Ids begin with the time, so the order is that of the
// primary key.
func (s *Store) NewestAgents(ctx context.Context, limit int) ([]NewAgent, error) {
	var agents []NewAgent
	err := s.gorm(ctx, &Agent{}).Select("username", "created_at").Order("id DESC").Limit(limit).Find(&agents).Error
	return agents, wrap("list the newest agents", err)
}

// oldestOpen is how many open payments OldestOpenPayments looks at. There are more only while the facilitator is unavailable.
const oldestOpen = 1000

// OldestOpenPayments returns the payments without a final outcome (settling, unknown) and the undeliverable ones, limit of each kind
// at most, the oldest first.
func (s *Store) OldestOpenPayments(ctx context.Context, limit int) ([]PaymentRecord, error) {
	var found []PaymentRecord
	// The inner query has the condition and the order of a partial index. Without it the planner may walk the whole ledger in the order of
	// its creation.
	for _, kind := range []struct{ condition, order string }{
		{"state IN ('settling', 'unknown')", "lease_until"}, {"state = 'undeliverable'", "created_at"},
	} {
		var records []PaymentRecord
		inner := s.gorm(ctx, &PaymentRecord{}).Where(kind.condition).Order(kind.order).Limit(oldestOpen)
		err := s.db.WithContext(ctx).Table("(?) AS open", inner).Order("created_at, id").Limit(limit).Find(&records).Error
		if err != nil {
			return nil, fmt.Errorf("list the oldest open payments: %w", err)
		}
		found = append(found, records...)
	}
	return found, nil
}

// Storage is how much disk space the database takes, in bytes.
type Storage struct {
	Database int64
	Tables   []TableSize
}

// TableSize is the size of a table with its indexes. Rows is PostgreSQL's estimate; -1 if the table was never analyzed.
type TableSize struct {
	Name  string
	Bytes int64
	Rows  int64
}

// Storage returns the size of the database and of its largest tables, the largest first. Partitions count for their table.
func (s *Store) Storage(ctx context.Context, limit int) (*Storage, error) {
	size, err := single(query[int64](ctx, s, "SELECT pg_database_size(current_database())", none))
	if err != nil {
		return nil, fmt.Errorf("measure the database: %w", err)
	}
	tables, err := query[TableSize](ctx, s, `
		SELECT root.relname::text AS name, sum(pg_total_relation_size(part.oid))::bigint AS bytes,
			(CASE WHEN max(part.reltuples) < 0 THEN -1 ELSE sum(greatest(part.reltuples, 0)) END)::bigint AS rows
		FROM pg_class AS part JOIN pg_class AS root ON root.oid = coalesce(pg_partition_root(part.oid), part.oid)
		WHERE part.relkind = 'r' AND part.relnamespace = current_schema()::regnamespace
		GROUP BY root.relname ORDER BY bytes DESC, name LIMIT @limit`, named{"limit": limit})
	return &Storage{size, tables}, wrap("measure the tables", err)
}

// AppliedSchema returns the version of the schema of the database.
func (s *Store) AppliedSchema(ctx context.Context) (_ int64, err error) {
	defer wrapInto(&err, "look at the schema")
	return single(query[int64](ctx, s, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied", none))
}
