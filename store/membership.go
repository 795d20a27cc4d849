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
	// Locked first, in a statement of its own: mark's snapshot must hold each own message that unread_own counts.
	err := gorm.G[Membership](s.db).Exec(ctx, `SELECT 1 FROM memberships WHERE conversation_id = ? AND agent_id = ? FOR NO KEY UPDATE`, conversation, agent)
	if err != nil {
		return fmt.Errorf("lock membership: %w", err)
	}
	return s.mark(ctx, agent, UUIDs{conversation}, numbers{number})
}

// mark moves the agent's marker in each of the conversations forward to the number beside it. Where only own messages
// come after that number the marker moves past them, as it does when they are sent. The caller has locked the
// memberships in an earlier statement.
func (s *Store) mark(ctx context.Context, agent uuid.UUID, conversations UUIDs, newest numbers) error {
	err := gorm.G[Membership](s.db).Exec(ctx, `
		WITH asked AS (
			SELECT c.id, c.last_number, least(r.number, c.last_number) AS number
			FROM unnest(CAST(@conversations AS uuid[]), CAST(@newest AS bigint[])) AS r (id, number) JOIN conversations c ON c.id = r.id
		), moved AS (
			SELECT m.conversation_id, r.number, r.last_number, CASE WHEN m.unread_own = 0 OR r.number = r.last_number THEN 0 ELSE m.unread_own - (
				SELECT count(*) FROM messages o WHERE o.conversation_id = m.conversation_id AND o.sender_id = m.agent_id
				AND o.number > m.read_number AND o.number <= r.number) END AS own
			FROM asked r JOIN memberships m ON m.conversation_id = r.id AND m.agent_id = @agent AND m.status = 'member' AND m.read_number < r.number
		)
		UPDATE memberships m
		SET read_number = CASE WHEN v.number + v.own = v.last_number THEN v.last_number ELSE v.number END,
			unread_own = CASE WHEN v.number + v.own = v.last_number THEN 0 ELSE v.own END
		FROM moved v WHERE m.conversation_id = v.conversation_id AND m.agent_id = @agent`,
		map[string]any{"agent": agent, "conversations": conversations, "newest": newest})
	if err != nil {
		return fmt.Errorf("mark read: %w", err)
	}
	return nil
}
