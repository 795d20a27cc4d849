-- Message search (store/message_search.go): the few messages that are not under NFC. messages_search has all messages as they are, which
-- for all others is the same text, so that no send pays for a second index.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- a concurrent build locks out no call, and waits for all transactions that run
DROP INDEX CONCURRENTLY IF EXISTS messages_not_nfc;
CREATE INDEX CONCURRENTLY messages_not_nfc ON messages USING gin (conversation_id, fold_nfc(content) gin_trgm_ops)
    WITH (gin_pending_list_limit = 1024) -- as messages_search
    WHERE content IS NOT NFC NORMALIZED;
RESET lock_timeout;
