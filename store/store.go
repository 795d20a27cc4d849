// Package store keeps all data of Parley in PostgreSQL 15 or later. GORM and SQL are used only in this package. Callers
// use domain types, and get a Refusal if the rules forbid a call.
package store

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/parley-chat/parley/internal/tracing"
)

// Store is the database. A Reader reads from it, and a Tx is one transaction on it. GORM and pgx share the connections: records of one
// table are read and written with GORM, everything else with query.
type Store struct{ Reader }

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
	chats  *lru.Cache[PrivatePair, uuid.UUID] // private chats, keyed by pairs without ConversationID
	// transactions bounds the connections that transactions hold, which can wait for locks. The others are for batches and reads.
	transactions *semaphore.Weighted
	crowded      atomic.Int64 // how often a transaction found no place in time

	// Group commit (batch.go).
	checks     *batcher[*messageCheck]
	begins     *batcher[*Payment]
	deliveries *batcher[Delivery]
	sends      *batcher[paidMessage]
	// The same for payment channels.
	charges      *batcher[*VoucherCharge]
	chargedSends *batcher[paidMessage]
	// contended are the queues of the conversations that other transactions lock too; waiters bounds their transactions.
	contended  *lru.Cache[uuid.UUID, *conversationQueue]
	waiters    *semaphore.Weighted
	lookUps    *semaphore.Weighted // concurrent queries to the index of messages: a hostile one takes a processor for bounds.lookUp
	batchSizes *prometheus.HistogramVec
	tracer     *tracing.Tracer // nil without tracing
}

// Option is a further setting of Open.
type Option func(tracer **tracing.Tracer)

// WithTracer traces transactions, batches and statements.
func WithTracer(tracer *tracing.Tracer) Option {
	return func(to **tracing.Tracer) { *to = tracer }
}

// Open connects to the PostgreSQL database at url (a postgres:// URL or a keyword string, as libpq reads them, with one or
// several hosts). It does not wait for the database, because a server must start and return its prices while the database is
// unavailable. pool_max_conns limits the connections; see
// defaultConnections.
func Open(ctx context.Context, url string, limits Limits, options ...Option) (*Store, error) {
	var tracer *tracing.Tracer
	for _, option := range options {
		option(&tracer)
	}
	var limiting *guard
	if limits != (Limits{}) {
		limiting = &guard{limits: limits}
	}
	config, err := configure(url, limiting, tracer)
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
	chats, err := lru.New[PrivatePair, uuid.UUID](maxCachedChats)
	if err != nil {
		return nil, err // the size is positive
	}
	contended, err := lru.New[uuid.UUID, *conversationQueue](maxContended)
	if err != nil {
		return nil, err // the size is positive
	}
	s := &Store{Reader{db: db, database: &database{pool: pool, clock: clock, guard: limiting, limits: limits, owner: newOwner(), agents: newAgentCache(time.Now), chats: chats,
		contended: contended, transactions: semaphore.NewWeighted(int64(max(1, config.MaxConns/2))),
		waiters:    semaphore.NewWeighted(int64(max(1, config.MaxConns/4))),
		lookUps:    semaphore.NewWeighted(int64(max(1, config.MaxConns/8))),
		batchSizes: newBatchSizes(), tracer: tracer}}}
	s.checks = newBatcher(s.batchOf("checks"), s.checkBatch, nil)
	s.begins = newBatcher(s.batchOf("begins"), s.beginBatch, nil)
	s.deliveries = newBatcher(s.batchOf("deliveries"), s.deliverBatch, func(delivery Delivery) any { return delivery.Payment })
	s.sends = newBatcher(s.batchOf("sends"), s.sendBatch, paidMessage.key)
	s.chargedSends = newBatcher(s.batchOf("charged_sends"), s.sendBatch, paidMessage.key)
	s.charges = newBatcher(s.batchOf("charges"), s.chargeBatch, func(charge *VoucherCharge) any { return charge.Voucher.Channel })
	return s, nil
}

// Close closes all connections.
func (s *Store) Close() {
	if connections, err := s.db.DB(); err == nil {
		_ = connections.Close()
	}
	s.pool.Close()
}

// Ping returns nil if the database responds.
func (s *Store) Ping(ctx context.Context) error { return s.pool.Ping(ctx) }

// Ready reports whether the database responds, or did to a call of the last second: all connections may be in use.
func (s *Store) Ready(ctx context.Context) bool { return s.guard.alive() || s.Ping(ctx) == nil }
