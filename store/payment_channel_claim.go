package store

import (
	"context"
	"time"
)

// UnclaimedSum is what the payment channels of one authorizer and one payee were charged and what is not claimed, in atomic
// units. Age is that of the oldest voucher. Lost is what was charged and is no longer in the payment channels, because the payer
// withdrew it before it was claimed; it is not part of Sum. It can be claimed if the payer deposits again.
type UnclaimedSum struct {
	ReceiverAuthorizer, PayTo string
	Sum, Lost                 int64
	Age                       time.Duration
}

// Unclaimed returns the sums of all payment channels.
func (s *Store) Unclaimed(ctx context.Context, network, asset string) (_ []UnclaimedSum, err error) {
	defer wrapInto(&err, "sum up unclaimed vouchers")
	return query[UnclaimedSum](ctx, s, `
		SELECT s.receiver_authorizer, s.pay_to, s.sum, s.lost, coalesce(now() - (
			SELECT c.unclaimed_since FROM payment_channels c
			WHERE c.receiver_authorizer = s.receiver_authorizer AND c.pay_to = s.pay_to AND c.network = @network AND c.asset = @asset
				AND c.unclaimed_since IS NOT NULL ORDER BY c.unclaimed_since LIMIT 1), interval '0') AS age
		FROM (SELECT receiver_authorizer, pay_to, sum(unclaimed)::bigint AS sum, sum(lost)::bigint AS lost FROM payment_channel_sums
			WHERE network = @network AND asset = @asset GROUP BY receiver_authorizer, pay_to) s
		WHERE s.sum <> 0 OR s.lost <> 0 ORDER BY s.receiver_authorizer, s.pay_to`, named{"network": network, "asset": asset})
}

// FoldSums makes one row of those that statements have added to the sums of payment channels, if there are many. Several servers may call
// it concurrently.
func (s *Store) FoldSums(ctx context.Context) (err error) {
	defer wrapInto(&err, "fold the sums of payment channels")
	_, err = exec(ctx, s, `
		WITH old AS (
			DELETE FROM payment_channel_sums WHERE ctid = ANY (ARRAY(SELECT ctid FROM payment_channel_sums
				WHERE (SELECT count(*) FROM payment_channel_sums) > @many FOR UPDATE SKIP LOCKED))
			RETURNING network, asset, receiver_authorizer, pay_to, channels, withdrawing, unclaimed, lost
		)
		INSERT INTO payment_channel_sums (network, asset, receiver_authorizer, pay_to, channels, withdrawing, unclaimed, lost)
		SELECT network, asset, receiver_authorizer, pay_to, sum(channels), sum(withdrawing), sum(unclaimed), sum(lost)
		FROM old GROUP BY network, asset, receiver_authorizer, pay_to`, named{"many": foldedSums})
	return err
}

const (
	// foldedSums is how many rows of sums are not worth folding.
	foldedSums = 100
	// claimable payment channels have something to claim and no claim under way.
	claimable = `unclaimed_since IS NOT NULL AND network = @network AND asset = @asset AND receiver_authorizer = @authorizer
		AND pay_to = @payee AND (@id = '' OR id = @id) AND signature <> '' AND state <> 'refunding'
		AND (claim_after IS NULL OR claim_after < now())`
	// urgent ones are claimed whatever their age.
	urgent = `(claim_sum_reached OR withdraw_requested_at <> 0)`
)

// UnclaimedChannels takes up to limit payment channels that are due, and leases them to the caller: those whose oldest unclaimed voucher
// has this age, whose unclaimed sum reached Voucher.ClaimSum, or whose payer withdraws. One transaction can claim from payment channels of
// one authorizer. An id that is not "" restricts it to one payment channel. Several servers may call it concurrently; each payment channel
// goes to one of them. If any is due, those with half of the age come along: a further one in a transaction costs a fifth of a transaction
// and a payout of its own, and the next claims of all fall together. It reads from indexes what is due, however many payment channels
// there are.
func (s *Store) UnclaimedChannels(
	ctx context.Context, of PaymentTerms, authorizer, id string, age time.Duration, limit int, lease time.Duration,
) (_ []PaymentChannel, err error) {
	defer wrapInto(&err, "look for unclaimed payment channels")
	return query[PaymentChannel](ctx, s, `
		WITH urgent AS MATERIALIZED (
			SELECT id, payer FROM payment_channels WHERE `+claimable+` AND `+urgent+` LIMIT @limit FOR UPDATE SKIP LOCKED
		), aged AS MATERIALIZED (
			SELECT id, payer FROM payment_channels
			WHERE `+claimable+` AND NOT `+urgent+` AND unclaimed_since <= now() - @age::interval / 2 AND (
				EXISTS (SELECT FROM urgent)
				OR (SELECT min(unclaimed_since) FROM payment_channels WHERE `+claimable+`) <= now() - @age::interval)
			ORDER BY unclaimed_since LIMIT @limit - (SELECT count(*) FROM urgent) FOR UPDATE SKIP LOCKED
		)
		UPDATE payment_channels SET claim_after = now() + @lease::interval
		WHERE (id, payer) IN (SELECT id, payer FROM urgent UNION ALL SELECT id, payer FROM aged)
		RETURNING `+paymentChannelColumns, named{
		"lease": lease, "network": of.Network, "asset": of.Asset, "authorizer": authorizer, "payee": of.PayTo, "id": id, "age": age,
		"limit": limit,
	})
}

// ClaimAtOnce makes payment channels due that wait after a claim that failed: that with this id, or all if it is "". It returns
// how many unclaimed ones there are.
func (s *Store) ClaimAtOnce(ctx context.Context, network, asset, id string) (_ int64, err error) {
	defer wrapInto(&err, "make payment channels due")
	return exec(ctx, s, `UPDATE payment_channels SET claim_after = NULL
		WHERE unclaimed_since IS NOT NULL AND network = @network AND asset = @asset AND (@id = '' OR id = @id)`,
		named{"network": network, "asset": asset, "id": id})
}

// Claimable is what the newest voucher of a payment channel can claim in all: no more than the balance.
func (c *PaymentChannel) Claimable() int64 { return min(c.SignedMax, c.Balance) }

// ChannelsClaimed records that the newest vouchers of payment channels were claimed in a transaction. Vouchers that were charged
// since are unclaimed from now on. The payment channels have one payee.
func (s *Store) ChannelsClaimed(ctx context.Context, channels []PaymentChannel, transaction string) (err error) {
	defer wrapInto(&err, "record claim")
	var ids, payers []string
	var sums []int64
	for _, channel := range channels {
		ids, payers, sums = append(ids, channel.ID), append(payers, channel.Payer), append(sums, channel.Claimable())
	}
	of := channels[0]
	// The rows are locked in a fixed order, and the amount is that of this claim, also if another server has recorded one meanwhile.
	_, err = exec(ctx, s, `
		WITH old AS (
			SELECT c.id, c.payer, c.claimed, new.claimed AS total FROM payment_channels c
			JOIN unnest(@ids::text[], @payers::text[], @sums::bigint[]) AS new (id, payer, claimed) ON c.id = new.id AND c.payer = new.payer
			ORDER BY c.id FOR UPDATE OF c
		), claimed AS (
			UPDATE payment_channels c SET claimed = greatest(c.claimed, old.total), claim_after = NULL,
				unclaimed_since = CASE WHEN least(c.charged, c.balance) > greatest(c.claimed, old.total) THEN now() END,
				claim_sum_reached = false
			FROM old WHERE c.id = old.id AND c.payer = old.payer
			RETURNING greatest(old.total - old.claimed, 0) AS amount
		)
		INSERT INTO payment_channel_transactions (id, kind, network, asset, pay_to, payment_channel_ids, claimed, paid, transaction, created_at)
		SELECT @id, 'claim', @network, @asset, @payee, @ids, coalesce(sum(amount), 0), 0, @transaction, now() FROM claimed`, named{
		"ids": ids, "payers": payers, "sums": sums, "id": newID(), "network": of.Network, "asset": of.Asset, "payee": of.PayTo,
		"transaction": transaction,
	})
	return err
}
