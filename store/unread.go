package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
)

// UnreadMessage is a message that the agent has not read, with the kind of its conversation and its name: in a private chat
// the username of the other agent.
type UnreadMessage struct {
	SentMessage
	Kind, SourceName string
}

// Unread is a page of unread messages, oldest first, and their total count, and the oldest notices. CutShort means that some
// messages of the page are missing because their content does not fit.
type Unread struct {
	Messages []UnreadMessage
	Notices  []NoticeView
	Total    int64
	CutShort bool

	noticed bool // there are notices
}

// readUpTo is the number of the newest message that a member m of a conversation c has read. Removed messages count as read.
const readUpTo = `greatest(m.read_number, c.first_number - 1)`

// unreadStatements list a page of unread messages, a ShortPage or a LongPage. Both find conversations with unread messages from counters
// alone, and read the content of this page only. In each conversation short reads at most as many keys as this page and the pages before it
// can hold, and never more than the unread messages there, no matter how many own messages follow. If that would be more than fewKeys, it
// reads none and says that the page is long. Long reads the fewest keys: see unread_long.go. Each has one snapshot, so total and messages
// agree.
type unreadStatements struct{ short, long string }

// fewKeys is how many keys a short page reads: they take a millisecond or two.
const fewKeys = 2_000

var (
	listUnread = newUnreadStatements("", "memberships")

	// listUnreadBehind is listUnread as it will be when ranges are marked as read.
	listUnreadBehind = newUnreadStatements(`confirmed AS (
		SELECT m.conversation_id, m.agent_id, m.status, coalesce(b.next_number, m.read_number) AS read_number,
			CASE WHEN b.next_number IS NULL THEN m.unread_own ELSE b.next_own END AS unread_own
		FROM memberships m LEFT JOIN (
			unnest((SELECT CAST(@conversations AS uuid[])), (SELECT CAST(@oldest AS bigint[])), (SELECT CAST(@newest AS bigint[]))
			) AS r (conversation, oldest, newest)
			CROSS JOIN LATERAL read_marker(@agent, r.conversation, r.oldest, r.newest) b
		) ON r.conversation = m.conversation_id
		WHERE m.agent_id = @agent
	), `, "confirmed")
)

func newUnreadStatements(with, memberships string) unreadStatements {
	statement := func(long, keys string) string {
		return `
	WITH ` + with + `news AS (
		SELECT m.conversation_id, c.kind, c.name, ` + readUpTo + ` AS read_number, c.last_number - ` + readUpTo + ` - m.unread_own AS unread
		FROM ` + memberships + ` m JOIN conversations c ON c.id = m.conversation_id
		WHERE m.agent_id = @agent AND m.status = 'member' AND c.deleted_at IS NULL AND c.last_number - ` + readUpTo + ` - m.unread_own > 0
	), total AS (
		SELECT CAST(coalesce(sum(unread), 0) AS bigint) AS total, EXISTS (SELECT FROM notices WHERE agent_id = @agent) AS noticed,
			` + long + ` AS long FROM news
	), ` + keys + `, page AS (
		SELECT kind, name, conversation_id, number, created_at, size FROM keys
		ORDER BY created_at, conversation_id, number LIMIT @size OFFSET @skip
	), measured AS (
		SELECT page.kind, page.name, page.conversation_id, page.number, count(*) OVER () AS whole, row_number() OVER along AS position,
			sum(size) OVER along AS sum
		FROM page WINDOW along AS (ORDER BY created_at, conversation_id, number ROWS UNBOUNDED PRECEDING)
	)
	SELECT t.total, t.noticed, t.long, coalesce(p.whole, 0) AS whole, coalesce(p.kind, '') AS kind, o.conversation_id,
		coalesce(o.number, 0) AS number, o.id,
		o.sender_id, coalesce(o.content, '') AS content, o.reply_to, o.about, coalesce(o.created_at, now()) AS created_at, o.removed_at,
		coalesce(a.username, '') AS sender_username, coalesce(p.name, a.username, '') AS source_name
	FROM total t LEFT JOIN (
		(SELECT kind, name, conversation_id, number, whole FROM measured WHERE sum <= @most OR position = 1) p
		JOIN messages o ON o.conversation_id = p.conversation_id AND o.number = p.number JOIN agents a ON a.id = o.sender_id
	) ON true
	ORDER BY o.created_at, o.conversation_id, o.number`
	}
	return unreadStatements{
		short: statement("coalesce(sum(least(unread, @last)), 0) > CAST(@few AS bigint)", `keys AS (
		SELECT n.kind, n.name, n.conversation_id, key.number, key.created_at, key.size FROM total t CROSS JOIN news n
		CROSS JOIN LATERAL (`+unreadKeys("n", "read_number", "least(n.unread, @last)")+`) key
		WHERE t.total > @skip AND NOT t.long
	)`),
		long: statement("false", fewestKeys),
	}
}

// unreadKeys selects keys of messages that the agent has not read, in the conversation of a row and after a number of that row.
func unreadKeys(row, after, limit string) string {
	return `
			SELECT o.number, o.created_at, octet_length(o.content) AS size FROM messages o
			WHERE o.conversation_id = ` + row + `.conversation_id AND o.number > ` + row + `.` + after + ` AND o.sender_id <> @agent
			ORDER BY o.number LIMIT ` + limit + `
		`
}

// unreadRow is a row of unreadStatements. An empty page is one row without a message.
type unreadRow struct {
	UnreadMessage
	Total, Whole  int64
	Noticed, Long bool
}

// Unread returns page (from 1) of size unread messages of the agent in all its conversations, and its notices. It returns
// only as many messages as fit on a page by size. It changes nothing and reads committed data only.
func (r *Reader) Unread(ctx context.Context, agent uuid.UUID, page UnreadPage) (*Unread, error) {
	return r.listUnread(ctx, listUnread, agent, page, unreadValues(agent, page))
}

// UnreadPage is which page of unread messages to return: its number, from 1, its size in messages, and how many bytes of content it may
// have: ShortPage or LongPage. A short page also reads at most fewKeys.
type UnreadPage struct{ Number, Size, Most int64 }

// unreadBehind is Unread as it will be when ranges are marked as read.
func (r *Reader) unreadBehind(ctx context.Context, agent uuid.UUID, ranges []ReadRange, page UnreadPage) (*Unread, error) {
	values := unreadValues(agent, page)
	maps.Copy(values, markValues(agent, ranges...))
	return r.listUnread(ctx, listUnreadBehind, agent, page, values)
}

func (r *Reader) listUnread(
	ctx context.Context, statements unreadStatements, agent uuid.UUID, page UnreadPage, values named,
) (*Unread, error) {
	rows, err := list[unreadRow](ctx, r, page.Most, statements.of(page), values)
	if err != nil {
		return nil, fmt.Errorf("list unread messages: %w", err)
	}
	unread, err := unreadOf(rows, page)
	if err != nil {
		return nil, err
	}
	return unread, r.addNotices(ctx, agent, unread)
}

// addNotices adds the oldest notices to a page.
func (r *Reader) addNotices(ctx context.Context, agent uuid.UUID, unread *Unread) (err error) {
	if unread.noticed {
		unread.Notices, err = r.notices(ctx, agent, "")
	}
	return err
}

func unreadValues(agent uuid.UUID, page UnreadPage) named {
	return named{
		"agent": agent, "skip": (page.Number - 1) * page.Size, "size": page.Size, "last": page.Number * page.Size, "most": page.Most,
		"few": fewKeys,
	}
}

// of is the statement for a page.
func (s unreadStatements) of(page UnreadPage) string {
	if page.Most > ShortPage {
		return s.long
	}
	return s.short
}

// unreadOf is the page that the rows of the statement make, without notices. It returns ErrLongPage if it is no ShortPage.
func unreadOf(rows []unreadRow, page UnreadPage) (*Unread, error) {
	if rows[0].Long {
		return nil, ErrLongPage
	}
	unread := &Unread{Total: rows[0].Total, noticed: rows[0].Noticed}
	if rows[0].Whole == 0 {
		return unread, nil
	}
	for _, row := range rows[:fitting(len(rows), func(i int) string { return rows[i].Content })] {
		unread.Messages = append(unread.Messages, row.UnreadMessage)
	}
	unread.CutShort = int64(len(unread.Messages)) < rows[0].Whole
	if unread.CutShort && page.Most == ShortPage {
		return nil, ErrLongPage
	}
	return unread, nil
}

// ReadUnread returns what Unread returns and marks it as read: in each conversation up to the newest returned message, unless an unread
// message before the returned ones would be skipped (a later page). Two calls for one agent run one after the other and never return the
// same message. They cannot deadlock: each waits for the advisory lock of the agent while it holds no other, and after that for no lock.
func (tx *Tx) ReadUnread(ctx context.Context, agent uuid.UUID, page UnreadPage) (*Unread, error) {
	var rows []unreadRow
	batch := &pgx.Batch{}
	takeTurn(batch, agent)
	queue(batch, &rows, listUnread.of(page), unreadValues(agent, page))
	if err := tx.send(ctx, batch); err != nil {
		return nil, fmt.Errorf("list unread messages in turn: %w", err)
	}
	unread, err := unreadOf(rows, page)
	if err != nil {
		return nil, err
	}
	if unread.noticed {
		if unread.Notices, err = tx.readNotices(ctx, agent); err != nil {
			return nil, err
		}
	}
	if len(unread.Messages) == 0 {
		return unread, nil
	}
	returned := unread.Ranges()
	locked, err := tx.lockMemberships(ctx, agent, conversationsOf(returned))
	if err != nil {
		return nil, err
	}
	// Messages that cannot be marked now are not returned now: they stay unread, or the agent has left the conversation.
	unread.Messages = slices.DeleteFunc(unread.Messages,
		func(message UnreadMessage) bool { return !slices.Contains(locked, message.ConversationID) })
	return unread, tx.mark(ctx, agent, unread.Ranges()...)
}

// takeTurn queues the statement that waits until no other transaction reads unread messages of the agent and marks them. What follows sees
// what that one has changed.
func takeTurn(batch *pgx.Batch, agent uuid.UUID) {
	batch.Queue(`SELECT pg_advisory_xact_lock(unread_lock(@agent))`, named{"agent": agent})
}

// Ranges are the messages of the page, by conversation.
func (u *Unread) Ranges() []ReadRange {
	var ranges []ReadRange
	places := map[uuid.UUID]int{}
	for _, message := range u.Messages { // oldest first
		place, found := places[message.ConversationID]
		if !found {
			place = len(ranges)
			places[message.ConversationID] = place
			ranges = append(ranges, ReadRange{Conversation: message.ConversationID, Oldest: message.Number})
		}
		ranges[place].Newest = message.Number
	}
	return ranges
}

func conversationsOf(ranges []ReadRange) []uuid.UUID {
	conversations := make([]uuid.UUID, len(ranges))
	for i, of := range ranges {
		conversations[i] = of.Conversation
	}
	return conversations
}

// lockMemberships locks the agent's memberships in these conversations, and returns the conversations in which it could. Another
// transaction may lock two of them in another order (leaving a group with a note does), so it never waits for a lock in the database.
// It retries for a tenth of a second, which is longer than concurrent sends and reads take.
func (tx *Tx) lockMemberships(ctx context.Context, agent uuid.UUID, conversations []uuid.UUID) (locked []uuid.UUID, err error) {
	err = retry(ctx, time.Second/10, func() (bool, error) {
		locked = nil
		err := gorm.G[Membership](tx.db, skipLocked).Select("conversation_id").
			Where("agent_id = ? AND conversation_id IN ? AND status = 'member'", agent, conversations).Scan(ctx, &locked)
		return len(locked) == len(conversations), wrap("lock memberships", err)
	})
	return locked, err
}

// retry calls try until it returns true or an error, or the time is over. It tries at least 20 times: in a slow database others hold their
// locks for longer too.
func retry(ctx context.Context, most time.Duration, try func() (done bool, err error)) error {
	end := time.Now().Add(most)
	for tries := 1; ; tries++ {
		if done, err := try(); done || err != nil || tries >= 20 && time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ReadRange is a range of messages of a conversation that were returned to an agent: numbers Oldest to Newest, without a gap.
type ReadRange struct {
	Conversation   uuid.UUID
	Oldest, Newest int64
}

// MarkRead moves the agent's read marker forward to the end of a range. It does not move the marker over a message of another
// agent that is not in the range, so that reading never loses a message. The marker never moves back.
func (tx *Tx) MarkRead(ctx context.Context, agent uuid.UUID, read ReadRange) error {
	_, err := gorm.G[Membership](tx.db, forNoKeyUpdate).Select("agent_id").Where("conversation_id = ? AND agent_id = ?", read.Conversation,
		agent).Find(ctx)
	if err != nil {
		return fmt.Errorf("lock membership: %w", err)
	}
	return tx.mark(ctx, agent, read)
}

// MarkFirstRead is MarkRead when the agent fetches messages of a quiet conversation: that ends its waits from now on.
func (tx *Tx) MarkFirstRead(ctx context.Context, agent uuid.UUID, read ReadRange) error {
	_, err := exec(ctx, tx, `UPDATE memberships SET quiet = false WHERE conversation_id = @conversation AND agent_id = @agent`,
		named{"conversation": read.Conversation, "agent": agent})
	if err != nil {
		return fmt.Errorf("let a conversation end waits: %w", err)
	}
	return tx.mark(ctx, agent, read)
}

// markValues are the values of markRead.
func markValues(agent uuid.UUID, ranges ...ReadRange) named {
	conversations, oldest, newest := make([]uuid.UUID, len(ranges)), make([]int64, len(ranges)), make([]int64, len(ranges))
	for i, read := range ranges {
		conversations[i], oldest[i], newest[i] = read.Conversation, read.Oldest, read.Newest
	}
	return named{"agent": agent, "conversations": conversations, "oldest": oldest, "newest": newest}
}

// mark marks ranges as read in this transaction, at most one for each conversation.
func (tx *Tx) mark(ctx context.Context, agent uuid.UUID, ranges ...ReadRange) error {
	if len(ranges) == 0 {
		return nil
	}
	_, err := exec(ctx, tx, markRead, markValues(agent, ranges...))
	return wrap("mark read", err)
}
