-- +goose Up

-- Servers keep agents in memory by their API keys. Each is told of every change, also one that is made by hand, and
-- forgets the agent.
-- +goose StatementBegin
CREATE FUNCTION notify_agent_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('parley_agents', OLD.id::text);
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER agent_changed AFTER UPDATE OR DELETE ON agents FOR EACH ROW EXECUTE FUNCTION notify_agent_changed();
