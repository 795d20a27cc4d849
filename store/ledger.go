package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// PaymentRecord is what an operator may see of a payment: all but what can be spent or was said. Amount is in atomic
// units of the asset; addresses and nonce are in lower case.
type PaymentRecord struct {
	ID                uuid.UUID
	X402Version       int16 `gorm:"column:x402_version"`
	Scheme            string
	Network           string
	Asset             string
	Payer             string
	Nonce             string
	PayTo             string
	Amount            int64
	ValidBefore       time.Time
	Operation         string
	AgentID           *uuid.UUID
	PaymentIdentifier *string
	State             string
	Transaction       string
	FailureReason     string
	Attempts          int
	LeaseUntil        time.Time
	CreatedAt         time.Time
	UpdatedAt         time.Time
}

// TableName is the ledger's. GORM selects the columns that the record has: never request, payload and response.
func (PaymentRecord) TableName() string { return "payments" }

// recordPage is how many records are in memory at a time.
const recordPage = 500

// PaymentFilter chooses payments. What is empty does not matter; everything else must hold. Addresses and nonces are
// lower-case. Since is the first moment of creation, Until the first one that is too late.
type PaymentFilter struct {
	States                              []string
	Operation                           string
	AgentID                             *uuid.UUID
	Network, Asset, PayTo, Payer, Nonce string
	Since, Until                        time.Time
	NewestFirst                         bool // where there is an order
}

// apply adds the filter to a search for payments.
func (f PaymentFilter) apply(search *gorm.DB) *gorm.DB {
	add := func(given bool, condition string, value any) {
		if given {
			search = search.Where(condition, value)
		}
	}
	add(f.States != nil, "state IN ?", f.States)
	add(f.Operation != "", "operation = ?", f.Operation)
	add(f.AgentID != nil, "agent_id = ?", f.AgentID)
	add(f.Network != "", "network = ?", f.Network)
	add(f.Asset != "", "asset = ?", f.Asset)
	add(f.PayTo != "", "pay_to = ?", f.PayTo)
	add(f.Payer != "", "payer = ?", f.Payer)
	add(f.Nonce != "", "nonce = ?", f.Nonce)
	add(!f.Since.IsZero(), "created_at >= ?", f.Since)
	add(!f.Until.IsZero(), "created_at < ?", f.Until)
	return search
}

// PaymentRecords yields the payments that pass the filter in the order in which they were begun, by any number of short
// queries: a payment that is begun or moved meanwhile may or may not be seen so. After an error nothing more comes.
func (s *Store) PaymentRecords(ctx context.Context, filter PaymentFilter) iter.Seq2[PaymentRecord, error] {
	return func(yield func(PaymentRecord, error) bool) {
		order, beyond := "created_at, id", "(created_at, id) > (?, ?)"
		if filter.NewestFirst {
			order, beyond = "created_at DESC, id DESC", "(created_at, id) < (?, ?)"
		}
		for last := (*PaymentRecord)(nil); ; {
			search := filter.apply(s.db.WithContext(ctx)).Order(order).Limit(recordPage)
			if last != nil {
				search = search.Where(beyond, last.CreatedAt, last.ID)
			}
			var page []PaymentRecord
			if err := search.Find(&page).Error; err != nil {
				yield(PaymentRecord{}, fmt.Errorf("list payments: %w", err))
				return
			}
			for _, record := range page {
				if !yield(record, nil) {
					return
				}
			}
			if len(page) < recordPage {
				return
			}
			last = &page[len(page)-1]
		}
	}
}

// PaymentRecord returns one payment, or nil.
func (s *Store) PaymentRecord(ctx context.Context, id uuid.UUID) (*PaymentRecord, error) {
	record, err := gorm.G[PaymentRecord](s.db).Where("id = ?", id).Take(ctx)
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look payment up: %w", err)
	}
	return &record, nil
}

// PaymentSum is a number of payments and their amount in atomic units.
type PaymentSum struct {
	Calls, Amount int64
}

// PaymentSums are the payments of one operation that were begun on one day (UTC), by what became of them. Open are
// those in the states settling and unknown.
type PaymentSums struct {
	Day           time.Time
	Operation     string
	Delivered     PaymentSum `gorm:"embedded;embeddedPrefix:delivered_"`
	Undeliverable PaymentSum `gorm:"embedded;embeddedPrefix:undeliverable_"`
	Failed        PaymentSum `gorm:"embedded;embeddedPrefix:failed_"`
	Open          PaymentSum `gorm:"embedded;embeddedPrefix:open_"`
}

// PaymentSums adds the payments up that pass the filter, by day and operation.
func (s *Store) PaymentSums(ctx context.Context, filter PaymentFilter) ([]PaymentSums, error) {
	sum := func(name, states string) string {
		return fmt.Sprintf(`count(*) FILTER (WHERE state IN (%[2]s)) AS %[1]s_calls,
			CAST(coalesce(sum(amount) FILTER (WHERE state IN (%[2]s)), 0) AS bigint) AS %[1]s_amount`, name, states)
	}
	var sums []PaymentSums
	err := filter.apply(s.gorm(ctx, &Payment{})).Select(strings.Join([]string{
		"date_trunc('day', created_at, 'UTC') AS day, operation", sum("delivered", `'delivered'`), sum("undeliverable", `'undeliverable'`),
		sum("failed", `'failed'`), sum("open", `'settling', 'unknown'`),
	}, ", ")).Group("day, operation").Order("day, operation").Find(&sums).Error
	if err != nil {
		return nil, fmt.Errorf("add payments up: %w", err)
	}
	return sums, nil
}

// PaymentTerms say in what payments were made, and to whom.
type PaymentTerms struct {
	Network, Asset, PayTo string
}

// PaymentTerms returns the different terms of all payments.
func (s *Store) PaymentTerms(ctx context.Context) ([]PaymentTerms, error) {
	var terms []PaymentTerms
	err := s.gorm(ctx, &Payment{}).Distinct("network", "asset", "pay_to").Order("network, asset, pay_to").Find(&terms).Error
	if err != nil {
		return nil, fmt.Errorf("list payment terms: %w", err)
	}
	return terms, nil
}

// ResolveSettled records that a payment of unknown outcome was settled in this transaction, 0x and 64 hex digits, as somebody
// has seen on the chain. It is free to be taken up at once: an open payment with a transaction is not settled again.
// ErrStalePayment if its outcome is not unknown, or a server is at it.
func (s *Store) ResolveSettled(ctx context.Context, id uuid.UUID, transaction string) error {
	changes := map[string]any{"transaction": transaction, "lease_until": gorm.Expr("now()")}
	return s.movePayment(ctx, id, changes, "state = 'unknown' AND owner IS NULL")
}

// ResolveFailed closes a payment of unknown outcome that, as somebody has seen on the chain, was not settled and never can
// be. ErrStalePayment if its outcome is not unknown, or known to be settled, or a server is at it.
func (s *Store) ResolveFailed(ctx context.Context, id uuid.UUID, reason string) error {
	return s.failPayment(ctx, id, reason, "state = 'unknown' AND owner IS NULL AND transaction = ''")
}
