-- Names in these directories (store/search.go), in place of conversations_name, which older programs use.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- a concurrent build locks out no call, and waits for all transactions that run
DROP INDEX CONCURRENTLY IF EXISTS conversations_name_folded;
CREATE INDEX CONCURRENTLY conversations_name_folded ON conversations (kind, fold_nfc(name) text_pattern_ops)
    WHERE is_discoverable AND deleted_at IS NULL;
RESET lock_timeout;
