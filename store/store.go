// Package store keeps everything Parley knows in PostgreSQL 15 or later. GORM and SQL stay inside it; callers see
// domain types, and refusals (Refusal) for what the rules forbid.
package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Store is the database, or one transaction on it: the methods are the same. GORM owns the models and ordinary reads and
// writes; the statements that a measurement demands run on pgx. The two have connections of their own, so that a
// transaction (GORM) may wait for nothing that a batch (pgx) holds, and the other way round.
type Store struct {
	pool    *pgxpool.Pool // of query and the batches
	records *pgxpool.Pool // of GORM
	db      *gorm.DB
	owner   int32 // marks the payments that this process works on
	agents  *agentCache
	chats   *lru.Cache[PrivatePair, uuid.UUID] // private chats, by pairs without one
	mode    mode
	tx      *transaction // nil for the database itself
	pending *pending     // nil unless WithoutTransaction

	// Group commit (batch.go).
	checks     *batcher[*messageCheck]
	begins     *batcher[*Payment]
	deliveries *batcher[Delivery]
	sends      *batcher[deliveredMessage]
}

// mode says what the caller of a store wants of it.
type mode int

const (
	normal mode = iota
	// dryRun: nothing is kept in the end. Rules are checked, pages of messages stay empty.
	dryRun
	// batched: what would need a transaction is refused with ErrNotBatched.
	batched
)

// Open connects to the PostgreSQL database at url (a postgres:// URL or a keyword string, as libpq reads them). It does
// not wait for the database: a server must boot, and tell its prices, while the database is unavailable. pool_max_conns
// bounds the connections of GORM and those of pgx, each.
func Open(ctx context.Context, url string) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// pgx's own text repeats the URL, and with it the password.
		return nil, errors.New("the database URL is not one that PostgreSQL's libpq would read")
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	// database/sql's own pool hands out connections that a caller who left has broken; pgx's does not.
	records, err := pgxpool.NewWithConfig(ctx, config.Copy())
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: stdlib.OpenDBFromPool(records)}), &gorm.Config{
		TranslateError: true,
		// What needs a transaction asks for it; around every single write one would add two round trips.
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		// Columns are named: with SELECT * a column that is added would break the prepared statements of running servers.
		QueryFields: true,
		// GORM's logger prints statements with their values: message content, key hashes. Errors are logged once, at the edge.
		Logger: logger.Discard,
	})
	if err != nil {
		records.Close()
		pool.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	chats, err := lru.New[PrivatePair, uuid.UUID](maxCachedChats)
	if err != nil {
		return nil, err // the size is positive
	}
	s := &Store{pool: pool, records: records, db: db, owner: newOwner(), agents: newAgentCache(time.Now), chats: chats}
	s.checks, s.begins = newBatcher(s.checkBatch, nil), newBatcher(s.beginBatch, nil)
	s.deliveries = newBatcher(s.deliverBatch, func(delivery Delivery) uuid.UUID { return delivery.Payment })
	s.sends = newBatcher(s.sendBatch, func(message deliveredMessage) uuid.UUID { return message.delivery.Payment })
	return s, nil
}

// Close closes all connections.
func (s *Store) Close() {
	if connections, err := s.db.DB(); err == nil {
		_ = connections.Close()
	}
	s.records.Close()
	s.pool.Close()
}

// Ping tells whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.pool.Ping(ctx) }

func (s *Store) migrations() (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, err
	}
	connections, err := s.db.DB()
	if err != nil {
		return nil, err
	}
	// The lock is an advisory one: of several servers that start at once, one migrates and the others wait.
	return goose.NewProvider(goose.DialectPostgres, connections, files, goose.WithSessionLocker(locker))
}

// Migrate brings the schema up to date and returns how many migrations it ran.
func (s *Store) Migrate(ctx context.Context) (int, error) {
	provider, err := s.migrations()
	if err != nil {
		return 0, fmt.Errorf("read migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return len(results), fmt.Errorf("migrate: %w", err)
	}
	return len(results), nil
}

// PendingMigrations tells whether the schema is older than this program.
func (s *Store) PendingMigrations(ctx context.Context) (bool, error) {
	provider, err := s.migrations()
	if err != nil {
		return false, fmt.Errorf("read migrations: %w", err)
	}
	pending, err := provider.HasPending(ctx)
	if err != nil {
		return false, fmt.Errorf("look at the schema: %w", err)
	}
	return pending, nil
}
