-- Inserts payments that begin, and returns those that were not in the ledger yet. The order is fixed, so that two statements that insert the
-- same payments cannot deadlock. The start time and the lease use the clock of the database.
INSERT INTO payments (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id, key_hash,
    fingerprint, signature_hash, payment_identifier, idempotency_key, request, payload, payment_channel_id, cumulative_amount, secret,
    deposit_amount, state, attempts, owner, lease_until, created_at, updated_at)
SELECT id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id, key_hash,
    fingerprint, signature_hash, payment_identifier, idempotency_key, request, payload, payment_channel_id, cumulative_amount, secret,
    deposit_amount, 'settling', 1, @owner, now() + lease, now(), now()
FROM unnest(
    (SELECT CAST(@id AS uuid[])), (SELECT CAST(@x402_version AS smallint[])), (SELECT CAST(@scheme AS text[])),
    (SELECT CAST(@network AS text[])), (SELECT CAST(@asset AS text[])), (SELECT CAST(@payer AS text[])),
    (SELECT CAST(@nonce AS text[])), (SELECT CAST(@pay_to AS text[])), (SELECT CAST(@amount AS bigint[])),
    (SELECT CAST(@valid_before AS timestamptz[])), (SELECT CAST(@operation AS text[])), (SELECT CAST(@agent_id AS uuid[])),
    (SELECT CAST(@key_hash AS bytea[])), (SELECT CAST(@fingerprint AS bytea[])), (SELECT CAST(@signature_hash AS bytea[])),
    (SELECT CAST(@payment_identifier AS text[])), (SELECT CAST(@idempotency_key AS text[])), (SELECT CAST(@request AS bytea[])),
    (SELECT CAST(@payload AS bytea[])), (SELECT CAST(@payment_channel_id AS text[])), (SELECT CAST(@cumulative_amount AS bigint[])),
    (SELECT CAST(@secret AS boolean[])), (SELECT CAST(@deposit_amount AS bigint[])), (SELECT CAST(@lease AS interval[]))
) AS p (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id, key_hash,
    fingerprint, signature_hash, payment_identifier, idempotency_key, request, payload, payment_channel_id, cumulative_amount, secret,
    deposit_amount, lease)
ORDER BY payer, nonce ON CONFLICT DO NOTHING RETURNING id, created_at
