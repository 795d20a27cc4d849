package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

const (
	// ReactionLimit is the maximum number of reactions that a message lists. It lists the newest ones.
	ReactionLimit = 100
	// EmojiLimit is the maximum number of emoji that a message counts: the most frequent ones.
	EmojiLimit = 32
	// fewReactions is how many reactions a short page reads.
	fewReactions = 1_000
	// reactionsAtOnce is of how many messages of a long page reactions are read at a time: if there are many, the first messages fill the
	// page.
	reactionsAtOnce = 64
)

// Reactions are the reactions that a message shows: the newest ones, newest first, and how often it has each emoji.
type Reactions struct {
	Newest []NamedReaction
	Counts map[string]int64
}

// jsonLength returns how many bytes the reactions take as JSON. Usernames and emoji need no escapes.
func (r *Reactions) jsonLength() (length int) {
	if r == nil {
		return 0
	}
	for _, reaction := range r.Newest {
		length += len(`{"agent_id":"agent_01k70t995eeeqsqssjfq4h8qx8","username":"","emoji":"","created_at":1763650000.123},`) +
			len(reaction.Username) + len(reaction.Emoji)
	}
	for emoji := range r.Counts {
		length += len(`"":1000000,`) + len(emoji)
	}
	return length
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

// listReactions selects the newest reactions to each message, and the count of each of its most frequent emoji, in rows without an agent.
// It counts the reactions that it has read, at most @most.
var listReactions = fmt.Sprintf(`
	WITH found AS MATERIALIZED (
		SELECT number, agent_id, emoji, created_at FROM reactions
		WHERE conversation_id = @conversation AND number = ANY (CAST(@numbers AS bigint[]))
			AND created_at <= coalesce(CAST(@until AS timestamptz), 'infinity') LIMIT CAST(@most AS bigint)
	)
	SELECT n.number, n.agent_id, a.username, n.emoji, n.created_at, 0 AS count, n.position, (SELECT count(*) FROM found) AS read FROM (
		SELECT number, agent_id, emoji, created_at, row_number() OVER (PARTITION BY number ORDER BY created_at DESC, agent_id DESC) AS position
		FROM found
	) n JOIN agents a ON a.id = n.agent_id WHERE n.position <= %d
	UNION ALL
	SELECT number, NULL, '', emoji, created_at, count, position, 0 FROM (
		SELECT number, emoji, max(created_at) AS created_at, count(*) AS count,
			row_number() OVER (PARTITION BY number ORDER BY count(*) DESC, max(created_at) DESC, emoji) AS position
		FROM found GROUP BY number, emoji
	) e WHERE position <= %d
	ORDER BY number, position, agent_id`, ReactionLimit, EmojiLimit)

// reactionRow is a row of listReactions.
type reactionRow struct {
	Number, Count, Position, Read int64
	AgentID                       *uuid.UUID
	Username, Emoji               string
	CreatedAt                     time.Time
}

// Reactions returns the reactions to these messages of a conversation, by number; if until is not nil, only those that came until then.
// Messages without reactions have no entry.
func (r *Reader) Reactions(ctx context.Context, messages []SentMessage, until *time.Time) (map[int64]*Reactions, error) {
	few, err := r.reactions(ctx, messages, until, ShortPage)
	if errors.Is(err, ErrLongPage) {
		return r.reactions(ctx, messages, until, LongPage)
	}
	return few, err
}

// reactions is Reactions for a ShortPage or a LongPage. It returns ErrLongPage if there are more than fewReactions and most is ShortPage.
func (r *Reader) reactions(ctx context.Context, messages []SentMessage, until *time.Time, most int64) (map[int64]*Reactions, error) {
	var wanted []int64
	for _, message := range messages {
		if !message.Unreacted {
			wanted = append(wanted, message.Number)
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	values := named{"conversation": messages[0].ConversationID, "numbers": wanted, "until": until, "most": fewReactions + 1}
	if most > ShortPage {
		values["most"] = nil
	}
	rows, err := list[reactionRow](ctx, r, most, listReactions, values)
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
		switch {
		case most <= ShortPage && row.Read > fewReactions:
			return nil, ErrLongPage
		case row.AgentID == nil:
			reactions.Counts[row.Emoji] = row.Count
		default:
			reactions.Newest = append(reactions.Newest, NamedReaction{
				Reaction{messages[0].ConversationID, row.Number, *row.AgentID, row.Emoji, row.CreatedAt}, row.Username,
			})
		}
	}
	return all, nil
}

// PageReactions returns the reactions to the messages of a page, by number, and how many of the messages, from the first one, fit on the
// page with their reactions. It returns ErrLongPage if most is ShortPage and there are more than fewReactions, or all is long as JSON.
func (r *Reader) PageReactions(
	ctx context.Context, messages []SentMessage, most int64,
) (all map[int64]*Reactions, fitting int, err error) {
	if !slices.ContainsFunc(messages, func(message SentMessage) bool { return !message.Unreacted }) {
		return nil, len(messages), nil
	}
	all = map[int64]*Reactions{}
	atOnce, read := reactionsAtOnce, r.Reactions
	if most <= ShortPage {
		atOnce = len(messages)
		read = func(ctx context.Context, messages []SentMessage, until *time.Time) (map[int64]*Reactions, error) {
			return r.reactions(ctx, messages, until, ShortPage)
		}
	}
	var budget pageBudget
	for i, message := range messages {
		if i%atOnce == 0 {
			some, err := read(ctx, messages[i:min(i+atOnce, len(messages))], nil)
			if err != nil {
				return nil, 0, err
			}
			maps.Copy(all, some)
		}
		fits := budget.take(message.Content, all[message.Number])
		switch {
		case most <= ShortPage && budget.json > shortPageJSON:
			return nil, 0, ErrLongPage
		case !fits:
			return all, i, nil
		}
	}
	return all, len(messages), nil
}
