package store

import (
	"context"
	"time"
)

// PaymentChannelScan says up to which block of a network the events of payment channels are read. KnownAt is the time of the newest block
// when everything up to it was read; the Unix epoch if that was never so. Taken reports whether the caller is to read on.
type PaymentChannelScan struct {
	Block   int64
	KnownAt time.Time
	Taken   bool
}

// ChannelEvents are events of payment channels on the blockchain: the ids, in lower case, whether a withdrawal began (true) or ended
// (false), and, of a claim, what was claimed in all. Both are nil for another event. The slices have the same length.
type ChannelEvents struct {
	IDs       []string
	Withdraws []*bool
	Claimed   []*int64
}

// TakeScan returns how far the scan of a network is, or nil if it has not begun. The caller is to read on if nobody has taken it within
// the pause.
func (s *Store) TakeScan(ctx context.Context, network string, pause time.Duration) (_ *PaymentChannelScan, err error) {
	defer wrapInto(&err, "take the scan of payment channels")
	return first(query[PaymentChannelScan](ctx, s, `
		WITH taken AS (
			UPDATE payment_channel_scans s SET taken_at = now() WHERE s.network = @network AND s.taken_at <= now() - @pause::interval
			RETURNING s.network
		)
		SELECT s.block, s.known_at, EXISTS (SELECT FROM taken) AS taken
		FROM payment_channel_scans s WHERE s.network = @network`,
		named{"network": network, "pause": pause}))
}

// BeginScan has the scan of a network begin after a block, unless it has begun.
func (s *Store) BeginScan(ctx context.Context, network string, block int64) (err error) {
	defer wrapInto(&err, "begin the scan of payment channels")
	_, err = exec(ctx, s, `INSERT INTO payment_channel_scans (network, block, known_at, taken_at) VALUES (@network, @block, 'epoch', 'epoch')
		ON CONFLICT DO NOTHING`, named{"network": network, "block": block})
	return err
}

// Scanned records that everything up to a block was read, and, if it is the newest one, its time; else newest is nil. Block never goes
// back, except in a backup: nodes behind one endpoint differ. It returns KnownAt, which is never in the future.
func (s *Store) Scanned(ctx context.Context, network string, block int64, newest *time.Time) (_ time.Time, err error) {
	defer wrapInto(&err, "record the scan of payment channels")
	return single(query[time.Time](ctx, s, `
		UPDATE payment_channel_scans SET block = greatest(block, @block), known_at = coalesce(least(@newest::timestamptz, now()), known_at)
		WHERE network = @network RETURNING known_at`, named{"network": network, "block": block, "newest": newest}))
}

// ChangedChannels returns the payment channels of which events tell something that is not recorded. A claim that may be recorded soon is
// left out.
func (s *Store) ChangedChannels(ctx context.Context, network, asset string, events ChannelEvents) (_ []PaymentChannel, err error) {
	defer wrapInto(&err, "look for changed payment channels")
	return query[PaymentChannel](ctx, s, `
		SELECT `+paymentChannelColumns+` FROM payment_channels
		WHERE network = @network AND asset = @asset AND id IN (
			SELECT c.id FROM unnest(@ids::text[], @withdraws::boolean[], @claimed::bigint[]) AS e (id, withdraws, claimed)
			JOIN payment_channels c ON c.id = e.id
			WHERE CASE
				WHEN e.withdraws IS NOT NULL THEN e.withdraws = (c.withdraw_requested_at = 0)
				WHEN e.claimed IS NOT NULL THEN c.claimed < e.claimed AND (c.claim_after IS NULL OR c.claim_after < now())
				ELSE true END)`,
		named{"network": network, "asset": asset, "ids": events.IDs, "withdraws": events.Withdraws, "claimed": events.Claimed})
}
