package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Membership connects an agent with a conversation, as a member, a subscriber or a banned agent. ReadNumber is the
// number of the newest message that the agent has read. UnreadOwn counts the agent's own messages after that one.
type Membership struct {
	ConversationID uuid.UUID
	AgentID        uuid.UUID
	Status         string
	ReadNumber     int64
	UnreadOwn      int64
	JoinedNumber   int64
	JoinedAt       time.Time
}

// The states of a membership. A subscriber has StatusMember.
const (
	StatusMember = "member"
	StatusBanned = "banned"
)

// MemberLimit is the maximum number of members of a group chat. Channels have no limit.
const MemberLimit = 1000

// Join makes existing agents members or subscribers, in this order. Those that already are stay unchanged. All earlier
// messages count as read. It returns ErrBanned if one of the agents is banned. Lock the conversation first.
func (tx *Tx) Join(ctx context.Context, conversation uuid.UUID, agents ...uuid.UUID) error {
	if len(agents) == 0 {
		return nil
	}
	bans := gorm.G[Membership](tx.db).Where("conversation_id = ? AND agent_id IN ? AND status = 'banned'", conversation, agents)
	if err := refuseIf(ctx, ErrBanned, "look for bans", bans); err != nil {
		return err
	}
	joined, err := tx.StoredConversation(ctx, conversation)
	if err != nil {
		return err
	}
	return tx.addMemberships(ctx, Membership{
		ConversationID: conversation, Status: StatusMember, ReadNumber: joined.LastNumber, JoinedNumber: joined.LastNumber, JoinedAt: tx.Now(),
	}, agents)
}

// addMemberships adds a membership like this one for each agent that has none in the conversation. The times are one
// microsecond apart. If the agents become members, it updates the member count.
func (tx *Tx) addMemberships(ctx context.Context, like Membership, agents []uuid.UUID) error {
	memberships := make([]Membership, len(agents))
	for i, agent := range agents {
		memberships[i] = like
		memberships[i].AgentID, memberships[i].JoinedAt = agent, like.JoinedAt.Add(time.Duration(i)*time.Microsecond)
	}
	added := tx.gorm(ctx, &Membership{}).Clauses(clause.OnConflict{DoNothing: true}).Create(&memberships)
	if added.Error != nil {
		return fmt.Errorf("add to conversation: %w", added.Error)
	}
	if like.Status != StatusMember {
		return nil
	}
	return tx.countMembers(ctx, like.ConversationID, added.RowsAffected)
}

// countMembers adds more to the member count of a conversation.
func (tx *Tx) countMembers(ctx context.Context, conversation uuid.UUID, more int64) error {
	if more == 0 {
		return nil
	}
	return tx.changeConversation(ctx, conversation, map[string]any{"member_count": gorm.Expr("member_count + ?", more)})
}

// Leave ends the membership of an agent, if it has one. Lock the conversation first.
func (tx *Tx) Leave(ctx context.Context, conversation, agent uuid.UUID) error {
	_, err := tx.endMemberships(ctx, conversation, []uuid.UUID{agent})
	return err
}

// Remove ends memberships on behalf of actor and notifies the agents. Agents that are not members are ignored. Lock the
// conversation first.
func (tx *Tx) Remove(ctx context.Context, conversation, actor uuid.UUID, agents []uuid.UUID) error {
	gone, err := tx.endMemberships(ctx, conversation, agents)
	if err != nil {
		return err
	}
	return tx.notify(ctx, NoticeRemoved, conversation, actor, gone)
}

// endMemberships returns the agents that were members.
func (tx *Tx) endMemberships(ctx context.Context, conversation uuid.UUID, agents []uuid.UUID) ([]uuid.UUID, error) {
	if len(agents) == 0 {
		return nil, nil
	}
	gone, err := query[uuid.UUID](ctx, tx, `DELETE FROM memberships WHERE conversation_id = @conversation AND agent_id = ANY (@agents) AND status = 'member'
		RETURNING agent_id`, named{"conversation": conversation, "agents": agents})
	if err != nil {
		return nil, fmt.Errorf("leave conversation: %w", err)
	}
	return gone, tx.countMembers(ctx, conversation, -int64(len(gone)))
}

// Ban ends memberships and bans the agents on behalf of actor, whether they were members or not. Agents that are banned stay
// unchanged. It notifies former members only: a notice contains a name that the actor chose, and would be cheap spam to others.
// Lock the conversation first.
func (tx *Tx) Ban(ctx context.Context, conversation, actor uuid.UUID, agents []uuid.UUID) error {
	gone, err := tx.endMemberships(ctx, conversation, agents)
	if err != nil || len(agents) == 0 {
		return err
	}
	if err := tx.addMemberships(ctx, Membership{ConversationID: conversation, Status: StatusBanned, JoinedAt: tx.Now()}, agents); err != nil {
		return err
	}
	return tx.notify(ctx, NoticeBanned, conversation, actor, gone)
}

// Unban lifts bans. It makes no agent a member. Lock the conversation first.
func (tx *Tx) Unban(ctx context.Context, conversation uuid.UUID, agents ...uuid.UUID) error {
	if len(agents) == 0 {
		return nil
	}
	_, err := gorm.G[Membership](tx.db).Where("conversation_id = ? AND agent_id IN ? AND status = 'banned'", conversation, agents).Delete(ctx)
	return wrap("lift ban", err)
}
