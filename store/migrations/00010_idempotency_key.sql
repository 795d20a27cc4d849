-- A call can have a name in the header Idempotency-Key, beside its payment identifier.

-- +goose Up

ALTER TABLE payments ADD COLUMN idempotency_key text;
COMMENT ON COLUMN payments.idempotency_key IS 'SHA-256 of the Idempotency-Key of the call, without an account also of the address that signed. A failed payment keeps none.';
