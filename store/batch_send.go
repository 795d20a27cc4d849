package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// messageCheck is a batch item: a message to check. The batch sets right.
type messageCheck struct {
	message OutgoingMessage
	right   sendRight
}

// checkMessage is the dry run of SendMessage, as a batch item. It returns nil if the message may be sent, and otherwise
// the refusal that SendMessage would return. It takes no locks and changes nothing.
func (s *Store) checkMessage(ctx context.Context, message OutgoingMessage) error {
	if message.toSelf() {
		return ErrNothingToSelf
	}
	check := &messageCheck{message: message}
	if err := s.group.checks.ask(ctx, check); err != nil {
		return fmt.Errorf("check message: %w", err)
	}
	return check.right.refusal(message.Kind)
}

// checkMessages returns one row for each message, in the order of the messages. For every message it looks up each
// table by its key, in a subquery that the planner cannot turn into a scan.
const checkMessages = `
	SELECT c.id IS NOT NULL AS found, coalesce(c.deleted, false) AS deleted, coalesce(c.admin_id = i.sender, false) AS admin,
		coalesce((SELECT m.status FROM memberships m WHERE m.conversation_id = c.id AND m.agent_id = i.sender), '') AS status,
		CASE WHEN i.kind = 'private' THEN (SELECT count(*) FROM agents a WHERE a.id = i.target) > 0
			AND (SELECT count(*) FROM suspensions s WHERE s.agent_id = i.target AND s.erased) = 0 ELSE false END AS recipient,
		CASE WHEN i.kind = 'private' THEN (SELECT count(*) FROM suspensions s WHERE s.agent_id = i.target) > 0 ELSE false END AS suspended,
		CASE WHEN i.kind = 'private' THEN (SELECT count(*) FROM blocks b WHERE b.blocker_id = i.target AND b.blocked_id = i.sender) > 0 ELSE false END AS blocked,
		CASE WHEN i.kind = 'private' THEN (SELECT count(*) FROM blocks b WHERE b.blocker_id = i.sender AND b.blocked_id = i.target) > 0 ELSE false END AS blocking
	FROM unnest((SELECT CAST(@kind AS text[])), (SELECT CAST(@target AS uuid[])), (SELECT CAST(@sender AS uuid[]))) WITH ORDINALITY AS i (kind, target, sender, n)
	LEFT JOIN LATERAL (
		SELECT o.id, o.admin_id, o.deleted_at IS NOT NULL AS deleted FROM conversations o WHERE i.kind <> 'private' AND o.id = i.target AND o.kind = i.kind LIMIT 1
	) c ON true
	ORDER BY i.n`

func (r *Reader) checkBatch(ctx context.Context, batch []batchItem[*messageCheck]) {
	rights, err := query[sendRight](ctx, r, checkMessages, pairs{
		{"kind", column(batch, func(c *messageCheck) string { return c.message.Kind })},
		{"target", column(batch, func(c *messageCheck) [16]byte { return c.message.To })},
		{"sender", column(batch, func(c *messageCheck) [16]byte { return c.message.Sender })},
	})
	finish(batch, func(i int, check *messageCheck) error {
		if err == nil {
			check.right = rights[i]
		}
		return err
	})
}

// paidMessage is a batch item: a message to a conversation, and how its payment ends.
type paidMessage struct {
	OutgoingMessage
	Delivery     *Delivery
	Charge       *VoucherCharge
	conversation uuid.UUID
	locked       int // how many batches have found the conversation locked
}

// key is the payment, or the payment channel that is charged.
func (m paidMessage) key() any {
	if m.Charge != nil {
		return m.Charge.Voucher.Channel
	}
	return m.Delivery.Payment
}

// sendMessages appends messages to conversations and closes their payments. It handles any number of messages in one
// statement and returns one row for each, in their order. A private chat accepts a message unless one of the two agents
// has blocked the other or the recipient is suspended, a group chat accepts messages from its members, and a channel from its admin. SendMessage
// returns the reason of a refusal.
//
//   - The statement skips conversations that another transaction has locked. Waiting for one lock while holding another
//     can deadlock.
//   - The row lock on the conversation makes the number order equal to the commit order. The time never goes back, so
//     within a conversation the order by time equals the order by number.
//   - The snapshot of a statement shows the memberships at its start, and a ban may be committed before the statement
//     has the lock on the conversation. So the statement first locks the conversation and then the membership. Locking
//     a row reads its current version, so it finds no row if the membership has ended. Code that ends memberships locks
//     the conversation first, so the two never wait for each other.
//   - Own messages are never unread. If nothing else is unread, the read marker of the sender moves forward, up to the
//     next message of another agent. The other own messages are counted in unread_own.
//   - A message is not sent if its payment is already closed, or if another transaction has locked the payment. One without a payment is
//     sent in a transaction that closes its payment by itself, or makes other changes: see Tx.SendMessage.
var sendMessages = `
	WITH item AS (
		SELECT ` + messageItem.columns() + `, i.n FROM unnest(` + messageItem.arrays() + `) WITH ORDINALITY AS i (` + messageItem.columns() + `, n)
	), due AS MATERIALIZED (
		SELECT id AS payment FROM payments WHERE id = ANY (ARRAY(SELECT payment FROM item)) AND ` + deliverable + ` FOR NO KEY UPDATE SKIP LOCKED
	)` + allowedMessages + `, admitted AS (
		SELECT conversation_id, sender, message, content, about, payment, n FROM allowed
	)` + writeMessages + `, closed AS (
		UPDATE payments p SET fingerprint = d.fingerprint, transaction = d.transaction, response = d.response, ` + asDelivered + `
		FROM unnest((SELECT CAST(@payment AS uuid[])), (SELECT CAST(@fingerprint AS bytea[])), (SELECT CAST(@transaction AS text[])), (SELECT CAST(@response AS bytea[]))) AS d (id, fingerprint, transaction, response)
		JOIN numbered n ON n.payment = d.id WHERE p.id = d.id
	)
	SELECT n.number IS NOT NULL AS sent, NOT EXISTS (SELECT FROM locked l WHERE l.id = i.conversation_id) AS locked
	FROM item i LEFT JOIN numbered n USING (n) ORDER BY i.n`

// sendCharged is sendMessages for messages whose vouchers are charged. A message is sent, and its payment recorded, exactly if
// the voucher is charged. It skips payment channels that another transaction has locked.
var sendCharged = `
	WITH item AS (
		SELECT ` + messageItem.columns() + `, ` + voucherItem.columns() + `, i.n FROM unnest(` + messageItem.arrays() + `, ` + voucherItem.arrays() + `)
			WITH ORDINALITY AS i (` + messageItem.columns() + `, ` + voucherItem.columns() + `, n)
	), due AS MATERIALIZED (` + fittingVouchers + `)` + allowedMessages + `, recorded AS (
		` + recordVouchers + ` JOIN allowed a ON a.payment = d.payment ` + onceRecorded + `
	), admitted AS (
		SELECT a.conversation_id, a.sender, a.message, a.content, a.about, a.payment, a.n FROM allowed a JOIN recorded r ON r.id = a.payment
	)` + writeMessages + `, charged AS (` + advanceChannels + `)
	SELECT n.number IS NOT NULL AS sent, NOT EXISTS (SELECT FROM locked l WHERE l.id = i.conversation_id) AS locked, ` + chargedColumns + `
	FROM item i LEFT JOIN numbered n USING (n) LEFT JOIN charged c USING (n) ORDER BY i.n`

// messageItem has the columns of a message in a batch.
var messageItem = itemColumns{
	{"kind", "text"}, {"conversation_id", "uuid"}, {"recipient", "uuid"}, {"sender", "uuid"}, {"message", "uuid"}, {"content", "text"}, {"about", "jsonb"},
	{"payment", "uuid"},
}

// allowedMessages are the messages that may be sent, of the payments that are due.
const allowedMessages = `, locked AS (
		SELECT c.id, c.kind, c.admin_id FROM conversations c
		WHERE c.id = ANY (ARRAY(SELECT conversation_id FROM item)) AND c.deleted_at IS NULL FOR NO KEY UPDATE SKIP LOCKED
	), paid AS (
		SELECT i.kind, i.conversation_id, i.recipient, i.sender, i.message, i.content, i.about, i.payment, i.n, l.admin_id
		FROM item i JOIN locked l ON l.id = i.conversation_id AND l.kind = i.kind LEFT JOIN due d ON d.payment = i.payment
		WHERE i.payment IS NULL OR d.payment IS NOT NULL
	), allowed AS (
		SELECT p.conversation_id, p.sender, p.message, p.content, p.about, p.payment, p.n FROM paid p
		WHERE (p.kind = 'channel' AND p.admin_id = p.sender) OR (p.kind = 'private'
			AND (SELECT count(*) FROM blocks b WHERE b.blocker_id = p.sender AND b.blocked_id = p.recipient) = 0
			AND (SELECT count(*) FROM blocks b WHERE b.blocker_id = p.recipient AND b.blocked_id = p.sender) = 0
			AND (SELECT count(*) FROM suspensions s WHERE s.agent_id = p.recipient) = 0)
		UNION ALL
		SELECT p.conversation_id, p.sender, p.message, p.content, p.about, p.payment, p.n FROM paid p CROSS JOIN LATERAL (
			SELECT FROM memberships m WHERE m.conversation_id = p.conversation_id AND m.agent_id = p.sender AND m.status = 'member' FOR KEY SHARE
		) membership WHERE p.kind = 'group'
	)`

// writeMessages writes the messages that are admitted.
const writeMessages = `, bumped AS (
		UPDATE conversations c SET last_number = c.last_number + a.count, last_message_at = greatest(@now, c.last_message_at)
		FROM (SELECT conversation_id, count(*) AS count FROM admitted GROUP BY conversation_id) a
		WHERE c.id = a.conversation_id
		RETURNING c.id, c.last_number - a.count AS last_number, c.last_message_at
	), numbered AS (
		SELECT a.conversation_id, a.sender, a.message, a.content, a.about, a.payment, a.n,
			b.last_number + row_number() OVER (PARTITION BY a.conversation_id ORDER BY a.n) AS number, b.last_message_at
		FROM admitted a JOIN bumped b ON b.id = a.conversation_id
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
		INSERT INTO messages (conversation_id, number, id, sender_id, content, about, created_at)
		SELECT conversation_id, number, message, sender, content, about, last_message_at FROM numbered
	)`

// placedMessage reports whether a message was sent, and whether its conversation was locked by another transaction (or is
// deleted).
type placedMessage struct {
	Sent, Locked bool
	chargedChannel
}

// payment is that of the delivery; nil if the message is sent in a transaction that closes the payment by itself.
func (m *paidMessage) payment() *uuid.UUID {
	if m.Delivery == nil {
		return nil
	}
	return &m.Delivery.Payment
}

func (m *paidMessage) delivery() Delivery {
	if m.Delivery == nil {
		return Delivery{}
	}
	return *m.Delivery
}

// sendStatement returns the statement that sends a batch, and its values. pgx encodes [16]byte directly.
func sendStatement(now time.Time, batch []batchItem[paidMessage]) (statement string, values pairs) {
	type message = paidMessage
	values = append(make(pairs, 0, len(messageItem)+len(voucherItem)+1), pairs{
		{"kind", column(batch, func(m message) string { return m.Kind })},
		{"conversation_id", column(batch, func(m message) [16]byte { return m.conversation })},
		{"recipient", column(batch, func(m message) [16]byte { return m.To })},
		{"sender", column(batch, func(m message) [16]byte { return m.Sender })},
		{"message", column(batch, func(m message) [16]byte { return m.ID })},
		{"content", column(batch, func(m message) string { return m.Content })},
		{"about", optional(batch, func(m message) *About { return m.About })},
	}...)
	if batch[0].value.Charge != nil {
		values = addVouchers(values, batch, func(m message) *VoucherCharge { return m.Charge })
		return sendCharged, append(values, pairs{{"now", now}}...)
	}
	values = append(values, pairs{
		{"payment", column(batch, func(m message) *[16]byte { return (*[16]byte)(m.payment()) })},
		{"now", now},
		{"fingerprint", column(batch, func(m message) []byte { return m.delivery().Fingerprint })},
		{"transaction", column(batch, func(m message) string { return m.delivery().Transaction })},
		{"response", column(batch, func(m message) []byte { return m.delivery().Response })},
	}...)
	return sendMessages, values
}

// SendMessage appends the message in this transaction and returns where it was stored. A private message creates its
// chat if there is none. Errors for group chats: ErrChatNotFound, ErrDeleted, ErrBanned, ErrNotMember. For channels:
// ErrChannelNotFound, ErrDeleted, ErrNotAdmin. For private chats: ErrNothingToSelf, ErrBlocked, ErrBlocking,
// ErrAgentNotFound, ErrAgentSuspended.
//
// It waits for the locks, and then runs sendMessages with one message. See there for the order of locks.
func (tx *Tx) SendMessage(ctx context.Context, message OutgoingMessage) (*Sent, error) {
	to := message.To
	if message.Kind == KindPrivate {
		var err error
		if to, err = tx.openPrivateChat(ctx, message); err != nil {
			return nil, err
		}
	}
	last, err := tx.lockForSending(ctx, message, to)
	if err != nil {
		return nil, err
	}
	statement, values := sendStatement(tx.Now(), []batchItem[paidMessage]{{value: paidMessage{OutgoingMessage: message, conversation: to}}})
	placed, err := query[placedMessage](ctx, tx, statement, values)
	switch {
	case err != nil:
		return nil, fmt.Errorf("send message: %w", err)
	case !placed[0].Sent:
		return nil, errors.New("send message: the statement rejects what lockForSending allows")
	}
	return &Sent{ConversationID: to, Number: last + 1}, nil
}

// lockForSending locks the conversation and then the sender's membership, checks whether the sender may send, and returns the number of the
// last message. For a private chat openPrivateChat has checked the blocks before.
func (tx *Tx) lockForSending(ctx context.Context, message OutgoingMessage, to uuid.UUID) (last int64, err error) {
	conversation, err := gorm.G[Conversation](tx.db, forNoKeyUpdate).Where("id = ? AND kind = ?", to, message.Kind).Take(ctx)
	right := sendRight{Found: err == nil, Recipient: true}
	if err != nil && !errors.Is(err, gorm.ErrRecordNotFound) {
		return 0, fmt.Errorf("lock conversation: %w", err)
	}
	if right.Found {
		memberships, err := gorm.G[Membership](tx.db, forNoKeyUpdate).Where("conversation_id = ? AND agent_id = ?", to, message.Sender).Find(ctx)
		if err != nil {
			return 0, fmt.Errorf("lock membership: %w", err)
		}
		if len(memberships) > 0 {
			right.Status = memberships[0].Status
		}
		right.Deleted = conversation.DeletedAt != nil
		right.Admin = conversation.AdminID != nil && *conversation.AdminID == message.Sender
	}
	return conversation.LastNumber, right.refusal(message.Kind)
}
