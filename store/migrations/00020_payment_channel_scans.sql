-- Up to which block the events of payment channels are read.

-- +goose Up

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
