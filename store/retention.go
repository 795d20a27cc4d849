package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Retention is how long data stays. Zero is for ever.
type Retention struct {
	Messages time.Duration // since they were sent
	Deleted  time.Duration // deleted group chats and channels, with all that is in them, since they were deleted
	Payments time.Duration // vouchers, since they were charged
}

// Removed counts rows. Bytes is the content of the messages.
type Removed struct {
	Messages, Reactions, Memberships, Conversations, Payments, Bytes int64
}

// Add adds other counts.
func (r *Removed) Add(other Removed) {
	r.Messages += other.Messages
	r.Reactions += other.Reactions
	r.Memberships += other.Memberships
	r.Conversations += other.Conversations
	r.Payments += other.Payments
	r.Bytes += other.Bytes
}

// Errors of a sweep.
var (
	// ErrSweeping means that another server or command removes old data now.
	ErrSweeping = errors.New("another server or command removes old data now; try again later")
	// ErrConversationBusy means that a conversation was locked by other transactions for too long. Nothing was removed.
	ErrConversationBusy = errors.New("the conversation is locked by other transactions")
)

// sweepLock is the advisory lock of a sweep, in the class presenceClass. It is above all owners.
const sweepLock = -1

const (
	// sweepRows is the maximum number of rows that one transaction of a sweep removes.
	sweepRows = 256
	// sweepPage is the maximum number of conversations or payments that one statement looks at.
	sweepPage = 1000
)

// Sweep removes what has outlived a Retention, in small transactions on one connection of its own. An advisory lock allows one sweep at a
// time.
//
// Only the oldest messages of a conversation are removed, so the numbers from first_number to last_number have no gaps. The transaction
// that removes them holds the lock of the conversation, as one that sends.
type Sweep struct {
	connection      *pgx.Conn
	now             func() time.Time
	messages, erase *time.Time // what is older is removed
	payments        time.Time  // as above, the beginning of a day (UTC); zero if all stay
}

// BeginSweep connects, and takes the lock. It returns ErrSweeping if another sweep runs. Call End.
func (s *Store) BeginSweep(ctx context.Context, retention Retention) (*Sweep, error) {
	connection, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	w := &Sweep{connection: connection, now: s.Now}
	if err := w.begin(ctx, retention); err != nil {
		w.End(ctx)
		return nil, err
	}
	return w, nil
}

func (w *Sweep) begin(ctx context.Context, retention Retention) error {
	// What a crash loses is removed again, so no commit waits for the disk or a standby. lock_timeout limits how long calls to a conversation
	// wait behind a sweep that waits for its lock. The keepalives free the lock of a server that was cut off after twenty seconds.
	_, err := w.connection.Exec(ctx, `SET synchronous_commit = off; SET lock_timeout = '250ms';
		SET idle_in_transaction_session_timeout = '3500ms';
		SET tcp_keepalives_idle = 8; SET tcp_keepalives_interval = 4; SET tcp_keepalives_count = 3`, pgx.QueryExecModeSimpleProtocol)
	var free bool
	var now time.Time
	if err == nil {
		err = w.connection.QueryRow(ctx, `SELECT pg_try_advisory_lock(@class, @lock), now()`,
			named{"class": presenceClass, "lock": sweepLock}).Scan(&free, &now)
	}
	if err == nil && !free {
		return ErrSweeping
	}
	if retention.Messages != 0 {
		w.messages = new(now.Add(-retention.Messages))
	}
	if retention.Deleted != 0 {
		w.erase = new(now.Add(-retention.Deleted))
	}
	if retention.Payments != 0 {
		w.payments = now.Add(-retention.Payments).UTC().Truncate(24 * time.Hour)
	}
	return wrap("begin sweep", err)
}

// End releases the lock and closes the connection.
func (w *Sweep) End(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = w.connection.Exec(ctx, `SELECT pg_advisory_unlock_all()`) // closing releases it too, some time later
	_ = w.connection.Close(ctx)
}

// Outlived is a conversation with something to remove: everything if Erase is true, and otherwise its oldest messages. None of its
// messages is older than Oldest.
type Outlived struct {
	ID                      uuid.UUID
	Erase, Expire           bool
	FirstNumber, LastNumber int64
	Oldest                  time.Time
}

// SweepPage is a page of the conversations. No message is older than Oldest in those that have nothing to remove; nil if they have no
// messages.
type SweepPage struct {
	Outlived []Outlived
	Oldest   *time.Time
	Last     *uuid.UUID // nil after the last page
}

// listOutlived walks over all conversations in the order of their keys. A walk costs less than an index of their oldest messages:
// GET /health counts them all twice a minute.
const listOutlived = `
	WITH page AS (
		SELECT id, first_number, last_number, coalesce(oldest_at, created_at) AS oldest,
			coalesce(deleted_at < @erase AND erased_at IS NULL, false) AS erase,
			coalesce(coalesce(oldest_at, created_at) < @messages AND erased_at IS NULL, false) AS expire
		FROM conversations WHERE id > @after ORDER BY id LIMIT @limit
	)
	SELECT p.id, p.erase, p.expire, p.first_number, p.last_number, p.oldest, (
		SELECT min(o.oldest) FROM page o WHERE o.first_number <= o.last_number AND NOT o.erase AND NOT o.expire) AS kept
	FROM page p WHERE p.erase OR p.expire OR p.id = (SELECT id FROM page ORDER BY id DESC LIMIT 1) ORDER BY p.id`

// Page returns the conversations with something to remove among the next ones after an id. The first page is after uuid.Nil; it is empty if
// all messages and conversations stay.
func (w *Sweep) Page(ctx context.Context, after uuid.UUID) (*SweepPage, error) {
	if w.messages == nil && w.erase == nil {
		return &SweepPage{}, nil
	}
	rows, _ := w.connection.Query(ctx, listOutlived, named{"after": after, "limit": sweepPage, "messages": w.messages, "erase": w.erase})
	found, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[struct {
		Outlived
		Kept *time.Time
	}])
	if err != nil {
		return nil, fmt.Errorf("look for what has outlived its retention: %w", err)
	}
	page := &SweepPage{}
	for _, one := range found {
		page.Oldest, page.Last = one.Kept, &one.ID
		if one.Erase || one.Expire {
			page.Outlived = append(page.Outlived, one.Outlived)
		}
	}
	return page, nil
}

// Remove removes one batch of a conversation, and advances it. more reports whether there is more to remove. It returns
// ErrConversationBusy if it did not get the lock of the conversation.
func (w *Sweep) Remove(ctx context.Context, of *Outlived) (removed Removed, more bool, err error) {
	end, err := w.end(ctx, of, sweepRows) // reads the rows, so that the transaction that follows finds them in memory
	if err != nil {
		return removed, false, err
	}
	err = pgx.BeginFunc(ctx, w.connection, func(tx pgx.Tx) error {
		var erase bool
		err := tx.QueryRow(ctx, `SELECT coalesce(deleted_at < @erase AND erased_at IS NULL, false) FROM conversations
			WHERE id = @id FOR NO KEY UPDATE`, named{"id": of.ID, "erase": w.erase}).Scan(&erase)
		switch {
		case err != nil:
			return err
		case of.Erase && !erase: // restored meanwhile
			return nil
		case of.Erase && end == of.FirstNumber:
			removed, more, err = w.dissolve(ctx, tx, of.ID)
			return err
		}
		more = end-of.FirstNumber == sweepRows || of.Erase
		removed, err = w.removeMessages(ctx, tx, of, end)
		return err
	})
	// A lock that was not free in time, a deadlock, and a reaction that was committed meanwhile: reacting does not lock the conversation.
	if busy, ok := errors.AsType[*pgconn.PgError](err); ok && slices.Contains([]string{"55P03", "40P01", "23503"}, busy.Code) {
		return Removed{}, false, ErrConversationBusy
	}
	if err != nil {
		return Removed{}, false, fmt.Errorf("remove old data: %w", err)
	}
	of.FirstNumber = end
	return removed, more, nil
}

// end returns the number after the last message that is to be removed, at most limit numbers from the first.
func (w *Sweep) end(ctx context.Context, of *Outlived, limit int64) (end int64, err error) {
	most := min(of.FirstNumber+limit, of.LastNumber+1)
	if of.Erase {
		return most, nil
	}
	// It reads the old messages and one more.
	err = w.connection.QueryRow(ctx, `
		SELECT coalesce((SELECT number FROM messages WHERE conversation_id = @id AND number >= @first AND number < @end AND created_at >= @oldest
			ORDER BY number LIMIT 1), @end)`, named{"id": of.ID, "first": of.FirstNumber, "end": most, "oldest": w.messages}).Scan(&end)
	return end, wrap("look for old messages", err)
}

// Count counts what Remove would remove of a conversation in all.
func (w *Sweep) Count(ctx context.Context, of Outlived) (all Removed, err error) {
	for more := true; more; {
		end, err := w.end(ctx, &of, sweepPage)
		if err != nil {
			return all, err
		}
		var some Removed
		err = w.connection.QueryRow(ctx, `
			SELECT count(*), CAST(coalesce(sum(octet_length(content)), 0) AS bigint),
				(SELECT count(*) FROM reactions WHERE conversation_id = @id AND number >= @first AND number < @end)
			FROM messages WHERE conversation_id = @id AND number >= @first AND number < @end`,
			named{"id": of.ID, "first": of.FirstNumber, "end": end}).Scan(&some.Messages, &some.Bytes, &some.Reactions)
		if err != nil {
			return all, fmt.Errorf("count old messages: %w", err)
		}
		all.Add(some)
		more = end-of.FirstNumber == sweepPage
		of.FirstNumber = end
	}
	if of.Erase {
		all.Conversations = 1
		err = w.connection.QueryRow(ctx, `SELECT count(*) FROM memberships WHERE conversation_id = @id`,
			named{"id": of.ID}).Scan(&all.Memberships)
	}
	return all, wrap("count memberships", err)
}

// removeMessages removes the messages before a number, with their reactions and pins.
//
//   - unread_own decreases by the own messages after the read marker that are removed. Besides this transaction only reads change a
//     membership meanwhile, so the memberships are locked before the statement whose snapshot has their read markers.
//   - The read markers of any number of subscribers stay: readUpTo counts removed messages as read.
func (w *Sweep) removeMessages(ctx context.Context, tx pgx.Tx, of *Outlived, end int64) (removed Removed, err error) {
	batch, values := &pgx.Batch{}, named{"id": of.ID, "first": of.FirstNumber, "end": end, "now": w.now()}
	batch.Queue(`SELECT 1 FROM memberships WHERE conversation_id = @id AND unread_own > 0 AND agent_id = ANY (ARRAY(
		SELECT sender_id FROM messages WHERE conversation_id = @id AND number >= @first AND number < @end
		)) ORDER BY agent_id FOR NO KEY UPDATE`, values)
	batch.Queue(`DELETE FROM reactions WHERE conversation_id = @id AND number >= @first AND number < @end`, values).
		Exec(func(tag pgconn.CommandTag) error { removed.Reactions = tag.RowsAffected(); return nil })
	batch.Queue(`
		WITH gone AS (
			DELETE FROM messages WHERE conversation_id = @id AND number >= @first AND number < @end RETURNING number, id, sender_id,
				octet_length(content) AS size
		), own AS (
			UPDATE memberships m SET unread_own = m.unread_own - o.count
			FROM (SELECT g.sender_id, count(*) AS count FROM gone g JOIN memberships s ON s.conversation_id = @id AND s.agent_id = g.sender_id
				WHERE s.unread_own > 0 AND g.number > s.read_number GROUP BY g.sender_id) o
			WHERE m.conversation_id = @id AND m.agent_id = o.sender_id
		), first AS (
			UPDATE conversations c SET first_number = greatest(c.first_number, @end),
				oldest_at = coalesce((SELECT created_at FROM messages WHERE conversation_id = @id AND number = @end), @now),
				pinned = ARRAY(SELECT p.id FROM unnest(c.pinned) WITH ORDINALITY AS p (id, n) WHERE p.id NOT IN (SELECT id FROM gone) ORDER BY p.n)
			WHERE c.id = @id RETURNING c.oldest_at
		)
		SELECT count(*), CAST(coalesce(sum(size), 0) AS bigint), (SELECT oldest_at FROM first) FROM gone`, values).
		QueryRow(func(row pgx.Row) error { return row.Scan(&removed.Messages, &removed.Bytes, &of.Oldest) })
	return removed, tx.SendBatch(ctx, batch).Close()
}

// dissolve removes the memberships of a deleted conversation that has no more messages, and at last what its row tells. Notices stay
// until their agents have read them.
func (w *Sweep) dissolve(ctx context.Context, tx pgx.Tx, id uuid.UUID) (removed Removed, more bool, err error) {
	gone, err := tx.Exec(ctx, `DELETE FROM memberships WHERE conversation_id = @id AND agent_id = ANY (ARRAY(
		SELECT agent_id FROM memberships WHERE conversation_id = @id ORDER BY agent_id LIMIT @limit))`, named{"id": id, "limit": sweepRows})
	if err != nil {
		return removed, false, err
	}
	removed.Memberships = gone.RowsAffected()
	if removed.Memberships == sweepRows {
		return removed, true, nil
	}
	removed.Conversations = 1
	_, err = tx.Exec(ctx, `
		WITH final AS (DELETE FROM conversation_removals WHERE conversation_id = @id) -- it cannot be restored any more
		UPDATE conversations SET erased_at = @now, name = CASE WHEN kind <> 'private' THEN 'erased' END, description = NULL,
			member_count = 0, pinned = '{}'
		WHERE id = @id`, named{"id": id, "now": w.now()})
	return removed, false, err
}
