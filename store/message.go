package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
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

// Messages returns page (from 1) of n messages of the conversation, newest first. Numbers have no gaps, so a page is a
// range of the key however far back it lies. With before, pages count from the message older than that one.
// ErrMessageNotFound if before is not a message of this conversation.
func (s *Store) Messages(ctx context.Context, seat *Seat, n, page int64, before *uuid.UUID) ([]SentMessage, error) {
	newest := seat.LastNumber
	if before != nil {
		anchor, err := gorm.G[Message](s.db).Select("number").Where("id = ? AND conversation_id = ?", *before, seat.ID).Take(ctx)
		if errors.Is(err, gorm.ErrRecordNotFound) {
			return nil, ErrMessageNotFound
		}
		if err != nil {
			return nil, fmt.Errorf("find message: %w", err)
		}
		newest = anchor.Number - 1
	}
	if page-1 > newest/n { // beyond the end; also keeps the product below from overflowing
		return nil, nil
	}
	newest -= (page - 1) * n
	messages, err := gorm.G[SentMessage](s.db).Raw(`
		SELECT m.*, a.username AS sender_username FROM messages m JOIN agents a ON a.id = m.sender_id
		WHERE m.conversation_id = ? AND m.number <= ? AND m.number > ? ORDER BY m.number DESC`,
		seat.ID, newest, newest-n).Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("list messages: %w", err)
	}
	return messages, nil
}

// MarkRead moves the agent's marker forward to number; it never moves back.
func (s *Store) MarkRead(ctx context.Context, conversation, agent uuid.UUID, number int64) error {
	err := gorm.G[Membership](s.db).Exec(ctx,
		`UPDATE memberships SET read_number = ? WHERE conversation_id = ? AND agent_id = ? AND read_number < ?`,
		number, conversation, agent, number)
	if err != nil {
		return fmt.Errorf("mark read: %w", err)
	}
	return nil
}
