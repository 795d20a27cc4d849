-- +goose Up

-- Servers keep an agent in memory for one second at most (store/agent_cache.go), so nobody listens for changes any more.
-- Stop servers of an earlier version before this migration: they rely on the notifications.
DROP TRIGGER agent_changed ON agents;
DROP FUNCTION notify_agent_changed();
