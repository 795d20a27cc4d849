-- Closes payments of calls that record a response, marks the pages that they return as read, and returns the payments that it has closed.
-- Its parts are those of charge_pages.sql. Due are the payments that are in the state in which their call has them. Who was told that the
-- operation is refused can redeem the payment, so another attempt of the refused call must not deliver it after that.
WITH item AS (
    SELECT payment, state, fingerprint, transaction, response, n FROM unnest(
        (SELECT CAST(@payment AS uuid[])), (SELECT CAST(@state AS text[])), (SELECT CAST(@fingerprint AS bytea[])),
        (SELECT CAST(@transaction AS text[])), (SELECT CAST(@response AS bytea[]))
    ) WITH ORDINALITY AS i (payment, state, fingerprint, transaction, response, n)
), due AS MATERIALIZED (
    SELECT i.* FROM item i JOIN payments p ON p.id = i.payment AND p.state = i.state AND p.failure_reason <> 'refunded'
    FOR NO KEY UPDATE OF p SKIP LOCKED
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
), closed AS (
    UPDATE payments p SET fingerprint = d.fingerprint, transaction = d.transaction, response = d.response, state = 'delivered',
        failure_reason = '', request = NULL, payload = NULL, key_hash = NULL, owner = NULL, updated_at = now()
    FROM due d WHERE p.id = d.payment AND d.n NOT IN (SELECT n FROM unready) RETURNING p.id, d.n
), marked AS (
    UPDATE memberships m SET read_number = b.next_number, unread_own = b.next_own
    FROM behind b JOIN closed c USING (n)
    WHERE m.conversation_id = b.conversation AND m.agent_id = b.agent AND b.next_number IS NOT NULL
)
SELECT id FROM closed
