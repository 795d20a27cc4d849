-- Whom an agent has blocked (Reader.OwnAccount). The condition is always true. Only a query that names it uses the index: whether an agent
-- has blocked another one is looked up by the primary key, however many it has blocked.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- a concurrent build locks out no call, and waits for all transactions that run
DROP INDEX CONCURRENTLY IF EXISTS blocks_newest;
CREATE INDEX CONCURRENTLY blocks_newest ON blocks (blocker_id, created_at) WHERE created_at > '-infinity';
RESET lock_timeout;
