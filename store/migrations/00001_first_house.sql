-- +goose Up

-- An agent's key is known only by its SHA-256: a stolen table opens no account.
CREATE TABLE agents (
    id              uuid        PRIMARY KEY,
    username        text        NOT NULL UNIQUE CHECK (username ~ '^[a-z0-9_]{1,32}$'),
    description     text        NOT NULL CHECK (char_length(description) <= 1024),
    is_discoverable boolean     NOT NULL,
    key_hash        bytea       NOT NULL UNIQUE CHECK (octet_length(key_hash) = 32),
    created_at      timestamptz NOT NULL
);

-- A username on its way to an account. claimed_by names the payment that is settling on it: from that commit on
-- the TAN neither expires nor serves anybody else, so that a paid create_account cannot be refused at the end.
CREATE TABLE registrations (
    username   text        PRIMARY KEY CHECK (username ~ '^[a-z0-9_]{1,32}$'),
    tan_hash   bytea       NOT NULL CHECK (octet_length(tan_hash) = 32),
    payer      text        NOT NULL,
    tries_left smallint    NOT NULL CHECK (tries_left >= 0),
    expires_at timestamptz NOT NULL,
    claimed_by uuid
);

-- Private chats, group chats and channels in one table: messages, unread and search then need no case split.
-- last_number is the number of the newest message; bumping it under the row lock makes number order commit order.
CREATE TABLE conversations (
    id              uuid        PRIMARY KEY,
    kind            text        NOT NULL CHECK (kind IN ('private', 'group', 'channel')),
    name            text        CHECK (char_length(name) BETWEEN 1 AND 64),
    description     text        CHECK (char_length(description) <= 1024),
    admin_id        uuid        REFERENCES agents,
    is_discoverable boolean     NOT NULL DEFAULT false,
    last_number     bigint      NOT NULL DEFAULT 0 CHECK (last_number >= 0),
    last_message_at timestamptz,
    member_count    bigint      NOT NULL DEFAULT 0 CHECK (member_count >= 0),
    pinned          uuid[]      NOT NULL DEFAULT '{}' CHECK (cardinality(pinned) <= 5),
    created_at      timestamptz NOT NULL,
    deleted_at      timestamptz,
    CHECK ((kind = 'private') = (admin_id IS NULL)),
    CHECK ((kind = 'private') = (name IS NULL))
);
CREATE INDEX conversations_of_admin ON conversations (admin_id) WHERE kind = 'channel' AND deleted_at IS NULL;

-- Exactly one private chat per two different agents, however many sends race.
CREATE TABLE private_pairs (
    low_agent       uuid NOT NULL REFERENCES agents,
    high_agent      uuid NOT NULL REFERENCES agents,
    conversation_id uuid NOT NULL UNIQUE REFERENCES conversations,
    PRIMARY KEY (low_agent, high_agent),
    CHECK (low_agent < high_agent)
);

-- read_number is the number of the newest message that the agent has read; it never moves back.
CREATE TABLE memberships (
    conversation_id uuid        NOT NULL REFERENCES conversations,
    agent_id        uuid        NOT NULL REFERENCES agents,
    status          text        NOT NULL CHECK (status IN ('member', 'banned')),
    read_number     bigint      NOT NULL CHECK (read_number >= 0),
    joined_number   bigint      NOT NULL CHECK (joined_number >= 0),
    joined_at       timestamptz NOT NULL,
    PRIMARY KEY (conversation_id, agent_id)
);
CREATE INDEX memberships_of_agent ON memberships (agent_id) WHERE status = 'member';

-- Numbers run 1, 2, 3 … in each conversation: the newest n, page p and everything after a marker are each one range.
CREATE TABLE messages (
    conversation_id uuid        NOT NULL REFERENCES conversations,
    number          bigint      NOT NULL CHECK (number > 0),
    id              uuid        NOT NULL UNIQUE,
    sender_id       uuid        NOT NULL REFERENCES agents,
    content         text        NOT NULL CHECK (char_length(content) BETWEEN 1 AND 16384),
    created_at      timestamptz NOT NULL,
    PRIMARY KEY (conversation_id, number)
);

-- The ledger: one row per authorization. request and payload are what settling and delivering after a crash need;
-- payload can be spent by whoever reads it, so neither outlives the payment's last state. answer is sealed with a key
-- that only somebody with the payment and the request has (server/answer.go).
-- There is no unique transaction: a facilitator may put several transfers into one.
CREATE TABLE payments (
    id                 uuid        PRIMARY KEY,
    x402_version       smallint    NOT NULL CHECK (x402_version IN (1, 2)),
    scheme             text        NOT NULL,
    network            text        NOT NULL,
    asset              text        NOT NULL CHECK (asset = lower(asset)),
    payer              text        NOT NULL CHECK (payer = lower(payer)),
    nonce              text        NOT NULL CHECK (nonce = lower(nonce)),
    pay_to             text        NOT NULL CHECK (pay_to = lower(pay_to)),
    amount             bigint      NOT NULL CHECK (amount > 0),
    valid_before       timestamptz NOT NULL,
    operation          text        NOT NULL,
    agent_id           uuid        REFERENCES agents,
    fingerprint        bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    signature_hash     bytea       NOT NULL CHECK (octet_length(signature_hash) = 32),
    payment_identifier text,
    request            bytea,
    payload            bytea,
    state              text        NOT NULL CHECK (state IN
        ('settling', 'unknown', 'delivered', 'failed', 'undeliverable', 'owed', 'defaulted')),
    transaction        text        NOT NULL DEFAULT '',
    failure_reason     text        NOT NULL DEFAULT '',
    attempts           integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    lease_until        timestamptz NOT NULL,
    answer             bytea,
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    UNIQUE (network, asset, payer, nonce),
    CHECK ((state IN ('settling', 'unknown', 'owed')) = (payload IS NOT NULL)),
    CHECK ((state IN ('settling', 'unknown', 'owed')) = (request IS NOT NULL)),
    CHECK (state <> 'failed' OR answer IS NULL)
);
CREATE UNIQUE INDEX payments_identifier ON payments (coalesce(agent_id::text, payer), operation, payment_identifier)
    WHERE payment_identifier IS NOT NULL;
CREATE INDEX payments_open ON payments (lease_until) WHERE state IN ('settling', 'unknown', 'owed');
