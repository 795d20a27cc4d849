-- What operators do: suspend and erase accounts, remove messages and conversations, refund payments. And the audit of it.

-- +goose Up

ALTER TABLE messages ADD COLUMN removed_at timestamptz;
COMMENT ON COLUMN messages.removed_at IS 'When the operator removed the content. The column content then has a fixed text.';

CREATE TABLE suspensions (
    agent_id   uuid        PRIMARY KEY REFERENCES agents,
    message    text        NOT NULL CHECK (char_length(message) <= 512),
    was_listed boolean     NOT NULL,
    erased     boolean     NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL
);
COMMENT ON TABLE suspensions IS 'Accounts that cannot be used. It is small, so that looking an agent up in it costs little.';
COMMENT ON COLUMN suspensions.message IS 'What the agent is told; may be empty.';
COMMENT ON COLUMN suspensions.was_listed IS 'is_discoverable of the agent before. Meanwhile it is false, so that the directory does not list the agent.';
COMMENT ON COLUMN suspensions.erased IS 'The account was erased and can never be used again.';

CREATE TABLE reserved_usernames (
    username_hash bytea       PRIMARY KEY CHECK (octet_length(username_hash) = 32),
    agent_id      uuid        REFERENCES agents,
    created_at    timestamptz NOT NULL
);
COMMENT ON TABLE reserved_usernames IS 'Former usernames, as SHA-256. Nobody can register them, because others know the former owner by them. A hash, because erasing an account must leave no username.';
COMMENT ON COLUMN reserved_usernames.agent_id IS 'The agent that had the username; NULL if it was erased.';

CREATE TABLE conversation_removals (
    conversation_id uuid        PRIMARY KEY REFERENCES conversations,
    created_at      timestamptz NOT NULL
);
COMMENT ON TABLE conversation_removals IS 'Conversations whose deleted_at the operator has set. Only these can be restored.';

CREATE TABLE refunds (
    payer       text        NOT NULL CHECK (payer = lower(payer)),
    payment_id  uuid        NOT NULL,
    amount      bigint      NOT NULL CHECK (amount > 0),
    transaction text        NOT NULL CHECK (transaction = lower(transaction)),
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (payment_id, payer),
    CONSTRAINT refunds_transaction UNIQUE (payer, transaction)
);
COMMENT ON TABLE refunds IS 'Refunds of payments that the operator made by hand, each with its transfer. Refunds of payment channels are in payment_channel_transactions.';

CREATE TABLE audit (
    target_id   uuid        NOT NULL,
    id          uuid        NOT NULL,
    target_kind text        NOT NULL CHECK (target_kind IN ('agent', 'conversation', 'message', 'payment')),
    action      text        NOT NULL,
    agent_id    uuid        REFERENCES agents,
    actor       text        NOT NULL CHECK (char_length(actor) BETWEEN 1 AND 128),
    reason      text        NOT NULL CHECK (char_length(reason) BETWEEN 1 AND 1024),
    details     jsonb       NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (target_id, id)
);
COMMENT ON TABLE audit IS 'What operators did. Rows are only added. They have no content, username or secret, so that they can stay when an account is erased.';
COMMENT ON COLUMN audit.agent_id IS 'The agent concerned: the account, the sender of the message, the admin of the conversation, the account that paid.';
CREATE INDEX audit_created ON audit (created_at, id);

-- The role that serves gets all rights on new tables by default (docs/roles.sql). It must not change what is in the audit.
-- +goose StatementBegin
DO $$
DECLARE
    other text;
BEGIN
    FOR other IN
        SELECT DISTINCT grantee FROM information_schema.role_table_grants
        WHERE table_schema = current_schema() AND table_name = 'audit' AND grantee <> current_user
    LOOP
        EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON audit FROM %s', CASE other WHEN 'PUBLIC' THEN other ELSE quote_ident(other) END);
    END LOOP;
END
$$;
-- +goose StatementEnd
