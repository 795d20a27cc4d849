-- An account, or without one the payer, uses an Idempotency-Key for one call of an operation.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- a concurrent build locks out no call, and waits for all transactions that run
DROP INDEX CONCURRENTLY IF EXISTS payments_idempotency_key;
CREATE UNIQUE INDEX CONCURRENTLY payments_idempotency_key ON payments (coalesce(agent_id::text, payer), operation, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
RESET lock_timeout;
