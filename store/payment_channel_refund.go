package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
)

// BeginRefund reserves the payment channel for a refund, leased to the caller, and returns it. A refund is signed for one nonce
// of the blockchain and never expires, so the same one is settled again until its outcome is known. It returns
// ErrVoucherMismatch if the payment channel is not as the caller has read it.
func (s *Store) BeginRefund(ctx context.Context, channel *PaymentChannel, amount int64, lease time.Duration) (*PaymentChannel, error) {
	return s.advance(ctx, map[string]any{
		"state": PaymentChannelRefunding, "refund_amount": amount, "lease_until": gorm.Expr("now() + CAST(? AS interval)", lease),
	}, "id = ? AND payer = ? AND state = 'open' AND charged = ? AND refund_nonce = ? AND balance = ?",
		channel.ID, channel.Payer, channel.Charged, channel.RefundNonce, channel.Balance)
}

// ClaimRefunds takes up to limit refunds whose lease is over, and leases them to the caller. Several servers may claim
// concurrently; each refund goes to one of them.
func (s *Store) ClaimRefunds(ctx context.Context, authorizer string, limit int, lease time.Duration) ([]PaymentChannel, error) {
	channels, err := query[PaymentChannel](ctx, s, `
		UPDATE payment_channels SET lease_until = now() + @lease::interval
		WHERE (id, payer) IN (
			SELECT id, payer FROM payment_channels WHERE state = 'refunding' AND lease_until < now() AND receiver_authorizer = @authorizer
			ORDER BY lease_until LIMIT @limit FOR UPDATE SKIP LOCKED
		) RETURNING `+paymentChannelColumns, pgx.NamedArgs{"lease": lease, "authorizer": authorizer, "limit": limit})
	if err != nil {
		return nil, fmt.Errorf("claim refunds: %w", err)
	}
	return channels, nil
}

// EndRefund records the state on the blockchain after a refund, and opens the payment channel again. Nil means that the
// refund was rejected and changed nothing there. It returns ErrVoucherMismatch if another server has ended the refund.
func (s *Store) EndRefund(ctx context.Context, channel *PaymentChannel, chain *OnChain) (*PaymentChannel, error) {
	changes := map[string]any{}
	if chain != nil {
		changes = chain.changes()
	}
	changes["state"], changes["refund_amount"], changes["lease_until"] = PaymentChannelOpen, 0, nil
	return s.advance(ctx, changes, "id = ? AND payer = ? AND state = 'refunding' AND refund_nonce = ?", channel.ID, channel.Payer, channel.RefundNonce)
}
