-- charge_vouchers.sql for a batch with calls that return pages: it also marks the pages as read. It is apart because starting its parts takes
-- a tenth of the time of a call without a page. A voucher is charged only if its whole page can be marked. What is locked, or has changed
-- since the snapshot, needs a transaction of its own.
--
--   behind    are the ranges that the agent has not read to their ends, in the snapshot of the statement.
--   held      are the memberships of behind, locked, as they are now.
--   turn      is whether no other transaction reads unread messages of the agent and marks them (see takeTurn in unread.go).
--   unready   are the items with a membership that is locked or has changed, and those whose messages another call returns or has returned.
WITH item AS (
    SELECT payment, channel, channel_payer, price, cumulative, max_unclaimed, claim_sum, signature, operation, account, fingerprint,
        signature_hash, identifier, idempotency_key, secret, response, n
    FROM unnest(
        (SELECT CAST(@payment AS uuid[])), (SELECT CAST(@channel AS text[])), (SELECT CAST(@channel_payer AS text[])),
        (SELECT CAST(@price AS bigint[])), (SELECT CAST(@cumulative AS bigint[])), (SELECT CAST(@max_unclaimed AS bigint[])),
        (SELECT CAST(@claim_sum AS bigint[])), (SELECT CAST(@signature AS text[])), (SELECT CAST(@operation AS text[])),
        (SELECT CAST(@account AS uuid[])), (SELECT CAST(@fingerprint AS bytea[])), (SELECT CAST(@signature_hash AS bytea[])),
        (SELECT CAST(@identifier AS text[])), (SELECT CAST(@idempotency_key AS text[])), (SELECT CAST(@secret AS boolean[])),
        (SELECT CAST(@response AS bytea[]))
    ) WITH ORDINALITY AS i (payment, channel, channel_payer, price, cumulative, max_unclaimed, claim_sum, signature, operation, account,
        fingerprint, signature_hash, identifier, idempotency_key, secret, response, n)
), due AS MATERIALIZED (
    SELECT i.* FROM item i CROSS JOIN LATERAL (
        SELECT FROM payment_channels c
        WHERE c.id = i.channel AND c.payer = i.channel_payer AND voucher_fits(c, i.price, i.cumulative, i.max_unclaimed)
        FOR NO KEY UPDATE SKIP LOCKED
    ) p
), range AS (
    SELECT n, agent, conversation, oldest, newest, once FROM unnest(
        (SELECT CAST(@range_n AS bigint[])), (SELECT CAST(@range_agent AS uuid[])), (SELECT CAST(@range_conversation AS uuid[])),
        (SELECT CAST(@range_oldest AS bigint[])), (SELECT CAST(@range_newest AS bigint[])), (SELECT CAST(@range_once AS boolean[]))
    ) AS r (n, agent, conversation, oldest, newest, once)
), behind AS MATERIALIZED (
    SELECT r.n, r.agent, r.conversation, b.* FROM range r CROSS JOIN LATERAL read_marker(r.agent, r.conversation, r.oldest, r.newest) b
), held AS MATERIALIZED (
    SELECT m.conversation_id, m.agent_id, m.read_number, m.unread_own
    FROM behind b JOIN memberships m ON m.conversation_id = b.conversation AND m.agent_id = b.agent AND m.status = 'member'
    FOR NO KEY UPDATE OF m SKIP LOCKED
), turn AS MATERIALIZED (
    SELECT n, pg_try_advisory_xact_lock(unread_lock(agent)) AS taken
    FROM (SELECT DISTINCT n, agent FROM range WHERE once) r
), unready AS MATERIALIZED (
    SELECT b.n FROM behind b LEFT JOIN held h ON h.conversation_id = b.conversation AND h.agent_id = b.agent
        AND h.read_number = b.number AND h.unread_own = b.own
    WHERE h.agent_id IS NULL
    UNION ALL
    SELECT r.n FROM range r LEFT JOIN behind b ON b.n = r.n AND b.conversation = r.conversation AND b.read_up_to < r.oldest
    WHERE r.once AND b.n IS NULL
    UNION ALL
    SELECT n FROM turn WHERE NOT taken
), recorded AS (
    INSERT INTO payments (id, x402_version, scheme, payer, amount, valid_before, operation, agent_id,
        fingerprint, signature_hash, payment_identifier, idempotency_key, payment_channel_id, cumulative_amount, state, lease_until,
        secret, response, created_at, updated_at)
    SELECT payment, 2, 'batch-settlement', channel_payer, price, now(), operation,
        account, fingerprint, signature_hash, identifier, idempotency_key, channel, cumulative, 'delivered', now(),
        secret, response, now(), now()
    FROM due WHERE n NOT IN (SELECT n FROM unready)
    ORDER BY account, operation, identifier, idempotency_key ON CONFLICT DO NOTHING RETURNING id
), closed AS (
    UPDATE payment_channels c SET charged = d.cumulative, signed_max = d.cumulative, signature = d.signature, used_at = now(),
        unclaimed_since = coalesce(c.unclaimed_since, now()),
        claim_sum_reached = c.claim_sum_reached OR d.cumulative - c.claimed >= d.claim_sum
    FROM due d JOIN recorded r ON r.id = d.payment
    WHERE c.id = d.channel AND c.payer = d.channel_payer
    RETURNING d.n, d.payment AS id, c.balance, c.claimed, c.refund_nonce
), marked AS (
    UPDATE memberships m SET read_number = b.next_number, unread_own = b.next_own
    FROM behind b JOIN closed c USING (n)
    WHERE m.conversation_id = b.conversation AND m.agent_id = b.agent AND b.next_number IS NOT NULL
)
SELECT id, balance, claimed, refund_nonce FROM closed
