package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
)

// UnreadMessage is a message that the agent has not read, with the kind of its conversation.
type UnreadMessage struct {
	SentMessage
	Kind string
}

// Unread is a page of unread messages, oldest first, and how many there are in all. CutShort tells that more messages
// belong on the page than their content lets fit.
type Unread struct {
	Messages []UnreadMessage
	Total    int64
	CutShort bool
}

// Unread returns page (from 1) of size unread messages of the agent over all its conversations, as far as their content
// fits on a page. It changes nothing.
func (s *Store) Unread(ctx context.Context, agent uuid.UUID, page, size int64) (*Unread, error) {
	// What is new is known from counters alone. Of each conversation with news at most as many keys are read as the page
	// and those before it can hold, and never more than are unread there: the scan ends with the last unread message,
	// however many own ones follow. Only the page itself is read whole. One statement, so one snapshot: total and
	// messages agree.
	rows, err := look[struct { // an empty page is one row with the total alone
		Total                         int64
		ConversationID, ID, SenderID  *uuid.UUID
		Number, Whole                 *int64
		Content, Kind, SenderUsername *string
		CreatedAt                     *time.Time
	}](ctx, s, `
		WITH news AS (
			SELECT m.conversation_id, c.kind, m.read_number, c.last_number - m.read_number - m.unread_own AS unread
			FROM memberships m JOIN conversations c ON c.id = m.conversation_id
			WHERE m.agent_id = @agent AND m.status = 'member' AND c.deleted_at IS NULL AND c.last_number - m.read_number - m.unread_own > 0
		), total AS (
			SELECT CAST(coalesce(sum(unread), 0) AS bigint) AS total FROM news
		), page AS (
			SELECT n.kind, key.* FROM total t CROSS JOIN news n CROSS JOIN LATERAL (
				SELECT o.conversation_id, o.number, o.created_at, octet_length(o.content) AS size FROM messages o
				WHERE o.conversation_id = n.conversation_id AND o.number > n.read_number AND o.sender_id <> @agent
				ORDER BY o.number LIMIT least(n.unread, CAST(@skip AS bigint) + CAST(@size AS bigint))
			) key
			WHERE t.total > @skip
			ORDER BY key.created_at, key.conversation_id, key.number LIMIT @size OFFSET @skip
		), measured AS (
			SELECT page.*, count(*) OVER () AS whole, row_number() OVER along AS position, sum(size) OVER along AS sum
			FROM page WINDOW along AS (ORDER BY created_at, conversation_id, number ROWS UNBOUNDED PRECEDING)
		)
		SELECT t.total, p.kind, p.whole, o.conversation_id, o.number, o.id, o.sender_id, o.content, o.created_at, a.username AS sender_username
		FROM total t LEFT JOIN (
			(SELECT * FROM measured WHERE sum <= @most OR position = 1) p
			JOIN messages o ON o.conversation_id = p.conversation_id AND o.number = p.number JOIN agents a ON a.id = o.sender_id
		) ON true
		ORDER BY o.created_at, o.conversation_id, o.number`,
		pgx.NamedArgs{"agent": agent, "skip": (page - 1) * size, "size": size, "most": maxPageContent})
	if err != nil {
		return nil, fmt.Errorf("list unread messages: %w", err)
	}
	unread := &Unread{Total: rows[0].Total}
	if rows[0].Number == nil {
		return unread, nil
	}
	for _, row := range rows[:fitting(len(rows), func(i int) string { return *rows[i].Content })] {
		unread.Messages = append(unread.Messages, UnreadMessage{Kind: *row.Kind, SentMessage: SentMessage{SenderUsername: *row.SenderUsername, Message: Message{
			ConversationID: *row.ConversationID, Number: *row.Number, ID: *row.ID, SenderID: *row.SenderID, Content: *row.Content, CreatedAt: *row.CreatedAt,
		}}})
	}
	unread.CutShort = int64(len(unread.Messages)) < *rows[0].Whole
	return unread, nil
}

// ReadUnread returns what Unread returns and marks it read: of each conversation up to the newest message returned.
// Runs in a transaction. Two calls for one agent come one after the other and never return the same message.
//
// In a dry run nobody sees the page, and no rule forbids it: it is empty.
//
// It cannot take part in a deadlock: it waits for the agent's turn while it holds nothing, and for no lock after that.
func (s *Store) ReadUnread(ctx context.Context, agent uuid.UUID, page, size int64) (*Unread, error) {
	if s.isDryRun() {
		return &Unread{}, nil
	}
	// Most polls find nothing: they need neither turn nor transaction.
	if unread, err := s.Unread(ctx, agent, page, size); err != nil || len(unread.Messages) == 0 {
		return unread, err
	}
	err := gorm.G[Membership](s.db).Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('unread ' || CAST(CAST(? AS uuid) AS text), 0))`, agent)
	if err != nil {
		return nil, fmt.Errorf("wait for turn: %w", err)
	}
	unread, err := s.Unread(ctx, agent, page, size)
	if err != nil || len(unread.Messages) == 0 {
		return unread, err
	}
	newest := map[uuid.UUID]int64{}
	for _, message := range unread.Messages {
		newest[message.ConversationID] = max(newest[message.ConversationID], message.Number)
	}
	var wanted UUIDs
	for conversation := range newest {
		wanted = append(wanted, conversation)
	}
	locked, err := s.lockMemberships(ctx, agent, wanted)
	if err != nil {
		return nil, err
	}
	var upTo numbers
	for _, conversation := range locked {
		upTo = append(upTo, newest[conversation])
		delete(newest, conversation)
	}
	if len(locked) > 0 {
		if err := s.mark(ctx, agent, locked, upTo); err != nil {
			return nil, err
		}
	}
	// What cannot be marked now is not returned now: it stays unread, or the agent has left meanwhile.
	unread.Messages = slices.DeleteFunc(unread.Messages, func(message UnreadMessage) bool { return newest[message.ConversationID] > 0 })
	return unread, nil
}

// lockMemberships locks the agent's memberships in these conversations and returns those that it got. Some other
// transaction may hold two of them and want them in another order (leaving a group with a note does), so it never
// waits in the database: it asks for a tenth of a second, which outlasts whatever sends and reads at the time.
func (s *Store) lockMemberships(ctx context.Context, agent uuid.UUID, conversations UUIDs) (UUIDs, error) {
	for attempt := 1; ; attempt++ {
		locked, err := gorm.G[uuid.UUID](s.db).Raw(`
			SELECT conversation_id FROM memberships WHERE agent_id = ? AND conversation_id = ANY (CAST(? AS uuid[])) AND status = 'member'
			FOR NO KEY UPDATE SKIP LOCKED`, agent, conversations).Find(ctx)
		if err != nil {
			return nil, fmt.Errorf("lock memberships: %w", err)
		}
		if len(locked) == len(conversations) || attempt == 20 {
			return locked, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}
