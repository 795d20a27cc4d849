package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// The states of a payment channel.
const (
	PaymentChannelOpen       = "open"
	PaymentChannelDepositing = "depositing" // PaymentID is settling a deposit; no voucher is charged meanwhile
	PaymentChannelRefunding  = "refunding"  // RefundAmount is being refunded; no voucher is charged meanwhile
)

// PaymentChannel is a payment channel of the x402 scheme batch-settlement: a deposit on the blockchain, from which
// vouchers pay. The fields from Payer to Salt define it, and ID is their hash. All ids and addresses are in lower case, all amounts in
// atomic units. Balance, Claimed, WithdrawRequestedAt (Unix seconds, or 0) and RefundNonce are what the blockchain said at SyncedAt.
// RefundAmount and LeaseUntil belong to a refund that is being settled; RefundedAt is when the last one began.
type PaymentChannel struct {
	ID, Payer, PayerAuthorizer, Network, Asset, PayTo, ReceiverAuthorizer string
	WithdrawDelay                                                         int64
	Salt                                                                  string

	Charged, SignedMax                                 int64
	Signature                                          string
	Balance, Claimed, WithdrawRequestedAt, RefundNonce int64
	SyncedAt                                           time.Time

	State                  string
	PaymentID              *uuid.UUID
	RefundAmount           int64
	RefundedAt, LeaseUntil *time.Time

	UnclaimedSince, ClaimAfter, IdleSince *time.Time
	ClaimSumReached                       bool
	UsedAt, CreatedAt                     time.Time
}

// paymentChannelColumns are the columns of PaymentChannel.
const paymentChannelColumns = `id, payer, payer_authorizer, network, asset, pay_to, receiver_authorizer, withdraw_delay, salt,
	charged, signed_max, signature, balance, claimed, withdraw_requested_at, refund_nonce, synced_at, state,
	payment_id, refund_amount, refunded_at, lease_until, unclaimed_since, claim_sum_reached, claim_after, idle_since, used_at, created_at`

// OnChain is the state of a payment channel on the blockchain.
type OnChain struct {
	Balance, Claimed, WithdrawRequestedAt, RefundNonce int64
}

// Voucher is a voucher to charge: it raises what the payment channel was charged by Price to Max. MaxUnclaimed is how much
// of it may be unclaimed, and ClaimSum from how much on it is claimed whatever its age.
type Voucher struct {
	Channel, Payer         string
	Price, Max             int64
	MaxUnclaimed, ClaimSum int64
	Signature              string
}

// ErrVoucherMismatch means that a voucher cannot be charged now. Read the payment channel to learn why.
var ErrVoucherMismatch = errors.New("the voucher does not fit the state of its payment channel")

// PaymentChannel returns a payment channel, or nil. ID and payer must be in lower case.
func (s *Store) PaymentChannel(ctx context.Context, id, payer string) (_ *PaymentChannel, err error) {
	defer wrapInto(&err, "look payment channel up")
	return first(read[PaymentChannel](ctx, s, `SELECT `+paymentChannelColumns+` FROM payment_channels
		WHERE id = @id AND payer = @payer`, named{"id": id, "payer": payer}))
}

// PaymentChannelsOf returns those of these payment channels of a payer that are in the ledger.
func (s *Store) PaymentChannelsOf(ctx context.Context, payer string, ids []string) (_ []PaymentChannel, err error) {
	defer wrapInto(&err, "look payment channels up")
	return query[PaymentChannel](ctx, s, `SELECT `+paymentChannelColumns+` FROM payment_channels
		WHERE id = ANY(@ids) AND payer = @payer`, named{"ids": ids, "payer": payer})
}

// PaymentOfVoucher returns the delivered deposit that carried this voucher, or nil. [Store.Payment] finds a voucher without a deposit.
func (s *Store) PaymentOfVoucher(ctx context.Context, channel, payer string, cumulative int64) (*Payment, error) {
	return s.onePayment(ctx, `payment_channel_id = @channel AND payer = @payer AND cumulative_amount = @cumulative AND deposit_amount > 0
		AND state = 'delivered'`, named{"channel": channel, "payer": payer, "cumulative": cumulative})
}

// advance changes a payment channel in this transaction and returns it. It returns ErrVoucherMismatch if the condition does
// not hold.
func (r *Reader) advance(ctx context.Context, changes map[string]any, condition string, values ...any) (*PaymentChannel, error) {
	var channels []PaymentChannel
	returning := clause.Returning{Columns: []clause.Column{{Name: paymentChannelColumns, Raw: true}}}
	moved := r.gorm(ctx, &channels).Clauses(returning).Where(condition, values...).Updates(changes)
	return firstOr(channels, moved.Error, "change payment channel", ErrVoucherMismatch)
}

// BeginDeposit is BeginSettlement for a deposit, and reserves the payment channel for it. A payment channel that is not known is
// inserted. It returns ErrStalePayment if the payment is already in the ledger, or if the payment channel is not as the caller has
// read it.
func (s *Store) BeginDeposit(
	ctx context.Context, channel *PaymentChannel, payment *Payment, lease time.Duration, reserve func(tx *Tx) error,
) error {
	err := s.BeginSettlement(ctx, payment, lease, func(tx *Tx) error {
		fresh := *channel
		fresh.State, fresh.PaymentID = PaymentChannelOpen, nil
		if err := tx.insertPaymentChannel(ctx, fresh, payment.CreatedAt); err != nil {
			return err
		}
		_, err := tx.advance(ctx, map[string]any{"state": PaymentChannelDepositing, "payment_id": payment.ID},
			"id = ? AND payer = ? AND charged = ? AND state = 'open'", channel.ID, channel.Payer, channel.Charged)
		if err != nil || reserve == nil {
			return err
		}
		return reserve(tx)
	})
	if errors.Is(err, ErrVoucherMismatch) {
		return ErrStalePayment
	}
	return err
}

// DepositCharge is a settled deposit that brought a voucher to charge. Chain is the state of its payment channel on the blockchain.
// Commit sets Channel.
type DepositCharge struct {
	Voucher Voucher
	Chain   OnChain
	Channel *PaymentChannel
}

// chargeDeposit records the settled deposit of a payment in its payment channel and charges its voucher, in this
// transaction. It returns ErrVoucherMismatch if the voucher cannot be charged (see lockFitting), and
// ErrStalePayment if the payment does not have the payment channel any more.
func (tx *Tx) chargeDeposit(ctx context.Context, payment uuid.UUID, voucher Voucher, chain OnChain) (*PaymentChannel, error) {
	if chain.WithdrawRequestedAt != 0 || chain.Balance < voucher.Max || chain.Claimed >= voucher.Max {
		return nil, ErrVoucherMismatch
	}
	changes := chain.changes()
	changes["charged"], changes["signed_max"], changes["signature"] = voucher.Max, voucher.Max, voucher.Signature
	changes["state"], changes["payment_id"], changes["used_at"] = PaymentChannelOpen, nil, gorm.Expr("now()")
	changes["unclaimed_since"] = gorm.Expr("coalesce(unclaimed_since, now())")
	changes["claim_sum_reached"] = gorm.Expr("claim_sum_reached OR ? - claimed >= ?", voucher.Max, voucher.ClaimSum)
	return tx.advance(ctx, changes, "id = ? AND payer = ? AND payment_id = ? AND charged + ? = ?",
		voucher.Channel, voucher.Payer, payment, voucher.Price, voucher.Max)
}

// KeepDeposit records that the deposit of a payment is in its payment channel and that nothing was charged. The voucher
// stays good for another request, so the payment releases its payment identifier and idempotency key. It returns ErrStalePayment if another
// server has closed the payment.
func (s *Store) KeepDeposit(
	ctx context.Context, payment *Payment, transaction, reason string, chain OnChain,
) (channel *PaymentChannel, err error) {
	err = s.Transaction(ctx, func(tx *Tx) error {
		changes := asClosed(PaymentDeposited, map[string]any{"transaction": transaction, "failure_reason": reason, "payment_identifier": nil,
			"idempotency_key": nil})
		if err := tx.changePayment(ctx, payment.ID, changes, "state = 'settling'"); err != nil {
			return err
		}
		if err := tx.releaseUsername(ctx, payment.ID); err != nil {
			return err
		}
		changes = chain.changes()
		changes["state"], changes["payment_id"] = PaymentChannelOpen, nil
		channel, err = tx.advance(ctx, changes, "id = ? AND payer = ? AND payment_id = ?", payment.PaymentChannelID, payment.Payer, payment.ID)
		return err
	})
	return channel, err
}

// SyncPaymentChannel records the state on the blockchain and returns the payment channel. It returns nil if somebody else
// has recorded a state since the caller read the payment channel, or if a refund is being settled and the state has another nonce: the
// refund records that.
func (s *Store) SyncPaymentChannel(ctx context.Context, channel *PaymentChannel, chain OnChain) (*PaymentChannel, error) {
	synced, err := s.advance(ctx, chain.changes(), "id = ? AND payer = ? AND synced_at = ? AND (state <> 'refunding' OR refund_nonce = ?)",
		channel.ID, channel.Payer, channel.SyncedAt, chain.RefundNonce)
	if errors.Is(err, ErrVoucherMismatch) {
		return nil, nil //nolint:nilnil // it has changed
	}
	return synced, err
}

// AdoptPaymentChannel inserts a payment channel that was found on the blockchain, unless it is in the ledger.
func (s *Store) AdoptPaymentChannel(ctx context.Context, channel *PaymentChannel) error {
	return s.insertPaymentChannel(ctx, *channel, s.Now())
}

// insertPaymentChannel inserts a payment channel, unless it is known.
func (r *Reader) insertPaymentChannel(ctx context.Context, channel PaymentChannel, now time.Time) error {
	channel.SyncedAt, channel.UsedAt, channel.CreatedAt, channel.IdleSince = now, now, now, &now
	err := r.gorm(ctx, &PaymentChannel{}).Clauses(clause.OnConflict{DoNothing: true}).Create(&channel).Error
	return wrap("insert payment channel", err)
}

// changes are the changes of a payment channel to the state on the blockchain. More can be claimed there than was charged
// here only if this database lost payments (it was restored from a backup); vouchers then continue from what is claimed.
func (c OnChain) changes() map[string]any {
	return map[string]any{
		"balance": c.Balance, "claimed": gorm.Expr("greatest(claimed, ?)", c.Claimed), "withdraw_requested_at": c.WithdrawRequestedAt,
		"refund_nonce": c.RefundNonce, "synced_at": gorm.Expr("now()"),
		"unclaimed_since": gorm.Expr("CASE WHEN least(charged, ?) > greatest(claimed, ?) THEN coalesce(unclaimed_since, now()) END", c.Balance,
			c.Claimed),
		"claim_sum_reached": gorm.Expr("claim_sum_reached AND least(charged, ?) > greatest(claimed, ?)", c.Balance, c.Claimed),
		"idle_since":        gorm.Expr("coalesce(idle_since, now())"),
		"charged":           gorm.Expr("greatest(charged, ?)", c.Claimed),
		"signature":         gorm.Expr("CASE WHEN signed_max < ? THEN '' ELSE signature END", c.Claimed),
		"signed_max":        gorm.Expr("greatest(signed_max, ?)", c.Claimed),
	}
}

// releasePaymentChannel ends the deposit of a payment that is closed without effect. A payment channel that never had
// money is deleted.
func (tx *Tx) releasePaymentChannel(ctx context.Context, payment uuid.UUID) error {
	deleted, err := gorm.G[PaymentChannel](tx.db).Where("payment_id = ? AND balance = 0 AND charged = 0", payment).Delete(ctx)
	if err == nil && deleted == 0 {
		err = tx.gorm(ctx, &PaymentChannel{}).Where("payment_id = ?", payment).
			Updates(map[string]any{"state": PaymentChannelOpen, "payment_id": nil}).Error
	}
	return wrap("release payment channel", err)
}
