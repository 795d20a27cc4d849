package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Reaction is one agent's emoji on one message.
type Reaction struct {
	ConversationID uuid.UUID
	Number         int64
	AgentID        uuid.UUID
	Emoji          string
	CreatedAt      time.Time
}

// ReactionLimit is the maximum number of reactions that a message lists. It lists the newest ones.
const ReactionLimit = 100

// Reactions are the reactions that a message shows: the newest ones, newest first, and the total count of each emoji.
type Reactions struct {
	Newest []NamedReaction
	Counts map[string]int64
}

// NamedReaction is a reaction with the username of its agent.
type NamedReaction struct {
	Reaction
	Username string
}

// MessageView is the number of a message, and its conversation as one agent sees it.
type MessageView struct {
	ConversationView
	Number int64
}

// MessageView finds a message by its id. It returns ErrMessageNotFound or ErrDeleted.
func (r *Reader) MessageView(ctx context.Context, message, agent uuid.UUID) (*MessageView, error) {
	found, err := query[MessageView](ctx, r, `SELECT o.number, `+viewColumns+`
		FROM messages o JOIN conversations c ON c.id = o.conversation_id LEFT JOIN memberships m ON m.conversation_id = c.id
			AND m.agent_id = @agent
		WHERE o.id = @id`, named{"id": message, "agent": agent})
	view, err := firstOr(found, err, "find message", ErrMessageNotFound)
	if err == nil && view.DeletedAt != nil {
		return nil, ErrDeleted
	}
	return view, err
}

// React adds the agent's reaction to a message, or replaces it. It returns ErrMessageNotFound if there is no such message. Then the
// transaction is aborted.
func (tx *Tx) React(ctx context.Context, conversation uuid.UUID, number int64, agent uuid.UUID, emoji string) error {
	replace := clause.OnConflict{
		Columns:   []clause.Column{{Name: "conversation_id"}, {Name: "number"}, {Name: "agent_id"}},
		DoUpdates: clause.AssignmentColumns([]string{"emoji", "created_at"}),
	}
	err := gorm.G[Reaction](tx.db, replace).Create(ctx, &Reaction{ConversationID: conversation, Number: number, AgentID: agent, Emoji: emoji})
	if errors.Is(err, gorm.ErrForeignKeyViolated) { // the message was removed meanwhile
		return ErrMessageNotFound
	}
	return wrap("react", err)
}

// RemoveReaction removes the agent's reaction. If there is none, nothing changes.
func (tx *Tx) RemoveReaction(ctx context.Context, conversation uuid.UUID, number int64, agent uuid.UUID) error {
	_, err := gorm.G[Reaction](tx.db).Where("conversation_id = ? AND number = ? AND agent_id = ?", conversation, number, agent).Delete(ctx)
	return wrap("remove reaction", err)
}

// listReactions selects the newest reactions of each message, and the newest reaction of each emoji, which carries the count of that emoji.
const listReactions = `
	SELECT kept.conversation_id, kept.number, kept.agent_id, kept.emoji, kept.created_at, kept.position, kept.count, a.username FROM (
		SELECT r.conversation_id, r.number, r.agent_id, r.emoji, r.created_at,
			row_number() OVER (PARTITION BY number ORDER BY created_at DESC, agent_id DESC) AS position,
			row_number() OVER same AS same_position, count(*) OVER (PARTITION BY number, emoji) AS count
		FROM reactions r WHERE conversation_id = @conversation AND number = ANY (CAST(@numbers AS bigint[])) 
			AND created_at <= coalesce(CAST(@until AS timestamptz), 'infinity')
		WINDOW same AS (PARTITION BY number, emoji ORDER BY created_at DESC, agent_id DESC)
	) kept JOIN agents a ON a.id = kept.agent_id
	WHERE kept.position <= @limit OR kept.same_position = 1 ORDER BY kept.number, kept.position`

// Reactions returns the reactions to these messages of a conversation, by number, in one round trip; if until is not nil, only those that
// came until then. Messages without reactions have no entry.
func (r *Reader) Reactions(
	ctx context.Context, conversation uuid.UUID, messages []SentMessage, until *time.Time,
) (map[int64]*Reactions, error) {
	var wanted []int64
	for _, message := range messages {
		if !message.Unreacted {
			wanted = append(wanted, message.Number)
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	rows, err := read[struct {
		NamedReaction
		Position, Count int64
	}](ctx, r, listReactions, named{"conversation": conversation, "numbers": wanted, "limit": ReactionLimit, "until": until})
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
