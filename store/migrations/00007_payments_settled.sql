-- When each operation was last paid with scheme exact (Store.LastSettled).

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- a concurrent build locks out no call, and waits for all transactions that run
DROP INDEX CONCURRENTLY IF EXISTS payments_settled;
CREATE INDEX CONCURRENTLY payments_settled ON payments (operation, created_at) WHERE scheme = 'exact' AND state IN ('delivered', 'undeliverable');
RESET lock_timeout;
