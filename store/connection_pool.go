package store

import "time"

// PoolStatistics are the figures of the connection pool.
type PoolStatistics struct {
	InUse, Idle, Max int64
	Waits            int64         // how often no connection was idle
	Waited           time.Duration // for a connection, in all
	Failed           int64         // how often a call got none in time
}

// Pool returns the figures of the connection pool.
func (s *Store) Pool() PoolStatistics {
	stat := s.pool.Stat()
	return PoolStatistics{
		InUse: int64(stat.AcquiredConns()), Idle: int64(stat.IdleConns()), Max: int64(stat.MaxConns()),
		Waits: stat.EmptyAcquireCount(), Waited: stat.EmptyAcquireWaitTime(), Failed: stat.CanceledAcquireCount() + s.crowded.Load(),
	}
}
