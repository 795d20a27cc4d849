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

// Store is the database, or one transaction on it: the methods are the same.
type Store struct {
	pool   *pgxpool.Pool
	db     *gorm.DB
	owner  int32 // whose work on payments this is
	agents *agentCache
	chats  *chatCache
	// Group commit (batch.go).
	checks, begins, deliveries, sends *batcher
	tx                                *transaction // nil for the database itself
}

// Open connects to the PostgreSQL database at url (a postgres:// URL or a keyword string, as libpq reads them). It does
// not wait for the database: a server must boot, and answer its price, while the database is away.
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
	// GORM and the hand-written statements share one pool. Every statement here is one sentence on its own, so GORM's
	// own transaction around each write would only add two round trips; pgx already caches prepared statements.
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: stdlib.OpenDBFromPool(pool)}), &gorm.Config{
		TranslateError:         true,
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		// GORM's logger prints statements with their values: message content, key hashes. Errors are logged once, at the edge.
		Logger: logger.Discard,
	})
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	s := &Store{pool: pool, db: db, owner: newOwner(), agents: newAgentCache(time.Now), chats: &chatCache{}}
	s.checks, s.begins = &batcher{run: s.checkAll}, &batcher{run: s.beginAll}
	s.deliveries, s.sends = &batcher{run: s.deliverAll}, &batcher{run: s.sendUnheld}
	return s, nil
}

// Close gives all connections back.
func (s *Store) Close() {
	if db, err := s.db.DB(); err == nil {
		_ = db.Close()
	}
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
	// The lock is an advisory one: of several servers that start at once, one migrates and the others wait.
	return goose.NewProvider(goose.DialectPostgres, stdlib.OpenDBFromPool(s.pool), files, goose.WithSessionLocker(locker))
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
