-- What payment channels sum up to (Store.Unclaimed), without reading all of them, and what vouchers that were removed sum up to.

-- +goose Up

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

CREATE TABLE removed_vouchers (
    day       timestamptz NOT NULL,
    operation text        NOT NULL,
    network   text        NOT NULL,
    asset     text        NOT NULL,
    pay_to    text        NOT NULL,
    calls     bigint      NOT NULL,
    amount    bigint      NOT NULL,
    PRIMARY KEY (day, operation, network, asset, pay_to)
);
COMMENT ON TABLE removed_vouchers IS 'Delivered vouchers that retention removed from payments, by day (UTC) and operation. With payments they are all revenue. Kept for ever.';
