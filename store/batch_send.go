package store

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// paidMessage is a batch item: a message to a conversation, and how its payment ends.
type paidMessage struct {
	OutgoingMessage
	Closing
	conversation uuid.UUID
	locked       int // how many batches have found the conversation locked
}

// The statements sendMessages and sendCharged append messages to conversations and close their payments. They handle any number of
// messages and return one row for each, in their order. A private chat accepts a message unless one of the two agents has blocked the
// other or the recipient is suspended, a group chat accepts messages from its members, and a channel from its admin. SendMessage returns
// the reason of a refusal.
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
//     next message of another agent. The other own messages are counted in unread_own. What was quiet for the sender is so no more.
//   - A message is not sent if its payment is not in the state of its delivery any more, or if another transaction has locked the payment.
//     One without a payment is sent in a transaction that closes its payment by itself, or makes other changes: see Tx.SendMessage.
//   - sendCharged sends a message, and records its payment, exactly if its voucher is charged.
var (
	sendMessages = `
		WITH item AS (
			SELECT ` + sendFields.names() + `, n FROM ` + sendFields.items() + `
		), due AS MATERIALIZED (
			SELECT p.id AS payment FROM (
				SELECT id, state, failure_reason FROM payments WHERE id = ANY (ARRAY(SELECT payment FROM item)) FOR NO KEY UPDATE SKIP LOCKED
			) p JOIN item d ON d.payment = p.id WHERE ` + deliverable + `
		), ` + admitMessages + `, admitted AS (
			SELECT conversation_id, sender, message, content, reply_to, about, payment, n FROM allowed
		), ` + writeMessages + `, closed AS (` + closeDelivered + ` JOIN numbered n ON n.payment = d.payment WHERE p.id = d.payment)
		SELECT n.number IS NOT NULL AS sent, NOT EXISTS (SELECT FROM locked l WHERE l.id = i.conversation_id) AS locked
		FROM item i LEFT JOIN numbered n USING (n) ORDER BY i.n`

	sendCharged = `
		WITH item AS (
			SELECT ` + sendChargedFields.names() + `, n FROM ` + sendChargedFields.items() + `
		), due AS MATERIALIZED (` + dueVouchers + `), ` + admitMessages + `,
		recorded AS (` + strings.Replace(recordVouchers, "$join", "JOIN allowed a ON a.payment = d.payment", 1) + `), admitted AS (
			SELECT a.conversation_id, a.sender, a.message, a.content, a.reply_to, a.about, a.payment, a.n
			FROM allowed a JOIN recorded r ON r.id = a.payment
		), ` + writeMessages + `, charged AS (` + raiseCharged + `)
		SELECT n.number IS NOT NULL AS sent, NOT EXISTS (SELECT FROM locked l WHERE l.id = i.conversation_id) AS locked,
			coalesce(c.balance, 0) AS balance, coalesce(c.claimed, 0) AS claimed, coalesce(c.refund_nonce, 0) AS refund_nonce
		FROM item i LEFT JOIN numbered n USING (n) LEFT JOIN charged c USING (n) ORDER BY i.n`
)

const (
	// admitMessages selects the messages whose payments are due and whose senders may send.
	admitMessages = `
		locked AS (
			SELECT c.id, c.kind, c.admin_id FROM conversations c
			WHERE c.id = ANY (ARRAY(SELECT conversation_id FROM item)) AND c.deleted_at IS NULL FOR NO KEY UPDATE SKIP LOCKED
		), paid AS (
			SELECT i.kind, i.conversation_id, i.recipient, i.sender, i.message, i.content, i.reply_to, i.about, i.payment, i.n, l.admin_id
			FROM item i JOIN locked l ON l.id = i.conversation_id AND l.kind = i.kind LEFT JOIN due d ON d.payment = i.payment
			WHERE i.payment IS NULL OR d.payment IS NOT NULL
		), allowed AS (
			SELECT p.conversation_id, p.sender, p.message, p.content, p.reply_to, p.about, p.payment, p.n FROM paid p
			WHERE (p.kind = 'channel' AND p.admin_id = p.sender) OR (p.kind = 'private'
				AND (SELECT count(*) FROM blocks b WHERE b.blocker_id = p.sender AND b.blocked_id = p.recipient) = 0
				AND (SELECT count(*) FROM blocks b WHERE b.blocker_id = p.recipient AND b.blocked_id = p.sender) = 0
				AND (SELECT count(*) FROM suspensions s WHERE s.agent_id = p.recipient) = 0)
			UNION ALL
			SELECT p.conversation_id, p.sender, p.message, p.content, p.reply_to, p.about, p.payment, p.n FROM paid p CROSS JOIN LATERAL (
				SELECT FROM memberships m WHERE m.conversation_id = p.conversation_id AND m.agent_id = p.sender AND m.status = 'member' FOR KEY SHARE
			) membership WHERE p.kind = 'group'
		)`

	// writeMessages numbers the admitted messages, writes them, and moves the read markers of their senders.
	writeMessages = `
		bumped AS (
			UPDATE conversations c SET last_number = c.last_number + a.count, last_message_at = greatest(@now, c.last_message_at)
			FROM (SELECT conversation_id, count(*) AS count FROM admitted GROUP BY conversation_id) a
			WHERE c.id = a.conversation_id
			RETURNING c.id, c.last_number - a.count AS last_number, c.last_message_at
		), numbered AS (
			SELECT a.conversation_id, a.sender, a.message, a.content, a.reply_to, a.about, a.payment, a.n,
				b.last_number + row_number() OVER (PARTITION BY a.conversation_id ORDER BY a.n) AS number, b.last_message_at
			FROM admitted a JOIN bumped b ON b.id = a.conversation_id
		), own AS (
			UPDATE memberships m
			SET read_number = CASE WHEN m.read_number + m.unread_own = o.first - 1 THEN o.first + o.run - 1 ELSE m.read_number END,
				unread_own = CASE WHEN m.read_number + m.unread_own = o.first - 1 THEN o.count - o.run ELSE m.unread_own + o.count END,
				quiet = false
			FROM (
				SELECT conversation_id, sender, min(number) AS first, count(*) AS count, count(*) FILTER (WHERE number = start + rank - 1) AS run
				FROM (
					SELECT conversation_id, sender, number, min(number) OVER sent AS start, row_number() OVER (sent ORDER BY number) AS rank
					FROM numbered WINDOW sent AS (PARTITION BY conversation_id, sender)
				) ranked GROUP BY conversation_id, sender
			) o
			WHERE m.conversation_id = o.conversation_id AND m.agent_id = o.sender AND m.status = 'member'
		), written AS (
			INSERT INTO messages (conversation_id, number, id, sender_id, content, reply_to, about, created_at)
			SELECT conversation_id, number, message, sender, content, reply_to, about, last_message_at FROM numbered
		)`
)

// placedMessage reports whether a message was sent, and whether its conversation was locked by another transaction (or is
// deleted).
type placedMessage struct {
	Sent, Locked bool
	chargedChannel
}

func (m paidMessage) bytes() int { return len(m.Content) + m.Closing.bytes() }

// noDelivery is the delivery of a message without a payment: its transaction closes the payment by itself.
var noDelivery Delivery

// payment is nil for noDelivery.
func (d *Delivery) payment() *uuid.UUID {
	if d == &noDelivery {
		return nil
	}
	return &d.Payment
}

// The values of a message, with those of its delivery or its voucher. pgx encodes [16]byte with fewer allocations than uuid.UUID.
var (
	messageFields = fields[paidMessage]{
		each("kind", "text", func(m paidMessage) string { return m.Kind }),
		each("conversation_id", "uuid", func(m paidMessage) [16]byte { return m.conversation }),
		each("recipient", "uuid", func(m paidMessage) [16]byte { return m.To }),
		each("sender", "uuid", func(m paidMessage) [16]byte { return m.Sender }),
		each("message", "uuid", func(m paidMessage) [16]byte { return m.ID }),
		each("content", "text", func(m paidMessage) string { return m.Content }),
		optional("reply_to", "uuid", func(m paidMessage) *uuid.UUID { return m.ReplyTo }),
		optional("about", "jsonb", func(m paidMessage) *About { return m.About }),
	}
	sendChargedFields = slices.Concat(messageFields, voucherFields(func(m paidMessage) *VoucherCharge { return m.Charge }))

	// The item has the payment and its state too, the first values of a delivery: the statement joins both by the payment.
	closeFields = fieldsOfDelivery(func(m paidMessage) *Delivery { return m.Delivery })
	sendFields  = slices.Concat(messageFields, closeFields[:2])
)

// sendStatement returns the statement that sends a batch, and its values.
func sendStatement(now time.Time, batch []batchItem[paidMessage]) (statement string, values pairs) {
	values = make(pairs, 0, len(sendChargedFields)+1)
	if batch[0].value.Charge != nil {
		return sendCharged, append(sendChargedFields.add(values, batch), pair{"now", now})
	}
	return sendMessages, closeFields[2:].add(append(sendFields.add(values, batch), pair{"now", now}), batch)
}
