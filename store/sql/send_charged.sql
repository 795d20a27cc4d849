-- Sends messages and charges the vouchers that pay for them. It returns a row for each message, in their order.
--
--   locked     are the conversations. Those that another transaction has locked are skipped: waiting for one lock while holding another can
--              deadlock. The row lock makes the order of numbers the order of commits. The time never goes back, so the order by time is
--              the order by number.
--   due        are the vouchers that fit their payment channels, which are locked: see charge_vouchers.sql.
--   judged     are the messages to locked conversations, and to those that do not exist. send_refusal (migrations/00002_rules.sql) sees
--              what was committed before the locks were taken, and code that ends memberships locks the conversation first. A message is
--              allowed if it is not refused and its voucher is due. A member who joined after the snapshot of the statement needs a
--              transaction of its own, because own does not see the membership.
--   recorded   are the payments: see charge_vouchers.sql. A message is sent exactly if its voucher is charged.
--   own        moves the read markers of senders. Own messages are never unread: if nothing else is unread, the marker moves up to the next
--              message of another agent, and the other own messages are counted in unread_own. What was quiet for the sender is so no more.
WITH item AS (
    SELECT kind, conversation, recipient, sender, message, content, reply_to, about, payment, channel, channel_payer, price,
        cumulative, max_unclaimed, claim_sum, signature, operation, account, fingerprint, signature_hash, identifier, idempotency_key,
        secret, response, n
    FROM unnest(
        (SELECT CAST(@kind AS text[])), (SELECT CAST(@conversation AS uuid[])), (SELECT CAST(@recipient AS uuid[])),
        (SELECT CAST(@sender AS uuid[])), (SELECT CAST(@message AS uuid[])), (SELECT CAST(@content AS text[])),
        (SELECT CAST(@reply_to AS uuid[])), (SELECT CAST(@about AS jsonb[])),
        (SELECT CAST(@payment AS uuid[])), (SELECT CAST(@channel AS text[])), (SELECT CAST(@channel_payer AS text[])),
        (SELECT CAST(@price AS bigint[])), (SELECT CAST(@cumulative AS bigint[])), (SELECT CAST(@max_unclaimed AS bigint[])),
        (SELECT CAST(@claim_sum AS bigint[])), (SELECT CAST(@signature AS text[])), (SELECT CAST(@operation AS text[])),
        (SELECT CAST(@account AS uuid[])), (SELECT CAST(@fingerprint AS bytea[])), (SELECT CAST(@signature_hash AS bytea[])),
        (SELECT CAST(@identifier AS text[])), (SELECT CAST(@idempotency_key AS text[])), (SELECT CAST(@secret AS boolean[])),
        (SELECT CAST(@response AS bytea[]))
    ) WITH ORDINALITY AS i (kind, conversation, recipient, sender, message, content, reply_to, about, payment, channel, channel_payer, price,
        cumulative, max_unclaimed, claim_sum, signature, operation, account, fingerprint, signature_hash, identifier, idempotency_key,
        secret, response, n)
), due AS MATERIALIZED (
    SELECT i.n FROM item i CROSS JOIN LATERAL (
        SELECT FROM payment_channels c
        WHERE c.id = i.channel AND c.payer = i.channel_payer AND voucher_fits(c, i.price, i.cumulative, i.max_unclaimed)
        FOR NO KEY UPDATE SKIP LOCKED
    ) p
), locked AS (
    SELECT id FROM conversations WHERE id = ANY (ARRAY(SELECT conversation FROM item)) FOR NO KEY UPDATE SKIP LOCKED
), judged AS MATERIALIZED (
    SELECT i.*, i.refusal IS NULL AND i.due AND (i.kind <> 'group' OR (
        SELECT count(*) FROM memberships m WHERE m.conversation_id = i.conversation AND m.agent_id = i.sender AND m.status = 'member') = 1
    ) AS allowed
    FROM (
        SELECT i.*, d.n IS NOT NULL AS due,
            send_refusal(i.kind, i.conversation, i.sender, i.recipient, i.reply_to) AS refusal
        FROM item i LEFT JOIN due d ON d.n = i.n LEFT JOIN locked l ON l.id = i.conversation
        WHERE l.id IS NOT NULL OR (SELECT count(*) FROM conversations c WHERE c.id = i.conversation) = 0
    ) i
), recorded AS (
    INSERT INTO payments (id, x402_version, scheme, payer, amount, valid_before, operation, agent_id,
        fingerprint, signature_hash, payment_identifier, idempotency_key, payment_channel_id, cumulative_amount, state, lease_until,
        secret, response, created_at, updated_at)
    SELECT payment, 2, 'batch-settlement', channel_payer, price, now(), operation,
        account, fingerprint, signature_hash, identifier, idempotency_key, channel, cumulative, 'delivered', now(),
        secret, response, now(), now()
    FROM judged WHERE allowed
    ORDER BY account, operation, identifier, idempotency_key ON CONFLICT DO NOTHING RETURNING id
), sent AS (
    SELECT j.* FROM judged j JOIN recorded r ON r.id = j.payment
), bumped AS (
    UPDATE conversations c SET last_number = c.last_number + a.count, last_message_at = greatest(@now, c.last_message_at)
    FROM (SELECT conversation, count(*) AS count FROM sent GROUP BY conversation) a
    WHERE c.id = a.conversation
    RETURNING c.id, c.last_number - a.count AS last_number, c.last_message_at
), numbered AS (
    SELECT a.n, a.conversation, a.sender, a.message, a.content, a.reply_to, a.about,
        b.last_number + row_number() OVER (PARTITION BY a.conversation ORDER BY a.n) AS number, b.last_message_at
    FROM sent a JOIN bumped b ON b.id = a.conversation
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
), charged AS (
    UPDATE payment_channels c SET charged = d.cumulative, signed_max = d.cumulative, signature = d.signature, used_at = now(),
        unclaimed_since = coalesce(c.unclaimed_since, now()),
        claim_sum_reached = c.claim_sum_reached OR d.cumulative - c.claimed >= d.claim_sum
    FROM sent d WHERE c.id = d.channel AND c.payer = d.channel_payer
    RETURNING d.n, c.balance, c.claimed, c.refund_nonce
)
SELECT coalesce(m.number, 0) AS number, j.n IS NULL AS locked, j.refusal,
    coalesce(c.balance, 0) AS balance, coalesce(c.claimed, 0) AS claimed, coalesce(c.refund_nonce, 0) AS refund_nonce
FROM item i LEFT JOIN judged j USING (n) LEFT JOIN numbered m USING (n)
LEFT JOIN charged c USING (n) ORDER BY i.n
