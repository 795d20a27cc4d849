-- +goose Up

-- owner is the server that is working on the payment. A server that lives holds the advisory lock of that number
-- (store/presence.go), so the others see at once which rows belong to nobody any more.
-- unclear_at is when the newest attempt ended whose outcome nobody knows: a later refusal only counts when that one
-- cannot be under way any more.
-- key_hash is the API key that the caller came with. It is needed to replace just that key, after a crash too.
ALTER TABLE payments
    ADD COLUMN owner integer,
    ADD COLUMN unclear_at timestamptz,
    ADD COLUMN key_hash bytea CHECK (octet_length(key_hash) = 32),
    ADD COLUMN shard smallint;

-- What is owed has been delivered: only the money is missing, so the payload is kept and the request is not.
ALTER TABLE payments
    DROP CONSTRAINT payments_check1,
    ADD CONSTRAINT payments_request CHECK ((state IN ('settling', 'unknown')) = (request IS NOT NULL)),
    ADD CONSTRAINT payments_shard CHECK ((state = 'owed') = (shard IS NOT NULL));

CREATE INDEX payments_undeliverable ON payments (created_at) WHERE state = 'undeliverable';
CREATE INDEX payments_created ON payments (created_at, id);

-- Deferred settlement. owed is the sum of the payer's payments in state owed; defaulted is what failed to settle and
-- has not been paid since: as long as it is above zero the payer is served only after settlement.
CREATE TABLE deferred_payers (
    network   text   NOT NULL,
    asset     text   NOT NULL,
    payer     text   NOT NULL,
    owed      bigint NOT NULL CHECK (owed >= 0),
    defaulted bigint NOT NULL DEFAULT 0 CHECK (defaulted >= 0),
    PRIMARY KEY (network, asset, payer)
);

-- The sum of all that is owed, in parts: one row would make every call wait for the commit of the one before it.
CREATE TABLE deferred_totals (
    shard smallint PRIMARY KEY,
    owed  bigint   NOT NULL DEFAULT 0 CHECK (owed >= 0)
);
INSERT INTO deferred_totals (shard) SELECT generate_series(0, 15);
