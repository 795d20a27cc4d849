package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Notice tells an agent what another agent did to it in a group chat or channel. SourceName is the name of the group chat or
// channel at that time: an agent that was removed must not see later names.
type Notice struct {
	AgentID        uuid.UUID
	Number         int64 `gorm:"->"` // PostgreSQL assigns it
	Type           string
	ConversationID uuid.UUID
	SourceName     string
	ActorID        uuid.UUID
	CreatedAt      time.Time
}

// NoticeView is a notice with the kind of the conversation and the username of the actor. ByOperator means that the operator has
// removed the conversation.
type NoticeView struct {
	Notice
	Kind, ActorUsername string
	ByOperator          bool
}

// The types of notices.
const (
	NoticeAdded     = "added"
	NoticeRemoved   = "removed"
	NoticeBanned    = "banned"
	NoticeMadeAdmin = "made_admin"
	NoticeDeleted   = "deleted"
)

// Of the notices only NoticeMadeAdmin ends a wait: it costs its sender more than a poll costs the agent, while one call can add or remove a
// hundred agents.

const (
	// MaxNotices is how many notices a call returns.
	MaxNotices = 50
	// maxUnreadNotices is how many notices an agent has. Each is of another conversation, and to create one costs more than a call.
	maxUnreadNotices = 500
)

// notify writes one notice for each agent but the actor itself.
func (tx *Tx) notify(ctx context.Context, noticeType string, conversation, actor uuid.UUID, agents []uuid.UUID) error {
	told := slices.DeleteFunc(slices.Clone(agents), func(agent uuid.UUID) bool { return agent == actor })
	if len(told) == 0 {
		return nil
	}
	return tx.writeNotices(ctx, noticeType, conversation, actor, told)
}

// writeNotices replaces the agents' unread notices of the conversation: the newest one tells what counts, and names that somebody chooses
// cost him a conversation each. The lock of the conversation lets one transaction at a time write its notices. Others delete notices
// without waiting for a lock, here and in readNotices, so waiting for them here cannot deadlock.
func (tx *Tx) writeNotices(ctx context.Context, noticeType string, conversation, actor uuid.UUID, agents []uuid.UUID) error {
	_, err := exec(ctx, tx, `
		WITH replaced AS (DELETE FROM notices WHERE conversation_id = @conversation AND agent_id = ANY (@agents))
		INSERT INTO notices (agent_id, type, conversation_id, source_name, actor_id, created_at)
		SELECT a.id, @type, c.id, c.name, @actor, @now FROM (SELECT DISTINCT unnest(CAST(@agents AS uuid[])) AS id) a CROSS JOIN conversations c
		WHERE c.id = @conversation`,
		named{"type": noticeType, "conversation": conversation, "actor": actor, "agents": agents, "now": tx.Now()})
	if err != nil {
		return fmt.Errorf("write notices: %w", err)
	}
	if noticeType == NoticeMadeAdmin {
		tx.news = append(tx.news, agents...)
	}
	// The oldest notices of agents that have too many go.
	_, err = exec(ctx, tx, `
		WITH surplus AS MATERIALIZED (
			SELECT o.agent_id, o.number FROM unnest(CAST(@agents AS uuid[])) AS a (id)
			CROSS JOIN LATERAL (SELECT agent_id, number FROM notices WHERE agent_id = a.id ORDER BY number DESC OFFSET @most) o
		), locked AS MATERIALIZED (
			SELECT n.agent_id, n.number FROM notices n JOIN surplus USING (agent_id, number) FOR UPDATE OF n SKIP LOCKED
		)
		DELETE FROM notices n USING locked l WHERE n.agent_id = l.agent_id AND n.number = l.number`,
		named{"agents": agents, "most": maxUnreadNotices})
	return wrap("forget notices", err)
}

// notices returns the agent's oldest notices, locked if locking is a clause of SQL.
func (r *Reader) notices(ctx context.Context, agent uuid.UUID, locking string) ([]NoticeView, error) {
	notices, err := query[NoticeView](ctx, r, oldestNotices+locking, named{"agent": agent, "most": MaxNotices})
	return notices, wrap("list notices", err)
}

const oldestNotices = `
	SELECT n.agent_id, n.number, n.type, n.conversation_id, n.source_name, n.actor_id, n.created_at, c.kind, a.username AS actor_username,
		n.type = 'deleted' AND EXISTS (SELECT FROM conversation_removals r WHERE r.conversation_id = n.conversation_id) AS by_operator
	FROM notices n JOIN conversations c ON c.id = n.conversation_id JOIN agents a ON a.id = n.actor_id
	WHERE n.agent_id = @agent ORDER BY n.number LIMIT @most`

// readNotices returns the agent's oldest notices and deletes them, in this transaction. The lock of the agent (readUnread)
// keeps two calls from returning the same notice. A notice that is being replaced is left out; the new one comes with the next call.
func (tx *Tx) readNotices(ctx context.Context, agent uuid.UUID) ([]NoticeView, error) {
	notices, err := tx.notices(ctx, agent, " FOR UPDATE OF n SKIP LOCKED")
	if err != nil || len(notices) == 0 {
		return nil, err
	}
	numbers := make([]int64, len(notices))
	for i, notice := range notices {
		numbers[i] = notice.Number
	}
	_, err = gorm.G[Notice](tx.db).Where("agent_id = ? AND number IN ?", agent, numbers).Delete(ctx)
	return notices, wrap("delete read notices", err)
}

// forgetNotices deletes notices of the agent that it has read. It does not wait for those that are being replaced.
const forgetNotices = `
	WITH read AS MATERIALIZED (
		SELECT number FROM notices WHERE agent_id = @agent AND number = ANY (CAST(@numbers AS bigint[])) FOR UPDATE SKIP LOCKED
	)
	DELETE FROM notices n USING read WHERE n.agent_id = @agent AND n.number = read.number`
