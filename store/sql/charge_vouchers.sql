-- Charges vouchers, records their payments as delivered, and returns the payment channels as charged. The statement waits for no lock, so it
-- cannot deadlock: what is locked needs a transaction of its own.
--
--   due       locks the payment channels that the vouchers fit. A row lock reads the current version of the row, so what voucher_fits
--             (migrations/00002_rules.sql) says holds until the transaction ends.
--   recorded  are the payments, unless the payment identifier or the key is in the ledger. The order is fixed, as two servers may insert
--             the same identifiers.
WITH item AS (
    SELECT payment, channel, channel_payer, price, cumulative, max_unclaimed, claim_sum, signature, operation, account, fingerprint,
        signature_hash, identifier, idempotency_key, secret, response, n
    FROM unnest(
        (SELECT CAST(@payment AS uuid[])), (SELECT CAST(@channel AS text[])), (SELECT CAST(@channel_payer AS text[])),
        (SELECT CAST(@price AS bigint[])), (SELECT CAST(@cumulative AS bigint[])), (SELECT CAST(@max_unclaimed AS bigint[])),
        (SELECT CAST(@claim_sum AS bigint[])), (SELECT CAST(@signature AS text[])), (SELECT CAST(@operation AS text[])),
        (SELECT CAST(@account AS uuid[])), (SELECT CAST(@fingerprint AS bytea[])), (SELECT CAST(@signature_hash AS bytea[])),
        (SELECT CAST(@identifier AS text[])), (SELECT CAST(@idempotency_key AS text[])), (SELECT CAST(@secret AS boolean[])),
        (SELECT CAST(@response AS bytea[]))
    ) WITH ORDINALITY AS i (payment, channel, channel_payer, price, cumulative, max_unclaimed, claim_sum, signature, operation, account,
        fingerprint, signature_hash, identifier, idempotency_key, secret, response, n)
), due AS MATERIALIZED (
    SELECT i.* FROM item i CROSS JOIN LATERAL (
        SELECT FROM payment_channels c
        WHERE c.id = i.channel AND c.payer = i.channel_payer AND voucher_fits(c, i.price, i.cumulative, i.max_unclaimed)
        FOR NO KEY UPDATE SKIP LOCKED
    ) p
), recorded AS (
    INSERT INTO payments (id, x402_version, scheme, payer, amount, valid_before, operation, agent_id,
        fingerprint, signature_hash, payment_identifier, idempotency_key, payment_channel_id, cumulative_amount, state, lease_until,
        secret, response, created_at, updated_at)
    SELECT payment, 2, 'batch-settlement', channel_payer, price, now(), operation,
        account, fingerprint, signature_hash, identifier, idempotency_key, channel, cumulative, 'delivered', now(),
        secret, response, now(), now()
    FROM due
    ORDER BY account, operation, identifier, idempotency_key ON CONFLICT DO NOTHING RETURNING id
), closed AS (
    UPDATE payment_channels c SET charged = d.cumulative, signed_max = d.cumulative, signature = d.signature, used_at = now(),
        unclaimed_since = coalesce(c.unclaimed_since, now()),
        claim_sum_reached = c.claim_sum_reached OR d.cumulative - c.claimed >= d.claim_sum
    FROM due d JOIN recorded r ON r.id = d.payment
    WHERE c.id = d.channel AND c.payer = d.channel_payer
    RETURNING d.n, d.payment AS id, c.balance, c.claimed, c.refund_nonce
)
SELECT id, balance, claimed, refund_nonce FROM closed
