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

// recordColumns are the fields of PaymentRecord: never request, payload and answer.
const recordColumns = `id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id,
	payment_identifier, state, transaction, failure_reason, attempts, lease_until, created_at, updated_at`

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

// where is the filter as a condition with named values.
func (f PaymentFilter) where() (string, map[string]any) {
	conditions, values := []string{"true"}, map[string]any{}
	add := func(given bool, condition, name string, value any) {
		if given {
			conditions = append(conditions, condition)
			values[name] = value
		}
	}
	add(f.States != nil, "state = ANY (CAST(@states AS text[]))", "states", texts(f.States))
	add(f.Operation != "", "operation = @operation", "operation", f.Operation)
	add(f.AgentID != nil, "agent_id = @agent", "agent", f.AgentID)
	add(f.Network != "", "network = @network", "network", f.Network)
	add(f.Asset != "", "asset = @asset", "asset", f.Asset)
	add(f.PayTo != "", "pay_to = @payee", "payee", f.PayTo)
	add(f.Payer != "", "payer = @payer", "payer", f.Payer)
	add(f.Nonce != "", "nonce = @nonce", "nonce", f.Nonce)
	add(!f.Since.IsZero(), "created_at >= @since", "since", f.Since)
	add(!f.Until.IsZero(), "created_at < @until", "until", f.Until)
	return strings.Join(conditions, " AND "), values
}

// PaymentRecords yields the payments that pass the filter in the order in which they were begun, by any number of short
// queries: a payment that is begun or moved meanwhile may or may not be seen so. After an error nothing more comes.
func (s *Store) PaymentRecords(ctx context.Context, filter PaymentFilter) iter.Seq2[PaymentRecord, error] {
	return func(yield func(PaymentRecord, error) bool) {
		where, values := filter.where()
		direction, beyond := "ASC", ">"
		if filter.NewestFirst {
			direction, beyond = "DESC", "<"
		}
		values["page"] = recordPage
		after := ""
		for {
			page, err := gorm.G[PaymentRecord](s.db).Raw(`SELECT `+recordColumns+` FROM payments WHERE `+where+after+
				` ORDER BY created_at `+direction+`, id `+direction+` LIMIT @page`, values).Find(ctx)
			if err != nil {
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
			last := page[len(page)-1]
			after = " AND (created_at, id) " + beyond + " (@last_created, @last_id)"
			values["last_created"], values["last_id"] = last.CreatedAt, last.ID
		}
	}
}

// PaymentRecord returns one payment, or nil.
func (s *Store) PaymentRecord(ctx context.Context, id uuid.UUID) (*PaymentRecord, error) {
	record, err := gorm.G[PaymentRecord](s.db).Raw(`SELECT `+recordColumns+` FROM payments WHERE id = ?`, id).Take(ctx)
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
	where, values := filter.where()
	values["zone"] = "UTC"
	sum := func(name, states string) string {
		return fmt.Sprintf(`count(*) FILTER (WHERE state IN (%[2]s)) AS %[1]s_calls,
			CAST(coalesce(sum(amount) FILTER (WHERE state IN (%[2]s)), 0) AS bigint) AS %[1]s_amount`, name, states)
	}
	sums, err := gorm.G[PaymentSums](s.db).Raw(`
		SELECT date_trunc('day', created_at, @zone) AS day, operation, `+strings.Join([]string{
		sum("delivered", `'delivered'`), sum("undeliverable", `'undeliverable'`), sum("failed", `'failed'`),
		sum("open", `'settling', 'unknown'`),
	}, ", ")+` FROM payments WHERE `+where+` GROUP BY day, operation ORDER BY day, operation`, values).Find(ctx)
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
	terms, err := gorm.G[PaymentTerms](s.db).Raw(`SELECT DISTINCT network, asset, pay_to FROM payments ORDER BY network, asset, pay_to`).Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("list payment terms: %w", err)
	}
	return terms, nil
}

// ResolveSettled records that a payment of unknown outcome was settled in this transaction, 0x and 64 hex digits, as somebody
// has seen on the chain. It is free to be taken up at once: an open payment with a transaction is not settled again.
// ErrPaymentMoved if its outcome is not unknown, or a server is at it.
func (s *Store) ResolveSettled(ctx context.Context, id uuid.UUID, transaction string) error {
	return s.movePayment(ctx, `UPDATE payments SET transaction = @transaction, lease_until = now(), updated_at = now()
		WHERE id = @id AND state = 'unknown' AND owner IS NULL RETURNING id`, map[string]any{"id": id, "transaction": transaction})
}

// ResolveFailed closes a payment of unknown outcome that, as somebody has seen on the chain, was not settled and never can
// be. ErrPaymentMoved if its outcome is not unknown, or known to be settled, or a server is at it.
func (s *Store) ResolveFailed(ctx context.Context, id uuid.UUID, reason string) error {
	return s.movePayment(ctx, `
		WITH moved AS (
			UPDATE payments SET state = 'failed', failure_reason = @reason, payment_identifier = NULL, `+forget+`
			WHERE id = @id AND state = 'unknown' AND owner IS NULL AND transaction = '' RETURNING id
		)`+release, map[string]any{"id": id, "reason": reason})
}
