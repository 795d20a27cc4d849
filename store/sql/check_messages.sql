-- Returns for each message why it may not be sent, or NULL, in the order of the messages.
SELECT send_refusal(kind, conversation, sender, recipient, reply_to) AS refusal FROM unnest(
    (SELECT CAST(@kind AS text[])), (SELECT CAST(@conversation AS uuid[])), (SELECT CAST(@sender AS uuid[])),
    (SELECT CAST(@recipient AS uuid[])), (SELECT CAST(@reply_to AS uuid[]))
) WITH ORDINALITY AS i (kind, conversation, sender, recipient, reply_to, n)
ORDER BY n
