-- Sends messages and closes their payments. It returns a row for each message, in their order.
--
--   locked     are the conversations. Those that another transaction has locked are skipped: waiting for one lock while holding another can
--              deadlock. The row lock makes the order of numbers the order of commits. The time never goes back, so the order by time is
--              the order by number.
--   due        are the payments that are in the state in which their call has them: see deliver_payments.sql. Those that another
--              transaction has locked are skipped.
--   judged     are the messages to locked conversations, and to those that do not exist. send_refusal sees what was committed before the
--              locks were taken, and code that ends memberships locks the conversation first. A message is allowed if it is not refused and
--              its payment is due, or it has none: its transaction closes the payment. A member who joined after the snapshot of the
--              statement needs a transaction of its own, because own does not see the membership.
--   own        moves the read markers of senders. Own messages are never unread: if nothing else is unread, the marker moves up to the next
--              message of another agent, and the other own messages are counted in unread_own. What was quiet for the sender is so no more.
WITH item AS (
    SELECT kind, conversation, recipient, sender, message, content, reply_to, about, payment, state, fingerprint, transaction,
        response, n
    FROM unnest(
        (SELECT CAST(@kind AS text[])), (SELECT CAST(@conversation AS uuid[])), (SELECT CAST(@recipient AS uuid[])),
        (SELECT CAST(@sender AS uuid[])), (SELECT CAST(@message AS uuid[])), (SELECT CAST(@content AS text[])),
        (SELECT CAST(@reply_to AS uuid[])), (SELECT CAST(@about AS jsonb[])),
        (SELECT CAST(@payment AS uuid[])), (SELECT CAST(@state AS text[])), (SELECT CAST(@fingerprint AS bytea[])),
        (SELECT CAST(@transaction AS text[])), (SELECT CAST(@response AS bytea[]))
    ) WITH ORDINALITY AS i (kind, conversation, recipient, sender, message, content, reply_to, about, payment, state, fingerprint,
        transaction, response, n)
), due AS MATERIALIZED (
    SELECT i.n FROM (
        SELECT id, state, failure_reason FROM payments WHERE id = ANY (ARRAY(SELECT payment FROM item)) FOR NO KEY UPDATE SKIP LOCKED
    ) p JOIN item i ON i.payment = p.id WHERE p.state = i.state AND p.failure_reason <> 'refunded'
), locked AS (
    SELECT id FROM conversations WHERE id = ANY (ARRAY(SELECT conversation FROM item)) FOR NO KEY UPDATE SKIP LOCKED
), judged AS MATERIALIZED (
    SELECT i.*, i.refusal IS NULL AND i.due AND (i.kind <> 'group' OR (
        SELECT count(*) FROM memberships m WHERE m.conversation_id = i.conversation AND m.agent_id = i.sender AND m.status = 'member') = 1
    ) AS allowed
    FROM (
        SELECT i.*, (i.payment IS NULL OR d.n IS NOT NULL) AS due,
            send_refusal(i.kind, i.conversation, i.sender, i.recipient, i.reply_to) AS refusal
        FROM item i LEFT JOIN due d ON d.n = i.n LEFT JOIN locked l ON l.id = i.conversation
        WHERE l.id IS NOT NULL OR (SELECT count(*) FROM conversations c WHERE c.id = i.conversation) = 0
    ) i
), bumped AS (
    UPDATE conversations c SET last_number = c.last_number + a.count, last_message_at = greatest(@now, c.last_message_at)
    FROM (SELECT conversation, count(*) AS count FROM judged WHERE allowed GROUP BY conversation) a
    WHERE c.id = a.conversation
    RETURNING c.id, c.last_number - a.count AS last_number, c.last_message_at
), numbered AS (
    SELECT a.n, a.conversation, a.sender, a.message, a.content, a.reply_to, a.about,
        b.last_number + row_number() OVER (PARTITION BY a.conversation ORDER BY a.n) AS number, b.last_message_at
    FROM judged a JOIN bumped b ON b.id = a.conversation WHERE a.allowed
), own AS (
    UPDATE memberships m
    SET read_number = CASE WHEN m.read_number + m.unread_own = o.first - 1 THEN o.first + o.run - 1 ELSE m.read_number END,
        unread_own = CASE WHEN m.read_number + m.unread_own = o.first - 1 THEN o.count - o.run ELSE m.unread_own + o.count END,
        quiet = false
    FROM (
        SELECT conversation, sender, min(number) AS first, count(*) AS count, count(*) FILTER (WHERE number = start + rank - 1) AS run
        FROM (
            SELECT conversation, sender, number, min(number) OVER sent AS start, row_number() OVER (sent ORDER BY number) AS rank
            FROM numbered WINDOW sent AS (PARTITION BY conversation, sender)
        ) ranked GROUP BY conversation, sender
    ) o
    WHERE m.conversation_id = o.conversation AND m.agent_id = o.sender AND m.status = 'member'
), written AS (
    INSERT INTO messages (conversation_id, number, id, sender_id, content, reply_to, about, created_at)
    SELECT conversation, number, message, sender, content, reply_to, about, last_message_at FROM numbered
), closed AS (
    UPDATE payments p SET fingerprint = a.fingerprint, transaction = a.transaction, response = a.response, state = 'delivered',
        failure_reason = '', request = NULL, payload = NULL, key_hash = NULL, owner = NULL, updated_at = now()
    FROM judged a WHERE p.id = a.payment AND a.allowed
)
SELECT coalesce(m.number, 0) AS number, j.n IS NULL AS locked, j.refusal
FROM item i LEFT JOIN judged j USING (n) LEFT JOIN numbered m USING (n) ORDER BY i.n
