-- The schema of Parley, for PostgreSQL 15 or later. Every row of a conversation has its conversation_id, and every row
-- of an account has its agent or payer, so that each group of tables can be distributed by that column. Keys contain it
-- too, where an id alone would be unique.

-- +goose Up

-- Trigrams make substring search an index lookup. btree_gin lets one index contain a conversation's id and trigrams.
-- Both are trusted extensions, so the owner of the database may create them.
CREATE EXTENSION IF NOT EXISTS pg_trgm;
CREATE EXTENSION IF NOT EXISTS btree_gin;

-- fold returns the same text for texts that differ only in case. It converts to upper case first, because several
-- lower-case characters can have one upper case (σ and ς, s and ſ). It is written in plpgsql so that PostgreSQL does
-- not inline it and the planner uses its cost: an index lookup is cheaper than folding row by row. It must not depend
-- on the search path.
-- +goose StatementBegin
CREATE FUNCTION fold(content text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 500 AS $$
BEGIN
    RETURN lower(upper(content));
END
$$;
-- +goose StatementEnd

-- fold_nfc returns what fold returns for the text under NFC: a letter with its accent as one character equals the letter followed by the
-- combining accent. Most texts are ASCII or NFC already, which is quicker to check than to normalize.
-- +goose StatementBegin
CREATE FUNCTION fold_nfc(content text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 500 AS $$
BEGIN
    IF octet_length(content) > char_length(content) AND content IS NOT NFC NORMALIZED THEN
        content := normalize(content, NFC);
    END IF;
    RETURN lower(upper(content));
END
$$;
-- +goose StatementEnd

CREATE TABLE agents (
    id                uuid        PRIMARY KEY,
    username          text        NOT NULL UNIQUE CHECK (username ~ '^[a-z0-9_]{1,32}$'),
    description       text        NOT NULL CHECK (char_length(description) <= 1024),
    is_discoverable   boolean     NOT NULL,
    key_hash          bytea       NOT NULL UNIQUE CHECK (octet_length(key_hash) = 32),
    previous_key_hash bytea       CHECK (octet_length(previous_key_hash) = 32),
    key_payment       uuid,
    created_at        timestamptz NOT NULL
);
COMMENT ON TABLE agents IS 'Accounts. Only the SHA-256 of a key is stored, so a stolen table gives access to no account.';
COMMENT ON COLUMN agents.previous_key_hash IS 'The hash of the key before the last rotation. That key gives no access to the account. A caller that lost the response with the new key can request that response again with it, until the new key is used. Kept after that, so that a caller with the old key learns that it was replaced.';
COMMENT ON COLUMN agents.key_payment IS 'The payment whose stored response holds the API key. Erased together with that response when the key is used for the first time.';
CREATE UNIQUE INDEX agents_previous_key ON agents (previous_key_hash) WHERE previous_key_hash IS NOT NULL;
-- The directory (store/search.go). A word of a query contains no space, so it never matches across the space between
-- name and description.
CREATE INDEX agents_search ON agents USING gin (fold_nfc(username || ' ' || description) gin_trgm_ops) WHERE is_discoverable;
CREATE INDEX agents_name ON agents (username text_pattern_ops) WHERE is_discoverable;
CREATE INDEX agents_newest ON agents (created_at DESC, id DESC) WHERE is_discoverable;

CREATE TABLE registrations (
    username   text        PRIMARY KEY CHECK (username ~ '^[a-z0-9_]{1,32}$'),
    tan_hash   bytea       NOT NULL CHECK (octet_length(tan_hash) = 32),
    payer      text        NOT NULL,
    expires_at timestamptz NOT NULL,
    claimed_by uuid,
    payment_id uuid
);
COMMENT ON TABLE registrations IS 'Usernames that are reserved until the account is created or the TAN expires.';
COMMENT ON COLUMN registrations.claimed_by IS 'The payment that settles for this registration. While it is set, the TAN does not expire and no other payment can use it, so that a paid create_account cannot be refused at the end.';
COMMENT ON COLUMN registrations.payment_id IS 'The payment whose stored response holds the TAN.';
-- A payment that is closed without effect releases its username.
CREATE INDEX registrations_claimed ON registrations (claimed_by) WHERE claimed_by IS NOT NULL;

CREATE TABLE blocks (
    blocker_id uuid        NOT NULL REFERENCES agents,
    blocked_id uuid        NOT NULL REFERENCES agents,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (blocker_id, blocked_id),
    CHECK (blocker_id <> blocked_id)
);
COMMENT ON TABLE blocks IS 'Blocks: blocker_id has blocked blocked_id.';
-- Whom an agent has blocked. The condition is always true, as that of memberships_banned is.
CREATE INDEX blocks_newest ON blocks (blocker_id, created_at) WHERE created_at > '-infinity';

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
    first_number    bigint      NOT NULL DEFAULT 1,
    oldest_at       timestamptz,
    erased_at       timestamptz,
    CHECK ((kind = 'private') = (admin_id IS NULL)),
    CHECK ((kind = 'private') = (name IS NULL)),
    CONSTRAINT conversations_first_number_check CHECK (first_number BETWEEN 1 AND last_number + 1)
);
COMMENT ON TABLE conversations IS 'Private chats, group chats and channels. One table for all kinds, so that messages, unread and search need no special cases.';
COMMENT ON COLUMN conversations.last_number IS 'The number of the newest message. It is incremented under the row lock, so the number order equals the commit order.';
COMMENT ON COLUMN conversations.deleted_at IS 'When the group chat or channel was deleted. Its rows stay, but no agent can use it.';
COMMENT ON COLUMN conversations.first_number IS 'The number of the oldest message that was not removed; last_number + 1 if there is none. Only the oldest messages are removed, so the numbers from first_number to last_number have no gaps.';
COMMENT ON COLUMN conversations.oldest_at IS 'No message of the conversation is older; NULL: none is older than the conversation. So most conversations need no look at their messages.';
COMMENT ON COLUMN conversations.erased_at IS 'When everything of a deleted group chat or channel was erased. The row stays: calls get 410, and last_number counts the messages that were sent.';
CREATE INDEX conversations_of_admin ON conversations (admin_id) WHERE kind = 'channel' AND deleted_at IS NULL;
-- The directories.
CREATE INDEX conversations_search ON conversations USING gin (kind, fold_nfc(name || ' ' || coalesce(description, '')) gin_trgm_ops)
    WHERE is_discoverable AND deleted_at IS NULL;
CREATE INDEX conversations_name ON conversations (kind, fold_nfc(name) text_pattern_ops) WHERE is_discoverable AND deleted_at IS NULL;
CREATE INDEX conversations_newest ON conversations (kind, created_at DESC, id DESC) WHERE is_discoverable AND deleted_at IS NULL;

CREATE TABLE private_pairs (
    low_agent       uuid NOT NULL REFERENCES agents,
    high_agent      uuid NOT NULL REFERENCES agents,
    conversation_id uuid NOT NULL UNIQUE REFERENCES conversations,
    PRIMARY KEY (low_agent, high_agent),
    CHECK (low_agent < high_agent)
);
COMMENT ON TABLE private_pairs IS 'The private chat of two different agents. There is exactly one, even if several sends run concurrently.';

CREATE TABLE memberships (
    conversation_id uuid        NOT NULL REFERENCES conversations,
    agent_id        uuid        NOT NULL REFERENCES agents,
    status          text        NOT NULL CHECK (status IN ('member', 'banned')),
    read_number     bigint      NOT NULL CHECK (read_number >= 0),
    joined_number   bigint      NOT NULL CHECK (joined_number >= 0),
    joined_at       timestamptz NOT NULL,
    unread_own      bigint      NOT NULL DEFAULT 0 CHECK (unread_own >= 0),
    quiet           boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (conversation_id, agent_id)
);
COMMENT ON TABLE memberships IS 'Members of chats, subscribers of channels, and banned agents.';
COMMENT ON COLUMN memberships.read_number IS 'The number of the newest message that the agent has read. It never decreases.';
COMMENT ON COLUMN memberships.unread_own IS 'The count of the agent''s own messages with a number above read_number. The number of unread messages is last_number - read_number - unread_own, so no query counts messages.';
COMMENT ON COLUMN memberships.quiet IS 'Another agent added this one to the group chat, and it has neither fetched its messages nor sent one since. What is unread there does not end a wait.';
CREATE INDEX memberships_of_agent ON memberships (agent_id) WHERE status = 'member';
-- Whom the admin has banned. The second condition is always true. Only a query that names it uses the index: whether an agent is banned is
-- looked up by the primary key, however many are.
CREATE INDEX memberships_banned ON memberships (conversation_id, joined_at) WHERE status = 'banned' AND joined_at > '-infinity';

CREATE TABLE messages (
    conversation_id uuid        NOT NULL REFERENCES conversations,
    number          bigint      NOT NULL CHECK (number > 0),
    id              uuid        NOT NULL,
    sender_id       uuid        NOT NULL REFERENCES agents,
    content         text        NOT NULL CHECK (char_length(content) BETWEEN 1 AND 16384),
    reply_to        uuid,
    about           jsonb,
    created_at      timestamptz NOT NULL,
    removed_at      timestamptz,
    PRIMARY KEY (conversation_id, number),
    CONSTRAINT messages_id UNIQUE (id, conversation_id)
);
COMMENT ON TABLE messages IS 'Messages. Numbers run 1, 2, 3 … in each conversation without gaps, so the newest n messages, page p, and all messages after a read marker are each one range.';
COMMENT ON COLUMN messages.reply_to IS 'The id of the message that this one answers. Retention can have removed that message, so it is no foreign key.';
COMMENT ON COLUMN messages.removed_at IS 'When the operator removed the content. The column content then has a fixed text.';
COMMENT ON COLUMN messages.about IS 'What the message is about, if the service wrote it in the name of the sender (store.About); otherwise NULL.';
-- New messages are indexed when their list is full, by the call that fills it. With the default of 4 MiB that call took over half a second
-- if the messages had many different characters. Less than 1 MiB makes ordinary messages cost more.
CREATE INDEX messages_search ON messages USING gin (conversation_id, fold(content) gin_trgm_ops) WITH (gin_pending_list_limit = 1024);
-- The few messages that are not under NFC. messages_search has all messages as they are, which for all others is the same text, so that no
-- send pays for a second index.
CREATE INDEX messages_not_nfc ON messages USING gin (conversation_id, fold_nfc(content) gin_trgm_ops) WITH (gin_pending_list_limit = 1024)
    WHERE content IS NOT NFC NORMALIZED;

CREATE TABLE reactions (
    conversation_id uuid        NOT NULL,
    number          bigint      NOT NULL,
    agent_id        uuid        NOT NULL REFERENCES agents,
    emoji           text        NOT NULL CHECK (char_length(emoji) BETWEEN 1 AND 32),
    created_at      timestamptz NOT NULL,
    PRIMARY KEY (conversation_id, number, agent_id),
    FOREIGN KEY (conversation_id, number) REFERENCES messages
);
COMMENT ON TABLE reactions IS 'The reaction of an agent to a message: one emoji.';

CREATE TABLE notices (
    agent_id        uuid        NOT NULL REFERENCES agents,
    number          bigint      GENERATED ALWAYS AS IDENTITY,
    type            text        NOT NULL CHECK (type IN ('added', 'removed', 'banned', 'made_admin', 'deleted')),
    conversation_id uuid        NOT NULL REFERENCES conversations,
    source_name     text        NOT NULL CHECK (char_length(source_name) BETWEEN 1 AND 64),
    actor_id        uuid        NOT NULL REFERENCES agents,
    created_at      timestamptz NOT NULL,
    PRIMARY KEY (agent_id, number)
);
COMMENT ON TABLE notices IS 'What actor_id did to agent_id in a group chat or channel, until the agent has read it.';
COMMENT ON COLUMN notices.source_name IS 'The name of the conversation at that time. An agent that was removed must not see later names.';

-- transaction is not unique, because a facilitator may put several transfers into one transaction.
CREATE TABLE payments (
    id                 uuid        NOT NULL,
    x402_version       smallint    NOT NULL CHECK (x402_version IN (1, 2)),
    scheme             text        NOT NULL,
    network            text,
    asset              text        CHECK (asset = lower(asset)),
    payer              text        NOT NULL CHECK (payer = lower(payer)),
    nonce              text        CHECK (nonce = lower(nonce)),
    pay_to             text        CHECK (pay_to = lower(pay_to)),
    amount             bigint      NOT NULL CHECK (amount > 0),
    valid_before       timestamptz NOT NULL,
    operation          text        NOT NULL,
    agent_id           uuid        REFERENCES agents,
    key_hash           bytea       CHECK (octet_length(key_hash) = 32),
    fingerprint        bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    signature_hash     bytea       NOT NULL CHECK (octet_length(signature_hash) = 32),
    payment_identifier text,
    idempotency_key    text,
    request            bytea,
    payload            bytea,
    payment_channel_id text,
    cumulative_amount  bigint      CHECK (cumulative_amount >= amount),
    deposit_amount     bigint      NOT NULL DEFAULT 0 CHECK (deposit_amount >= 0),
    state              text        NOT NULL CHECK (state IN ('settling', 'unknown', 'delivered', 'failed', 'undeliverable', 'deposited')),
    transaction        text        NOT NULL DEFAULT '',
    failure_reason     text        NOT NULL DEFAULT '',
    attempts           integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    lease_until        timestamptz NOT NULL,
    owner              integer,
    secret             boolean     NOT NULL DEFAULT false,
    response           bytea,
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    PRIMARY KEY (id, payer),
    CONSTRAINT payments_terms_check CHECK (CASE WHEN scheme = 'batch-settlement' AND deposit_amount = 0 AND state = 'delivered'
        THEN num_nonnulls(network, asset, nonce, pay_to) = 0 ELSE num_nonnulls(network, asset, nonce, pay_to) = 4 END),
    CONSTRAINT payments_open_check CHECK ((state IN ('settling', 'unknown')) = (payload IS NOT NULL AND request IS NOT NULL)),
    CONSTRAINT payments_failed_check CHECK (state <> 'failed' OR response IS NULL),
    CONSTRAINT payments_channel_check CHECK ((scheme = 'batch-settlement') = (payment_channel_id IS NOT NULL AND cumulative_amount IS NOT NULL)),
    CONSTRAINT payments_deposit_check CHECK (deposit_amount = 0 OR payment_channel_id IS NOT NULL),
    CONSTRAINT payments_deposited_check CHECK (state <> 'deposited' OR (deposit_amount > 0 AND response IS NULL))
)
-- A payload is read only after a crash and erased on delivery, so it stays in its row. By default PostgreSQL compresses
-- rows of more than 2 kB and moves values out of them, which takes longer than the rest of the insert.
WITH (toast_tuple_target = 8160);
ALTER TABLE payments ALTER COLUMN response SET STORAGE EXTERNAL; -- a long response is compressed already
COMMENT ON TABLE payments IS 'The ledger: one row for each x402 authorization, and for each voucher of a payment channel that was charged. Amounts are in atomic units of the asset.';
COMMENT ON COLUMN payments.nonce IS 'The nonce of the EIP-3009 authorization of a payment or of a deposit. NULL for a voucher, as network, asset and pay_to are: its payment channel has them (payment_records).';
COMMENT ON COLUMN payments.payment_channel_id IS 'The payment channel that pays; NULL with scheme exact. Not a broadcast channel.';
COMMENT ON COLUMN payments.cumulative_amount IS 'What the payment channel was charged in all after this payment: the amount of the voucher.';
COMMENT ON COLUMN payments.deposit_amount IS 'What the payment adds to the payment channel; 0 for a voucher alone and with scheme exact.';
COMMENT ON COLUMN payments.request IS 'The data that delivery after a crash needs. Erased when the payment is closed.';
COMMENT ON COLUMN payments.payload IS 'The data that settlement after a crash needs. Everyone who reads it can spend it. Erased when the payment is closed.';
COMMENT ON COLUMN payments.key_hash IS 'The hash of the API key of the caller. A rotation replaces only this key, also after a crash.';
COMMENT ON COLUMN payments.owner IS 'The server that works on the payment. While it is alive, it holds the advisory lock with this number (store/server_presence.go).';
COMMENT ON COLUMN payments.secret IS 'The response holds a TAN or an API key. The wallet that paid can request it again. It is erased when the secret is used, ten minutes after delivery at the latest.';
COMMENT ON COLUMN payments.idempotency_key IS 'SHA-256 of the Idempotency-Key of the call, without an account also of the address that signed. A failed payment keeps none.';
COMMENT ON COLUMN payments.response IS 'The response, without a TAN or API key that it had.';
-- Each authorization pays once, and each voucher is charged once.
CREATE UNIQUE INDEX payments_authorization ON payments (network, asset, payer, nonce) WHERE nonce IS NOT NULL;
CREATE UNIQUE INDEX payments_voucher ON payments (payment_channel_id, cumulative_amount, payer) WHERE nonce IS NULL;
CREATE UNIQUE INDEX payments_identifier ON payments (coalesce(agent_id::text, payer), operation, payment_identifier)
    WHERE payment_identifier IS NOT NULL;
CREATE UNIQUE INDEX payments_idempotency_key ON payments (coalesce(agent_id::text, payer), operation, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX payments_created ON payments (created_at, id);
CREATE INDEX payments_open ON payments (lease_until) WHERE state IN ('settling', 'unknown');
-- When each operation was last paid with scheme exact (Store.LastSettled).
CREATE INDEX payments_settled ON payments (operation, created_at) WHERE scheme = 'exact' AND state IN ('delivered', 'undeliverable');
CREATE INDEX payments_undeliverable ON payments (created_at) WHERE state = 'undeliverable';
CREATE INDEX payments_secret ON payments (payer, operation, created_at) WHERE secret;
-- A deposit carries a voucher. This index finds it by the voucher.
CREATE INDEX payments_deposits ON payments (payment_channel_id, cumulative_amount) WHERE deposit_amount > 0;
-- Data that is erased some time after its last change (store/payment_response.go).
CREATE INDEX payments_secret_responses ON payments (updated_at) WHERE secret AND response IS NOT NULL;
CREATE INDEX payments_long_responses ON payments (updated_at) WHERE octet_length(response) > 512;
CREATE INDEX payments_failed ON payments (updated_at) WHERE state = 'failed';

CREATE TABLE payment_channels (
    id                    text        NOT NULL CHECK (octet_length(id) = 66 AND id = lower(id)),
    payer                 text        NOT NULL CHECK (payer = lower(payer)),
    payer_authorizer      text        NOT NULL CHECK (payer_authorizer = lower(payer_authorizer)),
    network               text        NOT NULL,
    asset                 text        NOT NULL CHECK (asset = lower(asset)),
    pay_to                text        NOT NULL CHECK (pay_to = lower(pay_to)),
    receiver_authorizer   text        NOT NULL CHECK (receiver_authorizer = lower(receiver_authorizer)),
    withdraw_delay        bigint      NOT NULL CHECK (withdraw_delay > 0),
    salt                  text        NOT NULL,
    charged               bigint      NOT NULL CHECK (charged >= 0),
    signed_max            bigint      NOT NULL,
    signature             text        NOT NULL,
    balance               bigint      NOT NULL,
    claimed               bigint      NOT NULL CHECK (claimed >= 0),
    withdraw_requested_at bigint      NOT NULL CHECK (withdraw_requested_at >= 0),
    refund_nonce          bigint      NOT NULL CHECK (refund_nonce >= 0),
    synced_at             timestamptz NOT NULL,
    state                 text        NOT NULL CHECK (state IN ('open', 'depositing', 'refunding')),
    payment_id            uuid,
    refund_amount         bigint      NOT NULL DEFAULT 0,
    refunded_at           timestamptz,
    lease_until           timestamptz,
    unclaimed_since       timestamptz,
    claim_sum_reached     boolean     NOT NULL DEFAULT false,
    claim_after           timestamptz,
    used_at               timestamptz NOT NULL,
    idle_since            timestamptz,
    created_at            timestamptz NOT NULL,
    PRIMARY KEY (id, payer),
    CONSTRAINT payment_channels_sums_check CHECK (claimed <= charged AND claimed <= balance),
    CONSTRAINT payment_channels_unclaimed_check CHECK ((unclaimed_since IS NOT NULL) = (claimed < least(charged, balance))),
    CONSTRAINT payment_channels_newest_check CHECK (signed_max >= charged),
    CONSTRAINT payment_channels_deposit_check CHECK ((state = 'depositing') = (payment_id IS NOT NULL)),
    CONSTRAINT payment_channels_refund_check CHECK (CASE state WHEN 'refunding' THEN refund_amount > 0 AND lease_until IS NOT NULL ELSE refund_amount = 0 END)
);
COMMENT ON TABLE payment_channels IS 'Payment channels (x402 scheme batch-settlement): a deposit on the blockchain, from which vouchers pay. Never deleted after the first deposit, because charged is the base of all further vouchers. Amounts are in atomic units of the asset.';
COMMENT ON COLUMN payment_channels.id IS 'The hash of the columns from payer to salt, which therefore never change.';
COMMENT ON COLUMN payment_channels.charged IS 'What the delivered calls cost in all, and at least what was claimed on the blockchain.';
COMMENT ON COLUMN payment_channels.signed_max IS 'The amount of the newest voucher that was charged. With signature it is what the payee can claim.';
COMMENT ON COLUMN payment_channels.signature IS 'The signature of that voucher; empty if there is none, because the payment channel was found on the blockchain.';
COMMENT ON COLUMN payment_channels.balance IS 'On the blockchain at synced_at: deposits minus refunds and withdrawals. Claims do not lower it.';
COMMENT ON COLUMN payment_channels.claimed IS 'On the blockchain at synced_at: what the payee has claimed in all.';
COMMENT ON COLUMN payment_channels.withdraw_requested_at IS 'On the blockchain at synced_at: when the payer started a withdrawal, in Unix seconds, or 0. Meanwhile no voucher is accepted.';
COMMENT ON COLUMN payment_channels.payment_id IS 'The deposit that is being settled. Meanwhile no voucher is charged.';
COMMENT ON COLUMN payment_channels.refund_amount IS 'The refund that is being settled, signed for refund_nonce. Meanwhile no voucher is charged.';
COMMENT ON COLUMN payment_channels.refunded_at IS 'When the last refund began. Refunds cost the operator a transaction each, so the next one must wait.';
COMMENT ON COLUMN payment_channels.lease_until IS 'Until then a server settles the refund. After that any server may settle the same refund again.';
COMMENT ON COLUMN payment_channels.unclaimed_since IS 'When the oldest voucher was charged whose amount can be claimed and is not; NULL if there is none.';
COMMENT ON COLUMN payment_channels.claim_sum_reached IS 'What is unclaimed reached channel-claim-sum when a voucher was charged.';
COMMENT ON COLUMN payment_channels.claim_after IS 'Until then a server claims, or waits after a claim that failed.';
COMMENT ON COLUMN payment_channels.idle_since IS 'The payment channel was not used between used_at and this time, or used_at is later. NULL if nothing is left to refund. Charging leaves it alone: an index of used_at would be written with each call.';
-- A deposit that is closed without effect releases its payment channel.
CREATE INDEX payment_channels_depositing ON payment_channels (payment_id) WHERE payment_id IS NOT NULL;
CREATE INDEX payment_channels_unclaimed ON payment_channels (receiver_authorizer, pay_to, unclaimed_since) WHERE unclaimed_since IS NOT NULL;
-- Those that are claimed whatever their age (urgent in store/payment_channel_claim.go).
CREATE INDEX payment_channels_urgent ON payment_channels (receiver_authorizer, pay_to)
    WHERE unclaimed_since IS NOT NULL AND (claim_sum_reached OR withdraw_requested_at <> 0);
CREATE INDEX payment_channels_idle ON payment_channels (idle_since) WHERE idle_since IS NOT NULL;
CREATE INDEX payment_channels_refunding ON payment_channels (lease_until) WHERE state = 'refunding';

CREATE TABLE payment_channel_sums (
    network             text   NOT NULL,
    asset               text   NOT NULL,
    receiver_authorizer text   NOT NULL,
    pay_to              text   NOT NULL,
    channels            bigint NOT NULL,
    withdrawing         bigint NOT NULL,
    unclaimed           bigint NOT NULL,
    lost                bigint NOT NULL
);
COMMENT ON TABLE payment_channel_sums IS 'The sums over all rows are those of payment_channels. Each statement that changes payment channels adds a row with the differences, so it waits for no other; servers fold the rows every few seconds.';
COMMENT ON COLUMN payment_channel_sums.withdrawing IS 'How many payers withdraw.';
COMMENT ON COLUMN payment_channel_sums.unclaimed IS 'What was charged and can be claimed, and is not.';
COMMENT ON COLUMN payment_channel_sums.lost IS 'What was charged and is no longer in the payment channels.';

-- +goose StatementBegin
CREATE FUNCTION sum_payment_channels() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO payment_channel_sums (network, asset, receiver_authorizer, pay_to, channels, withdrawing, unclaimed, lost)
    SELECT network, asset, receiver_authorizer, pay_to, 0, sum(sign * withdrawing), sum(sign * (due - claimed)), sum(sign * (charged - due))
    FROM (
        SELECT 1 AS sign, network, asset, receiver_authorizer, pay_to, (withdraw_requested_at <> 0)::int AS withdrawing,
            least(charged, balance) AS due, claimed, charged FROM new_rows
        UNION ALL
        SELECT -1, network, asset, receiver_authorizer, pay_to, (withdraw_requested_at <> 0)::int, least(charged, balance), claimed, charged
        FROM old_rows
    ) r
    GROUP BY network, asset, receiver_authorizer, pay_to
    HAVING sum(sign * withdrawing) <> 0 OR sum(sign * (due - claimed)) <> 0 OR sum(sign * (charged - due)) <> 0;
    RETURN NULL;
END
$$;
CREATE FUNCTION count_payment_channel() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    c payment_channels := coalesce(NEW, OLD);
    sign int := CASE WHEN TG_OP = 'INSERT' THEN 1 ELSE -1 END;
BEGIN
    INSERT INTO payment_channel_sums (network, asset, receiver_authorizer, pay_to, channels, withdrawing, unclaimed, lost)
    VALUES (c.network, c.asset, c.receiver_authorizer, c.pay_to, sign, sign * (c.withdraw_requested_at <> 0)::int,
        sign * (least(c.charged, c.balance) - c.claimed), sign * (c.charged - least(c.charged, c.balance)));
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER payment_channels_summed AFTER UPDATE ON payment_channels
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION sum_payment_channels();
CREATE TRIGGER payment_channels_counted AFTER INSERT OR DELETE ON payment_channels FOR EACH ROW EXECUTE FUNCTION count_payment_channel();

CREATE VIEW payment_records AS
SELECT p.id, p.x402_version, p.scheme, coalesce(p.network, c.network) AS network, coalesce(p.asset, c.asset) AS asset, p.payer,
    coalesce(p.nonce, p.payment_channel_id || ':' || p.cumulative_amount) AS nonce, coalesce(p.pay_to, c.pay_to) AS pay_to, p.amount,
    p.valid_before, p.operation, p.agent_id, p.payment_identifier, p.idempotency_key, p.payment_channel_id, p.cumulative_amount,
    p.deposit_amount, p.state, p.transaction, p.failure_reason, p.attempts, p.lease_until, p.created_at, p.updated_at
FROM payments p LEFT JOIN payment_channels c ON c.id = p.payment_channel_id AND c.payer = p.payer AND p.nonce IS NULL;
COMMENT ON VIEW payment_records IS 'What an operator may see of payments (store.PaymentRecord). The nonce of a voucher is the id of its payment channel, a colon, and cumulative_amount.';

CREATE TABLE payment_channel_transactions (
    id                  uuid        NOT NULL PRIMARY KEY,
    kind                text        NOT NULL CHECK (kind IN ('claim', 'settle', 'refund')),
    network             text        NOT NULL,
    asset               text        NOT NULL CHECK (asset = lower(asset)),
    pay_to              text        NOT NULL CHECK (pay_to = lower(pay_to)),
    payment_channel_ids text[]      NOT NULL,
    claimed             bigint      NOT NULL CHECK (claimed >= 0),
    paid                bigint      NOT NULL CHECK (paid >= 0),
    transaction         text        NOT NULL,
    created_at          timestamptz NOT NULL,
    CONSTRAINT payment_channel_transactions_sums_check CHECK (CASE kind WHEN 'claim' THEN paid = 0 WHEN 'settle' THEN claimed = 0 ELSE true END)
);
COMMENT ON TABLE payment_channel_transactions IS 'What the server did with payment channels on the blockchain: claims, payouts to the payee (settle) and refunds to payers. Deposits are in payments.';
COMMENT ON COLUMN payment_channel_transactions.payment_channel_ids IS 'The payment channels of a claim or a refund. A payout has none.';
COMMENT ON COLUMN payment_channel_transactions.claimed IS 'By how much it raised what is claimed. A refund also claims.';
COMMENT ON COLUMN payment_channel_transactions.paid IS 'What it transferred: to the payee, or back to the payer.';
COMMENT ON COLUMN payment_channel_transactions.transaction IS 'The transaction hash; empty if the response of the facilitator was lost. Not unique: see payments.';
CREATE INDEX payment_channel_transactions_created ON payment_channel_transactions (created_at, id);

CREATE TABLE payment_channel_scans (
    network  text        NOT NULL PRIMARY KEY,
    block    bigint      NOT NULL CHECK (block >= 0),
    known_at timestamptz NOT NULL,
    taken_at timestamptz NOT NULL
);
COMMENT ON TABLE payment_channel_scans IS 'Up to where the events of payment channels on the blockchain are read, which tell of withdrawals. One server reads at a time, for all.';
COMMENT ON COLUMN payment_channel_scans.block IS 'The newest block that was read. Reading begins again some blocks before it, because the chain may reorganise.';
COMMENT ON COLUMN payment_channel_scans.known_at IS 'The time of the newest block of the chain when everything up to it was read. Vouchers are charged only while it is young.';
COMMENT ON COLUMN payment_channel_scans.taken_at IS 'When a server last began to read. If it dies, another one reads after the usual pause; two that read at once do no harm.';

-- Wrong TANs are counted for all servers together (store/registration_tan_tries.go).
CREATE TABLE tan_tries (
    key_hash bytea       PRIMARY KEY CHECK (octet_length(key_hash) = 32),
    wrong    integer     NOT NULL CHECK (wrong >= 0),
    checking integer     NOT NULL CHECK (checking >= 0),
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE tan_tries IS 'Tries of TANs by wallets and client addresses that could pay. A row is deleted some time after it has expired.';
COMMENT ON COLUMN tan_tries.key_hash IS 'SHA-256 of the wallet or of the address. A hash, because the database keeps no client addresses.';
COMMENT ON COLUMN tan_tries.checking IS 'Tries whose TAN is being checked. They count like wrong ones, so that concurrent tries cannot exceed the limit.';
CREATE INDEX tan_tries_expires_at ON tan_tries (expires_at);

-- What operators do: suspend and erase accounts, remove messages and conversations, refund payments. And the audit of it.

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

-- Which programs can work with the schema (store/schema.go).
CREATE TABLE schema_compat (
    oldest bigint NOT NULL CHECK (oldest > 0)
);
CREATE UNIQUE INDEX schema_compat_single ON schema_compat ((true));
COMMENT ON TABLE schema_compat IS 'One row: the schema version of the oldest program that can work with this schema. A migration that takes something away from older programs raises it.';
INSERT INTO schema_compat (oldest) VALUES (1);
