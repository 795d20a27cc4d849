package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Refunded is the failure reason of an undeliverable payment that the operator has refunded. It cannot be redeemed any more.
const Refunded = "refunded"

// Errors of RecordRefund.
var (
	ErrRefunded     = errors.New("this payment is refunded already, or this transaction has refunded another payment of the payer")
	ErrNothingTaken = errors.New("only a delivered or undeliverable payment can be refunded: no money was taken for this one")
)

// Refund is a transfer with which the operator gave the money of a payment back, or a part of it.
type Refund struct {
	Payer       string
	PaymentID   uuid.UUID
	Amount      int64 // in atomic units
	Transaction string
	CreatedAt   time.Time
}

// RecordRefund records a refund that the operator has checked on the blockchain. An undeliverable payment cannot be redeemed after
// that. It returns ErrNothingTaken or ErrRefunded.
func (s *Store) RecordRefund(ctx context.Context, by Operator, refund Refund) error {
	entry := AuditEntry{Action: "payments.refund", TargetKind: TargetPayment, TargetID: refund.PaymentID}
	entry.Details = map[string]any{"amount": refund.Amount, "transaction": refund.Transaction}
	return s.audited(ctx, by, entry, func(tx *Tx, entry *AuditEntry) error {
		record, err := gorm.G[PaymentRecord](tx.db, forNoKeyUpdate).Where("id = ? AND payer = ?", refund.PaymentID, refund.Payer).Take(ctx)
		if err != nil {
			return err
		}
		entry.AgentID = record.AgentID
		switch record.State {
		case PaymentDelivered:
		case PaymentUndeliverable:
			err = tx.changePayment(ctx, refund.PaymentID, map[string]any{"failure_reason": Refunded}, "state = ?", PaymentUndeliverable)
		default:
			err = ErrNothingTaken
		}
		if err != nil {
			return err
		}
		err = gorm.G[Refund](tx.db).Create(ctx, &refund)
		if errors.Is(err, gorm.ErrDuplicatedKey) {
			return ErrRefunded
		}
		return err
	})
}

// Refunds returns all refunds of payments with these terms.
func (s *Store) Refunds(ctx context.Context, terms PaymentTerms) ([]Refund, error) {
	var refunds []Refund
	err := s.gorm(ctx, &Refund{}).Joins("JOIN payments p ON p.id = refunds.payment_id AND p.payer = refunds.payer").
		Where("p.network = ? AND p.asset = ? AND p.pay_to = ?", terms.Network, terms.Asset, terms.PayTo).Order("refunds.created_at").Find(&refunds).Error
	if err != nil {
		return nil, fmt.Errorf("list refunds: %w", err)
	}
	return refunds, nil
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
