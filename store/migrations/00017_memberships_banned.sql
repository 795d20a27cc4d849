-- Whom the admin of a group chat or channel has banned (Reader.Banned). The second condition is always true. Only a query that names it uses
-- the index: whether an agent is banned is looked up by the primary key, however many are.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- a concurrent build locks out no call, and waits for all transactions that run
DROP INDEX CONCURRENTLY IF EXISTS memberships_banned;
CREATE INDEX CONCURRENTLY memberships_banned ON memberships (conversation_id, joined_at) WHERE status = 'banned' AND joined_at > '-infinity';
RESET lock_timeout;
