package agent

import (
	"cmp"
	"context"
	"database/sql"
	"time"

	"github.com/parley-chat/parley/client"
)

const pollOperation = "listUnreadMessages"

// intent is what a call is for. It travels in the context of the call, from the agent to its ledger.
type intent struct {
	// ID is the payment identifier of the call.
	ID        string
	Operation string
	// Peer is the agent or the conversation that the call is about, for reports.
	Peer string
	// Request is the hash of the request.
	Request string
	// Since is when the same call of another command must have ended to be another call: the response to one that ended later is shared.
	Since time.Time
}

type intentKey struct{}

func withIntent(ctx context.Context, of intent) context.Context {
	return context.WithValue(client.WithIdentifier(ctx, of.ID), intentKey{}, of)
}

func intentOf(ctx context.Context) intent {
	of, _ := ctx.Value(intentKey{}).(intent)
	return of
}

// exempt returns why a payment does not count against the daily limit, or "": a leaked API key can always be replaced, and one account is
// paid in the life of a wallet, whatever the server denies, unless the limit is 0.
func (l *Ledger) exempt(ctx context.Context, tx *sql.Tx, of intent, today Day, r client.Reservation) (string, error) {
	switch {
	case of.Operation == operationRotateKey && r.Price <= DearPrice:
		return "key", nil
	case !isRegistration(of.Operation) || today.Limit == 0:
		return "", nil
	}
	sent, err := sentFor(ctx, tx, of.Operation)
	switch again := sent+r.Amount > r.Price; {
	case err != nil || again && of.Operation != operationCreateAccount:
		return "", err
	case again:
		return "", failf(ExitNoKey, codeAccount, "", "%s USD were sent for an account before, and the server may have taken them. If the "+
			"blockchain (--rpc-url) shows after some minutes that it did not, the same command goes on; or use another wallet", USD(sent))
	}
	return "account", nil
}

// sentFor returns what the payee can take, or has taken, for all calls of an operation. A payment counts although the server says that it
// did not take it, until the blockchain shows that.
func sentFor(ctx context.Context, from queryer, operation string) (uint64, error) {
	return value[uint64](ctx, from, "SELECT coalesce(sum(amount), 0) FROM payments WHERE operation = ? AND signed AND NOT released", operation)
}

// Reserve implements [client.Budget]. The error is a [*Failure] if the payment is not allowed.
func (l *Ledger) Reserve(ctx context.Context, r client.Reservation) error {
	of := intentOf(ctx)
	if r.Channel == "" {
		if err := l.checkMoney(ctx, r.Amount, r.Offer.Asset, r.Offer.Network); err != nil {
			return err
		}
	}
	return l.transact(ctx, func(tx *sql.Tx) error {
		// The payee takes a voucher that was not charged, or this one, which includes it. So its amount is that of this call from now on.
		reused, err := reuse(ctx, tx, r.Channel, r.Price-min(r.Amount, r.Price))
		if err != nil {
			return err
		}
		r.Amount += reused
		today, err := l.counted(ctx, tx)
		deposits, failed := l.deposits(ctx, tx, today.Limit)
		if err = cmp.Or(err, failed); err != nil {
			return err
		}
		exempt, err := l.exempt(ctx, tx, of, today, r)
		if err != nil {
			return err
		}
		if exempt == "" && r.Amount > today.Left() {
			return today.exceeded(r.Price)
		}
		if r.Deposit > deposits.Left() {
			return deposits.exceeded(r.Deposit)
		}
		return l.insertPayment(ctx, tx, of, exempt, r)
	})
}

// reuse counts less for calls that were not charged from a payment channel, at most by an amount, and returns by how much: first for those
// that were refused, then for open ones. It is less than the amount if the server charged a voucher and the payer does not know that yet.
// The server refuses the next voucher then, and what it can take is counted.
func reuse(ctx context.Context, tx *sql.Tx, channel string, amount uint64) (reused uint64, err error) {
	if amount == 0 {
		return 0, nil
	}
	const counted = "SELECT coalesce(sum(amount), 0) FROM payments WHERE channel = ?"
	before, err := value[uint64](ctx, tx, counted, channel)
	if err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, `
		UPDATE payments SET amount = amount - min(amount, ?2 - before) FROM (
			SELECT number AS reused, sum(amount) OVER (ORDER BY calls.signed IS NOT NULL, number DESC) - amount AS before
			FROM payments p JOIN calls ON calls.id = p.call WHERE channel = ?1 AND amount > 0 AND cost = 0 AND NOT released)
		WHERE number = reused AND before < ?2`, channel, amount); err != nil {
		return 0, err
	}
	after, err := value[uint64](ctx, tx, counted, channel)
	return before - after, err
}

// insertPayment counts a payment. Its time is never before the time of an earlier payment: a clock that went back counts payments longer.
func (l *Ledger) insertPayment(ctx context.Context, tx *sql.Tx, of intent, exempt string, r client.Reservation) error {
	at := l.now()
	last, err := value[int64](ctx, tx, "SELECT coalesce(max(at), 0) FROM payments WHERE at < ?", micros(at.Add(clockMargin)))
	if err != nil {
		return err
	}
	counts := max(last, micros(at))
	if _, err := tx.ExecContext(ctx, `
		INSERT INTO calls (id, at, operation, peer, request) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET at = excluded.at WHERE cost = 0`,
		r.ID, counts, of.Operation, of.Peer, of.Request); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
		INSERT INTO payments (at, call, operation, amount, deposit, channel, cumulative, network, asset, exempt)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		counts, r.ID, of.Operation, r.Amount, r.Deposit, r.Channel, r.Cumulative, r.Offer.Network, r.Offer.Asset, exempt)
	return err
}

// Release implements [client.Budget]. A payment that was sent stays counted until [Ledger.Settle] knows that it was not taken.
func (l *Ledger) Release(ctx context.Context, r client.Reservation, sent bool) {
	if sent {
		return
	}
	// If this fails, the payment stays counted. What it reused stays counted in any case: earlier vouchers allow it.
	_ = l.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE payments SET amount = amount - ?2, deposit = 0, released = (amount = ?2)
			WHERE number = (SELECT max(number) FROM payments WHERE call = ?1) AND NOT signed`, r.ID, r.Amount)
		if err == nil {
			_, err = tx.ExecContext(ctx, "UPDATE calls SET status = 0 WHERE id = ? AND status IS NULL AND signed IS NULL", r.ID)
		}
		return err
	})
}

// forgetUnsigned stops to count what the same call reserved in a process that died before it signed. What it reused stays counted, as in
// [Ledger.Release]: the amount above what was signed before is what it would have added.
func (l *Ledger) forgetUnsigned(ctx context.Context, request string) error {
	return l.exec(ctx, `
		UPDATE payments SET deposit = 0, released = (channel = ''), amount = max(0, amount - cumulative + (
			SELECT coalesce(max(cumulative), 0) FROM payments before
			WHERE before.channel = payments.channel AND before.number < payments.number AND before.signed))
		WHERE NOT signed AND call IN (SELECT id FROM calls WHERE request = ?1 AND status IS NULL AND signed IS NULL);
		UPDATE calls SET status = 0 WHERE request = ?1 AND status IS NULL AND signed IS NULL`, request)
}

// refusedPayment is an exact payment that the server refused and that still counts.
type refusedPayment struct {
	at, validBefore int64
	asset, nonce    string
}

// Settle looks up the payments that the server refused and that still count, also those after which the call was paid again. It stops to
// count those that can never be taken, and returns how many these are.
func (l *Ledger) Settle(ctx context.Context) (settled int, err error) {
	if l.chain == nil {
		return 0, ErrNoChain
	}
	refused, err := collect(ctx, l.db, func(row *sql.Rows, p *refusedPayment) error {
		return row.Scan(&p.at, &p.validBefore, &p.asset, &p.nonce)
	}, `SELECT p.at, p.valid_before, p.asset, p.nonce FROM payments p JOIN calls c ON c.id = p.call
		WHERE p.nonce <> '' AND NOT p.released AND p.at >= ? AND (
			c.status <> 200 AND c.charged = 0 OR EXISTS (SELECT 1 FROM payments later WHERE later.call = p.call AND later.number > p.number))
		ORDER BY p.number`, l.today())
	if err != nil {
		return 0, err
	}
	for _, p := range refused {
		state, err := l.chain.Authorization(ctx, p.asset, l.address, p.nonce, fromMicros(p.at))
		if err != nil {
			return settled, err
		}
		if state.Used || !state.Cancelled && state.ChainTime.Before(time.Unix(p.validBefore, 0)) {
			continue
		}
		if err := l.exec(ctx, "UPDATE payments SET released = 1 WHERE nonce = ?", p.nonce); err != nil {
			return settled, err
		}
		settled++
	}
	return settled, nil
}
