package store

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// The states of a payment. The states settling and unknown are open: the facilitator may or may not have moved the
// money. The row of an open payment holds what is needed to find out and to deliver.
const (
	PaymentSettling      = "settling"      // being settled, or settled and being delivered
	PaymentUnknown       = "unknown"       // the facilitator returned no clear result
	PaymentDelivered     = "delivered"     // settled, and its effect is in the database
	PaymentFailed        = "failed"        // rejected for good; no money was taken
	PaymentUndeliverable = "undeliverable" // settled, but the operation was refused afterwards; may be redeemed
	PaymentDeposited     = "deposited"     // the deposit is in its payment channel, but nothing was charged: the operation was refused
)

// How long the ledger keeps data that it does not keep forever, counted from the last change of the payment. The
// contract names the same times.
const (
	SecretLifetime   = 10 * time.Minute // a response with a TAN or an API key
	ResponseLifetime = time.Hour        // any other response of more than ShortResponse
	failureLifetime  = time.Hour        // a payment that was rejected, at least until it expires: no money was taken
)

// ShortResponse is how many bytes a stored response has that the ledger keeps forever.
const ShortResponse = 512

// Refunded is the failure reason of an undeliverable payment that the operator has refunded. It cannot be redeemed any more.
const Refunded = "refunded"

// PaymentRecord is what an operator may see of a payment: everything except data that can be spent and the content of
// calls. Amount is in atomic units of the asset. Addresses and nonce are in lower case; the nonce of a voucher is the id of its payment
// channel, a colon, and CumulativeAmount. PaymentIdentifier and IdempotencyKey are hashes.
type PaymentRecord struct {
	ID                                          uuid.UUID
	X402Version                                 int16 `gorm:"column:x402_version"`
	Scheme, Network, Asset, Payer, Nonce, PayTo string
	Amount                                      int64
	ValidBefore                                 time.Time
	Operation                                   string
	AgentID                                     *uuid.UUID
	PaymentIdentifier, IdempotencyKey           *string
	PaymentChannelID                            *string
	CumulativeAmount                            *int64
	DepositAmount                               int64
	State, Transaction, FailureReason           string
	Attempts                                    int
	LeaseUntil, CreatedAt, UpdatedAt            time.Time
	Refund                                      *Refund `gorm:"-"` // nil if the operator has recorded none
}

// TableName returns a view of the ledger, which adds to a voucher what its payment channel has.
func (PaymentRecord) TableName() string { return "payment_records" }

// Refund is a transfer with which the operator gave the money of a payment back, or a part of it.
type Refund struct {
	Payer       string
	PaymentID   uuid.UUID
	Amount      int64 // in atomic units
	Transaction string
	CreatedAt   time.Time
}

// Payment is one row of the ledger: one x402 authorization, or one voucher of a payment channel. Amount is what the call
// costs. PaymentChannelID, CumulativeAmount and DepositAmount belong to the scheme batch-settlement: see [PaymentChannel].
// If Transaction of an open payment is set, the payment has settled.
type Payment struct {
	PaymentRecord
	KeyHash       []byte // SHA-256 of the caller's API key
	Fingerprint   []byte // SHA-256 of the request that it pays for
	SignatureHash []byte // SHA-256 of the signature
	Request       []byte
	Payload       []byte // can be spent, so it is never logged
	Owner         *int32
	Secret        bool // the response holds a TAN or an API key
	Response      []byte
	Now           time.Time     `gorm:"-"`        // the time of the database when the row was read, with which leases and ages are measured
	Lease         time.Duration `gorm:"-" db:"-"` // of a payment that begins
}

// TableName returns the table of the ledger. Network, Asset, Nonce and PayTo of a voucher are NULL there.
func (Payment) TableName() string { return "payments" }

// LeaseOver reports whether the lease of the server that worked on the payment is over.
func (p *Payment) LeaseOver() bool { return p.LeaseUntil.Before(p.Now) }

// paymentColumns are the columns of Payment, and the current time. A voucher has no network, asset and payee: see PaymentRecord.
const paymentColumns = `id, x402_version, scheme, coalesce(network, '') AS network, coalesce(asset, '') AS asset, payer,
	coalesce(nonce, payment_channel_id || ':' || cumulative_amount) AS nonce, coalesce(pay_to, '') AS pay_to,
	amount, valid_before, operation, agent_id, key_hash, fingerprint, signature_hash, payment_identifier, idempotency_key, request, payload,
	payment_channel_id, cumulative_amount, deposit_amount, state, transaction, failure_reason, attempts, lease_until, owner, secret, response,
	created_at, updated_at, clock_timestamp() AS now`

// ErrStalePayment means that the caller has a stale payment state. Look the payment up again.
var ErrStalePayment = errors.New("the payment is in another state by now")

// Payment returns the row of an authorization or a voucher, or nil. Asset, payer and nonce must be in lower case.
func (s *Store) Payment(ctx context.Context, network, asset, payer, nonce string) (*Payment, error) {
	if channel, cumulative, ok := strings.Cut(nonce, ":"); ok {
		return s.onePayment(ctx, `nonce IS NULL AND payment_channel_id = @channel AND payer = @payer
			AND cumulative_amount = CAST(CAST(@cumulative AS text) AS bigint)`, named{"channel": channel, "cumulative": cumulative, "payer": payer})
	}
	return s.onePayment(ctx, "network = @network AND asset = @asset AND payer = @payer AND nonce = @nonce",
		named{"network": network, "asset": asset, "payer": payer, "nonce": nonce})
}

// PaymentByIdentifier returns the payment that an account made for an operation with this payment identifier (hashed),
// or nil. If agent is nil, the payer takes the place of the account.
func (s *Store) PaymentByIdentifier(ctx context.Context, agent *uuid.UUID, payer, operation, identifier string) (*Payment, error) {
	return s.paymentNamed(ctx, "payment_identifier", agent, payer, operation, identifier)
}

// PaymentByKey is PaymentByIdentifier for the idempotency key (hashed).
func (s *Store) PaymentByKey(ctx context.Context, agent *uuid.UUID, payer, operation, key string) (*Payment, error) {
	return s.paymentNamed(ctx, "idempotency_key", agent, payer, operation, key)
}

func (s *Store) paymentNamed(ctx context.Context, column string, agent *uuid.UUID, payer, operation, name string) (*Payment, error) {
	account := payer
	if agent != nil {
		account = agent.String()
	}
	return s.onePayment(ctx, "coalesce(agent_id::text, payer) = @account AND operation = @operation AND "+column+" = @name",
		named{"account": account, "operation": operation, "name": name})
}

// PaymentOfWallet returns the payment that a new authorization of the same wallet gives access to, for an operation
// whose response holds a secret. It is the payment of the same request if that is open or its response is stored, or an
// undeliverable payment of the same operation and account that was not refunded. It returns nil if there is none.
func (s *Store) PaymentOfWallet(
	ctx context.Context, network, asset, payer, operation string, agent *uuid.UUID, fingerprint []byte, channel string,
) (*Payment, error) {
	return s.onePayment(ctx, `secret AND (nonce IS NULL OR network = @network AND asset = @asset) AND payer = @payer AND operation = @operation
		AND (payment_channel_id IS NULL OR payment_channel_id = @channel
			OR (SELECT c.payer_authorizer = c.payer FROM payment_channels c WHERE c.id = payments.payment_channel_id
				AND c.payer = payments.payer)) AND (
			(state = 'delivered' AND fingerprint = @fingerprint AND response IS NOT NULL
				AND updated_at > now() - @lifetime::interval)
			OR (state IN ('settling', 'unknown') AND fingerprint = @fingerprint)
			OR (state = 'undeliverable' AND failure_reason <> @refunded AND agent_id IS NOT DISTINCT FROM @agent::uuid)
		) ORDER BY fingerprint = @fingerprint DESC, created_at DESC LIMIT 1`, named{
		"network": network, "asset": asset, "payer": payer, "operation": operation, "fingerprint": fingerprint, "lifetime": SecretLifetime,
		"agent": agent, "channel": channel, "refunded": Refunded,
	})
}

// onePayment loads a payment with the time of the database, or returns nil. It uses pgx because GORM allocates half as
// much again for each repeated call.
func (r *Reader) onePayment(ctx context.Context, condition string, values named) (_ *Payment, err error) {
	defer wrapInto(&err, "look payment up")
	return first(query[Payment](ctx, r, `SELECT `+paymentColumns+` FROM payments WHERE `+condition, values))
}

// OpenCounts are the payments that are not closed.
type OpenCounts struct {
	ByState map[string]int64 // settling, unknown and undeliverable
	Oldest  time.Duration    // age of the oldest one that is settling or unknown; 0 if there is none
}

// CountOpenPayments counts the payments that are settling, unknown or undeliverable.
func (s *Store) CountOpenPayments(ctx context.Context) (_ *OpenCounts, err error) {
	defer wrapInto(&err, "count open payments")
	// Each condition has the exact text of the condition of a partial index, so that the planner can use the index.
	rows, err := query[struct {
		State string
		Count int64
		Age   time.Duration
	}](ctx, s, `
		SELECT state, count(*) AS count, now() - min(created_at) AS age FROM payments WHERE state IN ('settling', 'unknown') GROUP BY state
		UNION ALL SELECT state, count(*), interval '0' FROM payments WHERE state = 'undeliverable' GROUP BY state`, none)
	counts := &OpenCounts{ByState: map[string]int64{PaymentSettling: 0, PaymentUnknown: 0, PaymentUndeliverable: 0}}
	for _, row := range rows {
		counts.ByState[row.State] = row.Count
		counts.Oldest = max(counts.Oldest, row.Age)
	}
	return counts, err
}

// Unclear describes an attempt with an unknown outcome.
type Unclear struct {
	Reason string
	// Sent reports whether the facilitator may have received the attempt. Only then may a used nonce count as used by us.
	Sent bool
	// Transaction, if not empty, means that the money has moved. Only the delivery is missing.
	Transaction string
}

// PaymentUnclear releases a payment for a later attempt. The pause is half the age of the payment, at least one second
// and at most five minutes. It returns ErrStalePayment if another server has taken the payment.
func (s *Store) PaymentUnclear(ctx context.Context, payment *Payment, what Unclear) error {
	changes := map[string]any{
		"state": PaymentUnknown, "failure_reason": what.Reason, "owner": nil,
		"lease_until": gorm.Expr("now() + least(greatest((now() - created_at) / 2, interval '1 second'), interval '5 minutes')"),
	}
	if !what.Sent {
		changes["attempts"] = gorm.Expr("attempts - 1")
	}
	if what.Transaction != "" {
		changes["transaction"] = what.Transaction
	}
	return s.changePayment(ctx, payment.ID, changes, inHand, payment.Attempts)
}

// owed is true for payments that may still get their effect. A refunded payment is closed for good: a redemption that read it before the
// refund was recorded must not deliver it.
const owed = "state IN ('settling', 'undeliverable') AND failure_reason <> '" + Refunded + "'"

// inHand is true while the caller works on the payment and no other server has taken it.
const inHand = "state = 'settling' AND attempts = ?"

// PaymentFailed closes a payment that was rejected for good. It erases the payment identifier and the idempotency key, and releases the
// username that was claimed for the payment. It returns ErrStalePayment if another server has taken the payment; then
// the rejection is not final.
func (s *Store) PaymentFailed(ctx context.Context, payment *Payment, reason string) error {
	return s.closePayment(ctx, payment.ID, asFailed(reason), inHand, payment.Attempts)
}

func asFailed(reason string) map[string]any {
	return asClosed(PaymentFailed, map[string]any{"failure_reason": reason, "payment_identifier": nil, "idempotency_key": nil})
}

// PaymentUndeliverable records that the money was taken and the operation was refused afterwards. The payment may be
// redeemed with another request, so it releases its username.
func (s *Store) PaymentUndeliverable(ctx context.Context, id uuid.UUID, transaction, reason string) error {
	changes := asClosed(PaymentUndeliverable, map[string]any{"transaction": transaction, "failure_reason": reason})
	return s.closePayment(ctx, id, changes, owed)
}

// closePayment closes a payment that has no effect, and releases the username and the payment channel that were claimed
// for it. A payment that does not match the condition keeps its claims, because it may still be delivered.
func (s *Store) closePayment(ctx context.Context, id uuid.UUID, changes map[string]any, condition string, values ...any) error {
	return s.Transaction(ctx, func(tx *Tx) error { return tx.closePayment(ctx, id, changes, condition, values...) })
}

func (tx *Tx) closePayment(ctx context.Context, id uuid.UUID, changes map[string]any, condition string, values ...any) error {
	if err := tx.changePayment(ctx, id, changes, condition, values...); err != nil {
		return err
	}
	return tx.release(ctx, id)
}

// asClosed returns the changes for a payment that is closed. They erase the data that is no longer needed.
func asClosed(state string, changes map[string]any) map[string]any {
	all := map[string]any{"state": state, "request": nil, "payload": nil, "key_hash": nil, "owner": nil}
	maps.Copy(all, changes)
	return all
}

// Delivery holds the data that closes a delivered payment. State is that in which its call has the payment: undeliverable if it redeems
// it, else settling. Response is returned to a repeated request; nil if none is stored. Fingerprint is that of the delivered request.
type Delivery struct {
	Payment     uuid.UUID
	State       string
	Fingerprint []byte
	Transaction string
	Response    []byte
}

// AbandonSettlement deletes a payment that was begun and certainly not sent to the facilitator. It returns
// ErrStalePayment if another server has taken the payment.
func (s *Store) AbandonSettlement(ctx context.Context, payment *Payment) error {
	return s.Transaction(ctx, func(tx *Tx) error {
		taken, err := gorm.G[Payment](tx.db).Where("id = ? AND state = 'settling' AND attempts = 1 AND owner = ?", payment.ID,
			tx.owner).Delete(ctx)
		if err := changedOr(taken, err, "abandon payment", ErrStalePayment); err != nil {
			return err
		}
		return tx.release(ctx, payment.ID)
	})
}

// changePayment changes a payment if the condition holds. Otherwise it returns ErrStalePayment: the caller has a stale
// payment state.
func (r *Reader) changePayment(ctx context.Context, id uuid.UUID, changes map[string]any, condition string, values ...any) error {
	changes["updated_at"] = gorm.Expr("now()")
	moved := r.gorm(ctx, &Payment{}).Where("id = ?", id).Where(condition, values...).Updates(changes)
	return changedOr(moved.RowsAffected, moved.Error, "change payment", ErrStalePayment)
}

// release releases what was claimed for a payment that has no effect.
func (tx *Tx) release(ctx context.Context, payment uuid.UUID) error {
	if err := tx.releasePaymentChannel(ctx, payment); err != nil {
		return err
	}
	return tx.releaseUsername(ctx, payment)
}

// releaseUsername releases the username that was claimed for a payment: see ReserveRegistration.
func (tx *Tx) releaseUsername(ctx context.Context, payment uuid.UUID) error {
	_, err := exec(ctx, tx, `UPDATE registrations SET claimed_by = NULL WHERE claimed_by = @payment`, named{"payment": payment})
	return wrap("release username", err)
}
