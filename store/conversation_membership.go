package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Membership connects an agent with a conversation, as a member, a subscriber or a banned agent. ReadNumber is the
// number of the newest message that the agent has read. UnreadOwn counts the agent's own messages after that one. Quiet means that another
// agent added this one, which has neither fetched messages of the conversation nor sent one since.
type Membership struct {
	ConversationID uuid.UUID
	AgentID        uuid.UUID
	Status         string
	ReadNumber     int64
	UnreadOwn      int64
	JoinedNumber   int64
	JoinedAt       time.Time
	Quiet          bool
}

// The states of a membership. A subscriber has StatusMember.
const (
	StatusMember = "member"
	StatusBanned = "banned"
)

// MemberLimit is the maximum number of members of a group chat. Channels have no limit.
const MemberLimit = 1000

// Join makes existing agents members or subscribers by their own will, in this order. Those that already are stay unchanged. All earlier
// messages count as read. It returns ErrAgentBanned if one of the agents is banned. Lock the conversation first.
func (tx *Tx) Join(ctx context.Context, conversation uuid.UUID, agents ...uuid.UUID) error {
	return tx.join(ctx, conversation, nil, agents)
}

// join is Join, or, if by is not nil, what that agent does with others.
func (tx *Tx) join(ctx context.Context, conversation uuid.UUID, by *uuid.UUID, agents []uuid.UUID) error {
	if len(agents) == 0 {
		return nil
	}
	if err := refuseAgents(ctx, tx, ErrAgentBanned, `SELECT agent_id FROM memberships
		WHERE conversation_id = @conversation AND agent_id = ANY (@agents) AND status = 'banned' ORDER BY agent_id`,
		named{"conversation": conversation, "agents": agents}); err != nil {
		return err
	}
	return tx.addMemberships(ctx, conversation, StatusMember, by, agents)
}

// addMemberships adds a membership for each agent that has none in the conversation, a quiet one if another agent adds it. The times are
// one microsecond apart.
func (tx *Tx) addMemberships(ctx context.Context, conversation uuid.UUID, status string, by *uuid.UUID, agents []uuid.UUID) error {
	_, err := exec(ctx, tx, `
		WITH added AS (
			INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at, quiet)
			SELECT @conversation, a.id, @status, c.number, c.number, CAST(@now AS timestamptz) + (a.n - 1) * interval '1 microsecond',
				coalesce(a.id <> CAST(@by AS uuid), false)
			FROM unnest(CAST(@agents AS uuid[])) WITH ORDINALITY AS a (id, n) CROSS JOIN (
				SELECT CASE WHEN @status = 'member' THEN last_number ELSE 0 END AS number FROM conversations WHERE id = @conversation
			) c ORDER BY a.n
			ON CONFLICT DO NOTHING RETURNING status
		)
		UPDATE conversations SET member_count = member_count + (SELECT count(*) FROM added)
		WHERE id = @conversation AND EXISTS (SELECT FROM added WHERE status = 'member')`,
		named{"conversation": conversation, "status": status, "by": by, "agents": agents, "now": tx.Now()})
	return wrap("add to conversation", err)
}

// Leave ends the membership of an agent, if it has one. Lock the conversation first.
func (tx *Tx) Leave(ctx context.Context, conversation, agent uuid.UUID) error {
	_, err := tx.endMemberships(ctx, conversation, []uuid.UUID{agent})
	return err
}

// Remove ends memberships on behalf of actor and notifies the agents. Agents that are not members are ignored. Lock the conversation first.
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
	gone, err := query[uuid.UUID](ctx, tx, `
		WITH gone AS (
			DELETE FROM memberships WHERE conversation_id = @conversation AND agent_id = ANY (@agents) AND status = 'member' RETURNING agent_id
		), counted AS (
			UPDATE conversations SET member_count = member_count - (SELECT count(*) FROM gone) WHERE id = @conversation AND EXISTS (SELECT FROM gone)
		)
		SELECT agent_id FROM gone`, named{"conversation": conversation, "agents": agents})
	return gone, wrap("leave conversation", err)
}

// Ban ends memberships and bans the agents on behalf of actor, whether they were members or not. Agents that are banned stay
// unchanged. It notifies former members only: a notice contains a name that the actor chose, and would be cheap spam to others.
// Lock the conversation first.
func (tx *Tx) Ban(ctx context.Context, conversation, actor uuid.UUID, agents []uuid.UUID) error {
	gone, err := tx.endMemberships(ctx, conversation, agents)
	if err != nil || len(agents) == 0 {
		return err
	}
	if err := tx.addMemberships(ctx, conversation, StatusBanned, nil, agents); err != nil {
		return err
	}
	return tx.notify(ctx, NoticeBanned, conversation, actor, gone)
}

// Banned returns the agents that were banned last, newest first.
func (r *Reader) Banned(ctx context.Context, conversation uuid.UUID) ([]uuid.UUID, error) {
	banned, err := read[uuid.UUID](ctx, r, `SELECT agent_id FROM memberships WHERE conversation_id = @conversation AND status = 'banned'
			AND joined_at > '-infinity' -- as its index says
		ORDER BY joined_at DESC, agent_id DESC LIMIT @listed`, named{"conversation": conversation, "listed": mostListed})
	return banned, wrap("list bans", err)
}

// Unban lifts bans. It makes no agent a member. Lock the conversation first.
func (tx *Tx) Unban(ctx context.Context, conversation uuid.UUID, agents ...uuid.UUID) error {
	if len(agents) == 0 {
		return nil
	}
	_, err := gorm.G[Membership](tx.db).Where("conversation_id = ? AND agent_id IN ? AND status = 'banned'", conversation, agents).Delete(ctx)
	return wrap("lift ban", err)
}
