package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Caps bound what deferred settlement may lose, in atomic units.
type Caps struct {
	Call  uint64 // the dearest call that may be deferred
	Payer uint64 // what one payer may owe at a time
	Total uint64 // what all payers together may owe at a time
}

// deferredShards is how many rows of deferred_totals there are.
const deferredShards = 16

// shards is into how many parts the total cap is cut: each has room for a good many calls, or one part would be full
// while the others are empty. All calls must count with the same number, or the parts would not add up to the cap.
func (c Caps) shards() uint64 {
	return min(max(c.Total/(64*max(c.Call, 1)), 1), deferredShards)
}

// ErrOverCap means that a payment may not be deferred: a cap is reached, or the payer has defaulted. The transaction
// must be rolled back.
var ErrOverCap = errors.New("the payment may not be deferred")

// debt is a payment that is to be written as owed.
type debt struct {
	payment *Payment
	caps    Caps
}

// like tells whether both can be written by one statement.
func (d *debt) like(other *debt) bool {
	return d.caps == other.caps && d.payment.Network == other.payment.Network && d.payment.Asset == other.payment.Asset
}

// Owe writes a payment as owed with the answer that its repetition gets, when the transaction ends, which ends with
// ErrOverCap, or with ErrPaymentMoved if the authorization or its payment identifier is in the ledger already. Called last
// in the transaction that makes the effect. With a lease the caller settles it itself; without, whoever claims it.
func (s *Store) Owe(payment *Payment, caps Caps, lease time.Duration) error {
	if uint64(payment.Amount) > min(caps.Call, caps.Payer) { //nolint:gosec // an amount is not negative
		return ErrOverCap
	}
	now := time.Now()
	payment.State, payment.LeaseUntil, payment.CreatedAt, payment.UpdatedAt = PaymentOwed, now.Add(lease), now, now
	if lease > 0 {
		payment.Attempts, payment.Owner = 1, &s.owner
	}
	s.tx.debt = &debt{payment, caps}
	return nil
}

// shard puts what is owed into one part of the total, and returns the payments. All have the same caps.
func shard(debts []*debt) []*Payment {
	number := int16(rand.Uint64N(debts[0].caps.shards())) //nolint:gosec // spreads load; 0 to 15
	payments := make([]*Payment, len(debts))
	for i, debt := range debts {
		debt.payment.Shard = &number
		payments[i] = debt.payment
	}
	return payments
}

// holdCaps counts payments that were just written as owed, or fails. It is the last of a transaction, since the caps' rows
// stay locked until its end. The payments come before it: their foreign key waits for whoever is replacing a caller's API
// key, who may want the payer's row next.
func holdCaps(caps Caps, payments []*Payment) lastStatement {
	one := payments[0]
	// The second update waits for the first, so that all transactions lock in one order.
	return lastStatement{`
		WITH due AS (
			SELECT payer, CAST(sum(amount) AS bigint) AS amount FROM payments WHERE id = ANY ($3) GROUP BY payer
		), payer AS (
			INSERT INTO deferred_payers AS p (network, asset, payer, owed) SELECT $1, $2, payer, amount FROM due WHERE amount <= $4 ORDER BY payer
			ON CONFLICT (network, asset, payer) DO UPDATE SET owed = p.owed + excluded.owed
			WHERE p.defaulted = 0 AND p.owed + excluded.owed <= $4 RETURNING p.payer
		), counted AS (
			UPDATE deferred_totals t SET owed = t.owed + due.amount
			FROM (SELECT CAST(sum(amount) AS bigint) AS amount FROM due HAVING count(*) = (SELECT count(*) FROM payer)) due
			WHERE t.shard = $5 AND t.owed + due.amount <= $6 RETURNING t.shard
		)
		SELECT 1 / count(*) FROM counted`,
		[]any{one.Network, one.Asset, column(payments, func(p *Payment) [16]byte { return p.ID }), int64(caps.Payer), *one.Shard, int64(caps.Total / caps.shards())}, //nolint:gosec // far below
		func(err error) error {
			if hasCode(err, divisionByZero) {
				return ErrOverCap
			}
			return fmt.Errorf("hold the caps: %w", err)
		}}
}

// collected is an owed payment that has settled in a transaction.
type collected struct {
	owedClosing
	done chan error
}

// owedClosing is the end of an owed payment at the attempt that its row was claimed for. word is the transaction in which it
// has settled, or why it never will.
type owedClosing struct {
	id       uuid.UUID
	attempts int
	word     string
}

// PaymentCollected closes an owed payment that has settled, and takes it out of the caps: together with others that have,
// while one such commit is under way. ErrPaymentMoved if somebody else has taken it up meanwhile.
func (s *Store) PaymentCollected(payment *Payment, transaction string) error {
	one := &collected{owedClosing{payment.ID, payment.Attempts, transaction}, make(chan error, 1)}
	s.closings.add(one)
	return <-one.done
}

func (s *Store) closeCollected(all []*collected) {
	ctx, cancel := context.WithTimeout(context.Background(), sharedTimeout)
	defer cancel()
	endings := make([]owedClosing, len(all))
	for i, one := range all {
		endings[i] = one.owedClosing
	}
	closed, err := s.closeOwed(ctx, "state = 'delivered', transaction = was.word, failure_reason = ''", "greatest(p.defaulted - m.amount, 0)", endings)
	for _, one := range all {
		if err == nil && !slices.Contains(closed, one.id) {
			one.done <- ErrPaymentMoved
			continue
		}
		one.done <- err
	}
}

// PaymentDefaulted closes an owed payment that was refused for good, and takes it out of the caps. From now on the payer
// is served only after settlement, until it has paid as much again. ErrPaymentMoved if somebody else has taken it up
// meanwhile.
func (s *Store) PaymentDefaulted(ctx context.Context, payment *Payment, reason string) error {
	closed, err := s.closeOwed(ctx, "state = 'defaulted', failure_reason = was.word", "p.defaulted + m.amount", []owedClosing{{payment.ID, payment.Attempts, reason}})
	if err == nil && len(closed) == 0 {
		return ErrPaymentMoved
	}
	return err
}

// closeOwed closes owed payments, takes them out of the caps, and returns those that it closed: becomes is what a payment
// is then, defaulted what that makes of its payer. Rows are locked as in Owe, payers before totals, and each kind in one
// order, so that several servers may do so at once.
func (s *Store) closeOwed(ctx context.Context, becomes, defaulted string, all []owedClosing) ([]uuid.UUID, error) {
	ids, attempts, words := make([][16]byte, len(all)), make([]int32, len(all)), make([]string, len(all))
	for i, one := range all {
		ids[i], attempts[i], words[i] = one.id, int32(one.attempts), one.word //nolint:gosec // few
	}
	closed, err := find[uuid.UUID](ctx, s, `
		WITH was AS (
			SELECT p.*, c.word
			FROM unnest(CAST(@ids AS uuid[]), CAST(@attempts AS integer[]), CAST(@words AS text[])) AS c (id, attempts, word)
			JOIN payments p ON p.id = c.id AND p.attempts = c.attempts
			WHERE p.state = 'owed' ORDER BY p.id FOR UPDATE OF p
		), moved AS (
			UPDATE payments p SET `+becomes+`, shard = NULL, `+forget+` FROM was WHERE p.id = was.id RETURNING was.*
		), payers AS (
			SELECT p.network, p.asset, p.payer, m.amount
			FROM (SELECT network, asset, payer, sum(amount) AS amount FROM moved GROUP BY network, asset, payer) m JOIN deferred_payers p USING (network, asset, payer)
			ORDER BY p.payer FOR UPDATE OF p
		), paid AS (
			UPDATE deferred_payers p SET owed = p.owed - m.amount, defaulted = `+defaulted+` FROM payers m
			WHERE p.network = m.network AND p.asset = m.asset AND p.payer = m.payer RETURNING p.payer
		), shards AS (
			SELECT t.shard, m.amount
			FROM (SELECT shard, sum(amount) AS amount FROM moved WHERE (SELECT count(*) FROM paid) > 0 GROUP BY shard) m JOIN deferred_totals t USING (shard)
			ORDER BY t.shard FOR UPDATE OF t
		), counted AS (
			UPDATE deferred_totals t SET owed = t.owed - m.amount FROM shards m WHERE t.shard = m.shard
		)
		SELECT id FROM moved`, pgx.NamedArgs{"ids": ids, "attempts": attempts, "words": words})
	if err != nil {
		return nil, fmt.Errorf("close owed payments: %w", err)
	}
	return closed, nil
}
