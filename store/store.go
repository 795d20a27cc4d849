// Package store keeps all data of Parley in PostgreSQL 15 or later. GORM and SQL are used only in this package. Callers
// use domain types, and get a Refusal if the rules forbid a call.
//
// Its files are layers: the database (Store, Reader, Tx, query), the nouns above it, the group commit of what nouns do (batch*.go),
// and Commit and Open at the top.
package store

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"
	"gorm.io/gorm"
)

// Store is the database. A Reader reads from it, and a Tx is one transaction on it. GORM and pgx share the connections: records of one
// table are read and written with GORM, everything else with query.
type Store struct {
	Reader
	group *groupCommit
}

// Reader reads what is committed, and in a transaction also what that has changed. What a Store and a Tx share of writing is not exported.
type Reader struct {
	*database
	db *gorm.DB
	tx *sql.Conn // the connection of the transaction; nil outside
}

// database is what all readers and transactions of a Store share.
type database struct {
	pool   *pgxpool.Pool
	clock  *clock
	guard  *guard // nil without limits
	limits Limits
	owner  int32 // identifies this process in the payments that it works on
	agents *agentCache
	chats  *lru.Cache[[2]uuid.UUID, uuid.UUID] // private chats by their agents, the lower one first
	// transactions bounds the connections that transactions hold, which can wait for locks. The others are for batches and reads.
	transactions *semaphore.Weighted
	crowded      atomic.Int64        // how often a transaction found no place in time
	indexing     *semaphore.Weighted // statements that send long messages: several would fill the list of the index while one empties it
	lookUps      *semaphore.Weighted // concurrent queries to the index of messages: a hostile one takes a processor for bounds.lookUp
	news         news
	reads        *batcher[*sharedRead]
}

// maxCachedChats limits the cache of private chats to about 10 MB. Entries never become stale, because a pair keeps its
// chat forever.
const maxCachedChats = 1 << 16

// newOwner picks the number that identifies this process in the payments that it works on. If two processes pick the
// same number, the second one does not get the lock and has no presence of its own. Leases still protect its payments.
func newOwner() int32 { return rand.Int32N(1<<31-1) + 1 } //nolint:gosec // a name, not a secret

// Close closes all connections.
func (s *Store) Close() {
	if connections, err := s.db.DB(); err == nil {
		_ = connections.Close()
	}
	s.pool.Close()
}

// Ping returns nil if the database responds.
func (s *Store) Ping(ctx context.Context) error { return s.pool.Ping(ctx) }

// Responds reports whether the database responded to a call of the last second.
func (s *Store) Responds() bool { return s.guard.alive() }

// Ready reports whether the database responds, or did lately: all connections may be in use.
func (s *Store) Ready(ctx context.Context) bool { return s.Responds() || s.Ping(ctx) == nil }

// Now returns the time of the database. It costs no query: BePresent and ReadClock read the database's clock.
func (r *Reader) Now() time.Time { return r.clock.now() }

// ReadClock reads the database's clock once, for a store that is not used with BePresent.
func (s *Store) ReadClock(ctx context.Context) error { return s.clock.read(ctx, s.pool) }

// ClockDifference returns how far the clock of this machine is ahead of the database's. It is negative if it is behind.
func (s *Store) ClockDifference() time.Duration {
	local := time.Now()
	return local.Round(0).Sub(s.clock.at(local))
}
