-- Wrong TANs are counted for all servers together (store/registration_tan_tries.go).

-- +goose Up

CREATE TABLE tan_tries (
    key_hash bytea       PRIMARY KEY CHECK (octet_length(key_hash) = 32),
    wrong    integer     NOT NULL CHECK (wrong >= 0),
    checking integer     NOT NULL CHECK (checking >= 0),
    expires_at    timestamptz NOT NULL
);
COMMENT ON TABLE tan_tries IS 'Tries of TANs by wallets and client addresses that could pay. A row is deleted some time after it has expired.';
COMMENT ON COLUMN tan_tries.key_hash IS 'SHA-256 of the wallet or of the address. A hash, because the database keeps no client addresses.';
COMMENT ON COLUMN tan_tries.checking IS 'Tries whose TAN is being checked. They count like wrong ones, so that concurrent tries cannot exceed the limit.';
CREATE INDEX tan_tries_expires_at ON tan_tries (expires_at);
COMMENT ON COLUMN payments.response IS 'The response, without a TAN or API key that it had.';
