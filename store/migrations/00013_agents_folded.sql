-- The directory of agents (store/search.go), in place of agents_search, which older programs use.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- a concurrent build locks out no call, and waits for all transactions that run
DROP INDEX CONCURRENTLY IF EXISTS agents_folded;
CREATE INDEX CONCURRENTLY agents_folded ON agents USING gin (fold_nfc(username || ' ' || description) gin_trgm_ops) WHERE is_discoverable;
RESET lock_timeout;
