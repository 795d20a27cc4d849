package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
)

// Message is one text in a conversation. Number orders it there.
type Message struct {
	ConversationID uuid.UUID
	Number         int64
	ID             uuid.UUID
	SenderID       uuid.UUID
	Content        string
	CreatedAt      time.Time
}

// SentMessage is a message with its sender's name.
type SentMessage struct {
	Message
	SenderUsername string
}

// Sent is where a message went.
type Sent struct {
	ConversationID uuid.UUID
	Number         int64
	CreatedAt      time.Time
}

// send appends a message to the conversation c that the condition (FROM … WHERE …, trusted text) selects, in one round
// trip; nil if it selects none. values holds message, sender, content and what the condition names.
//
// The row lock on the conversation makes number order commit order; the time is taken under it and never goes back, so
// that within a conversation the order by time is the order by number. Own messages are never unread: where nothing
// else is unread the sender's marker moves along, otherwise the message is counted as own.
func (s *Store) send(ctx context.Context, condition string, values pgx.NamedArgs) (*Sent, error) {
	sent, err := findOne[Sent](ctx, s, `
		WITH bumped AS (
			UPDATE conversations c SET last_number = c.last_number + 1, last_message_at = greatest(clock_timestamp(), c.last_message_at)
			`+condition+`
			RETURNING c.id, c.last_number, c.last_message_at
		), own AS (
			UPDATE memberships m
			SET read_number = CASE WHEN m.read_number + m.unread_own = b.last_number - 1 THEN b.last_number ELSE m.read_number END,
				unread_own = CASE WHEN m.read_number + m.unread_own = b.last_number - 1 THEN 0 ELSE m.unread_own + 1 END
			FROM bumped b WHERE m.conversation_id = b.id AND m.agent_id = @sender AND m.status = 'member'
		)
		INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
		SELECT id, last_number, @message, @sender, @content, last_message_at FROM bumped
		RETURNING conversation_id, number, created_at`, values)
	if err != nil {
		return nil, fmt.Errorf("send message: %w", err)
	}
	return sent, nil
}

// Messages returns page (from 1) of n messages of the conversation, newest first. Numbers have no gaps, so a page is a
// range of the key however far back it lies. With before, pages count from the message older than that one.
// ErrMessageNotFound if before is not a message of this conversation.
func (s *Store) Messages(ctx context.Context, seat *Seat, n, page int64, before *uuid.UUID) ([]SentMessage, error) {
	newest, err := s.newestBefore(ctx, seat, before)
	if err != nil {
		return nil, err
	}
	if page-1 > newest/n { // beyond the end; also keeps the product below from overflowing
		return nil, nil
	}
	newest -= (page - 1) * n
	messages, err := find[SentMessage](ctx, s, `
		SELECT m.*, a.username AS sender_username FROM messages m JOIN agents a ON a.id = m.sender_id
		WHERE m.conversation_id = @conversation AND m.number <= @newest AND m.number > @oldest ORDER BY m.number DESC`,
		pgx.NamedArgs{"conversation": seat.ID, "newest": newest, "oldest": newest - n})
	if err != nil {
		return nil, fmt.Errorf("list messages: %w", err)
	}
	return messages, nil
}

// newestBefore is the number at which pages begin: the newest message's, or that of the one older than before.
// ErrMessageNotFound if before is not a message of this conversation.
func (s *Store) newestBefore(ctx context.Context, seat *Seat, before *uuid.UUID) (int64, error) {
	if before == nil {
		return seat.LastNumber, nil
	}
	anchor, err := gorm.G[Message](s.db).Select("number").Where("id = ? AND conversation_id = ?", *before, seat.ID).Take(ctx)
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return 0, ErrMessageNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("find message: %w", err)
	}
	return anchor.Number - 1, nil
}
