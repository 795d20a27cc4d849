package store

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PoolStatistics are the figures of a connection pool.
type PoolStatistics struct {
	Name             string // "batches" (pgx) or "records" (GORM)
	InUse, Idle, Max int64
	Waits            int64         // how often no connection was idle
	Waited           time.Duration // for a connection, in all
	Failed           int64         // how often a call got none in time
}

// Pools returns the figures of the connection pools.
func (s *Store) Pools() []PoolStatistics {
	return []PoolStatistics{poolStatistics("batches", s.pool.Stat()), poolStatistics("records", s.records.Stat())}
}

func poolStatistics(name string, stat *pgxpool.Stat) PoolStatistics {
	return PoolStatistics{
		Name: name, InUse: int64(stat.AcquiredConns()), Idle: int64(stat.IdleConns()), Max: int64(stat.MaxConns()),
		Waits: stat.EmptyAcquireCount(), Waited: stat.EmptyAcquireWaitTime(), Failed: stat.CanceledAcquireCount(),
	}
}
