package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Membership binds an agent to a conversation: a member or subscriber, or one who is kept out. ReadNumber is the
// number of the newest message that it has read; UnreadOwn counts its own messages after that one.
type Membership struct {
	ConversationID uuid.UUID
	AgentID        uuid.UUID
	Status         string
	ReadNumber     int64
	UnreadOwn      int64
	JoinedNumber   int64
	JoinedAt       time.Time
}

// What a membership may be.
const (
	StatusMember = "member"
	StatusBanned = "banned"
)

// MemberLimit is how many members a group chat may have. Channels have no limit.
const MemberLimit = 1000

// CheckAgents returns ErrAgentNotFound if one of the ids is nobody's.
func (s *Store) CheckAgents(ctx context.Context, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	wanted := map[uuid.UUID]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	found, err := gorm.G[Agent](s.db).Where("id IN ?", ids).Count(ctx, "*")
	if err != nil {
		return fmt.Errorf("look for agents: %w", err)
	}
	if found < int64(len(wanted)) {
		return ErrAgentNotFound
	}
	return nil
}

// Join makes existing agents members or subscribers, in this order; those who are stay as they are. Everything that was
// sent before is read. ErrBanned if one is kept out. Hold the conversation first.
func (s *Store) Join(ctx context.Context, conversation uuid.UUID, agents ...uuid.UUID) error {
	if len(agents) == 0 {
		return nil
	}
	banned, err := gorm.G[Membership](s.db).Where("conversation_id = ? AND agent_id IN ? AND status = 'banned'", conversation, agents).Count(ctx, "*")
	if err != nil {
		return fmt.Errorf("look for bans: %w", err)
	}
	if banned > 0 {
		return ErrBanned
	}
	joined, err := s.loadConversation(ctx, conversation)
	if err != nil {
		return err
	}
	return s.addMemberships(ctx, Membership{
		ConversationID: conversation, Status: StatusMember, ReadNumber: joined.LastNumber, JoinedNumber: joined.LastNumber, JoinedAt: time.Now(),
	}, agents)
}

// addMemberships gives all agents who have none in the conversation a membership like this one, each a microsecond after the
// one before, and counts them if they are members.
func (s *Store) addMemberships(ctx context.Context, like Membership, agents []uuid.UUID) error {
	memberships := make([]Membership, len(agents))
	for i, agent := range agents {
		memberships[i] = like
		memberships[i].AgentID, memberships[i].JoinedAt = agent, like.JoinedAt.Add(time.Duration(i)*time.Microsecond)
	}
	added := s.gorm(ctx, &Membership{}).Clauses(clause.OnConflict{DoNothing: true}).Create(&memberships)
	if added.Error != nil {
		return fmt.Errorf("add to conversation: %w", added.Error)
	}
	if like.Status != StatusMember {
		return nil
	}
	return s.countMembers(ctx, like.ConversationID, added.RowsAffected)
}

// countMembers notes how many members a conversation has more.
func (s *Store) countMembers(ctx context.Context, conversation uuid.UUID, more int64) error {
	if more == 0 {
		return nil
	}
	return s.changeConversation(ctx, conversation, map[string]any{"member_count": gorm.Expr("member_count + ?", more)})
}

// Leave ends memberships; of agents who are no members nothing changes. Hold the conversation first.
func (s *Store) Leave(ctx context.Context, conversation uuid.UUID, agents ...uuid.UUID) error {
	if len(agents) == 0 {
		return nil
	}
	gone, err := gorm.G[Membership](s.db).Where("conversation_id = ? AND agent_id IN ? AND status = 'member'", conversation, agents).Delete(ctx)
	if err != nil {
		return fmt.Errorf("leave conversation: %w", err)
	}
	return s.countMembers(ctx, conversation, -int64(gone))
}

// Ban ends memberships and keeps the agents out, whether they were members or not. Hold the conversation first.
func (s *Store) Ban(ctx context.Context, conversation uuid.UUID, agents ...uuid.UUID) error {
	if err := s.Leave(ctx, conversation, agents...); err != nil || len(agents) == 0 {
		return err
	}
	return s.addMemberships(ctx, Membership{ConversationID: conversation, Status: StatusBanned, JoinedAt: time.Now()}, agents)
}

// Unban lets agents in again; it makes nobody a member. Hold the conversation first.
func (s *Store) Unban(ctx context.Context, conversation uuid.UUID, agents ...uuid.UUID) error {
	if len(agents) == 0 {
		return nil
	}
	_, err := gorm.G[Membership](s.db).Where("conversation_id = ? AND agent_id IN ? AND status = 'banned'", conversation, agents).Delete(ctx)
	if err != nil {
		return fmt.Errorf("lift ban: %w", err)
	}
	return nil
}
