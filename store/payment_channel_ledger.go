package store

import (
	"context"
	"database/sql/driver"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// The kinds of transactions of payment channels. Deposits are payments.
const (
	ChannelClaim  = "claim"
	ChannelSettle = "settle" // a payout to the payee of what is claimed
	ChannelRefund = "refund" // it also claims
)

// PaymentChannelTransaction is what the server did with payment channels on the blockchain. Claimed is by how much it raised what
// is claimed, and Paid what it transferred, in atomic units. Transaction is "" if the response of the facilitator was lost.
type PaymentChannelTransaction struct {
	ID                uuid.UUID
	Kind              string
	Network, Asset    string
	PayTo             string
	PaymentChannelIDs ChannelIDs `gorm:"column:payment_channel_ids"`
	Claimed, Paid     int64
	Transaction       string
	CreatedAt         time.Time
}

// ChannelIDs is a text[] column of ids, which have only hex digits.
type ChannelIDs []string

// Scan parses PostgreSQL's array text, {a,b}.
func (c *ChannelIDs) Scan(value any) error {
	items, err := arrayItems(value)
	*c = items
	return err
}

// Value writes PostgreSQL's array text.
func (c ChannelIDs) Value() (driver.Value, error) { return arrayText(c), nil }

// RecordChannelTransaction inserts a transaction that is confirmed. Its id and time are set here.
func (s *Store) RecordChannelTransaction(ctx context.Context, one *PaymentChannelTransaction) error {
	return s.recordChannelTransaction(ctx, one)
}

func (r *Reader) recordChannelTransaction(ctx context.Context, one *PaymentChannelTransaction) (err error) {
	defer wrapInto(&err, "record a transaction of payment channels")
	return r.gorm(ctx, &PaymentChannelTransaction{}).Create(map[string]any{
		"id": newID(), "kind": one.Kind, "network": one.Network, "asset": one.Asset, "pay_to": one.PayTo,
		"payment_channel_ids": one.PaymentChannelIDs, "claimed": one.Claimed, "paid": one.Paid, "transaction": one.Transaction,
		"created_at": gorm.Expr("now()"),
	}).Error
}

// ChannelFilter selects payment channels. Empty fields are ignored, and all others must match. Addresses and ids must be in lower
// case. Since and Until refer to the last use.
type ChannelFilter struct {
	ID, Payer             string
	States                []string
	Network, Asset, PayTo string
	Unclaimed             bool // with vouchers that are not claimed
	Withdrawing           bool
	Since, Until          time.Time
}

// PaymentChannels yields the payment channels that match the filter, those that were used last first. It runs several short
// queries, so it may or may not show a payment channel that is used meanwhile. After an error it stops.
func (s *Store) PaymentChannels(ctx context.Context, f ChannelFilter) iter.Seq2[PaymentChannel, error] {
	return allPages("list payment channels", func(last *PaymentChannel) *gorm.DB {
		c := match(s.gorm(ctx, &PaymentChannel{}).Order("used_at DESC, id DESC"),
			&PaymentChannel{ID: f.ID, Payer: f.Payer, Network: f.Network, Asset: f.Asset, PayTo: f.PayTo}, "used_at", f.Since, f.Until)
		c.add(f.States != nil, "state IN ?", f.States)
		c.add(f.Unclaimed, "unclaimed_since IS NOT NULL")
		c.add(f.Withdrawing, "withdraw_requested_at <> 0")
		if last != nil {
			c.add(true, "(used_at, id) < (?, ?)", last.UsedAt, last.ID)
		}
		return c.search
	})
}

// TransactionFilter selects transactions of payment channels. Empty fields are ignored, and all others must match.
type TransactionFilter struct {
	Channel               string
	Network, Asset, PayTo string
	Since, Until          time.Time
}

// ChannelTransactions returns the transactions that match the filter, oldest first.
func (s *Store) ChannelTransactions(ctx context.Context, filter TransactionFilter) (found []PaymentChannelTransaction, err error) {
	defer wrapInto(&err, "list transactions of payment channels")
	err = filter.apply(s.gorm(ctx, &PaymentChannelTransaction{})).Order("created_at, id").Find(&found).Error
	return found, err
}

func (f TransactionFilter) apply(search *gorm.DB) *gorm.DB {
	c := match(search, &PaymentChannelTransaction{Network: f.Network, Asset: f.Asset, PayTo: f.PayTo}, "created_at", f.Since, f.Until)
	c.add(f.Channel != "", "? = ANY(payment_channel_ids)", f.Channel)
	return c.search
}

// CountPaymentChannels counts the payment channels by state. Those with a withdrawal count as "withdrawing".
func (s *Store) CountPaymentChannels(ctx context.Context) (_ map[string]int64, err error) {
	defer wrapInto(&err, "count payment channels")
	counts, err := single(query[struct{ Channels, Withdrawing, Depositing, Refunding int64 }](ctx, s, `
		SELECT coalesce(sum(channels), 0)::bigint AS channels, coalesce(sum(withdrawing), 0)::bigint AS withdrawing,
			(SELECT count(*) FROM payment_channels WHERE payment_id IS NOT NULL AND withdraw_requested_at = 0) AS depositing,
			(SELECT count(*) FROM payment_channels WHERE state = 'refunding' AND withdraw_requested_at = 0) AS refunding
		FROM payment_channel_sums`, none))
	return map[string]int64{
		PaymentChannelOpen:       counts.Channels - counts.Withdrawing - counts.Depositing - counts.Refunding,
		PaymentChannelDepositing: counts.Depositing, PaymentChannelRefunding: counts.Refunding, "withdrawing": counts.Withdrawing,
	}, err
}

// SettlementSums are the transactions and amounts that brought the revenue of a period to the payee. Vouchers need no transaction.
type SettlementSums struct {
	Exact     PaymentSum `gorm:"embedded;embeddedPrefix:exact_"`
	Vouchers  PaymentSum `gorm:"embedded;embeddedPrefix:vouchers_"`
	Deposits  PaymentSum `gorm:"embedded;embeddedPrefix:deposits_"`
	Claims    PaymentSum `gorm:"embedded;embeddedPrefix:claims_"`
	Payouts   PaymentSum `gorm:"embedded;embeddedPrefix:payouts_"`
	Refunds   PaymentSum `gorm:"embedded;embeddedPrefix:refunds_"`
	Unclaimed PaymentSum `gorm:"-"` // of payment channels now
}

// SettlementSums sums up the period. A zero time is no limit.
func (s *Store) SettlementSums(ctx context.Context, since, until time.Time) (*SettlementSums, error) {
	sums := &SettlementSums{}
	err := s.withRemoved(ctx, PaymentFilter{Since: since, Until: until}).Select(strings.Join([]string{
		sumOf("exact", "calls", "amount", "payment_channel_id IS NULL AND state IN ('delivered', 'undeliverable')"),
		sumOf("vouchers", "calls", "amount", "payment_channel_id IS NOT NULL AND state = 'delivered'"),
		sumOf("deposits", "calls", "deposit_amount", "deposit_amount > 0 AND state IN ('delivered', 'deposited')"),
	}, ", ")).Take(sums).Error
	if err != nil {
		return nil, fmt.Errorf("add payments up: %w", err)
	}
	err = TransactionFilter{Since: since, Until: until}.apply(s.gorm(ctx, &PaymentChannelTransaction{})).
		Select(strings.Join([]string{ // refunds claim too
			"count(*) FILTER (WHERE kind = 'claim') AS claims_calls, CAST(coalesce(sum(claimed), 0) AS bigint) AS claims_amount",
			sumOf("payouts", "1", "paid", "kind = 'settle'"), sumOf("refunds", "1", "paid", "kind = 'refund'"),
		}, ", ")).Take(sums).Error
	if err != nil {
		return nil, fmt.Errorf("add transactions of payment channels up: %w", err)
	}
	err = s.gorm(ctx, &PaymentChannel{}).Where("unclaimed_since IS NOT NULL").
		Select("count(*) AS calls, CAST(coalesce(sum(least(charged, balance) - claimed), 0) AS bigint) AS amount").Take(&sums.Unclaimed).Error
	return sums, wrap("sum up unclaimed vouchers", err)
}
