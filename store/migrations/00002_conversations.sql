-- +goose Up

-- Trigrams make substring search an index look-up; btree_gin lets one index hold a conversation's id beside them.
-- Both are trusted extensions: the database's owner may create them.
CREATE EXTENSION IF NOT EXISTS pg_trgm;
CREATE EXTENSION IF NOT EXISTS btree_gin;

-- The key before the last rotation: it opens nothing, but whoever lost the answer with the new key may ask for that
-- answer again with it. Forgotten as soon as the new key is used.
ALTER TABLE agents ADD COLUMN previous_key_hash bytea CHECK (octet_length(previous_key_hash) = 32);
CREATE UNIQUE INDEX agents_previous_key ON agents (previous_key_hash) WHERE previous_key_hash IS NOT NULL;

CREATE TABLE blocks (
    blocker_id uuid        NOT NULL REFERENCES agents,
    blocked_id uuid        NOT NULL REFERENCES agents,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (blocker_id, blocked_id),
    CHECK (blocker_id <> blocked_id)
);

-- conversation_id is in every key, so that all of a conversation can be kept in one place.
CREATE TABLE reactions (
    conversation_id uuid        NOT NULL,
    number          bigint      NOT NULL,
    agent_id        uuid        NOT NULL REFERENCES agents,
    emoji           text        NOT NULL CHECK (char_length(emoji) BETWEEN 1 AND 32),
    created_at      timestamptz NOT NULL,
    PRIMARY KEY (conversation_id, number, agent_id),
    FOREIGN KEY (conversation_id, number) REFERENCES messages
);

-- unread_own counts the agent's own messages with a number above read_number, so that what is unread is
-- last_number - read_number - unread_own and never a count over messages.
ALTER TABLE memberships ADD COLUMN unread_own bigint NOT NULL DEFAULT 0 CHECK (unread_own >= 0);

-- What differs only in case folds to one text; by way of upper case, which is one where lower case has variants (σ and
-- ς, s and ſ). In plpgsql, so that it is not inlined and the planner knows what it costs: a look-up in the indexes below
-- is cheaper than folding row by row. Nothing in it may depend on the search path.
-- +goose StatementBegin
CREATE FUNCTION fold(content text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 500 AS $$
BEGIN
    RETURN lower(upper(content));
END
$$;
-- +goose StatementEnd

-- The directories (store/search.go). A word of a query has no space in it, so it never matches across the one between
-- name and description.
CREATE INDEX agents_search ON agents USING gin (fold(username || ' ' || description) gin_trgm_ops) WHERE is_discoverable;
CREATE INDEX agents_name ON agents (username text_pattern_ops) WHERE is_discoverable;
CREATE INDEX agents_newest ON agents (created_at DESC, id DESC) WHERE is_discoverable;
CREATE INDEX groups_search ON conversations USING gin (fold(name || ' ' || coalesce(description, '')) gin_trgm_ops)
    WHERE kind = 'group' AND is_discoverable AND deleted_at IS NULL;
CREATE INDEX channels_search ON conversations USING gin (fold(name || ' ' || coalesce(description, '')) gin_trgm_ops)
    WHERE kind = 'channel' AND is_discoverable AND deleted_at IS NULL;
CREATE INDEX conversations_name ON conversations (kind, fold(name) text_pattern_ops) WHERE is_discoverable AND deleted_at IS NULL;
CREATE INDEX conversations_newest ON conversations (kind, created_at DESC, id DESC) WHERE is_discoverable AND deleted_at IS NULL;

CREATE INDEX messages_search ON messages USING gin (conversation_id, fold(content) gin_trgm_ops);
