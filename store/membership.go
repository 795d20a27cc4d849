package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
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
	missing, err := gorm.G[int64](s.db).Raw(`
		SELECT count(*) FROM unnest(CAST(? AS uuid[])) AS wanted (id) WHERE NOT EXISTS (SELECT 1 FROM agents a WHERE a.id = wanted.id)`, UUIDs(ids)).Take(ctx)
	if err != nil {
		return fmt.Errorf("look for agents: %w", err)
	}
	if missing > 0 {
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
	values := map[string]any{"conversation": conversation, "agents": UUIDs(agents)}
	banned, err := gorm.G[int64](s.db).Raw(`
		SELECT count(*) FROM memberships WHERE conversation_id = @conversation AND agent_id = ANY (CAST(@agents AS uuid[])) AND status = 'banned'`, values).Take(ctx)
	if err != nil {
		return fmt.Errorf("look for bans: %w", err)
	}
	if banned > 0 {
		return ErrBanned
	}
	err = gorm.G[Membership](s.db).Exec(ctx, `
		WITH joined AS (
			INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
			SELECT c.id, wanted.id, 'member', c.last_number, c.last_number, clock_timestamp()
			FROM conversations c, unnest(CAST(@agents AS uuid[])) WITH ORDINALITY AS wanted (id, position)
			WHERE c.id = @conversation ORDER BY wanted.position
			ON CONFLICT (conversation_id, agent_id) DO NOTHING RETURNING agent_id
		)
		UPDATE conversations SET member_count = member_count + (SELECT count(*) FROM joined) WHERE id = @conversation`, values)
	if err != nil {
		return fmt.Errorf("join conversation: %w", err)
	}
	return nil
}

// Leave ends memberships; of agents who are no members nothing changes. Hold the conversation first.
func (s *Store) Leave(ctx context.Context, conversation uuid.UUID, agents ...uuid.UUID) error {
	if len(agents) == 0 {
		return nil
	}
	err := gorm.G[Membership](s.db).Exec(ctx, `
		WITH gone AS (
			DELETE FROM memberships WHERE conversation_id = @conversation AND agent_id = ANY (CAST(@agents AS uuid[])) AND status = 'member' RETURNING agent_id
		)
		UPDATE conversations SET member_count = member_count - (SELECT count(*) FROM gone) WHERE id = @conversation`,
		map[string]any{"conversation": conversation, "agents": UUIDs(agents)})
	if err != nil {
		return fmt.Errorf("leave conversation: %w", err)
	}
	return nil
}

// Ban ends memberships and keeps the agents out, whether they were members or not. Hold the conversation first.
func (s *Store) Ban(ctx context.Context, conversation uuid.UUID, agents ...uuid.UUID) error {
	if err := s.Leave(ctx, conversation, agents...); err != nil || len(agents) == 0 {
		return err
	}
	err := gorm.G[Membership](s.db).Exec(ctx, `
		INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
		SELECT DISTINCT CAST(@conversation AS uuid), wanted.id, 'banned', 0, 0, clock_timestamp() FROM unnest(CAST(@agents AS uuid[])) AS wanted (id)
		ON CONFLICT (conversation_id, agent_id) DO NOTHING`, map[string]any{"conversation": conversation, "agents": UUIDs(agents)})
	if err != nil {
		return fmt.Errorf("ban: %w", err)
	}
	return nil
}

// Unban lets agents in again; it makes nobody a member. Hold the conversation first.
func (s *Store) Unban(ctx context.Context, conversation uuid.UUID, agents ...uuid.UUID) error {
	err := gorm.G[Membership](s.db).Exec(ctx, `
		DELETE FROM memberships WHERE conversation_id = ? AND agent_id = ANY (CAST(? AS uuid[])) AND status = 'banned'`, conversation, UUIDs(agents))
	if err != nil {
		return fmt.Errorf("lift ban: %w", err)
	}
	return nil
}

// MarkRead moves the agent's marker forward to number; it never moves back.
func (s *Store) MarkRead(ctx context.Context, conversation, agent uuid.UUID, number int64) error {
	err := gorm.G[Membership](s.db).Exec(ctx, `
		UPDATE memberships m SET read_number = @number, unread_own = CASE WHEN m.unread_own = 0 OR @number >= c.last_number THEN 0 ELSE m.unread_own - (
				SELECT count(*) FROM messages o WHERE o.conversation_id = m.conversation_id AND o.sender_id = m.agent_id
				AND o.number > m.read_number AND o.number <= @number) END
		FROM conversations c
		WHERE c.id = m.conversation_id AND m.conversation_id = @conversation AND m.agent_id = @agent AND m.status = 'member' AND m.read_number < @number`,
		map[string]any{"number": number, "conversation": conversation, "agent": agent})
	if err != nil {
		return fmt.Errorf("mark read: %w", err)
	}
	return nil
}
