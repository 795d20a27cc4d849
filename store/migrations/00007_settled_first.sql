-- +goose Up

-- Every payment settles before its effect: nothing is owed any more. No release could write these rows.
DELETE FROM payments WHERE state IN ('owed', 'defaulted');
DROP TABLE deferred_payers, deferred_totals;
ALTER TABLE payments
    DROP CONSTRAINT payments_shard,
    DROP COLUMN shard,
    DROP COLUMN unclear_at, -- only the chain says now whether an earlier attempt has moved the money
    DROP CONSTRAINT payments_state_check,
    ADD CONSTRAINT payments_state_check CHECK (state IN ('settling', 'unknown', 'delivered', 'failed', 'undeliverable')),
    DROP CONSTRAINT payments_request,
    DROP CONSTRAINT payments_check,
    ADD CONSTRAINT payments_open_check CHECK ((state IN ('settling', 'unknown')) = (payload IS NOT NULL AND request IS NOT NULL));
DROP INDEX payments_open;
CREATE INDEX payments_open ON payments (lease_until) WHERE state IN ('settling', 'unknown');

-- secret marks a payment whose response holds a TAN or an API key. Its response is found by the wallet that paid, and is
-- erased when the secret has served, ten minutes after delivery at the latest (store/response.go).
ALTER TABLE payments ADD COLUMN secret boolean NOT NULL DEFAULT false;
CREATE INDEX payments_secret ON payments (payer, operation, created_at) WHERE secret;
CREATE INDEX payments_secret_responses ON payments (updated_at) WHERE secret AND answer IS NOT NULL;

-- Long responses are erased some time after delivery, whatever validity the payer chose. Failed payments are forgotten.
DROP INDEX payments_answers;
CREATE INDEX payments_answers ON payments (updated_at) WHERE octet_length(answer) > 512;
CREATE INDEX payments_failed ON payments (updated_at) WHERE state = 'failed';

-- Wrong TANs count against the wallet and the address that try them. payment_id is the payment whose response holds the TAN.
ALTER TABLE registrations DROP COLUMN tries_left, ADD COLUMN payment_id uuid;

-- key_payment is the payment whose stored response holds the agent's API key; it is cleared, with the response and the
-- previous key, as soon as the key is used.
ALTER TABLE agents ADD COLUMN key_payment uuid;

-- A payment's payload is read only after a crash and erased on delivery, so it is kept in its row: to compress it and to
-- store it elsewhere, which PostgreSQL does from 2 kB on, takes longer than the rest of the insert.
ALTER TABLE payments SET (toast_tuple_target = 8160);
