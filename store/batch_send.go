package store

import (
	"time"

	"github.com/google/uuid"
)

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
const sendMessages = `
	WITH item AS (
		SELECT kind, conversation_id, recipient, sender, message, content, about, payment, i.n
		FROM unnest((SELECT CAST(@kind AS text[])), (SELECT CAST(@conversation_id AS uuid[])), (SELECT CAST(@recipient AS uuid[])),
			(SELECT CAST(@sender AS uuid[])), (SELECT CAST(@message AS uuid[])), (SELECT CAST(@content AS text[])),
			(SELECT CAST(@about AS jsonb[])), (SELECT CAST(@payment AS uuid[])))
			WITH ORDINALITY AS i (kind, conversation_id, recipient, sender, message, content, about, payment, n)
	), due AS MATERIALIZED (
		SELECT id AS payment FROM payments
		WHERE id = ANY (ARRAY(SELECT payment FROM item)) AND state IN ('settling', 'undeliverable') AND failure_reason <> 'refunded'
		FOR NO KEY UPDATE SKIP LOCKED
	), locked AS (
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
	), admitted AS (
		SELECT conversation_id, sender, message, content, about, payment, n FROM allowed
	), bumped AS (
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
	), closed AS (
		UPDATE payments p SET fingerprint = d.fingerprint, transaction = d.transaction, response = d.response, state = 'delivered',
			failure_reason = '', request = NULL, payload = NULL, key_hash = NULL, owner = NULL, updated_at = now()
		FROM unnest((SELECT CAST(@payment AS uuid[])), (SELECT CAST(@fingerprint AS bytea[])), (SELECT CAST(@transaction AS text[])),
			(SELECT CAST(@response AS bytea[]))) AS d (id, fingerprint, transaction, response)
		JOIN numbered n ON n.payment = d.id WHERE p.id = d.id
	)
	SELECT n.number IS NOT NULL AS sent, NOT EXISTS (SELECT FROM locked l WHERE l.id = i.conversation_id) AS locked
	FROM item i LEFT JOIN numbered n USING (n) ORDER BY i.n`

// sendCharged is sendMessages for messages whose vouchers are charged. A message is sent, and its payment recorded, exactly if the voucher
// is charged. locked to allowed, and bumped to written, are copies of sendMessages; due, recorded and charged are copies of chargeVouchers.
// TestCopies compares them.
const sendCharged = `
	WITH item AS (
		SELECT kind, conversation_id, recipient, sender, message, content, about, payment, channel, channel_payer, price,
			cumulative, max_unclaimed, signature, max_age, operation, account, fingerprint, signature_hash, identifier, secret, response, i.n
		FROM unnest((SELECT CAST(@kind AS text[])), (SELECT CAST(@conversation_id AS uuid[])), (SELECT CAST(@recipient AS uuid[])),
			(SELECT CAST(@sender AS uuid[])), (SELECT CAST(@message AS uuid[])), (SELECT CAST(@content AS text[])),
			(SELECT CAST(@about AS jsonb[])), (SELECT CAST(@payment AS uuid[])),
			(SELECT CAST(@channel AS text[])), (SELECT CAST(@channel_payer AS text[])),
			(SELECT CAST(@price AS bigint[])), (SELECT CAST(@cumulative AS bigint[])), (SELECT CAST(@max_unclaimed AS bigint[])),
			(SELECT CAST(@signature AS text[])), (SELECT CAST(@max_age AS interval[])), (SELECT CAST(@operation AS text[])),
			(SELECT CAST(@account AS uuid[])), (SELECT CAST(@fingerprint AS bytea[])), (SELECT CAST(@signature_hash AS bytea[])),
			(SELECT CAST(@identifier AS text[])), (SELECT CAST(@secret AS boolean[])), (SELECT CAST(@response AS bytea[])))
			WITH ORDINALITY AS i (kind, conversation_id, recipient, sender, message, content, about, payment, channel, channel_payer, price,
				cumulative, max_unclaimed, signature, max_age, operation, account, fingerprint, signature_hash, identifier, secret, response, n)
	), due AS MATERIALIZED (
		SELECT i.payment, channel, channel_payer, price, cumulative, max_unclaimed, signature, max_age, operation, account, fingerprint,
			signature_hash, identifier, secret, response,
			i.n, p.network, p.asset, p.pay_to
		FROM item i CROSS JOIN LATERAL (
			SELECT network, asset, pay_to FROM payment_channels
			WHERE id = i.channel AND payer = i.channel_payer AND charged + i.price = i.cumulative AND balance >= i.cumulative
				AND claimed < i.cumulative AND claimed >= CAST(i.cumulative AS bigint) - i.max_unclaimed AND state = 'open'
				AND withdraw_requested_at = 0 AND synced_at > now() - CAST(i.max_age AS interval)
			FOR NO KEY UPDATE SKIP LOCKED
		) p
	), locked AS (
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
	), recorded AS (
		INSERT INTO payments (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id,
			fingerprint, signature_hash, payment_identifier, payment_channel_id, cumulative_amount, state, lease_until,
			secret, response, created_at, updated_at)
		SELECT d.payment, 2, 'batch-settlement', d.network, d.asset, d.channel_payer, d.channel || ':' || d.cumulative, d.pay_to, d.price, now(),
			d.operation, d.account, d.fingerprint, d.signature_hash, d.identifier, d.channel, d.cumulative, 'delivered', now(), d.secret,
			d.response, now(), now()
		FROM due d JOIN allowed a ON a.payment = d.payment
		ORDER BY d.account, d.operation, d.identifier ON CONFLICT DO NOTHING RETURNING id
	), admitted AS (
		SELECT a.conversation_id, a.sender, a.message, a.content, a.about, a.payment, a.n FROM allowed a JOIN recorded r ON r.id = a.payment
	), bumped AS (
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
	), charged AS (
		UPDATE payment_channels p SET charged = d.cumulative, signed_max = d.cumulative, signature = d.signature, used_at = now(),
			unclaimed_since = coalesce(p.unclaimed_since, now())
		FROM due d JOIN recorded r ON r.id = d.payment WHERE p.id = d.channel AND p.payer = d.channel_payer
		RETURNING d.n, p.balance, p.claimed, p.refund_nonce
	)
	SELECT n.number IS NOT NULL AS sent, NOT EXISTS (SELECT FROM locked l WHERE l.id = i.conversation_id) AS locked,
		coalesce(c.balance, 0) AS balance, coalesce(c.claimed, 0) AS claimed, coalesce(c.refund_nonce, 0) AS refund_nonce
	FROM item i LEFT JOIN numbered n USING (n) LEFT JOIN charged c USING (n) ORDER BY i.n`

// placedMessage reports whether a message was sent, and whether its conversation was locked by another transaction (or is
// deleted).
type placedMessage struct {
	Sent, Locked bool
	chargedChannel
}

// noDelivery is the delivery of a message without a payment.
var noDelivery Delivery

// payment is nil if the message is sent in a transaction that closes the payment by itself.
func (m *paidMessage) payment() *uuid.UUID {
	if m.Delivery == &noDelivery {
		return nil
	}
	return &m.Delivery.Payment
}

// sendStatement returns the statement that sends a batch, and its values. pgx encodes [16]byte directly.
func sendStatement(now time.Time, batch []batchItem[paidMessage]) (statement string, values pairs) {
	type message = paidMessage
	values = append(make(pairs, 0, 23), pairs{
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
		{"fingerprint", column(batch, func(m message) []byte { return m.Delivery.Fingerprint })},
		{"transaction", column(batch, func(m message) string { return m.Delivery.Transaction })},
		{"response", column(batch, func(m message) []byte { return m.Delivery.Response })},
	}...)
	return sendMessages, values
}
