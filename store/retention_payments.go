package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// PaymentPage is a page of the ledger's oldest rows, in the order of their creation. After and Last are those of its last row.
type PaymentPage struct {
	Looked, Gone int64
	After        *time.Time
	Last         *uuid.UUID
}

// removePayments removes delivered vouchers, and adds them to the sums of their days. It keeps whatever can still have a consequence: other
// payments, secret responses, what was refunded by hand, and the voucher that was charged last to each payment channel. Without that row
// the cumulative amount of the payment channel still prevents a second charge. A row that changes meanwhile has another place, and stays.
const removePayments = `
	WITH page AS MATERIALIZED (
		SELECT p.ctid AS place, p.id, p.created_at, c.network, c.asset, c.pay_to, p.cumulative_amount < c.charged AND p.state = 'delivered'
			AND NOT p.secret AND NOT EXISTS (SELECT FROM refunds r WHERE r.payment_id = p.id AND r.payer = p.payer) AS goes
		FROM payments p LEFT JOIN payment_channels c ON c.id = p.payment_channel_id AND c.payer = p.payer AND p.nonce IS NULL
		WHERE (p.created_at, p.id) > (@after, @last) AND p.created_at < @before ORDER BY p.created_at, p.id LIMIT @limit
	), gone AS (
		DELETE FROM payments p USING page WHERE @remove AND page.goes AND p.ctid = page.place
		RETURNING date_trunc('day', p.created_at, 'UTC') AS day, p.operation, page.network, page.asset, page.pay_to, p.amount
	), summed AS (
		INSERT INTO removed_vouchers AS v (day, operation, network, asset, pay_to, calls, amount)
		SELECT day, operation, network, asset, pay_to, count(*), sum(amount) FROM gone GROUP BY day, operation, network, asset, pay_to
		ON CONFLICT (day, operation, network, asset, pay_to) DO UPDATE
			SET calls = v.calls + excluded.calls, amount = v.amount + excluded.amount
	)
	SELECT count(*) AS looked, count(*) FILTER (WHERE goes) AS gone, max(created_at) AS after,
		(SELECT id FROM page ORDER BY created_at DESC, id DESC LIMIT 1) AS last FROM page`

// Payments removes the vouchers that have outlived their retention among the next rows of the ledger, or counts them if dryRun is true. It
// returns nil after the last page. The first page is after an empty one.
func (w *Sweep) Payments(ctx context.Context, from PaymentPage, dryRun bool) (*PaymentPage, error) {
	after, last := time.Time{}, uuid.Nil
	if from.Last != nil {
		after, last = *from.After, *from.Last
	}
	rows, _ := w.connection.Query(ctx, removePayments, named{
		"after": after, "last": last, "before": w.payments, "limit": sweepPage, "remove": !dryRun,
	})
	page, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[PaymentPage])
	if err != nil || page.Looked == 0 {
		return nil, wrap("remove old payments", err)
	}
	return &page, nil
}
