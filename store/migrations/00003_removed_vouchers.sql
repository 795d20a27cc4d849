-- What the vouchers that retention removed sum up to (Store.PaymentSums).

-- +goose Up

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
