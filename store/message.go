package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
)

// Message is one text in a conversation. Number orders it there.
type Message struct {
	ConversationID uuid.UUID
	Number         int64
	ID             uuid.UUID
	SenderID       uuid.UUID
	Content        string
	CreatedAt      time.Time
}

// SentMessage is a message with its sender's name.
type SentMessage struct {
	Message
	SenderUsername string
}

// Sent is where a message went.
type Sent struct {
	ConversationID uuid.UUID
	Number         int64
	CreatedAt      time.Time
}

// outgoing is a message that is about to be sent: to an agent, if kind is KindPrivate, else to that group chat or channel.
type outgoing struct {
	kind    string
	to      uuid.UUID
	sender  uuid.UUID
	message uuid.UUID
	content string
}

// send appends a message, in one round trip; nil if it may not be sent. In a dry run the rules are checked and nothing is
// locked. Where the transaction may become part of a batch the message is sent when that commits, and Sent tells the
// conversation alone.
func (s *Store) send(ctx context.Context, out outgoing) (*Sent, error) {
	switch {
	case s.tx == nil || s.tx.begun || s.tx.out != nil:
	case s.tx.dryRun:
		return s.mayBeSent(ctx, out)
	case s.tx.batched:
		if conversation, err := s.sendBatched(ctx, out); err != nil || conversation != uuid.Nil {
			return &Sent{ConversationID: conversation}, err
		}
	}
	sent, err := find[placed](ctx, s, sendAlone, sendValues([]outgoing{out})...)
	if err != nil {
		return nil, fmt.Errorf("send message: %w", err)
	}
	if sent[0].Number == 0 {
		return nil, nil
	}
	return &sent[0].Sent, nil
}

// sendBatched sends a message when the transaction commits, as part of a batch, and returns the conversation; uuid.Nil if
// the private chat has to be created first.
func (s *Store) sendBatched(ctx context.Context, out outgoing) (uuid.UUID, error) {
	conversation := out.to
	if out.kind == KindPrivate {
		var err error
		if conversation, err = s.privateChat(ctx, out.sender, out.to); err != nil || conversation == uuid.Nil {
			return uuid.Nil, err
		}
	}
	s.tx.out = &out
	return conversation, nil
}

// mayBeSent returns the conversation to which a message may be sent; nil if there is none.
func (s *Store) mayBeSent(ctx context.Context, out outgoing) (*Sent, error) {
	item := &batchItem{out: &out}
	if err := s.checks.ask(ctx, item); err != nil {
		return nil, fmt.Errorf("check message: %w", err)
	}
	if item.conversation == nil {
		return nil, nil
	}
	return &Sent{ConversationID: *item.conversation}, nil
}

// checkMessages returns for each message the conversation to which it may be sent, by the rules of sendMessages, or NULL.
var checkMessages = `
	SELECT (
		SELECT c.id FROM conversations c
		WHERE c.id = CASE WHEN i.kind <> 'private' THEN i.target ELSE (` + pairOf("i.sender", "i.target") + `) END
			AND c.kind = i.kind AND c.deleted_at IS NULL AND (c.kind = 'private' OR (c.kind = 'channel' AND c.admin_id = i.sender)
				OR (c.kind = 'group' AND EXISTS (SELECT FROM memberships m WHERE m.conversation_id = c.id AND m.agent_id = i.sender AND m.status = 'member')))
	) FROM ` + unnest(1, "text", "uuid", "uuid") + ` WITH ORDINALITY AS i (kind, target, sender, n) ORDER BY n`

// pairOf selects the private chat of two agents of whom neither has blocked the other.
func pairOf(sender, target string) string {
	return strings.NewReplacer("@a", "CAST("+sender+" AS uuid)", "@b", "CAST("+target+" AS uuid)").Replace(`
		SELECT p.conversation_id FROM private_pairs p WHERE p.low_agent = least(@a, @b) AND p.high_agent = greatest(@a, @b)
			AND NOT EXISTS (SELECT FROM blocks b WHERE b.blocker_id = @a AND b.blocked_id = @b)
			AND NOT EXISTS (SELECT FROM blocks b WHERE b.blocker_id = @b AND b.blocked_id = @a)`)
}

// placed is a message that was sent, or was not: then its number is 0, and Busy tells that its conversation was held.
type placed struct {
	Sent
	Busy bool
}

func sendValues(all []outgoing) []any {
	kinds, contents := make([]string, len(all)), make([]string, len(all))
	to, senders, messages := make([][16]byte, len(all)), make([][16]byte, len(all)), make([][16]byte, len(all)) // which pgx encodes directly
	for i, out := range all {
		kinds[i], to[i], senders[i], messages[i], contents[i] = out.kind, out.to, out.sender, out.message, out.content
	}
	return []any{kinds, to, senders, messages, contents}
}

// The ways to send: in a transaction of one's own, or together with the delivery of the messages' payments. Who waits for
// one conversation while it holds another could wait for ever, so a batch for several conversations goes only to those that
// nobody else has locked.
var (
	sendAlone            = sendMessages("", false)
	sendDeliveredWaiting = sendMessages("", true)
	sendDelivered        = sendMessages("SKIP LOCKED", true)
)

// sendMessages appends messages to conversations, any number in one statement, and returns a row for each, in their order. A
// private chat takes one unless either agent has blocked the other, a group chat from its members, a channel from its
// admin.
//
// The row lock on the conversation makes number order commit order; the time is taken under it and never goes back, so
// that within a conversation the order by time is the order by number. Own messages are never unread: where nothing
// else is unread the sender's marker moves along, up to the next message of somebody else; the others count as own.
//
// A statement sees the memberships of the moment it began, and may then wait for the lock behind a ban. So it takes the
// lock first and then locks the membership, which fails for one that has ended: locking looks at what is, not at what
// was. Whoever ends memberships holds the conversation before, so the two never wait for each other.
//
// With delivering, the items' payments ($6 to $9, deliveryValues) are closed for the messages that were sent; a message whose
// payment is closed already, or that somebody else works on, is not sent.
func sendMessages(lock string, delivering bool) string {
	types, names, due, isDue, closed := []string{"text", "uuid", "uuid", "uuid", "text"}, "", "", "", ""
	if delivering {
		types, names = append(types, "uuid"), ", payment"
		due = `, due AS MATERIALIZED (
			SELECT id FROM payments WHERE id = ANY (ARRAY(SELECT payment FROM item)) AND state IN ('settling', 'undeliverable') FOR NO KEY UPDATE SKIP LOCKED
		)`
		isDue = "AND EXISTS (SELECT FROM due d WHERE d.id = p.payment)"
		closed = `, closed AS (` + closePayments(6) + ` JOIN numbered n ON n.payment = d.id WHERE p.id = d.id
		)`
	}
	return `
		WITH item AS (
			SELECT * FROM ` + unnest(1, types...) + ` WITH ORDINALITY AS i (kind, target, sender, message, content` + names + `, n)
		)` + due + `, place AS (
			SELECT i.*, CASE WHEN i.kind <> 'private' THEN i.target ELSE (` + pairOf("i.sender", "i.target") + `) END AS conversation_id
			FROM item i
		), held AS (
			SELECT c.id, c.kind, c.admin_id FROM conversations c
			WHERE c.id = ANY (ARRAY(SELECT conversation_id FROM place)) AND c.deleted_at IS NULL FOR NO KEY UPDATE ` + lock + `
		), allowed AS (
			SELECT p.* FROM place p JOIN held h ON h.id = p.conversation_id AND h.kind = p.kind WHERE (p.kind = 'private' OR (p.kind = 'channel' AND h.admin_id = p.sender)) ` + isDue + `
			UNION ALL
			SELECT p.* FROM place p JOIN held h ON h.id = p.conversation_id AND h.kind = p.kind CROSS JOIN LATERAL (
				SELECT FROM memberships m WHERE m.conversation_id = h.id AND m.agent_id = p.sender AND m.status = 'member' FOR KEY SHARE
			) seat WHERE p.kind = 'group' ` + isDue + `
		), bumped AS (
			UPDATE conversations c SET last_number = c.last_number + a.count, last_message_at = greatest(clock_timestamp(), c.last_message_at)
			FROM (SELECT conversation_id, count(*) AS count FROM allowed GROUP BY conversation_id) a
			WHERE c.id = a.conversation_id
			RETURNING c.id, c.last_number - a.count AS last_number, c.last_message_at
		), numbered AS (
			SELECT a.*, b.last_number + row_number() OVER (PARTITION BY a.conversation_id ORDER BY a.n) AS number, b.last_message_at
			FROM allowed a JOIN bumped b ON b.id = a.conversation_id
		), own AS (
			UPDATE memberships m
			SET read_number = CASE WHEN m.read_number + m.unread_own = o.first - 1 THEN o.first + o.run - 1 ELSE m.read_number END,
				unread_own = CASE WHEN m.read_number + m.unread_own = o.first - 1 THEN o.count - o.run ELSE m.unread_own + o.count END
			FROM (
				SELECT conversation_id, sender, min(number) AS first, count(*) AS count, count(*) FILTER (WHERE number = start + rank - 1) AS run
				FROM (
					SELECT conversation_id, sender, number, min(number) OVER sent AS start, row_number() OVER (sent ORDER BY number) AS rank
					FROM numbered WINDOW sent AS (PARTITION BY conversation_id, sender)
				) ranked GROUP BY conversation_id, sender
			) o
			WHERE m.conversation_id = o.conversation_id AND m.agent_id = o.sender AND m.status = 'member'
		), written AS (
			INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
			SELECT conversation_id, number, message, sender, content, last_message_at FROM numbered
		)` + closed + `
		SELECT coalesce(p.conversation_id, '00000000-0000-0000-0000-000000000000') AS conversation_id, coalesce(n.number, 0) AS number,
			coalesce(n.last_message_at, 'epoch') AS created_at,
			p.conversation_id IS NOT NULL AND NOT EXISTS (SELECT FROM held h WHERE h.id = p.conversation_id) AS busy
		FROM place p LEFT JOIN numbered n USING (n) ORDER BY p.n`
}

// MessagePage is a page of a conversation, newest first. Next is the oldest message on it where it was cut short.
type MessagePage struct {
	Messages []SentMessage
	Next     *uuid.UUID
}

// Messages returns page (from 1) of n messages of the conversation, newest first, as far as their content fits on a page.
// Numbers have no gaps, so a page is a range of the key however far back it lies, and stays that where others were cut
// short. With before, pages count from the message older than that one. ErrMessageNotFound if before is not a message of
// this conversation. In a dry run nobody sees the page: it is empty.
func (s *Store) Messages(ctx context.Context, seat *Seat, n, page int64, before *uuid.UUID) (*MessagePage, error) {
	newest, err := s.newestBefore(ctx, seat, before)
	if err != nil {
		return nil, err
	}
	if s.isDryRun() {
		return &MessagePage{}, nil
	}
	if page-1 > newest/n { // beyond the end; also keeps the product below from overflowing
		return &MessagePage{}, nil
	}
	newest -= (page - 1) * n
	messages, err := look[SentMessage](ctx, s, `
		SELECT m.conversation_id, m.number, m.id, m.sender_id, m.content, m.created_at, a.username AS sender_username
		FROM (
			SELECT o.*, sum(octet_length(o.content)) OVER (ORDER BY o.number DESC ROWS UNBOUNDED PRECEDING) AS size
			FROM messages o WHERE o.conversation_id = @conversation AND o.number <= @newest AND o.number > @oldest
		) m JOIN agents a ON a.id = m.sender_id
		WHERE m.size <= @most OR m.number = @newest ORDER BY m.number DESC`,
		pgx.NamedArgs{"conversation": seat.ID, "newest": newest, "oldest": newest - n, "most": maxPageContent})
	if err != nil {
		return nil, fmt.Errorf("list messages: %w", err)
	}
	found := &MessagePage{Messages: messages[:fitting(len(messages), func(i int) string { return messages[i].Content })]}
	if last := len(found.Messages); last > 0 && int64(last) < min(n, newest) {
		found.Next = &found.Messages[last-1].ID
	}
	return found, nil
}

// newestBefore is the number at which pages begin: the newest message's, or that of the one older than before.
// ErrMessageNotFound if before is not a message of this conversation.
func (s *Store) newestBefore(ctx context.Context, seat *Seat, before *uuid.UUID) (int64, error) {
	if before == nil {
		return seat.LastNumber, nil
	}
	anchor, err := gorm.G[Message](s.db).Select("number").Where("id = ? AND conversation_id = ?", *before, seat.ID).Take(ctx)
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return 0, ErrMessageNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("find message: %w", err)
	}
	return anchor.Number - 1, nil
}
