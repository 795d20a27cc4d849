package store

import (
	"context"
	"errors"

	"gorm.io/gorm"
)

// Errors of RecordRefund.
var (
	ErrRefunded     = errors.New("this payment is refunded already, or this transaction has refunded another payment of the payer")
	ErrNothingTaken = errors.New("only a delivered or undeliverable payment can be refunded: no money was taken for this one")
)

// RecordRefund records a refund that the operator has checked on the blockchain. An undeliverable payment cannot be redeemed after
// that. It returns ErrNothingTaken or ErrRefunded.
func (s *Store) RecordRefund(ctx context.Context, by Operator, refund Refund) error {
	entry := AuditEntry{Action: "payments.refund", TargetKind: TargetPayment, TargetID: refund.PaymentID}
	entry.Details = map[string]any{"amount": refund.Amount, "transaction": refund.Transaction}
	return s.audited(ctx, by, entry, func(tx *Tx, entry *AuditEntry) error {
		record, err := gorm.G[Payment](tx.db, forNoKeyUpdate).Select("state", "agent_id").
			Where("id = ? AND payer = ?", refund.PaymentID, refund.Payer).Take(ctx)
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
