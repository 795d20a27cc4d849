package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
)

// ClaimPolicy says when a payment channel is claimed: when its oldest unclaimed voucher has this age, when the unclaimed sum
// reaches Sum, or when its payer withdraws. Authorizer is the key that can sign claims.
type ClaimPolicy struct {
	Authorizer string
	Age        time.Duration
	Sum        int64
}

const (
	// claimable payment channels have something to claim and no claim under way.
	claimable = `unclaimed_since IS NOT NULL AND receiver_authorizer = @authorizer AND signature <> '' AND state <> 'refunding' AND claimed < charged
		AND (claim_after IS NULL OR claim_after < now())`
	// claimDue is true for a claimable payment channel that is due.
	claimDue = `(unclaimed_since < now() - @age::interval OR charged - claimed >= @sum OR withdraw_requested_at <> 0)`
)

// UnclaimedChannels takes up to limit payment channels that are due, and leases them to the caller. Several servers may call it
// concurrently; each payment channel goes to one of them. If any is due, those with half of the age come along: a further one in a
// transaction costs a fifth of a transaction and a payout of its own, and the next claims of all fall together.
func (s *Store) UnclaimedChannels(ctx context.Context, policy ClaimPolicy, limit int, lease time.Duration) ([]PaymentChannel, error) {
	channels, err := query[PaymentChannel](ctx, s, `
		UPDATE payment_channels SET claim_after = now() + @lease::interval
		WHERE (id, payer) IN (
			SELECT id, payer FROM payment_channels
			WHERE `+claimable+` AND (`+claimDue+`
				OR unclaimed_since < now() - @age::interval / 2 AND EXISTS (SELECT FROM payment_channels WHERE `+claimable+` AND `+claimDue+`))
			ORDER BY `+claimDue+` DESC, unclaimed_since LIMIT @limit FOR UPDATE SKIP LOCKED
		) RETURNING `+paymentChannelColumns, pgx.NamedArgs{
		"lease": lease, "authorizer": policy.Authorizer, "age": policy.Age, "sum": policy.Sum, "limit": limit,
	})
	if err != nil {
		return nil, fmt.Errorf("look for unclaimed payment channels: %w", err)
	}
	return channels, nil
}

// PaymentChannelClaimed records that a voucher is claimed. Vouchers that were charged since are unclaimed from now on.
func (s *Store) PaymentChannelClaimed(ctx context.Context, channel *PaymentChannel) error {
	err := s.gorm(ctx, &PaymentChannel{}).Where("id = ? AND payer = ?", channel.ID, channel.Payer).Updates(map[string]any{
		"claimed": gorm.Expr("greatest(claimed, ?)", channel.SignedMax), "claim_after": nil,
		"unclaimed_since": gorm.Expr("CASE WHEN charged > ? THEN now() END", channel.SignedMax),
	}).Error
	if err != nil {
		return fmt.Errorf("record claim: %w", err)
	}
	return nil
}

// Unclaimed sums up what payment channels were charged and what is not claimed yet, in atomic units, and returns the age of the
// oldest voucher that is not claimed.
func (s *Store) Unclaimed(ctx context.Context) (sum int64, age time.Duration, err error) {
	found, err := query[struct {
		Sum int64
		Age time.Duration
	}](ctx, s, `SELECT coalesce(sum(charged - claimed), 0)::bigint AS sum, coalesce(now() - min(unclaimed_since), interval '0') AS age
		FROM payment_channels WHERE unclaimed_since IS NOT NULL`)
	if err != nil {
		return 0, 0, fmt.Errorf("sum up unclaimed vouchers: %w", err)
	}
	return found[0].Sum, found[0].Age, nil
}

// StaleChannels returns up to limit payment channels with unclaimed money whose recorded state is older than age, oldest
// first.
func (s *Store) StaleChannels(ctx context.Context, age time.Duration, limit int) ([]PaymentChannel, error) {
	channels, err := query[PaymentChannel](ctx, s, `SELECT `+paymentChannelColumns+`, clock_timestamp() AS now FROM payment_channels
		WHERE unclaimed_since IS NOT NULL AND state <> 'refunding' AND synced_at < now() - $1::interval ORDER BY synced_at LIMIT $2`, age, limit)
	if err != nil {
		return nil, fmt.Errorf("look for payment channels to refresh: %w", err)
	}
	return channels, nil
}
