-- The directories of group chats and channels (store/search.go), in place of groups_search and channels_search, which older programs use.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- a concurrent build locks out no call, and waits for all transactions that run
DROP INDEX CONCURRENTLY IF EXISTS conversations_folded;
CREATE INDEX CONCURRENTLY conversations_folded ON conversations USING gin (kind, fold_nfc(name || ' ' || coalesce(description, '')) gin_trgm_ops)
    WHERE is_discoverable AND deleted_at IS NULL;
RESET lock_timeout;
