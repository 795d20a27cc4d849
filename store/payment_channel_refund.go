package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// BeginRefund reserves the payment channel for a refund, leased to the caller, and returns it. A refund is signed for one nonce
// of the blockchain and never expires, so the same one is settled again until its outcome is known. It returns
// ErrVoucherMismatch if the payment channel is not as the caller has read it, or was refunded within the time pause.
func (s *Store) BeginRefund(
	ctx context.Context, channel *PaymentChannel, amount int64, lease, pause time.Duration,
) (*PaymentChannel, error) {
	return s.advance(ctx, map[string]any{
		"state": PaymentChannelRefunding, "refund_amount": amount, "lease_until": gorm.Expr("now() + CAST(? AS interval)", lease),
		"refunded_at": gorm.Expr("now()"),
	}, `id = ? AND payer = ? AND state = 'open' AND charged = ? AND refund_nonce = ? AND balance = ?
		AND (refunded_at IS NULL OR refunded_at <= now() - CAST(? AS interval))`,
		channel.ID, channel.Payer, channel.Charged, channel.RefundNonce, channel.Balance, pause)
}

// HasUsedChannel reports whether an account made a deposit into a payment channel, or the call that was charged last.
func (s *Store) HasUsedChannel(ctx context.Context, channel *PaymentChannel, account uuid.UUID) (_ bool, err error) {
	defer wrapInto(&err, "look up who used a payment channel")
	return single(query[bool](ctx, s, `SELECT
		EXISTS (SELECT FROM payments WHERE payment_channel_id = @id AND deposit_amount > 0 AND agent_id = @account
			AND state IN ('delivered', 'deposited'))
		OR EXISTS (SELECT FROM payments WHERE nonce IS NULL AND payment_channel_id = @id AND cumulative_amount = @charged AND payer = @payer
			AND agent_id = @account) AS found`,
		named{"id": channel.ID, "account": account, "payer": channel.Payer, "charged": channel.Charged}))
}

// TakeRefunds takes up to limit refunds whose lease is over, and leases them to the caller. Several servers may take
// concurrently; each refund goes to one of them. Asset and authorizers, whose keys the caller has, are in lower case.
func (s *Store) TakeRefunds(
	ctx context.Context, network, asset string, authorizers []string, limit int, lease time.Duration,
) (_ []PaymentChannel, err error) {
	defer wrapInto(&err, "take refunds")
	return query[PaymentChannel](ctx, s, `
		UPDATE payment_channels SET lease_until = now() + @lease::interval
		WHERE (id, payer) IN (
			SELECT id, payer FROM payment_channels WHERE state = 'refunding' AND lease_until < now()
				AND network = @network AND asset = @asset AND receiver_authorizer = ANY(@authorizers)
			ORDER BY lease_until LIMIT @limit FOR UPDATE SKIP LOCKED
		) RETURNING `+paymentChannelColumns, named{
		"lease": lease, "network": network, "asset": asset, "authorizers": authorizers, "limit": limit,
	})
}

// EndRefund records the state on the blockchain after a refund together with its transaction, and opens the payment channel
// again. Without a transaction the refund was rejected and changed nothing there. It returns ErrVoucherMismatch if another
// server has ended the refund.
func (s *Store) EndRefund(
	ctx context.Context, channel *PaymentChannel, chain OnChain, refunded *PaymentChannelTransaction,
) (ended *PaymentChannel, err error) {
	changes := map[string]any{}
	if refunded != nil {
		changes = chain.changes()
	}
	changes["state"], changes["refund_amount"], changes["lease_until"] = PaymentChannelOpen, 0, nil
	err = s.Transaction(ctx, func(tx *Tx) error {
		if refunded != nil { // a claim may have been recorded since the refund began
			claimed, err := gorm.G[PaymentChannel](tx.db, forNoKeyUpdate).Select("claimed").Where("id = ? AND payer = ?", channel.ID,
				channel.Payer).Take(ctx)
			if err != nil {
				return fmt.Errorf("lock payment channel: %w", err)
			}
			refunded.Claimed = max(chain.Claimed-claimed.Claimed, 0)
		}
		ended, err = tx.advance(ctx, changes, "id = ? AND payer = ? AND state = 'refunding' AND refund_nonce = ?", channel.ID, channel.Payer,
			channel.RefundNonce)
		if err != nil || refunded == nil {
			return err
		}
		return tx.recordChannelTransaction(ctx, refunded)
	})
	return ended, err
}

// IdleChannels returns payment channels that were not used for the time idle and have at least the sum least that is not charged. It looks
// at up to limit whose idle_since is over. It does not look at them again within the time pause, or before they can be idle.
func (s *Store) IdleChannels(
	ctx context.Context, network, asset string, authorizers []string, idle, pause time.Duration, least int64, limit int,
) (_ []PaymentChannel, err error) {
	defer wrapInto(&err, "look for idle payment channels")
	return query[PaymentChannel](ctx, s, `
		WITH looked AS (
			UPDATE payment_channels SET idle_since = CASE WHEN balance - charged >= @least
				THEN greatest(used_at, now() - @idle::interval + @pause::interval) END
			WHERE (id, payer) IN (
				SELECT id, payer FROM payment_channels WHERE idle_since < now() - @idle::interval
					AND network = @network AND asset = @asset AND receiver_authorizer = ANY(@authorizers)
				ORDER BY idle_since LIMIT @limit FOR UPDATE SKIP LOCKED
			) RETURNING `+paymentChannelColumns+`
		)
		SELECT `+paymentChannelColumns+` FROM looked
		WHERE idle_since IS NOT NULL AND state = 'open' AND withdraw_requested_at = 0 AND used_at < now() - @idle::interval`, named{
		"idle": idle, "pause": pause, "least": least, "limit": limit, "network": network, "asset": asset, "authorizers": authorizers,
	})
}
