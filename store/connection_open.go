package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/semaphore"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Open connects to the PostgreSQL database at url (a postgres:// URL or a keyword string, as libpq reads them, with one or
// several hosts). It does not wait for the database, because a server must start and return its prices while the database is
// unavailable. pool_max_conns limits the connections; see defaultConnections. With limits the tracers get its statements.
func Open(ctx context.Context, url string, limits Limits, tracers ...pgx.QueryTracer) (*Store, error) {
	var limiting *guard
	if limits != (Limits{}) {
		limiting = &guard{limits: limits}
	}
	config, err := configure(url, limiting, tracers...)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if limiting != nil {
		limiting.watch(pool)
	}
	clock := new(clock)
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: stdlib.OpenDBFromPool(pool)}), &gorm.Config{
		TranslateError: true,
		// Code that needs a transaction opens one. A transaction around every single write would add two round trips.
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		// Columns are named. With SELECT * a new column would break the prepared statements of running servers.
		QueryFields: true,
		NowFunc:     clock.now, // for created_at
		// GORM's logger prints statements with their values: message content, key hashes. Errors are logged once, by
		// the caller.
		Logger: logger.Discard,
	})
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	chats, _ := lru.New[[2]uuid.UUID, uuid.UUID](maxCachedChats) // fails for sizes below 1
	reader := Reader{db: db, database: &database{
		pool: pool, clock: clock, guard: limiting, limits: limits, owner: newOwner(), agents: newAgentCache(time.Now), chats: chats,
		transactions: share(config, 2), lookUps: share(config, 8), indexing: semaphore.NewWeighted(1),
	}}
	return &Store{reader, newGroupCommit(reader, share(config, 4))}, nil //nolint:contextcheck // batches are the work of many calls
}

// share is one in n of the connections, at least one.
func share(config *pgxpool.Config, n int32) *semaphore.Weighted {
	return semaphore.NewWeighted(int64(max(1, config.MaxConns/n)))
}
