package store

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/parley-chat/parley/internal/testkit"
)

// ErrNotBatched is what a batch returns of an item that needs a transaction of its own.
var ErrNotBatched = errNotBatched

// Models that only this package uses.
type (
	ReservedUsername    = reservedUsername
	ConversationRemoval = conversationRemoval
)

// SearchWithin is SearchMessages with bounds of the test's own.
func (r *Reader) SearchWithin(ctx context.Context, view *ConversationView, query string, n, page int64, messages int, work int64,
	indexed int, batch int64) (*Matches, error) {
	return r.searchMessages(ctx, view, query, n, page, nil, bounds{messages, work, indexed, time.Minute, batch})
}

// Likes is what the index is asked for a query.
func (r *Reader) Likes(ctx context.Context, query string) ([]string, error) {
	pattern, err := parsePattern(query)
	if err != nil {
		return nil, err
	}
	characters := pattern.characters()
	if characters == "" {
		return nil, nil
	}
	foldings, err := r.foldings(ctx, characters)
	return pattern.likes(foldings), err
}

// ExplainLookUp shows the plan by which the index is asked for a query.
func (r *Reader) ExplainLookUp(ctx context.Context, view *ConversationView, wanted string) (string, error) {
	likes, err := r.Likes(ctx, wanted)
	if err != nil {
		return "", err
	}
	return r.explain(ctx, lookUp, named{"conversation": view.ID, "newest": view.LastNumber, "likes": likes, "most": searchBounds.indexed + 1})
}

// ExplainDirectory shows the plan of a search among agents (kind is empty), group chats or channels.
func (r *Reader) ExplainDirectory(ctx context.Context, kind, wanted string) (string, error) {
	d := agentDirectory
	values := named{"caller": uuid.Nil, "size": 10, "offset": 0}
	if kind != "" {
		d = conversationDirectory(kind)
		delete(values, "caller")
	}
	statement := d.statement(wanted, values)
	return r.explain(ctx, statement, values)
}

func (r *Reader) explain(ctx context.Context, statement string, values named) (string, error) {
	lines, err := query[string](ctx, r, "EXPLAIN (ANALYZE, BUFFERS) "+statement, values)
	return strings.Join(lines, "\n"), err
}

// SendChargedAtOnce sends messages and charges their vouchers, all in one statement.
func (s *Store) SendChargedAtOnce(messages []OutgoingMessage, conversations []uuid.UUID, charges []*VoucherCharge) (results []error) {
	var batch []batchItem[paidMessage]
	for i, message := range messages {
		batch = append(batch, batchItem[paidMessage]{value: paidMessage{
			OutgoingMessage: message, Closing: Closing{Charge: charges[i]}, conversation: conversations[i],
		}, done: make(chan error, 1), since: time.Now()})
	}
	s.group.sends.sendBatch(context.Background(), batch)
	for _, item := range batch {
		results = append(results, <-item.done)
	}
	return results
}

// SetClock makes Now show another time, as the clock of a machine that is wrong by this much.
func (s *Store) SetClock(ahead time.Duration) {
	local := time.Now()
	s.clock.last.Store(&reading{local.Round(0).Add(ahead), local})
}

// MigrateWith is Migrate with migrations of the test's own, in the folder migrations.
func (s *Store) MigrateWith(ctx context.Context, files fs.FS, progress func(text string)) (int, error) {
	return s.migrate(ctx, files, progress)
}

// WasReset reports whether the connections were closed because one failed. The store has limits.
func (s *Store) WasReset() bool {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	return !s.guard.reset.IsZero()
}

// UseAllConnections runs a statement on every connection for batches, and keeps the connections until release.
func (s *Store) UseAllConnections(t testing.TB) (release func()) {
	t.Helper()
	var used []*pgxpool.Conn
	for range s.pool.Config().MaxConns {
		connection, err := s.pool.Acquire(t.Context())
		if err == nil {
			_, err = connection.Exec(t.Context(), "SELECT 1")
		}
		testkit.NoError(t, err)
		used = append(used, connection)
	}
	return func() {
		for _, connection := range used {
			connection.Release()
		}
	}
}

// ExplainUnread shows the plan, as JSON, of the statement that lists a page.
func (r *Reader) ExplainUnread(ctx context.Context, agent uuid.UUID, page UnreadPage) (string, error) {
	return single(query[string](ctx, r, "EXPLAIN (ANALYZE, FORMAT JSON) "+listUnread.of(page), unreadValues(agent, page)))
}
