-- Marks ranges of one agent as read, at most one for each conversation. An earlier statement has locked the memberships.
UPDATE memberships m SET read_number = b.next_number, unread_own = b.next_own
FROM unnest(
    (SELECT CAST(@conversations AS uuid[])), (SELECT CAST(@oldest AS bigint[])), (SELECT CAST(@newest AS bigint[]))
) AS r (conversation, oldest, newest)
CROSS JOIN LATERAL read_marker(@agent, r.conversation, r.oldest, r.newest) b
WHERE m.conversation_id = r.conversation AND m.agent_id = @agent AND b.next_number IS NOT NULL
