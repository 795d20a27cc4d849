-- Rules that several statements share: those of store/sql, and the dry runs.

-- +goose Up

-- send_refusal returns why the sender may not send this message, or NULL. The recipient is an agent if the kind is private; otherwise it has
-- no meaning. A private chat that does not exist yet is NULL. The function is volatile, so it sees what was committed before it is called: a
-- statement that has locked the conversation sees everything that decides about the message.
-- +goose StatementBegin
CREATE FUNCTION send_refusal(kind text, conversation uuid, sender uuid, recipient uuid, reply_to uuid) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    refusal text;
BEGIN
    IF kind = 'private' THEN
        SELECT CASE
            WHEN EXISTS (SELECT FROM blocks WHERE blocker_id = recipient AND blocked_id = sender) THEN 'blocked'
            WHEN EXISTS (SELECT FROM blocks WHERE blocker_id = sender AND blocked_id = recipient) THEN 'blocking'
            WHEN NOT EXISTS (SELECT FROM agents WHERE id = recipient) THEN 'agent_not_found'
            ELSE (SELECT CASE WHEN erased THEN 'agent_not_found' ELSE 'agent_suspended' END FROM suspensions WHERE agent_id = recipient)
        END INTO refusal;
    ELSE
        SELECT CASE
            WHEN c.deleted_at IS NOT NULL THEN 'deleted'
            WHEN c.kind = 'channel' AND c.admin_id <> sender THEN 'not_admin'
            WHEN c.kind = 'group' AND m.status = 'banned' THEN 'banned'
            WHEN c.kind = 'group' AND m.status IS NULL THEN 'not_member'
        END INTO refusal
        FROM conversations c LEFT JOIN memberships m ON m.conversation_id = c.id AND m.agent_id = sender
        WHERE c.id = conversation AND c.kind = send_refusal.kind;
        IF NOT FOUND THEN
            refusal := 'not_found';
        END IF;
    END IF;
    IF refusal IS NULL AND reply_to IS NOT NULL THEN -- an expression without a query takes a tenth of the time
        IF NOT EXISTS (SELECT FROM messages m WHERE m.id = send_refusal.reply_to AND m.conversation_id = conversation) THEN
            refusal := 'reply_not_found';
        END IF;
    END IF;
    RETURN refusal;
END
$$;
-- +goose StatementEnd

-- voucher_fits is true if a voucher is exactly the next one of its payment channel, the balance covers it, it was not claimed, at most
-- max_unclaimed is unclaimed with it, the payer does not withdraw, and nothing else is being settled. PostgreSQL inlines the function, so a
-- statement that locks the row checks its current version.
-- +goose StatementBegin
CREATE FUNCTION voucher_fits(c payment_channels, price bigint, cumulative bigint, max_unclaimed bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT c.charged + price = cumulative AND c.balance >= cumulative AND c.claimed < cumulative AND c.claimed >= cumulative - max_unclaimed
        AND c.state = 'open' AND c.withdraw_requested_at = 0
$$;
-- +goose StatementEnd

-- read_marker returns a row if the agent is a member that has not read a range of messages to its end: its read marker, the number of its
-- own messages behind it, up to which number it has read (removed messages count as read), and both as they are when the range is marked
-- as read. They are NULL if a message of another agent stands between the marker and the range: reading never loses a message. If only own
-- messages follow the range, the marker moves past them, as it does when they are sent. PostgreSQL inlines the function.
-- +goose StatementBegin
CREATE FUNCTION read_marker(agent uuid, conversation uuid, oldest bigint, newest bigint)
RETURNS TABLE (number bigint, own bigint, read_up_to bigint, next_number bigint, next_own bigint) LANGUAGE sql STABLE AS $$
    SELECT s.number, s.own, s.read_up_to,
        CASE WHEN s.up_to + s.rest = s.last_number THEN s.last_number WHEN s.rest IS NOT NULL THEN s.up_to END,
        CASE WHEN s.up_to + s.rest = s.last_number THEN 0 ELSE s.rest END
    FROM (
        SELECT b.number, b.own, b.read_up_to, b.up_to, b.last_number, CASE
            WHEN oldest - 1 > b.read_up_to AND (oldest - 1 - b.read_up_to > b.own OR oldest - 1 - b.read_up_to <> (
                SELECT count(*) FROM messages o WHERE o.conversation_id = conversation AND o.sender_id = agent
                AND o.number > b.read_up_to AND o.number < oldest)) THEN NULL
            WHEN b.own = 0 OR b.up_to = b.last_number THEN 0
            ELSE b.own - (
                SELECT count(*) FROM messages o WHERE o.conversation_id = conversation AND o.sender_id = agent
                AND o.number > b.read_up_to AND o.number <= b.up_to)
        END AS rest
        FROM (
            SELECT m.read_number AS number, m.unread_own AS own, greatest(m.read_number, c.first_number - 1) AS read_up_to,
                least(newest, c.last_number) AS up_to, c.last_number
            FROM memberships m JOIN conversations c ON c.id = m.conversation_id
            WHERE m.conversation_id = conversation AND m.agent_id = agent AND m.status = 'member'
        ) b
        WHERE b.number < b.up_to OFFSET 0
    ) s
$$;
-- +goose StatementEnd

-- unread_lock is the key of the advisory lock of an agent whose unread messages are read and marked.
-- +goose StatementBegin
CREATE FUNCTION unread_lock(agent uuid) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('unread ' || CAST(agent AS text), 0)
$$;
-- +goose StatementEnd
