package store

import (
	"context"
	"slices"

	"github.com/google/uuid"
)

// Waiting is an agent that waits until something is unread beside what it will confirm.
type Waiting struct {
	Agent   uuid.UUID
	Through Through
}

// maxSources is how many group chats and channels of an agent Sources returns. Of others it learns by HaveUnread alone.
const maxSources = 64

// Sources returns the group chats and channels of the agent that end its waits, in whose names messages to it are announced. Private
// messages and notices are announced in its own name.
func (r *Reader) Sources(ctx context.Context, agent uuid.UUID) ([]uuid.UUID, error) {
	sources, err := read[uuid.UUID](ctx, r, `
		SELECT c.id FROM memberships m JOIN conversations c ON c.id = m.conversation_id
		WHERE m.agent_id = @agent AND m.status = 'member' AND NOT m.quiet AND c.kind <> 'private' AND c.deleted_at IS NULL
		ORDER BY c.last_message_at DESC NULLS LAST LIMIT @most`, named{"agent": agent, "most": maxSources})
	return sources, wrap("list group chats and channels", err)
}

// MaxPage is how many messages a page has at most. A cursor can be made up: of a longer range HaveUnread counts no more, because it counts
// again and again.
const MaxPage = 250

// unreadNews finds the conversations with something unread of agents, which have numbers from 1, by the memberships for which a condition
// is true. It looks up each membership and conversation by its key.
func unreadNews(condition string) string {
	return `agent AS (
		SELECT id, n FROM unnest((SELECT CAST(@agents AS uuid[]))) WITH ORDINALITY AS a (id, n)
	), news AS (
		SELECT a.id, a.n, m.conversation_id, ` + readUpTo + ` AS read_number, c.last_number - ` + readUpTo + ` - m.unread_own AS unread
		FROM agent a CROSS JOIN LATERAL (
			SELECT conversation_id, read_number, unread_own FROM memberships WHERE agent_id = a.id AND status = 'member' AND ` + condition + `
			OFFSET 0
		) m CROSS JOIN LATERAL (
			SELECT first_number, last_number FROM conversations WHERE id = m.conversation_id AND deleted_at IS NULL LIMIT 1
		) c
		WHERE c.last_number - ` + readUpTo + ` - m.unread_own > 0
	)`
}

// haveNews returns the numbers of the agents for whom there is something.
var haveNews = `WITH ` + unreadNews("true") + `
	SELECT n FROM news UNION SELECT a.n FROM agent a WHERE EXISTS (SELECT FROM notices WHERE agent_id = a.id)`

// haveUnread returns the numbers, from 1, of the agents for whom there is something that ends a wait, beside what they confirm: a message
// outside of the ranges that listUnread would return, or another notice.
var haveUnread = `
	WITH ` + unreadNews("NOT quiet") + `, range AS (
		SELECT n, conversation_id, oldest, newest FROM unnest((SELECT CAST(@places AS bigint[])), (SELECT CAST(@conversations AS uuid[])),
			(SELECT CAST(@oldest AS bigint[])), (SELECT CAST(@newest AS bigint[]))) AS r (n, conversation_id, oldest, newest)
	), told AS (
		SELECT n, number FROM unnest((SELECT CAST(@told AS bigint[])), (SELECT CAST(@notices AS bigint[]))) AS t (n, number)
	)
	SELECT n.n FROM news n LEFT JOIN range r ON r.n = n.n AND r.conversation_id = n.conversation_id
	WHERE r.n IS NULL OR n.unread > (SELECT count(*) FROM (SELECT FROM messages o WHERE o.conversation_id = r.conversation_id
		AND o.number > greatest(n.read_number, r.oldest - 1) AND o.number <= r.newest AND o.sender_id <> n.id LIMIT @most) o)
	UNION
	SELECT a.n FROM agent a CROSS JOIN LATERAL (SELECT number FROM notices WHERE agent_id = a.id AND type = '` + NoticeMadeAdmin + `'
		OFFSET 0) o
	WHERE NOT EXISTS (SELECT FROM told t WHERE t.n = a.n AND t.number = o.number)`

// HaveUnread reports for each agent whether something is unread that ends its wait, beside what it will confirm. One statement looks for
// all.
func (r *Reader) HaveUnread(ctx context.Context, waiting []Waiting) ([]bool, error) {
	agents := make([]uuid.UUID, len(waiting))
	places, told, ranges, notices := []int64{}, []int64{}, []ReadRange{}, []int64{}
	for i, one := range waiting {
		agents[i] = one.Agent
		for range one.Through.Ranges {
			places = append(places, int64(i)+1)
		}
		for range one.Through.Notices {
			told = append(told, int64(i)+1)
		}
		ranges, notices = append(ranges, one.Through.Ranges...), append(notices, one.Through.Notices...)
	}
	values := markValues(uuid.Nil, ranges...)
	values["agents"], values["places"], values["told"], values["notices"], values["most"] = agents, places, told, notices, MaxPage
	found, err := query[int64](ctx, r, haveUnread, values)
	have := make([]bool, len(waiting))
	for _, n := range found {
		have[n-1] = true
	}
	return have, wrap("look for unread messages", err)
}

// unreadPoll is a poll of an agent for which there may be nothing.
type unreadPoll struct {
	agent uuid.UUID
	found bool
}

// pollBatch finds out for which of the agents something is unread.
func (r *Reader) pollBatch(ctx context.Context, batch []batchItem[*unreadPoll]) {
	found, err := query[int64](ctx, r, haveNews, named{"agents": column(batch, func(p *unreadPoll) [16]byte { return p.agent })})
	finish(batch, func(i int, poll *unreadPoll) error {
		poll.found = slices.Contains(found, int64(i)+1)
		return wrap("look for unread messages", err)
	})
}
