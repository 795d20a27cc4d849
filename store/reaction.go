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

// Reaction is one agent's emoji on one message.
type Reaction struct {
	ConversationID uuid.UUID
	Number         int64
	AgentID        uuid.UUID
	Emoji          string
	CreatedAt      time.Time
}

// ReactionLimit is how many reactions a message shows one by one: the newest ones.
const ReactionLimit = 100

// Reactions are what a message shows of its reactions: the newest one by one, newest first, and of each emoji how many
// there are in all.
type Reactions struct {
	Newest []NamedReaction
	Counts map[string]int64
}

// NamedReaction is a reaction with its agent's name.
type NamedReaction struct {
	Reaction
	Username string
}

// MessageSeat is a message's place, and the conversation as one agent sees it.
type MessageSeat struct {
	Seat
	Number int64
}

// MessageSeat finds a message by its id alone. ErrMessageNotFound, ErrDeleted.
func (s *Store) MessageSeat(ctx context.Context, message, agent uuid.UUID) (*MessageSeat, error) {
	seat, err := gorm.G[MessageSeat](s.db).Raw(`
		SELECT o.number, c.*, coalesce(m.status, '') AS status, coalesce(m.read_number, 0) AS read_number
		FROM messages o JOIN conversations c ON c.id = o.conversation_id
		LEFT JOIN memberships m ON m.conversation_id = c.id AND m.agent_id = ?
		WHERE o.id = ?`, agent, message).Take(ctx)
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, ErrMessageNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("find message: %w", err)
	}
	if seat.DeletedAt != nil {
		return nil, ErrDeleted
	}
	return &seat, nil
}

// React adds the agent's reaction to a message or replaces it.
func (s *Store) React(ctx context.Context, conversation uuid.UUID, number int64, agent uuid.UUID, emoji string) error {
	err := gorm.G[Reaction](s.db).Exec(ctx, `
		INSERT INTO reactions (conversation_id, number, agent_id, emoji, created_at) VALUES (?, ?, ?, ?, clock_timestamp())
		ON CONFLICT (conversation_id, number, agent_id) DO UPDATE SET emoji = excluded.emoji, created_at = excluded.created_at`,
		conversation, number, agent, emoji)
	if err != nil {
		return fmt.Errorf("react: %w", err)
	}
	return nil
}

// RemoveReaction takes the agent's reaction away; where there is none nothing changes.
func (s *Store) RemoveReaction(ctx context.Context, conversation uuid.UUID, number int64, agent uuid.UUID) error {
	err := gorm.G[Reaction](s.db).Exec(ctx, `DELETE FROM reactions WHERE conversation_id = ? AND number = ? AND agent_id = ?`, conversation, number, agent)
	if err != nil {
		return fmt.Errorf("remove reaction: %w", err)
	}
	return nil
}

// Reactions returns the reactions to these messages of a conversation, by number, in one round trip. Messages without
// reactions are missing.
func (s *Store) Reactions(ctx context.Context, conversation uuid.UUID, messages []SentMessage) (map[int64]*Reactions, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	wanted := make(numbers, len(messages))
	for i, message := range messages {
		wanted[i] = message.Number
	}
	// Kept are the newest ones and the newest of each emoji, which carries that emoji's count.
	rows, err := look[struct {
		NamedReaction
		Position, Count int64
	}](ctx, s, `
		SELECT kept.conversation_id, kept.number, kept.agent_id, kept.emoji, kept.created_at, kept.position, kept.count, a.username FROM (
			SELECT r.*, row_number() OVER (PARTITION BY number ORDER BY created_at DESC, agent_id DESC) AS position,
				row_number() OVER same AS same_position, count(*) OVER (PARTITION BY number, emoji) AS count
			FROM reactions r WHERE conversation_id = @conversation AND number = ANY (CAST(@numbers AS bigint[]))
			WINDOW same AS (PARTITION BY number, emoji ORDER BY created_at DESC, agent_id DESC)
		) kept JOIN agents a ON a.id = kept.agent_id
		WHERE kept.position <= @limit OR kept.same_position = 1 ORDER BY kept.number, kept.position`,
		pgx.NamedArgs{"conversation": conversation, "numbers": wanted, "limit": ReactionLimit})
	if err != nil {
		return nil, fmt.Errorf("list reactions: %w", err)
	}
	all := map[int64]*Reactions{}
	for _, row := range rows {
		reactions := all[row.Number]
		if reactions == nil {
			reactions = &Reactions{Counts: map[string]int64{}}
			all[row.Number] = reactions
		}
		reactions.Counts[row.Emoji] = row.Count
		if row.Position <= ReactionLimit {
			reactions.Newest = append(reactions.Newest, row.NamedReaction)
		}
	}
	return all, nil
}
