package store

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// PaymentFilter selects payments. Empty fields are ignored, and all others must match. Addresses must be in lower
// case. Since is inclusive and Until is exclusive; both refer to the time of creation.
type PaymentFilter struct {
	States                       []string
	Operation                    string
	AgentID                      *uuid.UUID
	Scheme                       string
	Channel                      string // the id of a payment channel
	Network, Asset, PayTo, Payer string
	Since, Until                 time.Time
	NewestFirst                  bool // for calls that return an order
}

// apply adds the filter to a query for payments.
func (f PaymentFilter) apply(search *gorm.DB) *gorm.DB {
	c := match(search, &PaymentRecord{
		Operation: f.Operation, AgentID: f.AgentID, Scheme: f.Scheme, Network: f.Network, Asset: f.Asset, PayTo: f.PayTo, Payer: f.Payer,
	}, "created_at", f.Since, f.Until)
	c.add(f.States != nil, "state IN ?", f.States)
	c.add(f.Channel != "", "payment_channel_id = ?", f.Channel)
	return c.search
}

// PaymentRecords yields the payments that match the filter, in the order in which they were begun. It runs several
// short queries, so it may or may not show a payment that is begun or changed meanwhile. After an error it stops.
func (s *Store) PaymentRecords(ctx context.Context, filter PaymentFilter) iter.Seq2[PaymentRecord, error] {
	order, beyond := "created_at, id", "(created_at, id) > (?, ?)"
	if filter.NewestFirst {
		order, beyond = "created_at DESC, id DESC", "(created_at, id) < (?, ?)"
	}
	return allPages("list payments", func(last *PaymentRecord) *gorm.DB {
		search := filter.apply(s.db.WithContext(ctx)).Order(order)
		if last != nil {
			search = search.Where(beyond, last.CreatedAt, last.ID)
		}
		return search
	}, func(page []PaymentRecord) error { return s.addRefunds(ctx, page) })
}

// PaymentRecord returns one payment, or nil.
func (s *Store) PaymentRecord(ctx context.Context, id uuid.UUID) (_ *PaymentRecord, err error) {
	defer wrapInto(&err, "look payment up")
	found, err := gorm.G[PaymentRecord](s.db).Where("id = ?", id).Find(ctx)
	if err == nil {
		err = s.addRefunds(ctx, found)
	}
	return first(found, err)
}

// PaymentSum is a number of payments and their amount in atomic units.
type PaymentSum struct {
	Calls, Amount int64
}

// sumOf returns the columns of a PaymentSum of the rows for which the condition holds. Each row stands for a number of calls.
func sumOf(name, calls, amount, condition string) string {
	return fmt.Sprintf(`CAST(coalesce(sum(%[2]s) FILTER (WHERE %[4]s), 0) AS bigint) AS %[1]s_calls,
		CAST(coalesce(sum(%[3]s) FILTER (WHERE %[4]s), 0) AS bigint) AS %[1]s_amount`, name, calls, amount, condition)
}

// PaymentSums are the payments of one operation that were begun on one day (UTC), by state. Open counts those in the
// states settling and unknown. Deposited counts deposits into payment channels whose call was rejected: nothing was charged, so its
// amount is that of the deposits. Refunded counts those of the delivered and undeliverable payments that the operator has refunded by
// hand, with the amount that was given back.
type PaymentSums struct {
	Day           time.Time
	Operation     string
	Delivered     PaymentSum `gorm:"embedded;embeddedPrefix:delivered_"`
	Undeliverable PaymentSum `gorm:"embedded;embeddedPrefix:undeliverable_"`
	Failed        PaymentSum `gorm:"embedded;embeddedPrefix:failed_"`
	Open          PaymentSum `gorm:"embedded;embeddedPrefix:open_"`
	Deposited     PaymentSum `gorm:"embedded;embeddedPrefix:deposited_"`
	Refunded      PaymentSum `gorm:"embedded;embeddedPrefix:refunded_"`
}

// refundOf is what the operator gave back of a payment, or NULL.
const refundOf = "(SELECT r.amount FROM refunds r WHERE r.payment_id = payment_records.id AND r.payer = payment_records.payer)"

// PaymentSums sums the payments that match the filter, by day and operation.
func (s *Store) PaymentSums(ctx context.Context, filter PaymentFilter) (sums []PaymentSums, err error) {
	defer wrapInto(&err, "add payments up")
	err = filter.apply(s.gorm(ctx, &PaymentRecord{})).Select(strings.Join([]string{
		"date_trunc('day', created_at, 'UTC') AS day, operation", sumOf("delivered", "1", "amount", "state = 'delivered'"),
		sumOf("undeliverable", "1", "amount", "state = 'undeliverable'"), sumOf("failed", "1", "amount", "state = 'failed'"),
		sumOf("open", "1", "amount", "state IN ('settling', 'unknown')"),
		sumOf("deposited", "1", "deposit_amount", "state = 'deposited'"),
		"count(" + refundOf + ") AS refunded_calls, CAST(coalesce(sum(" + refundOf + "), 0) AS bigint) AS refunded_amount",
	}, ", ")).Group("day, operation").Order("day, operation").Find(&sums).Error
	return sums, err
}

// LastSettled returns how long ago the facilitator settled a payment of scheme exact for each of the operations, and nothing for
// operations for which it never did. Vouchers do not reach it. Deposits do not count: not all catalogues take them.
func (s *Store) LastSettled(ctx context.Context, operations []string) (_ map[string]time.Duration, err error) {
	defer wrapInto(&err, "look for the last settlements")
	// The condition has the exact text of the condition of a partial index, so that the planner can use the index.
	rows, err := query[struct {
		Operation string
		Age       time.Duration
	}](ctx, s, `
		SELECT o.operation, now() - last.created_at AS age FROM unnest(CAST(@operations AS text[])) AS o (operation) CROSS JOIN LATERAL (
			SELECT p.created_at FROM payments p
			WHERE p.operation = o.operation AND p.scheme = 'exact' AND p.state IN ('delivered', 'undeliverable')
			ORDER BY p.created_at DESC LIMIT 1) AS last`, named{"operations": operations})
	ages := map[string]time.Duration{}
	for _, row := range rows {
		ages[row.Operation] = row.Age
	}
	return ages, err
}

// PaymentTerms are the network, asset and payee of payments.
type PaymentTerms struct {
	Network, Asset, PayTo string
}

// PaymentTerms returns the distinct terms of all payments.
func (s *Store) PaymentTerms(ctx context.Context) (_ []PaymentTerms, err error) {
	defer wrapInto(&err, "list payment terms")
	return query[PaymentTerms](ctx, s, `SELECT network, asset, pay_to FROM payments WHERE nonce IS NOT NULL
		UNION SELECT network, asset, pay_to FROM payment_channel_sums ORDER BY network, asset, pay_to`, none)
}

// ResolveSettled records that a payment with unknown outcome was settled in this transaction (0x and 64 hex digits),
// which the operator has checked on the chain. The payment can be claimed at once. An open payment with a transaction
// is not settled again. It returns ErrStalePayment if the outcome is not unknown or a server works on the payment.
func (s *Store) ResolveSettled(ctx context.Context, by Operator, id uuid.UUID, transaction string) error {
	return s.resolve(ctx, by, id, "settled in "+transaction, func(tx *Tx) error {
		changes := map[string]any{"transaction": transaction, "lease_until": gorm.Expr("now()")}
		return tx.changePayment(ctx, id, changes, "state = 'unknown' AND owner IS NULL")
	})
}

// ResolveFailed closes a payment with unknown outcome. The operator has checked on the chain that it was not settled
// and never can be. It returns ErrStalePayment if the outcome is not unknown, if the payment is known to be settled, or
// if a server works on it.
func (s *Store) ResolveFailed(ctx context.Context, by Operator, id uuid.UUID, reason string) error {
	return s.resolve(ctx, by, id, "not settled", func(tx *Tx) error {
		return tx.closePayment(ctx, id, asFailed(reason), "state = 'unknown' AND owner IS NULL AND transaction = ''")
	})
}

func (s *Store) resolve(ctx context.Context, by Operator, id uuid.UUID, outcome string, change func(tx *Tx) error) error {
	entry := AuditEntry{Action: "payments.resolve", TargetKind: TargetPayment, TargetID: id, Details: map[string]any{"outcome": outcome}}
	return s.audited(ctx, by, entry, func(tx *Tx, _ *AuditEntry) error { return change(tx) })
}

// Refunds returns all refunds of payments with these terms.
func (s *Store) Refunds(ctx context.Context, terms PaymentTerms) (refunds []Refund, err error) {
	defer wrapInto(&err, "list refunds")
	err = s.gorm(ctx, &Refund{}).Joins("JOIN payment_records p ON p.id = refunds.payment_id AND p.payer = refunds.payer").
		Where("p.network = ? AND p.asset = ? AND p.pay_to = ?", terms.Network, terms.Asset,
			terms.PayTo).Order("refunds.created_at").Find(&refunds).Error
	return refunds, err
}

// addRefunds completes the records with their refunds.
func (s *Store) addRefunds(ctx context.Context, records []PaymentRecord) error {
	ids := make([]uuid.UUID, len(records))
	for i, record := range records {
		ids[i] = record.ID
	}
	refunds, err := gorm.G[Refund](s.db).Where("payment_id = ANY (?)", UUIDs(ids)).Find(ctx)
	if err != nil {
		return fmt.Errorf("list refunds: %w", err)
	}
	of := map[uuid.UUID]*Refund{}
	for i := range refunds {
		of[refunds[i].PaymentID] = &refunds[i]
	}
	for i := range records {
		records[i].Refund = of[records[i].ID]
	}
	return nil
}
